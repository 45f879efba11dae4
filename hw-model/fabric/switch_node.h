// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "hw-model/fabric/counters.h"
#include "hw-model/fabric/forwarding_tables.h"
#include "hw-model/fabric/m_key.h"
#include "hw-model/fabric/port_info.h"
#include "hw-model/ib/mad_agent.h"
#include "hw-model/ib/port.h"

namespace softhca::fabric {

/// One port of a switch: port 0 is the management port, the others have links.
struct SwitchPort {
  static constexpr unsigned kPkeys = 32;

  SwitchPort();
  bool active() const { return attributes.state == ib::PortState::active; }
  /// P_Key enforcement (IBA 18.2.4.2.1): false if the port is told to filter and the table has no
  /// match.
  bool admits(std::uint16_t pkey, std::uint8_t direction) const {
    return (stored.enforcement & direction) == 0 || in_partition(pkey);
  }

  ib::PortAttributes attributes;
  StoredPortInfo stored;
  PortCounters counters;
  std::array<std::array<std::uint8_t, 64>, 4> vl_arbitration{};

 private:
  bool in_partition(std::uint16_t pkey) const;
};

/// A switch as a node of the subnet: its tables, ports and management agents (IBA 14.2.5, 16.1,
/// 18.2.4). It moves no packets itself.
class SwitchNode {
 public:
  /// Ports that NodeInfo shows; when more are needed the switch turns into a bigger one.
  static constexpr std::uint8_t kSmall = 36;
  static constexpr std::uint8_t kBig = 254;

  /// What an attribute's Set asks of others.
  struct Hooks {
    /// The link of an external port is to be trained again (disabled first if so asked).
    std::function<void(std::uint8_t port, LinkRequest request)> link_request;
  };

  SwitchNode(std::uint64_t guid, Hooks hooks);

  std::uint64_t guid() const { return guid_; }
  std::uint8_t port_count() const { return static_cast<std::uint8_t>(ports_.size() - 1); }
  /// Makes port number `port` exist.
  void grow_to(std::uint8_t port);
  /// `port` <= port_count().
  SwitchPort& port(std::uint8_t port) { return ports_[port]; }
  const SwitchPort& port(std::uint8_t port) const { return ports_[port]; }
  SwitchPort& management() { return ports_[0]; }
  const SwitchPort& management() const { return ports_[0]; }
  ib::Gid gid() const;

  LinearForwardingTable& linear() { return linear_; }
  const LinearForwardingTable& linear() const { return linear_; }
  MulticastForwardingTable& multicast() { return multicast_; }
  const MulticastForwardingTable& multicast() const { return multicast_; }

  /// SwitchInfo.PortStateChange: set when a port comes up or goes down, cleared by the manager.
  void note_port_change() { port_state_change_ = true; }

  /// Executes Get or Set of an SMP that came by `in_port`, on its 64 bytes of data; returns the
  /// status. Does not look at the M_Key.
  std::uint16_t process_smp(ib::MadMethod method, std::uint16_t attribute, std::uint32_t modifier,
                            std::uint8_t in_port, std::uint8_t* data);
  /// The same for the performance class, 192 bytes.
  std::uint16_t process_perf_mad(ib::MadMethod method, std::uint16_t attribute, std::uint8_t* data);
  MKeyVerdict check_m_key(ib::MadMethod method, std::uint64_t m_key, Nanoseconds now) {
    return m_key_guard_.check(management().stored, method, m_key, now);
  }

 private:
  void get_node_info(std::uint8_t in_port, std::uint8_t* data) const;
  void get_switch_info(std::uint8_t* data) const;
  std::uint16_t set_switch_info(const std::uint8_t* data);
  std::uint16_t port_info(ib::MadMethod method, std::uint32_t modifier, std::uint8_t in_port,
                          std::uint8_t* data);
  void set_port_info(std::uint8_t number, const std::uint8_t* data);
  std::uint16_t guid_info(std::uint32_t modifier, std::uint8_t* data) const;
  std::uint16_t pkey_table(ib::MadMethod method, std::uint32_t modifier, std::uint8_t* data);
  std::uint16_t sl_to_vl(ib::MadMethod method, std::uint32_t modifier, std::uint8_t* data);
  std::uint16_t vl_arbitration(ib::MadMethod method, std::uint32_t modifier, std::uint8_t* data);
  std::uint16_t linear_table(ib::MadMethod method, std::uint32_t modifier, std::uint8_t* data);
  std::uint16_t multicast_table(ib::MadMethod method, std::uint32_t modifier, std::uint8_t* data);

  const std::uint64_t guid_;
  const Hooks hooks_;
  std::vector<SwitchPort> ports_;
  MKeyGuard m_key_guard_;
  LinearForwardingTable linear_;
  MulticastForwardingTable multicast_;
  /// SLtoVLMappingTable by input and output port; absent: all SLs on VL0.
  std::map<std::uint16_t, std::array<std::uint8_t, 8>> sl_to_vl_;
  std::uint8_t default_port_ = 0;
  std::uint8_t default_multicast_primary_port_ = 0;
  std::uint8_t default_multicast_not_primary_port_ = 0;
  std::uint8_t life_time_value_ = 18;
  bool port_state_change_ = false;
};

}  // namespace softhca::fabric
