// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw-model/prm/field.h"

namespace softhca::ib {

/// RMPP header of a management datagram (IBA 13.6.2.1), right after the common header.
struct Rmpp {
  using version = prm::Field<0xc0, 8>;
  using type = prm::Field<0xc8, 8>;
  using resp_time = prm::Field<0xd0, 5>;
  using active = prm::Field<0xd7, 1>;
  using first = prm::Field<0xd6, 1>;
  using last = prm::Field<0xd5, 1>;
  using status = prm::Field<0xd8, 8>;
  using segment_number = prm::Field<0xe0, 32>;
  using payload_length = prm::Field<0x100, 32>;   ///< DATA.
  using new_window_last = prm::Field<0x100, 32>;  ///< ACK.
};
/// RMPPType (IBA 13.6.2.1).
enum class RmppType : std::uint8_t { data = 1, ack = 2, stop = 3, abort = 4 };

/// Management datagram of the subnet administration class (IBA 15.2.1.1).
struct SaMad {
  using sm_key = prm::Field<0x120, 64>;
  using attribute_offset = prm::Field<0x160, 16>;  ///< Record size in units of 8 bytes.
  using component_mask = prm::Field<0x180, 64>;
  using data = prm::Block<56, 200>;
  static constexpr std::uint8_t class_version = 2;
  /// Bytes of the class's own header that every RMPP segment repeats and counts (IBA 13.6.2.1).
  static constexpr std::size_t segment_header = 20;
};

/// Attributes of the subnet administration class (IBA table 188).
enum class SaAttribute : std::uint16_t {
  class_port_info = 0x0001,
  notice = 0x0002,
  inform_info = 0x0003,
  node_record = 0x0011,
  port_info_record = 0x0012,
  sl_to_vl_record = 0x0013,
  switch_info_record = 0x0014,
  linear_fdb_record = 0x0015,
  multicast_fdb_record = 0x0017,
  sm_info_record = 0x0018,
  link_record = 0x0020,
  guid_info_record = 0x0030,
  service_record = 0x0031,
  pkey_record = 0x0033,
  path_record = 0x0035,
  mc_member_record = 0x0038,
};

/// Class-specific status of the subnet administration class, in the upper byte (IBA 15.2.2).
enum SaStatus : std::uint16_t {
  kSaNoResources = 0x0100,
  kSaRequestInvalid = 0x0200,
  kSaNoRecords = 0x0300,
  kSaTooManyRecords = 0x0400,
  kSaInvalidGid = 0x0500,
  kSaInsufficientComponents = 0x0600,
  kSaRequestDenied = 0x0700,
};

/// ClassPortInfo.CapabilityMask of the subnet administrator (IBA 15.2.2 table 185).
inline constexpr std::uint16_t kSaCapOptionalRecords = 1U << 9;
inline constexpr std::uint16_t kSaCapUdMulticast = 1U << 10;
/// ClassPortInfo.CapabilityMask2: JoinState SendOnlyFullMember is understood.
inline constexpr std::uint32_t kSaCap2SendOnlyFullMember = 1U << 12;

/// How a selector compares a value with what is there (IBA 15.2.5.16).
enum class Selector : std::uint8_t { greater = 0, less = 1, exactly = 2, largest = 3 };

/// PathRecord (IBA 15.2.5.16).
struct PathRecord {
  using service_id = prm::Field<0x00, 64>;
  using dgid = prm::Block<8, 16>;
  using sgid = prm::Block<24, 16>;
  using dlid = prm::Field<0x140, 16>;
  using slid = prm::Field<0x150, 16>;
  using raw_traffic = prm::Field<0x160, 1>;
  using flow_label = prm::Field<0x164, 20>;
  using hop_limit = prm::Field<0x178, 8>;
  using tclass = prm::Field<0x180, 8>;
  using reversible = prm::Field<0x188, 1>;
  using numb_path = prm::Field<0x189, 7>;
  using p_key = prm::Field<0x190, 16>;
  using qos_class = prm::Field<0x1a0, 12>;
  using sl = prm::Field<0x1ac, 4>;
  using mtu_selector = prm::Field<0x1b0, 2>;
  using mtu = prm::Field<0x1b2, 6>;
  using rate_selector = prm::Field<0x1b8, 2>;
  using rate = prm::Field<0x1ba, 6>;
  using packet_life_time_selector = prm::Field<0x1c0, 2>;
  using packet_life_time = prm::Field<0x1c2, 6>;
  using preference = prm::Field<0x1c8, 8>;
  static constexpr std::size_t size = 64;
  enum Component : std::uint64_t {
    kDgid = 1ULL << 2,
    kSgid = 1ULL << 3,
    kDlid = 1ULL << 4,
    kSlid = 1ULL << 5,
    kNumbPath = 1ULL << 12,
    kPkey = 1ULL << 13,
    kSl = 1ULL << 15,
    kMtuSelector = 1ULL << 16,
    kMtu = 1ULL << 17,
    kRateSelector = 1ULL << 18,
    kRate = 1ULL << 19,
    kLifeSelector = 1ULL << 20,
    kLife = 1ULL << 21,
  };
};

/// MCMemberRecord (IBA 15.2.5.17).
struct McMemberRecord {
  using mgid = prm::Block<0, 16>;
  using port_gid = prm::Block<16, 16>;
  using q_key = prm::Field<0x100, 32>;
  using mlid = prm::Field<0x120, 16>;
  using mtu_selector = prm::Field<0x130, 2>;
  using mtu = prm::Field<0x132, 6>;
  using tclass = prm::Field<0x138, 8>;
  using p_key = prm::Field<0x140, 16>;
  using rate_selector = prm::Field<0x150, 2>;
  using rate = prm::Field<0x152, 6>;
  using packet_life_time_selector = prm::Field<0x158, 2>;
  using packet_life_time = prm::Field<0x15a, 6>;
  using sl = prm::Field<0x160, 4>;
  using flow_label = prm::Field<0x164, 20>;
  using hop_limit = prm::Field<0x178, 8>;
  using scope = prm::Field<0x180, 4>;
  using join_state = prm::Field<0x184, 4>;
  using proxy_join = prm::Field<0x188, 1>;
  static constexpr std::size_t size = 52;
  enum Component : std::uint64_t {
    kMgid = 1ULL << 0,
    kPortGid = 1ULL << 1,
    kQkey = 1ULL << 2,
    kMlid = 1ULL << 3,
    kMtuSelector = 1ULL << 4,
    kMtu = 1ULL << 5,
    kTclass = 1ULL << 6,
    kPkey = 1ULL << 7,
    kRateSelector = 1ULL << 8,
    kRate = 1ULL << 9,
    kLifeSelector = 1ULL << 10,
    kLife = 1ULL << 11,
    kSl = 1ULL << 12,
    kFlowLabel = 1ULL << 13,
    kHopLimit = 1ULL << 14,
    kScope = 1ULL << 15,
    kJoinState = 1ULL << 16,
    kProxyJoin = 1ULL << 17,
  };
};
/// MCMemberRecord.JoinState bits.
enum JoinState : std::uint8_t {
  kJoinFull = 1,
  kJoinNon = 2,
  kJoinSendOnlyNon = 4,
  kJoinSendOnlyFull = 8,
};

/// Records that put a subnet management attribute behind the LID of its node (IBA 15.2.5).
struct NodeRecord {
  using lid = prm::Field<0x00, 16>;
  using node_info = prm::Block<4, 40>;
  using node_description = prm::Block<44, 64>;
  static constexpr std::size_t size = 108;
  enum Component : std::uint64_t {
    kLid = 1ULL << 0,
    kNodeType = 1ULL << 4,
    kSystemImageGuid = 1ULL << 6,
    kNodeGuid = 1ULL << 7,
    kPortGuid = 1ULL << 8,
    kNodeDescription = 1ULL << 14,
  };
};
struct PortInfoRecord {
  using lid = prm::Field<0x00, 16>;
  using port_num = prm::Field<0x10, 8>;
  using port_info = prm::Block<4, 64>;
  static constexpr std::size_t size = 68;
  enum Component : std::uint64_t {
    kLid = 1ULL << 0,
    kPortNum = 1ULL << 1,
    kBaseLid = 1ULL << 5,
    kCapabilityMask = 1ULL << 7,
  };
};
struct SwitchInfoRecord {
  using lid = prm::Field<0x00, 16>;
  using switch_info = prm::Block<4, 20>;
  static constexpr std::size_t size = 24;
};
struct SmInfoRecord {
  using lid = prm::Field<0x00, 16>;
  using sm_info = prm::Block<4, 21>;
  static constexpr std::size_t size = 28;
};
struct LinkRecord {
  using from_lid = prm::Field<0x00, 16>;
  using from_port = prm::Field<0x10, 8>;
  using to_port = prm::Field<0x18, 8>;
  using to_lid = prm::Field<0x20, 16>;
  static constexpr std::size_t size = 6;
  enum Component : std::uint64_t {
    kFromLid = 1ULL << 0,
    kFromPort = 1ULL << 1,
    kToPort = 1ULL << 2,
    kToLid = 1ULL << 3,
  };
};
struct LinearFdbRecord {
  using lid = prm::Field<0x00, 16>;
  using block_number = prm::Field<0x10, 16>;
  using table = prm::Block<8, 64>;
  static constexpr std::size_t size = 72;
};
struct MulticastFdbRecord {
  using lid = prm::Field<0x00, 16>;
  using position = prm::Field<0x10, 4>;
  using block_number = prm::Field<0x17, 9>;
  using table = prm::Block<8, 64>;
  static constexpr std::size_t size = 72;
};
struct GuidInfoRecord {
  using lid = prm::Field<0x00, 16>;
  using block_number = prm::Field<0x10, 8>;
  using table = prm::Block<8, 64>;
  static constexpr std::size_t size = 72;
};
struct PkeyRecord {
  using lid = prm::Field<0x00, 16>;
  using block_number = prm::Field<0x10, 16>;
  using port_num = prm::Field<0x20, 8>;
  using table = prm::Block<8, 64>;
  static constexpr std::size_t size = 72;
};

/// ServiceRecord (IBA 15.2.5.14).
struct ServiceRecord {
  using service_id = prm::Field<0x00, 64>;
  using service_gid = prm::Block<8, 16>;
  using service_p_key = prm::Field<0xc0, 16>;
  using service_lease = prm::Field<0xe0, 32>;  ///< Seconds; all ones: for ever.
  using service_key = prm::Block<32, 16>;
  using service_name = prm::Block<48, 64>;
  using service_data = prm::Block<112, 64>;
  static constexpr std::size_t size = 176;
  enum Component : std::uint64_t {
    kId = 1ULL << 0,
    kGid = 1ULL << 1,
    kPkey = 1ULL << 2,
    kLease = 1ULL << 4,
    kKey = 1ULL << 5,
    kName = 1ULL << 6,
  };
};

/// InformInfo (IBA 13.4.8.3), its generic form.
struct InformInfo {
  using gid = prm::Block<0, 16>;
  using lid_range_begin = prm::Field<0x80, 16>;
  using lid_range_end = prm::Field<0x90, 16>;
  using is_generic = prm::Field<0xb0, 8>;
  using subscribe = prm::Field<0xb8, 8>;
  using type = prm::Field<0xc0, 16>;
  using trap_number = prm::Field<0xd0, 16>;
  using qpn = prm::Field<0xe0, 24>;
  using resp_time_value = prm::Field<0xfb, 5>;
  using producer_type = prm::Field<0x108, 24>;
  static constexpr std::size_t size = 36;
};

}  // namespace softhca::ib
