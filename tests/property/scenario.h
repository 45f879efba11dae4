// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <string>

#include "hw-model/fabric/link.h"
#include "hw-model/prm/qp_context.h"
#include "tests/property/random.h"

namespace softhca::property {

/// What goes wrong on a link, as chances per 1000 packets.
struct FaultProfile {
  unsigned drop = 0;
  unsigned duplicate = 0;
  unsigned reorder = 0;
  unsigned corrupt = 0;
  unsigned stall = 0;  ///< Chance that a packet begins a time in which nothing moves.
  Nanoseconds max_reorder = 0;
  Nanoseconds max_stall = 0;

  bool loses() const { return drop != 0 || corrupt != 0; }
  bool clean() const { return !loses() && duplicate == 0 && reorder == 0 && stall == 0; }
};

/// How a run is meant to end.
enum class Ending : std::uint8_t {
  complete,   ///< Every operation.
  dead_link,  ///< One direction of the link dies for good on the way.
  poisoned,   ///< One operation is wrong and must fail alone.
};

/// Everything that a seed decides about a run beyond its operations.
struct Scenario {
  std::uint64_t seed = 0;
  prm::QpServiceType type = prm::QpServiceType::rc;
  Ending ending = Ending::complete;
  unsigned pairs = 1;
  unsigned operations = 8;  ///< For each direction of each pair, at most.
  std::uint8_t mtu = 3;     ///< Code.
  std::uint32_t max_message = 0;
  std::uint8_t log_rd_atomic = 0;
  std::uint8_t ack_timeout = 8;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_nak = 1;
  std::uint8_t log_sq_size = 6;
  std::uint8_t log_rq_size = 5;
  bool use_srq = false;
  bool cqe128 = false;
  std::uint8_t cs_req = 0;
  std::uint8_t cs_res = 0;
  unsigned slow_data = 0;  ///< Per 1000 accesses.
  unsigned slow_queue = 0;
  bool receives_first = false;  ///< No message meets an empty receive queue.
  Nanoseconds max_send_gap = 0;
  Nanoseconds max_receive_gap = 0;
  Nanoseconds link_dies_at = kNever;
  std::uint32_t budget_wqes = 64;
  std::uint64_t budget_bytes = 1 << 20;
  std::size_t fabric_packets = 64;
  fabric::LinkConfig link;
  FaultProfile faults;
  /// Per 1000 rounds: faults, rate and delay of a link cease or begin again. Without them packets
  /// travel as trains.
  unsigned calms = 0;

  bool is_rc() const { return type == prm::QpServiceType::rc; }
  Nanoseconds timeout() const { return 4096ULL << ack_timeout; }
  /// Retries may run out by the rules, without a defect.
  bool may_exhaust() const {
    return ending == Ending::dead_link ||
           ((faults.loses() || faults.stall != 0 || faults.reorder != 0 || calms != 0) &&
            retry_count < 7) ||
           faults.drop + faults.corrupt > 50;
  }
  bool may_exhaust_rnr() const { return rnr_retry < 7 && !receives_first; }
};

/// The scenario of a seed.
Scenario make_scenario(std::uint64_t seed, prm::QpServiceType type);
std::string describe(const Scenario& scenario);

/// The fault hook of one link; deterministic.
fabric::FaultHook make_faults(const Scenario& scenario, std::uint64_t seed);

}  // namespace softhca::property
