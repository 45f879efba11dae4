// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/ib/mad.h"
#include "hw-model/ib/port.h"

namespace softhca::fabric {

/// What a port is part of; fields of PortInfo mean different things (IBA 14.2.5.6 table 146).
enum class PortKind : std::uint8_t {
  hca,
  switch_management,  ///< Port 0: no link, always ACTIVE.
  switch_external,    ///< No LID of its own.
};

/// LinkWidth and LinkSpeed codes of PortInfo.
inline constexpr std::uint8_t kWidth1x = 1;
inline constexpr std::uint8_t kWidth4x = 2;
inline constexpr std::uint8_t kWidths = kWidth1x | kWidth4x;
inline constexpr std::uint8_t kSpeedsToQdr = 7;
inline constexpr std::uint8_t kSpeedsFdrEdr = 3;  ///< LinkSpeedExt.
inline constexpr std::uint8_t kPhysPolling = 2;
inline constexpr std::uint8_t kPhysDisabled = 3;
inline constexpr std::uint8_t kPhysLinkUp = 5;

/// Fields of PortInfo that a subnet manager writes and reads back, beside ib::PortAttributes.
struct StoredPortInfo {
  std::uint64_t m_key = 0;
  std::uint16_t m_key_lease_period = 0;
  std::uint16_t m_key_violations = 0;
  std::uint16_t p_key_violations = 0;
  std::uint8_t m_key_protect_bits = 0;
  std::uint8_t link_width_enabled = kWidths;
  std::uint8_t link_speed_enabled = kSpeedsToQdr;
  std::uint8_t link_speed_ext_enabled = kSpeedsFdrEdr;
  std::uint8_t link_down_default_state = kPhysPolling;
  std::uint8_t vl_high_limit = 0;
  std::uint8_t init_type_reply = 0;
  std::uint8_t vl_stall_count = 0;
  std::uint8_t hoq_life = 0;
  std::uint8_t operational_vls = 1;
  std::uint8_t enforcement = 0;  ///< Four bits: P_Key in and out, raw filter in and out.
  std::uint8_t local_phy_errors = 0;
  std::uint8_t overrun_errors = 0;
};
/// Bits of StoredPortInfo::enforcement.
inline constexpr std::uint8_t kEnforceInbound = 8;
inline constexpr std::uint8_t kEnforceOutbound = 4;

/// The port that an attribute describes.
struct PortInfoView {
  PortKind kind;
  const ib::PortAttributes& attributes;
  const StoredPortInfo& stored;
  std::uint8_t asked_by_port;  ///< PortInfo.LocalPortNum: by which port the request came.
};

/// Writes PortInfo, 64 bytes.
void encode_port_info(const PortInfoView& port, std::uint8_t* data);

/// What a Set(PortInfo) wants of the link.
enum class LinkRequest : std::uint8_t { none, arm, activate, retrain, disable };

/// Checks a Set(PortInfo); nothing may be changed unless it is kMadOk (IBA 14.2.5.6).
std::uint16_t check_port_info(const PortInfoView& port, const std::uint8_t* data);
/// Takes the link request out of a Set(PortInfo) that check_port_info() passed.
LinkRequest requested_link_state(const PortInfoView& port, const std::uint8_t* data);
/// Stores the plain fields of a Set(PortInfo) that check_port_info() passed: all but the LIDs, GID
/// prefix and port state, which have consequences.
void store_port_info(PortKind kind, const std::uint8_t* data, ib::PortAttributes& attributes,
                     StoredPortInfo& stored);

/// Settles width and speed of a link from what both ends have enabled, as training does. The 1X
/// width and the lowest speed are always possible.
void negotiate(const StoredPortInfo& one, const StoredPortInfo& other, ib::PortAttributes& result);

/// The PortState steps of IBA 14.2.5.6: INIT to ARMED to ACTIVE. True if the state changed.
bool advance_port_state(ib::PortAttributes& attributes, LinkRequest request);

}  // namespace softhca::fabric
