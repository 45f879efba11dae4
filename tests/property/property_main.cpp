// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Runs seeds of the transport property test:
//   property_transport --service rc|uc|ud [--first N] [--count N] | --seed N [--trace]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "hw-model/ib/codec.h"
#include "hw-model/ib/opcodes.h"
#include "tests/property/scenario.h"
#include "tests/property/simulation.h"

namespace {

using namespace softhca;
using namespace softhca::property;

struct Arguments {
  std::string service = "rc";
  prm::QpServiceType type = prm::QpServiceType::rc;
  std::uint64_t first = 1;
  std::uint64_t count = 100;
  bool trace = false;
};

int usage() {
  std::fputs(
      "usage: property_transport [--service rc|uc|ud] [--first N] [--count N] [--seed N] "
      "[--trace]\n"
      "  --seed N   run one seed, say what it is made of\n"
      "  --trace    with --seed: print every packet\n",
      stderr);
  return 2;
}

/// Prints each packet in one line.
class Trace final : public fabric::LinkObserver {
 public:
  void observe(const fabric::LinkObservation& seen) override {
    ib::Packet packet;
    const auto status = ib::decode(seen.bytes, packet);
    std::printf("%12llu %-5.*s %s ", static_cast<unsigned long long>(seen.time),
                static_cast<int>(seen.link.size()), seen.link.data(),
                seen.direction == fabric::Direction::from_host ? "out" : "in ");
    if (status != ib::DecodeStatus::ok) {
      const auto text = ib::to_string(status);
      std::printf("damaged: %.*s\n", static_cast<int>(text.size()), text.data());
      return;
    }
    std::printf("%s qp %x psn %06x%s syndrome %02x msn %u length %zu\n",
                ib::opcode_name(packet.bth.opcode), packet.bth.dest_qp, packet.bth.psn,
                packet.bth.ack_req ? " ack_req" : "", packet.aeth.syndrome, packet.aeth.msn,
                packet.payload.size());
  }
};

struct Totals {
  RunResult sum;
  std::uint64_t failed_flows = 0;
};

/// False: a rule was broken; it has been reported.
bool run_seed(const Arguments& arguments, std::uint64_t seed, bool verbose, Totals& totals) {
  const Scenario scenario = make_scenario(seed, arguments.type);
  if (verbose)
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                describe(scenario).c_str());
  std::unique_ptr<Simulation> simulation;
  try {
    simulation = std::make_unique<Simulation>(scenario);
    Trace trace;
    if (arguments.trace) simulation->watch(trace);
    const RunResult result = simulation->run();
    totals.sum.packets += result.packets;
    totals.sum.retransmissions += result.retransmissions;
    totals.sum.rnr_naks += result.rnr_naks;
    totals.sum.duplicates += result.duplicates;
    totals.failed_flows += result.operations_failed;
    return true;
  } catch (const std::exception& broken) {
    std::fflush(stdout);
    std::fprintf(stderr, "seed %llu FAILED: %s\n  scenario: %s\n",
                 static_cast<unsigned long long>(seed), broken.what(), describe(scenario).c_str());
    if (simulation) std::fprintf(stderr, "  %s", simulation->state().c_str());
    std::fprintf(stderr, "  replay: property_transport --service %s --seed %llu --trace\n",
                 arguments.service.c_str(), static_cast<unsigned long long>(seed));
    return false;
  }
}

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--trace") {
      arguments.trace = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    if (name == "--service") {
      arguments.service = value;
    } else if (name == "--first") {
      arguments.first = std::strtoull(value, nullptr, 0);
    } else if (name == "--count") {
      arguments.count = std::strtoull(value, nullptr, 0);
    } else if (name == "--seed") {
      arguments.first = std::strtoull(value, nullptr, 0);
      arguments.count = 1;
    } else {
      return false;
    }
  }
  if (arguments.service == "uc") {
    arguments.type = prm::QpServiceType::uc;
  } else if (arguments.service == "ud") {
    arguments.type = prm::QpServiceType::ud;
  }
  return arguments.service == "rc" || arguments.type != prm::QpServiceType::rc;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) return usage();
  constexpr unsigned kMaxReports = 10;
  Totals totals;
  unsigned failures = 0;
  std::uint64_t run = 0;
  for (; run < arguments.count && failures < kMaxReports; ++run) {
    if (!run_seed(arguments, arguments.first + run, arguments.count == 1, totals)) ++failures;
  }
  std::printf(
      "%llu seeds of %s: %u failed; %llu packets, %llu retransmissions, %llu duplicate requests, "
      "%llu RNR NAKs, %llu flows ended in an error as they had to\n",
      static_cast<unsigned long long>(run), arguments.service.c_str(), failures,
      static_cast<unsigned long long>(totals.sum.packets),
      static_cast<unsigned long long>(totals.sum.retransmissions),
      static_cast<unsigned long long>(totals.sum.duplicates),
      static_cast<unsigned long long>(totals.sum.rnr_naks),
      static_cast<unsigned long long>(totals.failed_flows));
  return failures == 0 ? 0 : 1;
}
