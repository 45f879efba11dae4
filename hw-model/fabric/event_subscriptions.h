// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <list>

#include "hw-model/fabric/end_port.h"
#include "hw-model/fabric/mad_outbox.h"
#include "hw-model/fabric/sa_query.h"
#include "hw-model/ib/mad.h"
#include "hw-model/runtime/clock.h"

namespace softhca::fabric {

/// Who wants to hear of events (InformInfo, IBA 13.4.11), and the Reports that are on their way to
/// them: each repeated until its response comes, a bounded number of times.
class EventSubscriptions {
 public:
  static constexpr std::size_t kMaxSubscriptions = 1024;
  static constexpr std::size_t kMaxPerPort = 64;
  static constexpr std::size_t kMaxReports = 1024;
  static constexpr Nanoseconds kInterval = 1'000'000'000;
  static constexpr unsigned kTries = 3;

  explicit EventSubscriptions(MadOutbox& outbox) : outbox_(outbox) {}

  /// SubnAdmSet(InformInfo); `data` is the request's record.
  std::uint16_t set(const MadAddress& from, const EndPort& port, const std::uint8_t* data);
  /// Tells the subscribers of a trap about a GID.
  void report(ib::TrapNumber trap, const ib::Gid& about, const EndPort& issuer, Nanoseconds now);
  void response(const MadAddress& from, std::uint64_t transaction);

  void forget(std::uint64_t port_guid);
  void clear();
  std::size_t size() const { return subscriptions_.size(); }

  std::size_t step(Nanoseconds now);
  Nanoseconds next_deadline() const;

 private:
  struct Subscription {
    std::uint64_t port_guid;
    MadAddress to;
    std::uint16_t type;
    std::uint16_t trap;
  };
  struct Report {
    std::uint64_t port_guid;
    MadAddress to;
    std::uint64_t transaction;
    std::array<std::uint8_t, ib::kMadSize> mad;
    std::uint16_t slid;
    Nanoseconds next;
    unsigned tries_left;
  };

  MadOutbox& outbox_;
  std::list<Subscription> subscriptions_;
  std::list<Report> reports_;
  std::uint64_t transaction_ = 0;
};

}  // namespace softhca::fabric
