// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "hw-model/fabric/counters.h"
#include "hw-model/fabric/fabric.h"
#include "hw-model/fabric/m_key.h"
#include "hw-model/fabric/port_info.h"
#include "hw-model/ib/mad.h"
#include "hw-model/ib/port.h"
#include "hw-model/runtime/clock.h"

namespace softhca::fabric {

/// The management agents of an HCA port: subnet management (IBA chapter 14) and performance
/// management (chapter 16). It holds what they show: the port's attributes, which the built-in
/// subnet manager writes directly and an external one by Set.
class PortAgent final : public ib::MadAgent {
 public:
  /// Entries of the GUID and P_Key tables.
  static constexpr unsigned kGuids = 8;
  static constexpr unsigned kPkeys = 128;

  /// `on_event` hears of every change that a driver must hear of; `on_link_request` that the port
  /// was told to go down (LinkRequest::retrain or disable).
  PortAgent(const HostConfig& config, const Clock& clock, PortCounters& counters,
            std::function<void(ib::PortEvent)> on_event,
            std::function<void(LinkRequest)> on_link_request);

  const ib::PortAttributes& attributes() const { return attributes_; }
  const StoredPortInfo& stored() const { return stored_; }

  // What the built-in subnet manager and the link do. Each reports the event it causes, if it
  // changes anything.
  void set_state(ib::PortState state);
  /// `disabled`: the physical state of a port that is down is "disabled" instead of "polling".
  void set_disabled(bool disabled);
  /// Width and speed, from what both ends of the link have enabled.
  void train(const StoredPortInfo& far_end) { negotiate(stored_, far_end, attributes_); }
  /// Tells the driver to register its multicast groups and services again.
  void ask_to_reregister() { on_event_(ib::PortEvent::client_reregister); }
  void assign_lid(std::uint16_t lid, std::uint16_t sm_lid);
  void set_capability_mask(std::uint32_t mask) {
    touched_ |= mask != attributes_.capability_mask;
    attributes_.capability_mask = mask;
  }
  /// Since looked_at() a MAD was processed or the capability mask changed: what the subnet manager
  /// keeps an eye on may be different.
  bool touched() const { return touched_; }
  void looked_at() { touched_ = false; }
  void set_node_description(std::span<const std::uint8_t, 64> text);

  // ib::MadAgent
  ib::MadResult process(ib::MadIn in, ib::MadOut out, ib::MKeyCheck check) override;
  /// Reads an attribute of the subnet management class, 64 bytes; false: there is no such.
  bool read(ib::SmpAttribute attribute, std::uint32_t modifier, std::uint8_t* data);

 private:
  ib::MadResult process_checked(ib::MadMethod method, ib::MadIn in, ib::MadOut out);
  ib::MadResult execute(ib::MadIn in, ib::MadOut out);
  std::uint16_t process_smp(ib::MadMethod method, std::uint16_t attribute, std::uint32_t modifier,
                            std::uint8_t* data);
  std::uint16_t process_perf_mad(ib::MadMethod method, std::uint16_t attribute, std::uint8_t* data);

  void get_node_info(std::uint8_t* data) const;
  PortInfoView view() const { return {PortKind::hca, attributes_, stored_, 1}; }
  std::uint16_t set_port_info(const std::uint8_t* data);
  void obey(LinkRequest request);
  std::uint16_t guid_info(ib::MadMethod method, std::uint32_t block, std::uint8_t* data);
  std::uint16_t pkey_table(ib::MadMethod method, std::uint32_t block, std::uint8_t* data);
  void vl_arbitration(ib::MadMethod method, std::uint32_t modifier, std::uint8_t* data);
  void sl_to_vl(ib::MadMethod method, std::uint8_t* data);

  void refresh_gids();

  bool touched_ = false;
  const HostConfig identity_;
  const Clock& clock_;
  PortCounters& counters_;
  const std::function<void(ib::PortEvent)> on_event_;
  const std::function<void(LinkRequest)> on_link_request_;
  ib::PortAttributes attributes_;
  StoredPortInfo stored_;
  MKeyGuard m_key_guard_;
  std::array<std::uint8_t, 64> node_description_{};
  std::array<std::uint64_t, kGuids> guids_{};
  std::array<std::uint8_t, 8> sl_to_vl_{};
  std::array<std::array<std::uint8_t, 64>, 4> vl_arbitration_{};
};

}  // namespace softhca::fabric
