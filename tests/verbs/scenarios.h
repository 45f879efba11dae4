// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>
#include <vector>

#include "tests/verbs/endpoint.h"
#include "tests/verbs/side.h"

namespace softhca::verbs_check {

/// One rule set, run by both sides at once.
struct Scenario {
  const char* name;
  void (*run)(Device& device, Side& side, const Style& style);
  /// Worth running in every style and MTU; others run once.
  bool every_style;
};

std::vector<Scenario> data_scenarios();      ///< Payloads arrive whole, in place, in order.
std::vector<Scenario> datagram_scenarios();  ///< UD, UC.
std::vector<Scenario> queue_scenarios();     ///< SRQ, events, resize, many QPs.
std::vector<Scenario>
fault_scenarios();  ///< Wrong keys, lengths, alignment, missing receives, dead peers.
std::vector<Scenario> protection_scenarios();  ///< Protection domains, local access rights.
std::vector<Scenario> unmapped_scenarios();    ///< Keys that outlive their mappings.
std::vector<Scenario> anew_scenarios();        ///< Ever new memory.
std::vector<Scenario> again_scenarios();       ///< The same memory over and over.

/// A completion queue and a connected queue pair.
struct Connection {
  Connection(Device& device, Side& side, const Style& style, const QpOptions& options = {})
      : cq(device, 256, style), qp(device, cq, cq, style, options) {
    qp.connect(side);
  }
  CompletionQueue cq;
  QueuePair qp;
};

/// Where the other side may write or read.
struct RemoteRange {
  std::uint64_t address;
  std::uint32_t rkey;
};
inline RemoteRange range_of(Buffer& buffer) {
  return {buffer.address(), buffer.rkey()};
}

/// Message sizes around inline, packet and page boundaries, up to more than a megabyte.
const std::vector<std::size_t>& message_sizes();

}  // namespace softhca::verbs_check
