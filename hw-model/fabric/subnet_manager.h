// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "hw-model/fabric/mad_outbox.h"
#include "hw-model/fabric/subnet.h"
#include "hw-model/ib/mad.h"
#include "hw-model/runtime/clock.h"

namespace softhca::fabric {

/// The built-in subnet manager, at the switch's management port (IBA 14.4). As master it gives
/// LIDs, routes and ACTIVE ports the moment a link comes up. It has the lowest precedence there
/// is: any other manager that shows itself (by an answer to SMInfo, or by configuring the switch)
/// becomes master, and it stands by until that one is gone.
class SubnetManager {
 public:
  /// How often other managers are asked for their SMInfo, and how many questions in a row the
  /// master may leave unanswered.
  static constexpr Nanoseconds kPollInterval = 1'000'000'000;
  static constexpr unsigned kPatience = 4;
  static constexpr std::uint16_t kFirstLid = 1;  ///< The switch's own, unless it has one.
  /// SM_Key: what OpenSM and tools use unless told otherwise. Managers with another key do not
  /// speak to each other (IBA 14.4.1).
  static constexpr std::uint64_t kSmKey = 1;

  SubnetManager(Subnet& subnet, MadOutbox& outbox, const Clock& clock);

  ib::SmState state() const { return state_; }
  bool master() const { return state_ == ib::SmState::master; }
  /// Counts how often it became master: what was registered under an earlier reign is void.
  std::uint32_t reign() const { return reign_; }

  /// A LID for a port with this GUID, the one it had before if that is free. 0: none is left.
  std::uint16_t choose_lid(std::uint64_t port_guid) const;
  /// A link went up or down.
  void link_changed(Spoke& spoke, bool up);
  /// A host left: its LID is free.
  void forget(std::uint8_t port);

  /// Looks at what changed since the last step, and at the time. Returns how much it did.
  std::size_t step(Nanoseconds now);
  Nanoseconds next_deadline() const { return next_poll_; }

  /// Get and Set of SMInfo; returns the MAD status (IBA 14.4.1).
  std::uint16_t sm_info(ib::MadMethod method, std::uint32_t modifier, std::uint8_t in_port,
                        std::uint8_t* data);
  void get_sm_info(std::uint8_t* data) const;
  /// A response to its own question came by `in_port`.
  void sm_info_response(std::uint8_t in_port, ib::MadIn smp);
  /// Somebody behind `in_port` writes the switch's tables: a subnet manager at work.
  void configured_by(std::uint8_t in_port);
  /// Another manager asks to be looked at (trap 144): polls at once.
  void hurry() { next_poll_ = clock_.now(); }

 private:
  void become_master();
  void stand_by(std::uint8_t master_port);
  void show_capability();
  void bring_up(Spoke& spoke);
  void follow_lid(Spoke& spoke);
  void drop_routes(std::uint8_t port);
  bool yield_to_other_sm_lid(const Spoke& spoke);
  bool master_is_gone();
  void poll(Nanoseconds now);
  void ask(std::uint8_t port, ib::MadMethod method, ib::SmControl control);
  bool obey(ib::SmControl control, std::uint8_t in_port);
  void hear_as_master(std::uint8_t in_port, const std::uint8_t* data);

  static bool is_sm(const Spoke& spoke);

  Subnet& subnet_;
  MadOutbox& outbox_;
  const Clock& clock_;
  ib::SmState state_ = ib::SmState::master;
  std::uint32_t reign_ = 0;
  std::uint8_t master_port_ = 0;  ///< Behind which switch port the master is, while standing by.
  unsigned unanswered_ = 0;
  Nanoseconds next_poll_ = kNever;
  std::uint64_t transaction_ = 0;
  std::uint32_t activity_ = 0;
  std::map<std::uint64_t, std::uint16_t> lids_by_guid_;  ///< What each port GUID last had.
  std::map<std::uint8_t, std::uint64_t> questions_;      ///< Open transactions, by port.
  std::map<std::uint8_t, std::pair<std::uint16_t, std::uint8_t>>
      routed_;  ///< LID and LMC that the tables hold, by port.
};

}  // namespace softhca::fabric
