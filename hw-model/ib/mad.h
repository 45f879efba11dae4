// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw-model/ib/mad_agent.h"
#include "hw-model/prm/field.h"

namespace softhca::ib {

/// Common MAD header (IBA 13.4.3).
struct MadHeader {
  using base_version = prm::Field<0x00, 8>;
  using mgmt_class = prm::Field<0x08, 8>;
  using class_version = prm::Field<0x10, 8>;
  using response = prm::Field<0x18, 1>;
  using method = prm::Field<0x18, 8>;  ///< With the response bit.
  using status = prm::Field<0x20, 16>;
  using class_specific = prm::Field<0x30, 16>;
  using transaction_id = prm::Field<0x40, 64>;
  using attribute_id = prm::Field<0x80, 16>;
  using attribute_modifier = prm::Field<0xa0, 32>;
  static constexpr std::size_t size = 24;
};

/// Management classes (IBA 13.4.4).
enum class MgmtClass : std::uint8_t {
  subn_lid_routed = 0x01,
  subn_adm = 0x03,
  perf = 0x04,
  bm = 0x05,
  dev_mgt = 0x06,
  com_mgt = 0x07,
  snmp = 0x08,
  subn_directed_route = 0x81,
};

/// Methods (IBA 13.4.5).
enum class MadMethod : std::uint8_t {
  get = 0x01,
  set = 0x02,
  send = 0x03,
  trap = 0x05,
  report = 0x06,
  trap_repress = 0x07,
  get_table = 0x12,
  get_trace_table = 0x13,
  get_multi = 0x14,
  remove = 0x15,  ///< SubnAdmDelete.
  get_response = 0x81,
  report_response = 0x86,
  get_table_response = 0x92,
  remove_response = 0x95,
};
inline constexpr std::uint8_t kMadResponseBit = 0x80;

/// MAD status, common part (IBA 13.4.7).
enum MadStatus : std::uint16_t {
  kMadOk = 0x00,
  kMadBusy = 0x01,
  kMadBadVersion = 0x04,
  kMadUnsupportedMethod = 0x08,
  kMadUnsupportedMethodAttribute = 0x0c,
  kMadInvalidField = 0x1c,
};

/// Subnet management packet (IBA 14.2.1): the fields after the common header. The direction bit and
/// hop counts belong to the directed route class only.
struct Smp {
  using direction = prm::Field<0x20, 1>;  ///< 1: on its way back.
  using status = prm::Field<0x21, 15>;    ///< Directed route: 15 bits beside the direction.
  using hop_pointer = prm::Field<0x30, 8>;
  using hop_count = prm::Field<0x38, 8>;
  using m_key = prm::Field<0xc0, 64>;
  using dr_slid = prm::Field<0x100, 16>;
  using dr_dlid = prm::Field<0x110, 16>;
  using data = prm::Block<64, 64>;
  using initial_path = prm::Block<128, 64>;
  using return_path = prm::Block<192, 64>;
  static constexpr unsigned max_hops = 63;
};

/// Attributes of the subnet management classes (IBA table 126).
enum class SmpAttribute : std::uint16_t {
  notice = 0x0002,
  node_description = 0x0010,
  node_info = 0x0011,
  switch_info = 0x0012,
  guid_info = 0x0014,
  port_info = 0x0015,
  pkey_table = 0x0016,
  sl_to_vl_table = 0x0017,
  vl_arbitration = 0x0018,
  linear_forwarding_table = 0x0019,
  random_forwarding_table = 0x001a,
  multicast_forwarding_table = 0x001b,
  sm_info = 0x0020,
  mlnx_extended_port_info = 0xff90,  ///< Vendor's: FDR10, by tools asked of every ConnectX.
};

/// NodeInfo (IBA 14.2.5.3).
struct NodeInfo {
  using base_version = prm::Field<0x00, 8>;
  using class_version = prm::Field<0x08, 8>;
  using node_type = prm::Field<0x10, 8>;  ///< 1 channel adapter, 2 switch, 3 router.
  using num_ports = prm::Field<0x18, 8>;
  using system_image_guid = prm::Field<0x20, 64>;
  using node_guid = prm::Field<0x60, 64>;
  using port_guid = prm::Field<0xa0, 64>;
  using partition_cap = prm::Field<0xe0, 16>;
  using device_id = prm::Field<0xf0, 16>;
  using revision = prm::Field<0x100, 32>;
  using local_port_num = prm::Field<0x120, 8>;
  using vendor_id = prm::Field<0x128, 24>;
  static constexpr std::size_t size = 40;
};

/// PortInfo (IBA 14.2.5.6).
struct PortInfo {
  using m_key = prm::Field<0x00, 64>;
  using gid_prefix = prm::Field<0x40, 64>;
  using lid = prm::Field<0x80, 16>;
  using master_sm_lid = prm::Field<0x90, 16>;
  using capability_mask = prm::Field<0xa0, 32>;
  using diag_code = prm::Field<0xc0, 16>;
  using m_key_lease_period = prm::Field<0xd0, 16>;
  using local_port_num = prm::Field<0xe0, 8>;
  using link_width_enabled = prm::Field<0xe8, 8>;
  using link_width_supported = prm::Field<0xf0, 8>;
  using link_width_active = prm::Field<0xf8, 8>;
  using link_speed_supported = prm::Field<0x100, 4>;
  using port_state = prm::Field<0x104, 4>;
  using port_physical_state = prm::Field<0x108, 4>;
  using link_down_default_state = prm::Field<0x10c, 4>;
  using m_key_protect_bits = prm::Field<0x110, 2>;
  using lmc = prm::Field<0x115, 3>;
  using link_speed_active = prm::Field<0x118, 4>;
  using link_speed_enabled = prm::Field<0x11c, 4>;
  using neighbor_mtu = prm::Field<0x120, 4>;
  using master_sm_sl = prm::Field<0x124, 4>;
  using vl_cap = prm::Field<0x128, 4>;
  using init_type = prm::Field<0x12c, 4>;
  using vl_high_limit = prm::Field<0x130, 8>;
  using vl_arbitration_high_cap = prm::Field<0x138, 8>;
  using vl_arbitration_low_cap = prm::Field<0x140, 8>;
  using init_type_reply = prm::Field<0x148, 4>;
  using mtu_cap = prm::Field<0x14c, 4>;
  using vl_stall_count = prm::Field<0x150, 3>;
  using hoq_life = prm::Field<0x153, 5>;
  using operational_vls = prm::Field<0x158, 4>;
  using partition_enforcement_inbound = prm::Field<0x15c, 1>;
  using partition_enforcement_outbound = prm::Field<0x15d, 1>;
  using filter_raw_inbound = prm::Field<0x15e, 1>;
  using filter_raw_outbound = prm::Field<0x15f, 1>;
  using m_key_violations = prm::Field<0x160, 16>;
  using p_key_violations = prm::Field<0x170, 16>;
  using q_key_violations = prm::Field<0x180, 16>;
  using guid_cap = prm::Field<0x190, 8>;
  using client_reregister = prm::Field<0x198, 1>;
  using subnet_timeout = prm::Field<0x19b, 5>;
  using resp_time_value = prm::Field<0x1a3, 5>;
  using local_phy_errors = prm::Field<0x1a8, 4>;
  using overrun_errors = prm::Field<0x1ac, 4>;
  using max_credit_hint = prm::Field<0x1b0, 16>;
  using link_round_trip_latency = prm::Field<0x1c8, 24>;
  using capability_mask2 = prm::Field<0x1e0, 16>;
  using link_speed_ext_active = prm::Field<0x1f0, 4>;
  using link_speed_ext_supported = prm::Field<0x1f4, 4>;
  using link_speed_ext_enabled = prm::Field<0x1fb, 5>;
  static constexpr std::size_t size = 64;
};

/// PortInfo.CapabilityMask bits used here (IBA 14.2.5.6).
enum PortCapability : std::uint32_t {
  kPortCapIsSm = 1U << 1,
  kPortCapTrap = 1U << 3,
  kPortCapSlMapping = 1U << 6,
  kPortCapSmDisabled = 1U << 10,
  kPortCapSystemImageGuid = 1U << 11,
  kPortCapExtendedSpeeds = 1U << 14,
  kPortCapCommunicationManagement = 1U << 16,
  kPortCapSnmpTunneling = 1U << 17,
  kPortCapDeviceManagement = 1U << 19,
  kPortCapVendorClass = 1U << 20,
  kPortCapClientReregistration = 1U << 25,
};

/// SwitchInfo (IBA 14.2.5.4).
struct SwitchInfo {
  using linear_fdb_cap = prm::Field<0x00, 16>;
  using random_fdb_cap = prm::Field<0x10, 16>;
  using multicast_fdb_cap = prm::Field<0x20, 16>;
  using linear_fdb_top = prm::Field<0x30, 16>;
  using default_port = prm::Field<0x40, 8>;
  using default_multicast_primary_port = prm::Field<0x48, 8>;
  using default_multicast_not_primary_port = prm::Field<0x50, 8>;
  using life_time_value = prm::Field<0x58, 5>;
  using port_state_change = prm::Field<0x5d, 1>;
  using lids_per_port = prm::Field<0x60, 16>;
  using partition_enforcement_cap = prm::Field<0x70, 16>;
  using inbound_enforcement_cap = prm::Field<0x80, 1>;
  using outbound_enforcement_cap = prm::Field<0x81, 1>;
  using enhanced_port0 = prm::Field<0x84, 1>;
  using multicast_fdb_top = prm::Field<0x90, 16>;
  static constexpr std::size_t size = 20;
};

/// SMInfo (IBA 14.2.5.13).
struct SmInfo {
  using guid = prm::Field<0x00, 64>;
  using sm_key = prm::Field<0x40, 64>;
  using act_count = prm::Field<0x80, 32>;
  using priority = prm::Field<0xa0, 4>;
  using sm_state = prm::Field<0xa4, 4>;
  static constexpr std::size_t size = 21;
};
/// SMInfo.SMState (IBA 14.4.1).
enum class SmState : std::uint8_t { not_active = 0, discovering = 1, standby = 2, master = 3 };
/// AttributeModifier of SubnSet(SMInfo) (IBA 14.4.1).
enum class SmControl : std::uint32_t {
  handover = 1,
  acknowledge = 2,
  disable = 3,
  standby = 4,
  discover = 5
};

/// Notice (IBA 13.4.8.2), its generic form.
struct Notice {
  using is_generic = prm::Field<0x00, 1>;
  using type = prm::Field<0x01, 7>;
  using producer_type = prm::Field<0x08, 24>;
  using trap_number = prm::Field<0x20, 16>;
  using issuer_lid = prm::Field<0x30, 16>;
  using toggle = prm::Field<0x40, 1>;
  using count = prm::Field<0x41, 15>;
  using details = prm::Block<10, 54>;
  using issuer_gid = prm::Block<64, 16>;
  static constexpr std::size_t size = 80;
};
/// Types of a notice.
enum class NoticeType : std::uint8_t { urgent = 1, security = 2, subnet_management = 3, info = 4 };
/// Producers of a notice, by node type.
inline constexpr std::uint32_t kProducerSwitch = 2;
inline constexpr std::uint32_t kProducerClassManager = 4;
/// Traps (IBA 14.2.5.1, table 131).
enum class TrapNumber : std::uint16_t {
  gid_in_service = 64,
  gid_out_of_service = 65,
  group_created = 66,
  group_deleted = 67,
  link_state_change = 128,
  local_change = 144,
};

/// Blocks of table attributes: entries per SMP (IBA 14.2.5).
inline constexpr unsigned kGuidsPerBlock = 8;
inline constexpr unsigned kPkeysPerBlock = 32;
inline constexpr unsigned kLinearFdbPerBlock = 64;
inline constexpr unsigned kMulticastFdbPerBlock = 32;
/// Ports that one MulticastForwardingTable block covers (IBA 14.2.5.12).
inline constexpr unsigned kMulticastFdbPorts = 16;

/// General management packets of the performance class (IBA 16.1.1): data starts after 40 reserved
/// bytes.
struct PerfMad {
  using data = prm::Block<64, 192>;
};

/// Attributes of the performance management class (IBA table 219).
enum class PerfAttribute : std::uint16_t {
  class_port_info = 0x0001,
  port_samples_control = 0x0010,
  port_counters = 0x0012,
  port_counters_extended = 0x001d,
};

/// ClassPortInfo (IBA 13.4.8.1).
struct ClassPortInfo {
  using base_version = prm::Field<0x00, 8>;
  using class_version = prm::Field<0x08, 8>;
  using capability_mask = prm::Field<0x10, 16>;
  using capability_mask2 = prm::Field<0x20, 27>;
  using resp_time_value = prm::Field<0x3b, 5>;
  using redirect_gid = prm::Block<8, 16>;
  using redirect_lid = prm::Field<0xe0, 16>;
  static constexpr std::size_t size = 72;
};
/// ClassPortInfo.CapabilityMask of the performance class: PortCountersExtended is there, all of it.
inline constexpr std::uint16_t kPerfCapExtendedWidth = 1U << 9;
inline constexpr std::uint16_t kPerfCapAllPortSelect = 1U << 8;

/// PortCounters (IBA 16.1.3.5).
struct PortCountersAttribute {
  using port_select = prm::Field<0x08, 8>;
  using counter_select = prm::Field<0x10, 16>;
  using symbol_error_counter = prm::Field<0x20, 16>;
  using link_error_recovery_counter = prm::Field<0x30, 8>;
  using link_downed_counter = prm::Field<0x38, 8>;
  using port_rcv_errors = prm::Field<0x40, 16>;
  using port_rcv_remote_physical_errors = prm::Field<0x50, 16>;
  using port_rcv_switch_relay_errors = prm::Field<0x60, 16>;
  using port_xmit_discards = prm::Field<0x70, 16>;
  using port_xmit_constraint_errors = prm::Field<0x80, 8>;
  using port_rcv_constraint_errors = prm::Field<0x88, 8>;
  using counter_select2 = prm::Field<0x90, 8>;
  using local_link_integrity_errors = prm::Field<0x98, 4>;
  using excessive_buffer_overrun_errors = prm::Field<0x9c, 4>;
  using vl15_dropped = prm::Field<0xb0, 16>;
  using port_xmit_data = prm::Field<0xc0, 32>;
  using port_rcv_data = prm::Field<0xe0, 32>;
  using port_xmit_packets = prm::Field<0x100, 32>;
  using port_rcv_packets = prm::Field<0x120, 32>;
  using port_xmit_wait = prm::Field<0x140, 32>;
  static constexpr std::size_t size = 44;
};

/// PortCountersExtended (IBA 16.1.4.11).
struct PortCountersExtendedAttribute {
  using port_select = prm::Field<0x08, 8>;
  using counter_select = prm::Field<0x10, 16>;
  using port_xmit_data = prm::Field<0x40, 64>;
  using port_rcv_data = prm::Field<0x80, 64>;
  using port_xmit_packets = prm::Field<0xc0, 64>;
  using port_rcv_packets = prm::Field<0x100, 64>;
  using port_unicast_xmit_packets = prm::Field<0x140, 64>;
  using port_unicast_rcv_packets = prm::Field<0x180, 64>;
  using port_multicast_xmit_packets = prm::Field<0x1c0, 64>;
  using port_multicast_rcv_packets = prm::Field<0x200, 64>;
  static constexpr std::size_t size = 72;
};

}  // namespace softhca::ib
