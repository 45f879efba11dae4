// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <new>

#include "provider/context.h"
#include "provider/registration.h"

namespace softhca::provider {
namespace {

constexpr std::uint16_t kVendor = 0x15b3;

constexpr abi::verbs_match_ent pci(std::uint16_t device) {
  abi::verbs_match_ent entry{};
  entry.vendor = kVendor;
  entry.device = device;
  entry.kind = abi::kMatchPci;
  return entry;
}
constexpr abi::verbs_match_ent driver(std::uint64_t id) {
  abi::verbs_match_ent entry{};
  entry.u.driver_id = id;
  entry.kind = abi::kMatchDriverId;
  return entry;
}

/// Devices that the mlx5 driver serves: Connect-IB, ConnectX-4 to ConnectX-8 and BlueField, each
/// physical function followed by its virtual one where that has a number of its own.
constexpr abi::verbs_match_ent kDevices[] = {
    driver(RDMA_DRIVER_MLX5),
    pci(0x1011),
    pci(0x1012),
    pci(0x1013),
    pci(0x1014),
    pci(0x1015),
    pci(0x1016),
    pci(0x1017),
    pci(0x1018),
    pci(0x1019),
    pci(0x101a),
    pci(0x101b),
    pci(0x101c),
    pci(0x101d),
    pci(0x101e),
    pci(0x101f),
    pci(0x1021),
    pci(0x1023),
    pci(0x1025),
    pci(0xa2d2),
    pci(0xa2d3),
    pci(0xa2d6),
    pci(0xa2dc),
    pci(0xa2df),
    abi::verbs_match_ent{},
};

abi::verbs_device* alloc_device(abi::verbs_sysfs_dev*) {
  return new (std::nothrow) abi::verbs_device{};
}
void uninit_device(abi::verbs_device* device) {
  delete device;
}

}  // namespace

const abi::verbs_device_ops kDeviceOps = {
    .name = "softhca",
    .match_min_abi_version = 1,
    .match_max_abi_version = 1,
    .match_table = kDevices,
    .static_providers = nullptr,
    .match_device = nullptr,
    .alloc_context = open_context,
    .import_context = import_context,
    .alloc_device = alloc_device,
    .uninit_device = uninit_device,
};

}  // namespace softhca::provider

extern "C" {
/// Tells tests and tools which provider an address belongs to (dladdr, dlsym).
__attribute__((visibility("default"))) extern const char softhca_provider_version[];
const char softhca_provider_version[] = "softhca provider 0.1.0";
}
