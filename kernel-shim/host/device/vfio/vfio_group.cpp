// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/vfio/vfio_group.h"

#include <fcntl.h>
#include <linux/vfio.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

namespace softhca::shim {
namespace {

namespace fs = std::filesystem;
using runtime::Done;
using runtime::Error;
using runtime::Result;

constexpr char kContainerFile[] = "/dev/vfio/vfio";
constexpr char kDriver[] = "vfio-pci";
/// NVIDIA (Mellanox).
constexpr char kVendor[] = "0x15b3";

/// Name of what a link of sysfs points to; empty if it is not there.
std::string link_name(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error ? std::string() : target.filename().string();
}

std::string first_word(const fs::path& file) {
  std::ifstream stream(file);
  std::string word;
  stream >> word;
  return word;
}

/// Number of the IOMMU group of a function that may be opened.
Result<std::string> find_group(const std::string& address) {
  const fs::path device = fs::path("/sys/bus/pci/devices") / address;
  std::error_code ignored;
  if (!fs::exists(device, ignored)) {
    return Error{ENODEV, "there is no PCI device " + address + " (lspci -D lists them)"};
  }
  if (first_word(device / "vendor") != kVendor) {
    return Error{ENODEV, "PCI device " + address + " is no ConnectX: its vendor is not " + kVendor};
  }
  const std::string driver = link_name(device / "driver");
  if (driver != kDriver) {
    return Error{EBUSY, "PCI device " + address + " is bound to " +
                            (driver.empty() ? "no driver" : "the driver " + driver) +
                            ", not to vfio-pci: bind it first (docs/vm.md says how)"};
  }
  const std::string group = link_name(device / "iommu_group");
  if (group.empty()) {
    return Error{ENODEV, "PCI device " + address +
                             " is in no IOMMU group: this machine has no IOMMU, or it is off"};
  }
  return group;
}

Error cannot_open(const std::string& file, int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return {error, "no permission to open " + file + ": its owner may be changed to your user"};
    case EBUSY:
      return {error, file + " is in use by another process"};
    default:
      return runtime::system_error(error, "opening " + file);
  }
}

Result<Done> open_container(VfioHandles& handles) {
  handles.container.reset(::open(kContainerFile, O_RDWR | O_CLOEXEC));
  if (!handles.container) return cannot_open(kContainerFile, errno);
  const int container = handles.container.get();
  if (::ioctl(container, VFIO_GET_API_VERSION) != VFIO_API_VERSION ||
      ::ioctl(container, VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) <= 0) {
    return Error{EPROTO, "the kernel's VFIO offers no type 1 version 2 IOMMU"};
  }
  return Done{};
}

Result<Done> open_group(const std::string& number, VfioHandles& handles) {
  const std::string file = "/dev/vfio/" + number;
  handles.group.reset(::open(file.c_str(), O_RDWR | O_CLOEXEC));
  if (!handles.group) return cannot_open(file, errno);
  vfio_group_status status{};
  status.argsz = sizeof(status);
  if (::ioctl(handles.group.get(), VFIO_GROUP_GET_STATUS, &status) != 0) {
    return runtime::system_error(errno, "status of IOMMU group " + number);
  }
  if ((status.flags & VFIO_GROUP_FLAGS_VIABLE) == 0) {
    return Error{EBUSY, "IOMMU group " + number +
                            " has other devices that drivers of the kernel use: bind them to "
                            "vfio-pci, too"};
  }
  int container = handles.container.get();
  if (::ioctl(handles.group.get(), VFIO_GROUP_SET_CONTAINER, &container) != 0 ||
      ::ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) != 0) {
    return runtime::system_error(errno, "IOMMU of group " + number);
  }
  return Done{};
}

}  // namespace

Result<VfioHandles> open_vfio(const std::string& address) {
  auto group = find_group(address);
  if (!group) return group.error();
  VfioHandles handles;
  if (auto opened = open_container(handles); !opened) return opened.error();
  if (auto opened = open_group(*group, handles); !opened) return opened.error();
  handles.device.reset(::ioctl(handles.group.get(), VFIO_GROUP_GET_DEVICE_FD, address.c_str()));
  if (!handles.device) return runtime::system_error(errno, "opening PCI device " + address);
  return handles;
}

}  // namespace softhca::shim
