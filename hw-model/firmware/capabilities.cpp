// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/capabilities.h"

#include "hw-model/memory/mkey_table.h"

namespace softhca {
namespace {

using prm::AtomicCaps;
using prm::HcaCap;
using prm::HcaCapType;

/// Copies one field if the driver's value is within the maximum.
template <typename Choice>
bool choose(std::uint8_t* current, const std::uint8_t* maximum, const std::uint8_t* wanted) {
  const std::uint64_t value = Choice::get(wanted);
  if (value > Choice::get(maximum)) return false;
  Choice::set(current, value);
  return true;
}

template <typename... Choices>
bool choose_all(std::uint8_t* current, const std::uint8_t* maximum, const std::uint8_t* wanted) {
  return (choose<Choices>(current, maximum, wanted) && ...);
}

void describe_limits(std::uint8_t* cap) {
  using L = DeviceLimits;
  HcaCap::log_max_qp::set(cap, L::kLogMaxQp);
  HcaCap::log_max_qp_sz::set(cap, L::kLogMaxQpSize);
  HcaCap::log_max_cq::set(cap, L::kLogMaxCq);
  HcaCap::log_max_cq_sz::set(cap, L::kLogMaxCqSize);
  HcaCap::log_max_srq::set(cap, L::kLogMaxSrq);
  HcaCap::log_max_srq_sz::set(cap, L::kLogMaxSrqSize);
  HcaCap::log_max_rmp::set(cap, L::kLogMaxSrq);
  HcaCap::log_max_wq_sz::set(cap, L::kLogMaxSrqSize);
  HcaCap::log_max_eq::set(cap, 7);
  HcaCap::max_num_eqs::set(cap, L::kMaxEqs);
  HcaCap::log_max_eq_sz::set(cap, L::kLogMaxEqSize);
  HcaCap::log_max_mkey::set(cap, L::kLogMaxMkey);
  HcaCap::log_max_mrw_sz::set(cap, 64);
  HcaCap::log_max_pd::set(cap, L::kLogMaxPd);
  HcaCap::log_max_xrcd::set(cap, L::kLogMaxXrcd);
  HcaCap::log_max_transport_domain::set(cap, L::kLogMaxTransportDomain);
  HcaCap::log_max_uctx::set(cap, L::kLogMaxUctx);
  HcaCap::max_wqe_sz_sq::set(cap, L::kMaxSendWqe);
  HcaCap::max_wqe_sz_rq::set(cap, L::kMaxReceiveWqe);
  HcaCap::log_max_msg::set(cap, L::kLogMaxMessage);
  HcaCap::log_max_ra_req_qp::set(cap, L::kLogMaxRdAtomic);
  HcaCap::log_max_ra_res_qp::set(cap, L::kLogMaxRdAtomic);
  HcaCap::log_max_mcg::set(cap, L::kLogMaxMulticastGroups);
  HcaCap::max_qp_mcg::set(cap, L::kMaxQpsPerGroup);
}

}  // namespace

void Capabilities::reset() {
  general_ = Group{};
  atomic_ = Group{};
  odp_ = Group{};
  describe_general();
  describe_atomic();
}

void Capabilities::describe_general() {
  std::uint8_t* cap = general_.maximum.data();
  describe_limits(cap);
  // Ports.
  HcaCap::num_ports::set(cap, 1);
  HcaCap::port_type::set(cap, 0);        // InfiniBand
  HcaCap::ib_virt::set(cap, 1);          // port attributes by HCA vport commands
  HcaCap::gid_table_size::set(cap, 0);   // 8 GIDs
  HcaCap::pkey_table_size::set(cap, 0);  // 128 P_Keys
  HcaCap::local_ca_ack_delay::set(cap, 16);
  // Transports.
  HcaCap::rc::set(cap, 1);
  HcaCap::uc::set(cap, 1);
  HcaCap::ud::set(cap, 1);
  HcaCap::mkey_by_name::set(cap, 1);
  HcaCap::xrc::set(cap, 1);  // XRC domains and SRQs; drivers refuse a device without it
  HcaCap::atomic::set(cap, 1);
  HcaCap::compact_address_vector::set(cap, 1);
  // Queues.
  HcaCap::cqe_version::set(cap, 1);
  HcaCap::cq_oi::set(cap, 1);
  HcaCap::cq_resize::set(cap, 1);
  HcaCap::cq_moderation::set(cap, 1);
  HcaCap::cq_eq_remap::set(cap, 1);
  describe_memory_keys();
  // Counters.
  HcaCap::max_qp_cnt::set(cap, DeviceLimits::kMaxQCounters);
  HcaCap::retransmission_q_counters::set(cap, 1);
  HcaCap::out_of_seq_cnt::set(cap, 1);
  HcaCap::enhanced_error_q_counters::set(cap, 1);
  HcaCap::rts2rts_qp_counters_set_id::set(cap, 1);
  // Doorbells.
  HcaCap::uar_4k::set(cap, 1);
  HcaCap::num_of_uars_per_page::set(cap, 1);
  HcaCap::uar_sz::set(cap, 5);  // 32 MiB
  HcaCap::bf::set(cap, options_.blue_flame ? 1 : 0);
  HcaCap::log_bf_reg_size::set(cap, 9);
  HcaCap::log_max_sq::set(cap, DeviceLimits::kLogMaxSq);  // for the write-combining test of drivers
  HcaCap::log_uar_page_sz::set(cap, 4);
  HcaCap::log_pg_sz::set(cap, 12);
  // Firmware.
  HcaCap::cmdif_checksum::set(cap, 3);
  HcaCap::driver_version::set(cap, 1);
  HcaCap::device_frequency_khz::set(cap, DeviceLimits::kTimerKhz);
  HcaCap::device_frequency_mhz::set(cap, DeviceLimits::kTimerKhz / 1000);
  HcaCap::pkey_table_size::set(cap, 0);

  general_.current = general_.maximum;
  HcaCap::cmdif_checksum::set(general_.current.data(), 0);
  HcaCap::log_uar_page_sz::set(general_.current.data(), 0);
}

void Capabilities::describe_memory_keys() {
  constexpr unsigned kNoFenceNeeded = 2;  // UMRs are executed in the order of their queue
  std::uint8_t* cap = general_.maximum.data();
  HcaCap::umr_modify_entity_size_disabled::set(cap, options_.umr ? 0 : 1);
  HcaCap::umr_modify_atomic_disabled::set(cap, options_.umr ? 0 : 1);
  HcaCap::umr_indirect_mkey_disabled::set(cap, options_.umr ? 0 : 1);
  if (!options_.umr) return;
  HcaCap::umr_extended_translation_offset::set(cap, 1);
  HcaCap::umr_fence::set(cap, kNoFenceNeeded);
  HcaCap::imaicl::set(cap, 1);  // memory windows, lists of pieces
  HcaCap::max_indirection::set(cap, MkeyTable::kMaxIndirection);
  HcaCap::fixed_buffer_size::set(cap, 1);  // pieces of equal size
  HcaCap::log_max_klm_list_size::set(cap, DeviceLimits::kLogMaxKlmList);
}

void Capabilities::describe_atomic() {
  std::uint8_t* cap = atomic_.maximum.data();
  AtomicCaps::supported_atomic_req_8B_endianness_mode_1::set(cap, 1);
  AtomicCaps::atomic_operations::set(cap, 0x3);   // compare and swap, fetch and add
  AtomicCaps::atomic_size_qp::set(cap, 1U << 3);  // 8 bytes
  atomic_.current = atomic_.maximum;
  AtomicCaps::atomic_req_8B_endianness_mode::set(cap, 1);
}

const Capabilities::Area* Capabilities::query(HcaCapType type, bool current) const {
  const Group* group = nullptr;
  switch (type) {
    case HcaCapType::general_device:
      group = &general_;
      break;
    case HcaCapType::atomic:
      group = &atomic_;
      break;
    case HcaCapType::odp:
      group = &odp_;
      break;
    default:
      return nullptr;
  }
  return current ? &group->current : &group->maximum;
}

Syndrome Capabilities::set(HcaCapType type, std::span<const std::uint8_t> wanted) {
  const auto apply = [&](Group& group, auto chooser) {
    Area next = group.current;
    if (!chooser(next.data(), group.maximum.data(), wanted.data()))
      return Syndrome::cap_above_maximum;
    group.current = next;
    return Syndrome::none;
  };
  switch (type) {
    case HcaCapType::general_device:
      return apply(general_,
                   choose_all<HcaCap::cmdif_checksum, HcaCap::log_uar_page_sz, HcaCap::uar_4k,
                              HcaCap::pkey_table_size, HcaCap::log_max_qp>);
    case HcaCapType::atomic:
      return apply(atomic_, choose_all<AtomicCaps::atomic_req_8B_endianness_mode>);
    case HcaCapType::odp:
      return Syndrome::none;
    default:
      return Syndrome::bad_cap_type;
  }
}

}  // namespace softhca
