// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <cstdio>
#include <new>
#include <string>

#include "provider/abi/commands.h"
#include "provider/abi/version.h"
#include "provider/address_handle.h"
#include "provider/context.h"
#include "provider/cq.h"
#include "provider/domains.h"
#include "provider/memory_regions.h"
#include "provider/qp.h"
#include "provider/queries.h"
#include "provider/srq.h"
#include "provider/xrc_domain.h"

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

int attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return abi::ibv_cmd_attach_mcast(qp, gid, lid);
}
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return abi::ibv_cmd_detach_mcast(qp, gid, lid);
}

abi::verbs_context_ops make_ops() {
  abi::verbs_context_ops ops{};
  ops.advise_mr = advise_mr;
  ops.alloc_mw = alloc_mw;
  ops.alloc_parent_domain = alloc_parent_domain;
  ops.alloc_pd = alloc_pd;
  ops.alloc_td = alloc_td;
  ops.attach_mcast = attach_mcast;
  ops.bind_mw = bind_mw;
  ops.close_xrcd = close_xrcd;
  ops.cq_event = cq_event;
  ops.create_ah = create_ah;
  ops.create_cq = create_cq;
  ops.create_cq_ex = create_cq_ex;
  ops.create_qp = create_qp;
  ops.create_qp_ex = create_qp_ex;
  ops.create_srq = create_srq;
  ops.create_srq_ex = create_srq_ex;
  ops.dealloc_mw = dealloc_mw;
  ops.dealloc_pd = dealloc_pd;
  ops.dealloc_td = dealloc_td;
  ops.dereg_mr = dereg_mr;
  ops.destroy_ah = destroy_ah;
  ops.destroy_cq = destroy_cq;
  ops.destroy_qp = destroy_qp;
  ops.destroy_srq = destroy_srq;
  ops.detach_mcast = detach_mcast;
  ops.free_context = free_context;
  ops.get_srq_num = get_srq_num;
  ops.import_mr = import_mr;
  ops.modify_cq = modify_cq;
  ops.modify_qp = modify_qp;
  ops.modify_srq = modify_srq;
  ops.open_qp = open_qp;
  ops.open_xrcd = open_xrcd;
  ops.poll_cq = poll_cq;
  ops.post_recv = post_recv;
  ops.post_send = post_send;
  ops.post_srq_recv = post_srq_recv;
  ops.query_device_ex = query_device_ex;
  ops.query_port = query_port;
  ops.query_qp = query_qp;
  ops.query_rt_values = query_rt_values;
  ops.query_srq = query_srq;
  ops.reg_dmabuf_mr = reg_dmabuf_mr;
  ops.reg_mr = reg_mr;
  ops.req_notify_cq = req_notify_cq;
  ops.rereg_mr = rereg_mr;
  ops.resize_cq = resize_cq;
  ops.unimport_mr = unimport_mr;
  return ops;
}

const abi::verbs_device_ops kDeviceOps = {
    .name = "softhca",
    .match_min_abi_version = 1,
    .match_max_abi_version = 1,
    .match_table = kDevices,
    .static_providers = nullptr,
    .match_device = nullptr,
    .alloc_context = open_context,
    .import_context = nullptr,
    .alloc_device = alloc_device,
    .uninit_device = uninit_device,
};

/// Offers the provider to the library that is loading it, if its ABI is one that we know.
__attribute__((constructor)) void register_provider() {
  std::string reason;
  const std::optional<abi::Version> version = abi::identify(abi::loaded_library(), reason);
  if (!version.has_value()) {
    std::fprintf(stderr, "softhca provider: not loaded: %s\n", reason.c_str());
    return;
  }
  abi::set_current(*version);
  abi::verbs_register_driver_34(&kDeviceOps);
}

}  // namespace

const abi::verbs_context_ops kContextOps = make_ops();

}  // namespace softhca::provider

extern "C" {
/// Tells tests and tools which provider an address belongs to (dladdr, dlsym).
__attribute__((visibility("default"))) extern const char softhca_provider_version[];
const char softhca_provider_version[] = "softhca provider 0.1.0";
}
