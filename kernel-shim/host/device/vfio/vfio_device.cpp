// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/vfio/vfio_device.h"

#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "kernel-shim/host/device/vfio/vfio_dma.h"
#include "kernel-shim/host/device/vfio/vfio_group.h"

namespace softhca::shim {
namespace {

using runtime::Done;
using runtime::Result;
using runtime::system_error;

/// More are not asked for: the kernel reserves an interrupt of the machine for each.
constexpr std::uint32_t kMaxVectors = 32;

/// BAR 0, mapped. Registers are reached by loads and stores of the size that the driver asks for.
class RegisterWindow {
 public:
  RegisterWindow() = default;
  RegisterWindow(const RegisterWindow&) = delete;
  RegisterWindow& operator=(const RegisterWindow&) = delete;
  ~RegisterWindow() {
    if (base_ != nullptr) ::munmap(base_, size_);
  }

  bool map(int device, const vfio_region_info& region) {
    void* const base = ::mmap(nullptr, region.size, PROT_READ | PROT_WRITE, MAP_SHARED, device,
                              static_cast<off_t>(region.offset));
    if (base == MAP_FAILED) return false;
    base_ = static_cast<std::uint8_t*>(base);
    size_ = region.size;
    return true;
  }

  std::uint64_t size() const { return size_; }
  bool holds(std::uint64_t offset, std::uint64_t length) const {
    return offset <= size_ && length <= size_ - offset;
  }
  template <typename Word>
  Word load(std::uint64_t offset) const {
    return *reinterpret_cast<const volatile Word*>(base_ + offset);
  }
  template <typename Word>
  void store(std::uint64_t offset, const void* from) {
    Word word;
    std::memcpy(&word, from, sizeof(word));
    *reinterpret_cast<volatile Word*>(base_ + offset) = word;
  }

 private:
  std::uint8_t* base_ = nullptr;
  std::uint64_t size_ = 0;
};

class VfioDevice final : public PciDevice {
 public:
  VfioDevice(VfioHandles handles, VfioDma dma)
      : handles_(std::move(handles)), dma_(std::move(dma)) {}

  Result<Done> start(const std::string& address);

  int bar_read(std::uint64_t offset, std::span<std::byte> to) override {
    constexpr std::size_t kWord = sizeof(std::uint32_t);
    if (!registers_.holds(offset, to.size()) || (offset | to.size()) % kWord != 0) return EINVAL;
    for (std::size_t i = 0; i < to.size(); i += kWord) {
      const auto word = registers_.load<std::uint32_t>(offset + i);
      std::memcpy(to.data() + i, &word, kWord);
    }
    return 0;
  }

  int bar_write(std::uint64_t offset, std::span<const std::byte> from, bool posted) override {
    if (!registers_.holds(offset, from.size()) || from.empty() || offset % from.size() != 0) {
      return EINVAL;
    }
    // What the register tells of lies in memory: those stores come first.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (from.size() == sizeof(std::uint32_t)) {
      registers_.store<std::uint32_t>(offset, from.data());
    } else if (from.size() == sizeof(std::uint64_t)) {
      registers_.store<std::uint64_t>(offset, from.data());
    } else {
      return EINVAL;
    }
    // A load is not answered before the stores in front of it have arrived (PCI ordering rules).
    if (!posted) registers_.load<std::uint32_t>(0);
    return 0;
  }

  int dma_map(std::uint64_t iova, std::uint64_t size, int fd, std::uint64_t offset,
              bool writable) override {
    return dma_.map(iova, size, fd, offset, writable);
  }
  int dma_unmap(std::uint64_t iova, std::uint64_t size) override { return dma_.unmap(iova, size); }
  std::uint64_t iova_end() const override { return dma_.iova_end(); }
  bool needs_shared_memory() const override { return true; }

  int connect_interrupts(std::uint32_t start, std::span<const int> eventfds) override;
  int disconnect_interrupts() override;

  MappableArea bar_area(std::uint64_t offset, std::uint64_t length) override {
    if (!registers_.holds(offset, length)) return {};
    return {handles_.device.get(), bar_offset_ + offset, length};
  }
  /// Real devices know no hints: every doorbell is a store to a register.
  MappableArea hints_area() override { return {}; }
  int wake_fd() override { return -1; }

  int fd() override { return request_.get(); }
  int serve() override {
    std::uint64_t count = 0;
    return ::eventfd_read(request_.get(), &count) == 0 ? ENODEV : 0;
  }

 private:
  Result<vfio_region_info> region(std::uint32_t index) const;
  std::uint32_t irq_count(std::uint32_t index) const;
  int set_eventfds(std::uint32_t index, std::uint32_t start, std::span<const std::int32_t> fds);
  Result<Done> enable_bus_master();

  VfioHandles handles_;
  VfioDma dma_;
  RegisterWindow registers_;
  std::uint64_t bar_offset_ = 0;
  /// By MSI-X vector, borrowed; -1: not connected.
  std::vector<std::int32_t> vectors_;
  bool has_interrupts_ = false;
  /// The kernel writes it when it wants the device back (unbind, hot unplug).
  runtime::UniqueFd request_;
};

Result<vfio_region_info> VfioDevice::region(std::uint32_t index) const {
  vfio_region_info info{};
  info.argsz = sizeof(info);
  info.index = index;
  if (::ioctl(handles_.device.get(), VFIO_DEVICE_GET_REGION_INFO, &info) != 0) {
    return system_error(errno, "region " + std::to_string(index) + " of the device");
  }
  return info;
}

std::uint32_t VfioDevice::irq_count(std::uint32_t index) const {
  vfio_irq_info info{};
  info.argsz = sizeof(info);
  info.index = index;
  if (::ioctl(handles_.device.get(), VFIO_DEVICE_GET_IRQ_INFO, &info) != 0) return 0;
  return (info.flags & VFIO_IRQ_INFO_EVENTFD) != 0 ? info.count : 0;
}

int VfioDevice::set_eventfds(std::uint32_t index, std::uint32_t start,
                             std::span<const std::int32_t> fds) {
  vfio_irq_set head{};
  head.argsz = static_cast<std::uint32_t>(sizeof(head) + fds.size_bytes());
  head.flags =
      VFIO_IRQ_SET_ACTION_TRIGGER |
      static_cast<std::uint32_t>(fds.empty() ? VFIO_IRQ_SET_DATA_NONE : VFIO_IRQ_SET_DATA_EVENTFD);
  head.index = index;
  head.start = start;
  head.count = static_cast<std::uint32_t>(fds.size());
  std::vector<std::uint8_t> request(head.argsz);
  std::memcpy(request.data(), &head, sizeof(head));
  if (!fds.empty()) std::memcpy(request.data() + sizeof(head), fds.data(), fds.size_bytes());
  return ::ioctl(handles_.device.get(), VFIO_DEVICE_SET_IRQS, request.data()) == 0 ? 0 : errno;
}

/// The first connection switches MSI-X on with every vector that may be used: kernels before 6.5
/// add none later.
int VfioDevice::connect_interrupts(std::uint32_t start, std::span<const int> eventfds) {
  if (start > vectors_.size() || eventfds.size() > vectors_.size() - start) return EINVAL;
  std::copy(eventfds.begin(), eventfds.end(), vectors_.begin() + start);
  if (has_interrupts_) return set_eventfds(VFIO_PCI_MSIX_IRQ_INDEX, start, eventfds);
  const int error = set_eventfds(VFIO_PCI_MSIX_IRQ_INDEX, 0, vectors_);
  has_interrupts_ = error == 0;
  return error;
}

int VfioDevice::disconnect_interrupts() {
  if (!has_interrupts_) return 0;
  has_interrupts_ = false;
  std::fill(vectors_.begin(), vectors_.end(), -1);
  return set_eventfds(VFIO_PCI_MSIX_IRQ_INDEX, 0, {});
}

/// vfio-pci hands devices out with it off.
Result<Done> VfioDevice::enable_bus_master() {
  auto config = region(VFIO_PCI_CONFIG_REGION_INDEX);
  if (!config) return config.error();
  const auto at = static_cast<off_t>(config->offset + PCI_COMMAND);
  std::uint16_t command = 0;
  if (::pread(handles_.device.get(), &command, sizeof(command), at) == sizeof(command)) {
    command |= PCI_COMMAND_MASTER | PCI_COMMAND_MEMORY;
    if (::pwrite(handles_.device.get(), &command, sizeof(command), at) == sizeof(command)) {
      return Done{};
    }
  }
  return system_error(errno, "switching the device's bus mastering on");
}

Result<Done> VfioDevice::start(const std::string& address) {
  // Whoever had the device before may have left it in the middle of anything. One that cannot be
  // reset alone was reset by the kernel as far as that goes.
  if (::ioctl(handles_.device.get(), VFIO_DEVICE_RESET) != 0) {
    spdlog::debug("{} is not reset: {}", address, std::strerror(errno));
  }
  if (auto enabled = enable_bus_master(); !enabled) return enabled;
  auto bar = region(VFIO_PCI_BAR0_REGION_INDEX);
  if (!bar) return bar.error();
  if ((bar->flags & VFIO_REGION_INFO_FLAG_MMAP) == 0 || bar->size == 0) {
    return runtime::Error{ENOTSUP, "BAR 0 of " + address + " cannot be mapped"};
  }
  if (!registers_.map(handles_.device.get(), *bar)) {
    return system_error(errno, "mapping BAR 0 of " + address);
  }
  bar_offset_ = bar->offset;
  vectors_.assign(std::min(irq_count(VFIO_PCI_MSIX_IRQ_INDEX), kMaxVectors), -1);
  request_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!request_) return system_error(errno, "eventfd");
  if (irq_count(VFIO_PCI_REQ_IRQ_INDEX) != 0) {
    const std::int32_t fd = request_.get();
    if (const int error = set_eventfds(VFIO_PCI_REQ_IRQ_INDEX, 0, {&fd, 1})) {
      spdlog::warn("{}: the kernel cannot ask for the device: {}", address, std::strerror(error));
    }
  }
  return Done{};
}

}  // namespace

Result<std::unique_ptr<PciDevice>> open_vfio_device(const std::string& address) {
  auto handles = open_vfio(address);
  if (!handles) return handles.error();
  auto dma = VfioDma::open(handles->container.get());
  if (!dma) return dma.error();
  auto device = std::make_unique<VfioDevice>(std::move(*handles), std::move(*dma));
  if (auto started = device->start(address); !started) return started.error();
  return std::unique_ptr<PciDevice>(std::move(device));
}

}  // namespace softhca::shim
