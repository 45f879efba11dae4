// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/property/simulation.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <sstream>

namespace softhca::property {

namespace {

constexpr Nanoseconds kLongestRun = 200'000'000'000ULL;
constexpr Nanoseconds kDrainTime = 100'000'000ULL;
constexpr std::uint64_t kMaxRounds = 3'000'000;
constexpr std::uint32_t kGrhBytes = 40;
constexpr const char* kNames[] = {"left", "right"};

}  // namespace

Simulation::Simulation(const Scenario& scenario)
    : scenario_(scenario), random_(scenario.seed ^ 0x736f667468636121ULL), fabric_(clock_) {
  build_hosts();
  build_pairs();
}

Simulation::~Simulation() = default;

void Simulation::build_hosts() {
  const std::uint64_t bytes_needed = std::uint64_t{scenario_.pairs} *
                                     (std::uint64_t{scenario_.operations} * 2 + 8) *
                                     (scenario_.max_message + 300);
  for (unsigned side = 0; side < 2; ++side) {
    fabric::HostConfig config;
    config.name = kNames[side];
    config.node_guid = 0x10 + side;
    ib::Port* port = fabric_.attach(config);
    HostConfig host;
    host.data_pages = bytes_needed / HostMemory::kPage + 16;
    host.slow_data_per_mille = scenario_.slow_data;
    host.slow_queue_per_mille = scenario_.slow_queue;
    host.cqe128 = scenario_.cqe128;
    hosts_[side] = std::make_unique<SimHost>(host, *port, clock_, Random(random_.next()));
    fabric_.connect(config.name, hosts_[side].get());
    if (!scenario_.faults.clean() || scenario_.link_dies_at != kNever) {
      faults_[side] = make_faults(scenario_, random_.next());
    }
    set_link(side, false);
    models_[side] = std::make_unique<Model>(hosts_[side]->memory());
    Side& that = sides_[side];
    that.host = hosts_[side].get();
    that.model = models_[side].get();
    that.lid = port->attributes().lid;
    that.counter_va = that.host->memory().allocate("shared counter", 8, 8);
    std::memcpy(&that.counter_start, that.host->memory().bytes(that.counter_va, 8).data(), 8);
    that.model->ignore(that.counter_va, 8);
    srq_books_[side].shared = true;
  }
}

void Simulation::build_pairs() {
  const Poison poisons[] = {Poison::bad_key,          Poison::out_of_bounds, Poison::not_permitted,
                            Poison::unaligned_atomic, Poison::too_long,      Poison::bad_local_key};
  const unsigned poisoned_side = static_cast<unsigned>(random_.below(2));
  for (unsigned number = 0; number < scenario_.pairs; ++number) {
    Pair pair;
    QpConfig config;
    config.type = scenario_.type;
    config.log_sq_size = scenario_.log_sq_size;
    config.log_rq_size = scenario_.log_rq_size;
    config.use_srq = scenario_.use_srq;
    config.cs_req = scenario_.cs_req;
    config.cs_res = scenario_.type == prm::QpServiceType::ud ? 0 : scenario_.cs_res;
    for (unsigned side = 0; side < 2; ++side) pair.qpns[side] = hosts_[side]->create_qp(config);
    for (unsigned side = 0; side < 2; ++side) {
      pair.flows[side] =
          std::make_unique<Flow>(scenario_, Random(random_.next()), sides_[side], sides_[1 - side],
                                 std::string("pair ") + std::to_string(number) + ", " +
                                     kNames[side] + " to " + kNames[1 - side]);
      Flow& flow = *pair.flows[side];
      flow.set_qps(pair.qpns[side], pair.qpns[1 - side]);
      const bool poisoned =
          scenario_.ending == Ending::poisoned && number == 0 && side == poisoned_side;
      const Poison poison = random_.pick(poisons);
      flow.plan(poisoned ? poison : Poison::none);
      const unsigned extra = static_cast<unsigned>(random_.below(3));
      book(pair, 1 - side).left_to_post += flow.receives_needed() + extra;
    }
    pair.flows[0]->set_reverse(pair.flows[1].get());
    pair.flows[1]->set_reverse(pair.flows[0].get());
    pairs_.push_back(std::move(pair));
    connect(pairs_.back());
  }
  if (!scenario_.receives_first) return;
  for (unsigned side = 0; side < 2; ++side) {
    for (Pair& pair : pairs_) {
      while (post_receives(side, book(pair, side), pair.qpns[side])) {
      }
    }
  }
}

void Simulation::transition(unsigned side, std::uint32_t qpn, QpTransition what,
                            const QpAttributes& attributes) {
  if (hosts_[side]->transport().modify_qp(qpn, what, attributes, 0) != ModifyResult::ok) {
    throw Violation("a valid QP transition was refused");
  }
}

void Simulation::connect(const Pair& pair) {
  const auto first_psn = [this] {
    // Often close to the wrap.
    return static_cast<std::uint32_t>(random_.percent(50) ? 0xffffff - random_.below(40)
                                                          : random_.below(1 << 24));
  };
  const std::uint32_t psns[2] = {first_psn(), first_psn()};
  for (unsigned side = 0; side < 2; ++side) {
    QpAttributes attributes;
    attributes.remote_read = attributes.remote_write = attributes.remote_atomic = true;
    attributes.qkey = 0x1234;
    attributes.path.dlid = sides_[1 - side].lid;
    attributes.mtu = scenario_.mtu;
    attributes.remote_qpn = pair.qpns[1 - side];
    attributes.next_rcv_psn = psns[1 - side];
    attributes.next_send_psn = psns[side];
    attributes.log_rra_max = attributes.log_sra_max = scenario_.log_rd_atomic;
    attributes.min_rnr_nak = scenario_.min_rnr_nak;
    attributes.retry_count = scenario_.retry_count;
    attributes.rnr_retry = scenario_.rnr_retry;
    attributes.ack_timeout = scenario_.ack_timeout;
    transition(side, pair.qpns[side], QpTransition::reset_to_init, attributes);
    transition(side, pair.qpns[side], QpTransition::init_to_rtr, attributes);
    transition(side, pair.qpns[side], QpTransition::rtr_to_rts, attributes);
  }
}

bool Simulation::post_receives(unsigned side, ReceiveBook& book, std::uint32_t qpn) {
  const bool room =
      book.shared ? hosts_[side]->has_srq_room() : hosts_[side]->has_receive_room(qpn);
  if (book.left_to_post == 0 || !room) return false;
  std::uint32_t capacity =
      scenario_.max_message + (scenario_.type == prm::QpServiceType::ud ? kGrhBytes : 0);
  std::vector<Piece> pieces;
  const auto count = random_.between(1, SimHost::kMaxPieces);
  for (std::uint64_t i = 0; i < count && capacity != 0; ++i) {
    const auto part =
        i + 1 == count ? capacity : static_cast<std::uint32_t>(random_.between(1, capacity));
    const std::uint64_t va = hosts_[side]->memory().allocate("receive buffer", part);
    if (va == 0) throw Violation("the test's own memory is used up");
    pieces.push_back({va, part});
    capacity -= part;
  }
  std::uint16_t index = 0;
  if (book.shared) {
    hosts_[side]->post_srq_receive(pieces, index);
  } else {
    hosts_[side]->post_receive(qpn, pieces, index);
  }
  --book.left_to_post;
  book.open.push_back({index, std::move(pieces)});
  return true;
}

void Simulation::set_link(unsigned side, bool calm) {
  is_calm_[side] = calm;
  fabric_.configure_link(kNames[side], calm ? fabric::LinkConfig{} : scenario_.link);
  fabric_.set_fault(kNames[side], calm ? fabric::FaultHook{} : faults_[side]);
}

void Simulation::change_weather() {
  for (unsigned side = 0; side < 2; ++side) {
    if (random_.per_mille(scenario_.calms)) set_link(side, !is_calm_[side]);
  }
}

bool Simulation::step_devices() {
  if (scenario_.calms != 0) change_weather();
  const TransportBudget budget{scenario_.budget_wqes, scenario_.budget_bytes};
  bool busy = false;
  const auto first = static_cast<unsigned>(random_.below(2));
  busy |= hosts_[first]->step(budget);
  busy |= hosts_[1 - first]->step(budget);
  busy |= fabric_.step({.packets_per_port = scenario_.fabric_packets});
  return busy;
}

bool Simulation::drive_flow(Flow& flow) {
  if (flow.next_send_at > clock_.now() || !flow.post_next()) return false;
  if (scenario_.max_send_gap != 0 && random_.percent(40)) {
    flow.next_send_at = clock_.now() + random_.below(scenario_.max_send_gap);
  }
  return true;
}

bool Simulation::drive() {
  bool active = false;
  for (unsigned side = 0; side < 2; ++side) {
    for (Pair& pair : pairs_) active |= drive_flow(*pair.flows[side]);
    if (next_receive_at_[side] > clock_.now()) continue;
    for (Pair& pair : pairs_) active |= post_receives(side, book(pair, side), pair.qpns[side]);
    if (scenario_.max_receive_gap != 0 && !scenario_.receives_first) {
      next_receive_at_[side] = clock_.now() + random_.below(scenario_.max_receive_gap);
    }
  }
  return active;
}

bool Simulation::poll() {
  bool any = false;
  // All receives of both hosts come before any send completion is judged.
  std::vector<std::pair<unsigned, Completion>> sends;
  for (unsigned side = 0; side < 2; ++side) {
    while (auto completion = hosts_[side]->poll()) {
      any = true;
      const auto pair = std::find_if(pairs_.begin(), pairs_.end(), [&](const Pair& candidate) {
        return candidate.qpns[side] == completion->qpn;
      });
      if (pair == pairs_.end())
        throw Violation("completion of an unknown QP: " + describe(*completion));
      if (completion->is_send()) {
        sends.emplace_back(side, *completion);
      } else {
        pair->flows[1 - side]->on_receive_completion(*completion, book(*pair, side));
      }
    }
  }
  for (const auto& [side, completion] : sends) {
    for (Pair& pair : pairs_) {
      if (pair.qpns[side] == completion.qpn) pair.flows[side]->on_send_completion(completion);
    }
  }
  return any;
}

Nanoseconds Simulation::next_event() const {
  Nanoseconds next =
      std::min({fabric_.next_deadline(), hosts_[0]->next_deadline(), hosts_[1]->next_deadline()});
  const auto consider = [&](Nanoseconds time) {
    if (time > clock_.now()) next = std::min(next, time);
  };
  for (const Pair& pair : pairs_) {
    for (const auto& flow : pair.flows) {
      if (!flow->all_posted()) consider(flow->next_send_at);
    }
    for (unsigned side = 0; side < 2; ++side) {
      const ReceiveBook& that = scenario_.use_srq ? srq_books_[side] : pair.books[side];
      if (that.left_to_post != 0) consider(next_receive_at_[side]);
    }
  }
  return next;
}

bool Simulation::finished() const {
  return std::all_of(pairs_.begin(), pairs_.end(), [](const Pair& pair) {
    return pair.flows[0]->done() && pair.flows[1]->done();
  });
}

void Simulation::run_until(Nanoseconds limit, bool until_finished) {
  for (std::uint64_t round = 0; !until_finished || !finished(); ++round) {
    if (round == kMaxRounds) throw Violation("no end although time stands still");
    bool busy = drive();
    busy |= step_devices();
    busy |= poll();
    if (busy) continue;
    const Nanoseconds next = next_event();
    if (next == kNever) {
      if (until_finished && !finished()) throw Violation("nothing will ever happen any more");
      return;
    }
    if (next > limit) {
      if (until_finished) throw Violation("no end in sight");
      return;
    }
    clock_.advance_to(next);
  }
}

RunResult Simulation::run() {
  run_until(kLongestRun, true);
  // Nothing that is still under way may change anything.
  run_until(clock_.now() + kDrainTime, false);
  judge();
  return collect();
}

void Simulation::judge() {
  for (Pair& pair : pairs_) {
    for (unsigned side = 0; side < 2; ++side) {
      pair.flows[side]->finish(book(pair, 1 - side));
    }
  }
  for (unsigned side = 0; side < 2; ++side) {
    const Side& that = sides_[side];
    const std::string difference = that.model->compare(that.host->memory());
    if (!difference.empty()) throw Violation(std::string(kNames[side]) + ": " + difference);
    std::uint64_t counter = 0;
    std::memcpy(&counter, that.host->memory().bytes(that.counter_va, 8).data(), 8);
    const std::uint64_t counted = counter - that.counter_start;
    const std::set<std::uint64_t> seen(that.counter_results.begin(), that.counter_results.end());
    if (seen.size() != that.counter_results.size()) {
      throw Violation(std::string(kNames[side]) + ": two fetch-and-adds returned the same value");
    }
    if (counted < seen.size() || counted > seen.size() + that.counter_unsure) {
      throw Violation(std::string(kNames[side]) + ": " + std::to_string(seen.size()) +
                      " fetch-and-adds counted to " + std::to_string(counted));
    }
    for (const std::string& event : that.host->events()) {
      if (event.starts_with("CQ")) throw Violation(std::string(kNames[side]) + ": " + event);
    }
  }
}

RunResult Simulation::collect() const {
  RunResult result;
  result.virtual_time = clock_.now();
  for (const auto& link : fabric_.status()) result.packets += link.counters.xmit_packets();
  for (const Pair& pair : pairs_) {
    for (unsigned side = 0; side < 2; ++side) {
      const auto shot = hosts_[side]->transport().query_qp(pair.qpns[side]);
      if (!shot) continue;
      result.retransmissions += shot->counters.retransmissions;
      result.rnr_naks += shot->counters.rnr_naks_sent;
      result.duplicates += shot->counters.duplicate_requests;
      result.operations_failed += pair.flows[side]->failed() ? 1 : 0;
    }
  }
  return result;
}

void Simulation::watch(fabric::LinkObserver& observer) {
  fabric_.add_observer({}, observer);
}

std::string Simulation::state() const {
  std::ostringstream text;
  text << "at " << clock_.now() << " ns\n";
  for (const Pair& pair : pairs_) {
    for (unsigned side = 0; side < 2; ++side) {
      const auto shot = hosts_[side]->transport().query_qp(pair.qpns[side]);
      if (!shot) continue;
      text << "  " << kNames[side] << " QP " << shot->qpn << ": state "
           << static_cast<unsigned>(shot->state) << ", " << pair.flows[side]->progress()
           << ", next psn " << shot->attributes.next_send_psn << ", last acked "
           << shot->last_acked_psn << ", expected psn " << shot->attributes.next_rcv_psn
           << ", retransmissions " << shot->counters.retransmissions << ", rnr sent "
           << shot->counters.rnr_naks_sent << ", duplicates " << shot->counters.duplicate_requests
           << (shot->stall.empty() ? "" : ", ") << shot->stall << "\n";
    }
  }
  for (unsigned side = 0; side < 2; ++side) {
    for (const std::string& event : hosts_[side]->events()) {
      text << "  " << kNames[side] << ": " << event << "\n";
    }
  }
  return text.str();
}

}  // namespace softhca::property
