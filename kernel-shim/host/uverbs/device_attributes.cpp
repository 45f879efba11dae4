// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/uverbs/device_attributes.h"

#include <endian.h>

#include <algorithm>
#include <climits>

namespace softhca::shim {
namespace {

using prm::HcaCap;

constexpr std::uint32_t kCtrlSegment = 16;
constexpr std::uint32_t kRemoteAddressSegment = 16;
constexpr std::uint32_t kDataSegment = 16;
/// Scatter entries of one READ (mlx5_ib.h, MLX5_MAX_SGE_RD).
constexpr std::uint32_t kMaxReadSge = (512 - kCtrlSegment - kRemoteAddressSegment) / kDataSegment;
constexpr std::uint32_t kPciDevice = 0x1019;
constexpr std::uint8_t kLinkLayerInfiniband = 1;
constexpr std::uint32_t kAtomicOperations = 3;  // Compare and swap, fetch and add.
constexpr std::uint32_t kAtomicSize8 = 1U << 3;
constexpr std::uint32_t kAtomicHca = 1;  // enum ib_atomic_cap, IB_ATOMIC_HCA.
constexpr std::uint32_t kMaxModeratedCqes = 0xffff;
constexpr std::uint32_t kMaxModerationPeriod = 0xfff;
constexpr std::uint32_t kCacheLine = 64;
constexpr std::uint32_t kPortCapMask2 = 1U << 15;  // IB_PORT_CAP_MASK2_SUP.

template <typename Field>
std::uint32_t power(const Hca& hca) {
  return 1U << std::min(hca.cap<Field>(), 31U);
}

std::uint32_t capability_flags(const Hca& hca, const Offers& offers) {
  std::uint32_t flags = IB_UVERBS_DEVICE_CHANGE_PHY_PORT | IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT |
                        IB_UVERBS_DEVICE_SYS_IMAGE_GUID | IB_UVERBS_DEVICE_RC_RNR_NAK_GEN;
  if (hca.cap<HcaCap::pkv>() != 0) flags |= IB_UVERBS_DEVICE_BAD_PKEY_CNTR;
  if (hca.cap<HcaCap::qkv>() != 0) flags |= IB_UVERBS_DEVICE_BAD_QKEY_CNTR;
  if (hca.cap<HcaCap::apm>() != 0) flags |= IB_UVERBS_DEVICE_AUTO_PATH_MIG;
  if (offers.xrc && hca.cap<HcaCap::xrc>() != 0) flags |= IB_UVERBS_DEVICE_XRC;
  if (offers.windows && hca.cap<HcaCap::imaicl>() != 0) {
    flags |= IB_UVERBS_DEVICE_MEM_WINDOW | IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B;
  }
  if (offers.windows && hca.cap<HcaCap::umr_modify_entity_size_disabled>() == 0) {
    flags |= IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS;
  }
  return flags;
}

bool has_atomics(const Hca& hca) {
  return (hca.atomic_cap<prm::AtomicCaps::atomic_operations>() & kAtomicOperations) ==
             kAtomicOperations &&
         (hca.atomic_cap<prm::AtomicCaps::atomic_size_qp>() & kAtomicSize8) != 0 &&
         hca.atomic_cap<prm::AtomicCaps::atomic_req_8B_endianness_mode>() != 0;
}

}  // namespace

ib_uverbs_query_device_resp device_attributes(IbDevice& device) {
  const Hca& hca = device.hca();
  const std::uint32_t receive_sges = hca.cap<HcaCap::max_wqe_sz_rq>() / kDataSegment;
  const std::uint32_t send_bytes = std::min(hca.cap<HcaCap::max_wqe_sz_sq>(), 512U);
  const std::uint32_t send_sges =
      send_bytes > kCtrlSegment + kRemoteAddressSegment
          ? (send_bytes - kCtrlSegment - kRemoteAddressSegment) / kDataSegment
          : 0;
  ib_uverbs_query_device_resp r{};
  r.fw_ver =
      static_cast<std::uint64_t>(hca.fw_major()) << 32 | hca.fw_minor() << 16 | hca.fw_subminor();
  r.node_guid = htobe64(device.port().node_guid);
  r.sys_image_guid = htobe64(device.port().system_image_guid);
  r.max_mr_size = ~0ULL;
  r.page_size_cap = ~((1ULL << hca.cap<HcaCap::log_pg_sz>()) - 1);
  r.vendor_id = hca.vendor_id();
  r.vendor_part_id = kPciDevice;
  r.max_qp = power<HcaCap::log_max_qp>(hca);
  r.max_qp_wr = power<HcaCap::log_max_qp_sz>(hca);
  r.device_cap_flags = capability_flags(hca, device.offers());
  r.max_sge = std::min(send_sges, receive_sges);
  r.max_sge_rd = kMaxReadSge;
  r.max_cq = power<HcaCap::log_max_cq>(hca);
  r.max_cqe = power<HcaCap::log_max_cq_sz>(hca) - 1;
  r.max_mr = power<HcaCap::log_max_mkey>(hca);
  r.max_pd = power<HcaCap::log_max_pd>(hca);
  r.max_qp_rd_atom = power<HcaCap::log_max_ra_req_qp>(hca);
  r.max_qp_init_rd_atom = power<HcaCap::log_max_ra_res_qp>(hca);
  r.max_res_rd_atom = r.max_qp_rd_atom * r.max_qp;
  r.atomic_cap = has_atomics(hca) ? kAtomicHca : 0;
  const bool windows = device.offers().windows && hca.cap<HcaCap::imaicl>() != 0;
  r.max_mw = windows ? power<HcaCap::log_max_mkey>(hca) : 0;
  r.max_mcast_grp = power<HcaCap::log_max_mcg>(hca);
  r.max_mcast_qp_attach = hca.cap<HcaCap::max_qp_mcg>();
  r.max_total_mcast_qp_attach = r.max_mcast_qp_attach * r.max_mcast_grp;
  r.max_ah = INT_MAX;
  r.max_srq = power<HcaCap::log_max_srq>(hca);
  r.max_srq_wr = power<HcaCap::log_max_srq_sz>(hca) - 1;
  r.max_srq_sge = receive_sges == 0 ? 0 : receive_sges - 1;
  r.max_pkeys = static_cast<std::uint16_t>(device.pkeys().size());
  r.local_ca_ack_delay = static_cast<std::uint8_t>(hca.cap<HcaCap::local_ca_ack_delay>());
  r.phys_port_cnt = 1;
  return r;
}

ib_uverbs_ex_query_device_resp extended_device_attributes(IbDevice& device) {
  const Hca& hca = device.hca();
  ib_uverbs_ex_query_device_resp r{};
  r.base = device_attributes(device);
  r.timestamp_mask = 0x7fffffffffffffffULL;
  r.hca_core_clock = hca.cap<HcaCap::device_frequency_khz>();
  r.device_cap_flags_ex = r.base.device_cap_flags;
  if (hca.cap<HcaCap::end_pad>() != 0) {
    r.device_cap_flags_ex |= IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING;
  }
  if (hca.cap<HcaCap::cq_moderation>() != 0) {
    r.cq_moderation_caps.max_cq_moderation_count = kMaxModeratedCqes;
    r.cq_moderation_caps.max_cq_moderation_period = kMaxModerationPeriod;
  }
  return r;
}

mlx5_ib_alloc_ucontext_resp ucontext_response(Context& context) {
  const Hca& hca = context.hca();
  mlx5_ib_alloc_ucontext_resp r{};
  r.qp_tab_size = power<HcaCap::log_max_qp>(hca);
  // The library writes eight-byte doorbells only, no BlueFlame copies: the doorbell pages of a
  // virtual host are memory, where nobody waits for the rest of a copy.
  r.bf_reg_size = 0;
  r.tot_bfregs = 0;
  r.cache_line_size = kCacheLine;
  r.max_sq_desc_sz = static_cast<std::uint16_t>(hca.cap<HcaCap::max_wqe_sz_sq>());
  r.max_rq_desc_sz = static_cast<std::uint16_t>(hca.cap<HcaCap::max_wqe_sz_rq>());
  r.max_send_wqebb = power<HcaCap::log_max_qp_sz>(hca);
  r.max_recv_wr = power<HcaCap::log_max_qp_sz>(hca);
  r.max_srq_recv_wr = power<HcaCap::log_max_srq_sz>(hca);
  r.num_ports = 1;
  r.cqe_version = context.cqe_version;
  r.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE | MLX5_USER_CMDS_SUPP_UHW_CREATE_AH;
  r.log_uar_size = 12;
  r.num_uars_per_page = 1;
  r.num_dyn_bfregs = 512;
  if (context.device().clock_info_fd() >= 0) r.clock_info_versions = 1U << MLX5_IB_CLOCK_INFO_V1;
  return r;
}

int port_attributes(IbDevice& device, std::uint32_t port, ib_uverbs_query_port_resp_ex& response) {
  if (port != IbDevice::kPort) return EINVAL;
  PortState state;
  if (const int error = query_port_state(device.commands(), IbDevice::kPort, state)) return error;
  ib_uverbs_query_port_resp& r = response.legacy_resp;
  r.port_cap_flags = state.capability_mask;
  r.max_msg_sz = power<HcaCap::log_max_msg>(device.hca());
  r.bad_pkey_cntr = state.bad_pkey_counter;
  r.qkey_viol_cntr = state.qkey_violation_counter;
  r.gid_tbl_len = static_cast<std::uint32_t>(device.gids().size());
  r.pkey_tbl_len = static_cast<std::uint16_t>(device.pkeys().size());
  r.lid = state.lid;
  r.sm_lid = state.sm_lid;
  r.state = state.state;
  r.max_mtu = state.max_mtu;
  r.active_mtu = state.active_mtu;
  r.lmc = state.lmc;
  r.max_vl_num = state.max_vls;
  r.sm_sl = state.sm_sl;
  r.subnet_timeout = state.subnet_timeout;
  r.init_type_reply = state.init_type_reply;
  r.active_width = state.active_width;
  r.active_speed = static_cast<std::uint8_t>(state.active_speed);
  r.phys_state = state.phys_state;
  r.link_layer = kLinkLayerInfiniband;
  if ((state.capability_mask & kPortCapMask2) != 0) {
    response.port_cap_flags2 = state.capability_mask2;
  }
  return 0;
}

}  // namespace softhca::shim
