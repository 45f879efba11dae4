// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/vfio_user_device.h"

#include <fcntl.h>
#include <linux/pci_regs.h>
#include <poll.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "emulator/vfio-user/client.h"
#include "hw-model/runtime/doorbell_hints.h"

namespace softhca::shim {
namespace {

constexpr std::uint32_t kIrqMsix = 2;

int error_code(const vfio_user::Status& status) {
  if (status) return 0;
  switch (status.error().kind) {
    case vfio_user::ErrorKind::timeout:
    case vfio_user::ErrorKind::disconnected:
    case vfio_user::ErrorKind::protocol:
      return ENODEV;
    case vfio_user::ErrorKind::argument:
      return EINVAL;
    case vfio_user::ErrorKind::system:
    case vfio_user::ErrorKind::refused:
      return status.error().code != 0 ? status.error().code : EIO;
  }
  return EIO;
}

class VfioUserDevice final : public PciDevice {
 public:
  VfioUserDevice(std::unique_ptr<vfio_user::Client> client, vfio_user::ClientRegion bar0,
                 vfio_user::ClientRegion hints, std::vector<vfio_user::ClientIoEventFd> wakes,
                 std::uint32_t num_vectors)
      : client_(std::move(client)),
        bar0_(std::move(bar0)),
        hints_(std::move(hints)),
        wakes_(std::move(wakes)),
        num_vectors_(num_vectors) {}

  int bar_read(std::uint64_t offset, std::span<std::byte> to) override {
    return error_code(client_->region_read(vfio_user::kRegionBar0, offset, to));
  }

  int bar_write(std::uint64_t offset, std::span<const std::byte> from, bool posted) override {
    return error_code(
        client_->region_write(vfio_user::kRegionBar0, offset, from,
                              posted ? vfio_user::Posting::posted : vfio_user::Posting::wait));
  }

  int dma_map(std::uint64_t iova, std::uint64_t size, int fd, std::uint64_t offset,
              bool writable) override {
    return error_code(client_->dma_map(iova, size, map_flags(writable), fd, offset));
  }

  int start_dma_map(std::uint64_t iova, std::uint64_t size, int fd, std::uint64_t offset,
                    bool writable) override {
    return error_code(client_->start_dma_map(iova, size, map_flags(writable), fd, offset));
  }

  bool await_maps() override { return client_->await_started().ok(); }
  int settle() override { return error_code(client_->settle()); }
  bool is_unsettled() const override { return client_->has_started(); }

  int dma_unmap(std::uint64_t iova, std::uint64_t size) override {
    return error_code(client_->dma_unmap(iova, size));
  }

  int connect_interrupts(std::uint32_t start, std::span<const int> eventfds) override {
    if (start + eventfds.size() > num_vectors_) return EINVAL;
    return error_code(client_->set_irq_eventfds(kIrqMsix, start, eventfds));
  }

  int disconnect_interrupts() override { return error_code(client_->disable_irqs(kIrqMsix)); }

  MappableArea bar_area(std::uint64_t offset, std::uint64_t length) override {
    return area(bar0_, offset, length);
  }

  MappableArea hints_area() override { return area(hints_, 0, kDoorbellHintsSize); }

  int wake_fd() override { return wakes_.empty() ? -1 : wakes_.front().fd.get(); }

  int fd() override { return client_->fd(); }
  int serve() override { return error_code(client_->serve()); }

 private:
  static std::uint32_t map_flags(bool writable) {
    return vfio_user::kDmaRead | (writable ? vfio_user::kDmaWrite : std::uint32_t{0});
  }

  static MappableArea area(const vfio_user::ClientRegion& region, std::uint64_t offset,
                           std::uint64_t length) {
    if (!region.fd || (region.flags & vfio_user::kRegionMmap) == 0) return {};
    for (const vfio_user::MmapArea& part : region.mmap_areas) {
      if (offset >= part.offset && offset - part.offset <= part.size &&
          length <= part.size - (offset - part.offset)) {
        return {region.fd.get(), region.fd_offset + offset, length};
      }
    }
    return {};
  }

  std::unique_ptr<vfio_user::Client> client_;
  vfio_user::ClientRegion bar0_;
  vfio_user::ClientRegion hints_;
  std::vector<vfio_user::ClientIoEventFd> wakes_;
  std::uint32_t num_vectors_;
};

runtime::Error converted(const std::string& what, const vfio_user::Error& error) {
  return {error.code != 0 ? error.code : EIO, what + ": " + error.message};
}

/// As after any reset it is off: until then the device reads and writes no memory.
vfio_user::Status enable_bus_master(vfio_user::Client& client) {
  std::array<std::byte, 2> command{};
  if (auto read = client.region_read(vfio_user::kRegionConfig, PCI_COMMAND, command); !read) {
    return read;
  }
  command[0] |= std::byte{PCI_COMMAND_MASTER | PCI_COMMAND_MEMORY};
  return client.region_write(vfio_user::kRegionConfig, PCI_COMMAND, command,
                             vfio_user::Posting::wait);
}

}  // namespace

runtime::Result<std::unique_ptr<PciDevice>> connect_vfio_user_device(
    const std::string& socket_path) {
  auto client = vfio_user::Client::connect(socket_path);
  if (!client) return converted("device socket " + socket_path, client.error());
  const auto info = (*client)->device_info();
  if (!info) return converted("device information", info.error());
  auto bar0 = (*client)->region_info(vfio_user::kRegionBar0);
  if (!bar0) return converted("BAR 0", bar0.error());
  const auto msix = (*client)->irq_info(kIrqMsix);
  if (!msix) return converted("MSI-X", msix.error());
  if (const auto enabled = enable_bus_master(**client); !enabled) {
    return converted("bus mastering", enabled.error());
  }

  // Doorbell hints are an extension: a device without them works too.
  vfio_user::ClientRegion hints;
  std::vector<vfio_user::ClientIoEventFd> wakes;
  if (info->num_regions > kDoorbellHintsRegionIndex) {
    if (auto found = (*client)->region_info(kDoorbellHintsRegionIndex)) hints = std::move(*found);
    if (auto found = (*client)->region_io_fds(kDoorbellHintsRegionIndex)) wakes = std::move(*found);
  }
  return std::unique_ptr<PciDevice>(new VfioUserDevice(
      std::move(*client), std::move(*bar0), std::move(hints), std::move(wakes), msix->count));
}

}  // namespace softhca::shim
