// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "hw-model/fabric/fabric.h"
#include "tests/property/flow.h"
#include "tests/property/scenario.h"
#include "tests/property/sim_host.h"
#include "tests/support/virtual_time.h"

namespace softhca::property {

/// What a run did, to see that the scenarios reach what they are meant to.
struct RunResult {
  std::uint64_t packets = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t rnr_naks = 0;
  std::uint64_t duplicates = 0;
  unsigned operations_failed = 0;
  Nanoseconds virtual_time = 0;
};

/// Two hosts on a fabric with faults, under virtual time: runs a scenario to its end and throws a
/// Violation if a rule is broken.
class Simulation {
 public:
  explicit Simulation(const Scenario& scenario);
  ~Simulation();

  RunResult run();
  /// State of every QP, for the report of a violation.
  std::string state() const;
  /// Shows every packet of both links to `observer`.
  void watch(fabric::LinkObserver& observer);

 private:
  /// Both directions between two QPs.
  struct Pair {
    std::array<std::uint32_t, 2> qpns{};
    std::array<std::unique_ptr<Flow>, 2> flows;  ///< By sending side.
    std::array<ReceiveBook, 2> books;            ///< By receiving side, when there is no SRQ.
  };

  void build_hosts();
  void build_pairs();
  void connect(const Pair& pair);
  void transition(unsigned side, std::uint32_t qpn, QpTransition what,
                  const QpAttributes& attributes);
  ReceiveBook& book(Pair& pair, unsigned side) {
    return scenario_.use_srq ? srq_books_[side] : pair.books[side];
  }
  bool step_devices();
  void set_link(unsigned side, bool calm);
  void change_weather();
  bool drive();
  bool drive_flow(Flow& flow);
  bool post_receives(unsigned side, ReceiveBook& book, std::uint32_t qpn);
  bool poll();
  Nanoseconds next_event() const;
  bool finished() const;
  void run_until(Nanoseconds limit, bool until_finished);
  void judge();
  RunResult collect() const;

  const Scenario scenario_;
  Random random_;
  test::VirtualClock clock_;
  fabric::Fabric fabric_;
  std::array<fabric::FaultHook, 2> faults_;  ///< Of each link, when it is not calm.
  std::array<bool, 2> is_calm_{};
  std::array<std::unique_ptr<SimHost>, 2> hosts_;
  std::array<std::unique_ptr<Model>, 2> models_;
  std::array<Side, 2> sides_;
  std::array<ReceiveBook, 2> srq_books_;
  std::array<Nanoseconds, 2> next_receive_at_{};
  std::vector<Pair> pairs_;
};

}  // namespace softhca::property
