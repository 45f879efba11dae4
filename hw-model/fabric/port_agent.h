// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "hw-model/fabric/counters.h"
#include "hw-model/fabric/fabric.h"
#include "hw-model/ib/mad.h"
#include "hw-model/ib/port.h"

namespace softhca::fabric {

/// Fields of PortInfo that a subnet manager writes and reads back, but that change nothing in the
/// model.
struct StoredPortInfo {
  std::uint64_t m_key = 0;
  std::uint16_t m_key_lease_period = 0;
  std::uint8_t m_key_protect_bits = 0;
  std::uint8_t link_down_default_state = 2;
  std::uint8_t vl_high_limit = 0;
  std::uint8_t init_type_reply = 0;
  std::uint8_t vl_stall_count = 0;
  std::uint8_t hoq_life = 0;
  std::uint8_t operational_vls = 1;
  std::uint8_t enforcement = 0;  ///< Four bits: P_Key in and out, raw filter in and out.
  std::uint8_t local_phy_errors = 0;
  std::uint8_t overrun_errors = 0;
};

/// The management agents of an HCA port: subnet management (IBA chapter 14) and performance
/// management (chapter 16). It holds what they show: the port's attributes, which the built-in
/// subnet manager writes directly and an external one by Set.
class PortAgent final : public ib::MadAgent {
 public:
  /// Entries of the GUID and P_Key tables.
  static constexpr unsigned kGuids = 8;
  static constexpr unsigned kPkeys = 128;

  /// `on_event` hears of every change that a driver must hear of; `on_retrain` that the port was
  /// told to go down and train again.
  PortAgent(const HostConfig& config, PortCounters& counters,
            std::function<void(ib::PortEvent)> on_event, std::function<void()> on_retrain);

  const ib::PortAttributes& attributes() const { return attributes_; }

  // What the built-in subnet manager and the link do. Each reports the event it causes, if it
  // changes anything.
  void set_state(ib::PortState state);
  void assign_lid(std::uint16_t lid, std::uint16_t sm_lid);
  void set_capability_mask(std::uint32_t mask) { attributes_.capability_mask = mask; }
  void set_node_description(std::span<const std::uint8_t, 64> text);

  // ib::MadAgent
  bool process(ib::MadIn in, ib::MadOut out) override;

 private:
  std::uint16_t process_smp(ib::MadMethod method, std::uint16_t attribute, std::uint32_t modifier,
                            std::uint8_t* data);
  std::uint16_t process_perf(ib::MadMethod method, std::uint16_t attribute, std::uint8_t* data);

  void get_node_info(std::uint8_t* data) const;
  void get_port_info(std::uint8_t* data) const;
  std::uint16_t set_port_info(const std::uint8_t* data);
  std::uint16_t set_port_state(std::uint8_t state);
  std::uint16_t guid_info(ib::MadMethod method, std::uint32_t block, std::uint8_t* data);
  std::uint16_t pkey_table(ib::MadMethod method, std::uint32_t block, std::uint8_t* data);
  void vl_arbitration(ib::MadMethod method, std::uint32_t modifier, std::uint8_t* data);
  void sl_to_vl(ib::MadMethod method, std::uint8_t* data);

  void get_counters(std::uint8_t* data) const;
  void clear_counters(std::uint8_t* data);
  void get_extended_counters(std::uint8_t* data) const;
  void clear_extended_counters(std::uint8_t* data);

  void refresh_gids();

  const HostConfig identity_;
  PortCounters& counters_;
  const std::function<void(ib::PortEvent)> on_event_;
  const std::function<void()> on_retrain_;
  ib::PortAttributes attributes_;
  StoredPortInfo stored_;
  std::array<std::uint8_t, 64> node_description_{};
  std::array<std::uint64_t, kGuids> guids_{};
  std::array<std::uint8_t, 8> sl_to_vl_{};
  std::array<std::array<std::uint8_t, 64>, 4> vl_arbitration_{};
};

}  // namespace softhca::fabric
