// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/property/scenario.h"

#include <algorithm>
#include <memory>
#include <sstream>

#include "hw-model/ib/opcodes.h"

namespace softhca::property {
namespace {

FaultProfile make_profile(Random& random, Nanoseconds timeout) {
  FaultProfile faults;
  if (random.percent(20)) return faults;
  const unsigned worst = random.pick<unsigned>({5, 15, 30, 150});
  if (random.percent(60)) faults.drop = static_cast<unsigned>(random.between(1, worst));
  if (random.percent(40)) faults.duplicate = static_cast<unsigned>(random.between(1, 200));
  if (random.percent(40)) faults.reorder = static_cast<unsigned>(random.between(1, 200));
  if (random.percent(30)) faults.corrupt = static_cast<unsigned>(random.between(1, worst / 2 + 1));
  if (random.percent(25)) faults.stall = static_cast<unsigned>(random.between(1, 5));
  faults.max_reorder = random.between(1'000, std::max<Nanoseconds>(timeout / 8, 2'000));
  faults.max_stall = timeout * random.between(1, 2);
  return faults;
}

}  // namespace

Scenario make_scenario(std::uint64_t seed, prm::QpServiceType type) {
  Random random(seed * 0x2545f4914f6cdd1dULL + 1);
  Scenario s;
  s.seed = seed;
  s.type = type;
  s.pairs = static_cast<unsigned>(random.between(1, 3));
  s.operations = random.pick<unsigned>({1, 4, 12, 24});
  s.mtu = static_cast<std::uint8_t>(random.between(1, 5));
  const std::uint32_t mtu = ib::mtu_bytes(s.mtu);
  s.max_message = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      random.pick<std::uint64_t>({32, mtu, 3 * mtu + 17, 5 * mtu, 20 * mtu}), 12'000));
  if (type == prm::QpServiceType::ud) s.max_message = std::min(s.max_message, mtu);
  s.log_rd_atomic = static_cast<std::uint8_t>(random.between(0, 4));
  s.ack_timeout = static_cast<std::uint8_t>(random.between(8, 11));
  s.retry_count = random.percent(70) ? 7 : static_cast<std::uint8_t>(random.between(0, 6));
  s.rnr_retry = random.percent(70) ? 7 : static_cast<std::uint8_t>(random.between(0, 6));
  s.min_rnr_nak = static_cast<std::uint8_t>(random.between(1, 14));
  s.log_sq_size = static_cast<std::uint8_t>(random.between(3, 7));
  s.log_rq_size = static_cast<std::uint8_t>(random.between(1, 5));
  s.use_srq = random.percent(30);
  s.cqe128 = random.percent(30);
  if (random.percent(25)) s.cs_req = s.cqe128 && random.percent(50) ? 64 : 32;
  if (random.percent(25)) s.cs_res = s.cqe128 && random.percent(50) ? 64 : 32;
  if (random.percent(30)) s.slow_data = static_cast<unsigned>(random.between(1, 300));
  if (random.percent(12)) s.slow_queue = static_cast<unsigned>(random.between(1, 200));
  s.receives_first = random.percent(40);
  if (s.receives_first) s.log_rq_size = 5;  // Room for all of them.
  s.max_send_gap = random.pick<Nanoseconds>({0, 2'000, 50'000});
  s.max_receive_gap = random.pick<Nanoseconds>({0, 2'000, 50'000, 500'000});
  s.budget_wqes = random.pick<std::uint32_t>({1, 3, 64});
  s.budget_bytes = random.pick<std::uint64_t>({1, 5'000, 1 << 20});
  s.fabric_packets = random.pick<std::size_t>({1, 7, 64});
  s.link.delay = random.pick<Nanoseconds>({0, 300, 20'000});
  if (random.percent(20)) s.link.bytes_per_second = 5'000'000'000;
  s.faults = make_profile(random, s.timeout());
  if (type == prm::QpServiceType::rc) {
    const auto dice = random.below(100);
    if (dice < 12) {
      s.ending = Ending::dead_link;
      s.link_dies_at = 1'000'000 + random.below(500'000);
    } else if (dice < 30) {
      s.ending = Ending::poisoned;
      s.retry_count = 7;
      s.rnr_retry = 7;
    }
  }
  if (type == prm::QpServiceType::rc && s.ending != Ending::dead_link && random.percent(50)) {
    s.calms = random.pick<unsigned>({20, 100, 300});
  }
  return s;
}

std::string describe(const Scenario& s) {
  const char* endings[] = {"complete", "dead link", "poisoned"};
  std::ostringstream text;
  text << "ending " << endings[static_cast<unsigned>(s.ending)] << ", pairs " << s.pairs
       << ", operations " << s.operations << ", mtu " << ib::mtu_bytes(s.mtu) << ", max message "
       << s.max_message << ", log_rd_atomic " << +s.log_rd_atomic << ", timeout " << +s.ack_timeout
       << ", retry " << +s.retry_count << ", rnr_retry " << +s.rnr_retry << ", min_rnr "
       << +s.min_rnr_nak << ", log sq " << +s.log_sq_size << ", log rq " << +s.log_rq_size
       << (s.use_srq ? ", srq" : "") << (s.cqe128 ? ", cqe128" : "") << ", cs_req " << +s.cs_req
       << ", cs_res " << +s.cs_res << ", slow data " << s.slow_data << ", slow queues "
       << s.slow_queue << (s.receives_first ? ", receives first" : "") << ", send gap "
       << s.max_send_gap << ", receive gap " << s.max_receive_gap << ", budget " << s.budget_wqes
       << "/" << s.budget_bytes << "/" << s.fabric_packets << ", link delay " << s.link.delay
       << ", rate " << s.link.bytes_per_second << ", per mille: drop " << s.faults.drop << " dup "
       << s.faults.duplicate << " reorder " << s.faults.reorder << " corrupt " << s.faults.corrupt
       << " stall " << s.faults.stall << ", calms " << s.calms;
  return text.str();
}

fabric::FaultHook make_faults(const Scenario& scenario, std::uint64_t seed) {
  struct State {
    Random random;
    Nanoseconds stalled_until[2] = {0, 0};
  };
  const auto state = std::make_shared<State>(State{Random(seed)});
  const FaultProfile faults = scenario.faults;
  const Nanoseconds dies_at = scenario.link_dies_at;
  return [state, faults, dies_at](const ib::Packet&, fabric::Direction direction, Nanoseconds now) {
    Random& random = state->random;
    fabric::Verdict verdict;
    Nanoseconds& stalled_until = state->stalled_until[static_cast<unsigned>(direction)];
    if (random.per_mille(faults.stall)) stalled_until = now + random.below(faults.max_stall);
    if (stalled_until > now) verdict.extra_delay = stalled_until - now;
    if (random.per_mille(faults.reorder)) verdict.extra_delay += random.below(faults.max_reorder);
    verdict.drop = random.per_mille(faults.drop) || now >= dies_at;
    verdict.duplicate = random.per_mille(faults.duplicate);
    if (random.per_mille(faults.corrupt)) {
      const std::uint64_t flips = random.between(1, 3);
      for (std::uint64_t i = 0; i < flips; ++i) {
        verdict.flip_bits.push_back(static_cast<std::uint32_t>(random.below(1U << 20)));
      }
      verdict.repair_vcrc = random.percent(50);
    }
    return verdict;
  };
}

}  // namespace softhca::property
