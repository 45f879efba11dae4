// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/stress/remote_hca.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "hw-model/device/config_space.h"
#include "hw-model/prm/big_endian.h"
#include "hw-model/prm/uar.h"

namespace softhca::test {
namespace {

using vfio_user::kRegionBar0;

template <typename Outcome>
void expect(const Outcome& outcome, const char* what) {
  if (!outcome) throw std::runtime_error(std::string(what) + ": " + outcome.error().message);
}

std::byte* map(int fd, std::uint64_t offset, std::uint64_t size) {
  void* base =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (base == MAP_FAILED) throw std::runtime_error("mmap");
  return static_cast<std::byte*>(base);
}

std::uint32_t load_be32(const std::byte* from) {
  return static_cast<std::uint32_t>(
      prm::Field<0, 32>::get(reinterpret_cast<const std::uint8_t*>(from)));
}

}  // namespace

RemoteHca::RemoteHca(Doorbells mode, std::uint64_t memory_size, unsigned vectors)
    : device_(engine_.attach("alpha", mode == Doorbells::mapped)), driver_(*this, memory_size, [] {
        std::this_thread::sleep_for(std::chrono::microseconds(500));
      }) {
  std::vector<int> eventfds;
  for (unsigned vector = 0; vector < vectors; ++vector) {
    interrupts_.emplace_back(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    eventfds.push_back(interrupts_.back().get());
  }
  expect(device_->set_irq_eventfds(vfio_user::kIrqMsix, 0, eventfds), "interrupts");
  const GuestMemory& memory = driver_.memory();
  expect(device_->dma_map(memory.iova(), memory.size(), vfio_user::kDmaRead | vfio_user::kDmaWrite,
                          memory.fd(), 0),
         "memory");
  if (mode == Doorbells::mapped) map_uars();
  if (mode == Doorbells::hinted) map_hints();
  driver_.bring_up();
  lid_ = wait_for_lid();
}

RemoteHca::~RemoteHca() {
  if (uars_ != nullptr) ::munmap(uars_, uars_size_);
  if (hints_ != nullptr) ::munmap(hints_, kDoorbellHintsSize);
}

void RemoteHca::map_uars() {
  const auto bar = device_->region_info(kRegionBar0);
  expect(bar, "BAR0");
  const auto& area = bar->mmap_areas.at(0);
  uars_start_ = area.offset;
  uars_size_ = area.size;
  uars_ = map(bar->fd.get(), bar->fd_offset + area.offset, area.size);
}

void RemoteHca::map_hints() {
  const auto region = device_->region_info(kDoorbellHintsRegionIndex);
  expect(region, "hints");
  hints_ = reinterpret_cast<DoorbellHints*>(
      map(region->fd.get(), region->fd_offset, kDoorbellHintsSize));
  auto fds = device_->region_io_fds(kDoorbellHintsRegionIndex);
  expect(fds, "the hints' eventfd");
  wake_ = std::move(fds->at(0).fd);
}

std::uint16_t RemoteHca::wait_for_lid() {
  for (int i = 0; i < 1000; ++i) {
    const nlohmann::json port = RunningEngine::tell({{"command", "status"}})["hosts"][0]["port"];
    if (port["state"] == "ACTIVE") return port["lid"];
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  throw std::runtime_error("the port does not become active");
}

void RemoteHca::read(std::uint64_t offset, std::span<std::byte> to) {
  expect(device_->region_read(kRegionBar0, offset, to), "register");
}

void RemoteHca::enable_bus_master() {
  constexpr std::array<std::byte, 2> kMemoryAndBusMaster{std::byte{6}, std::byte{0}};
  expect(device_->region_write(vfio_user::kRegionConfig, ConfigSpace::kCommand, kMemoryAndBusMaster,
                               vfio_user::Posting::wait),
         "bus mastering");
}

void RemoteHca::write(std::uint64_t offset, std::span<const std::byte> from) {
  if (uars_ != nullptr && offset >= uars_start_ && offset - uars_start_ < uars_size_) {
    std::byte* to = uars_ + (offset - uars_start_);
    if (from.size() == 8) {
      std::uint64_t value = 0;
      std::memcpy(&value, from.data(), sizeof value);
      __atomic_store_n(reinterpret_cast<std::uint64_t*>(to), value, __ATOMIC_RELEASE);
    } else {
      std::uint32_t value = 0;
      std::memcpy(&value, from.data(), sizeof value);
      __atomic_store_n(reinterpret_cast<std::uint32_t*>(to), value, __ATOMIC_RELEASE);
    }
    return;
  }
  if (hints_ != nullptr && offset >= Function::kFirstUar * prm::kUarPageSize &&
      mark(offset % prm::kUarPageSize, from)) {
    return;
  }
  expect(device_->region_write(kRegionBar0, offset, from, vfio_user::Posting::posted), "register");
}

/// False for what hints do not cover.
bool RemoteHca::mark(std::uint64_t offset, std::span<const std::byte> from) {
  if (offset == prm::Uar::cq_arm) {
    hints_->cq_arm.mark(load_be32(from.data() + 4) & 0xffffff);
  } else if (offset >= prm::Uar::blue_flame) {
    const auto place = hints_->sq.place_of(load_be32(from.data() + 4) >> 8);
    if (hints_->watched == place.field) ++watched_rings_;
    hints_->ring_sq(place);
  } else {
    return false;
  }
  const std::uint64_t one = 1;
  if (hints_->must_wake() && ::write(wake_.get(), &one, sizeof one) != sizeof one) {
    throw std::runtime_error("the engine cannot be woken");
  }
  return true;
}

}  // namespace softhca::test
