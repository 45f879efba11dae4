// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/transport/transport.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "hw-model/ib/opcodes.h"
#include "hw-model/transport/core.h"
#include "hw-model/transport/queue_pair.h"
#include "hw-model/transport/send_watch.h"

namespace softhca {
namespace {

constexpr std::uint32_t kFirstQpn = 0x40;  ///< Lower ones are special QPs and reserved.

}  // namespace

struct Transport::Impl {
  Impl(DmaSpace& dma, MkeyTable& mkeys, ib::Port& port, const Clock& clock, AsyncEvents& events,
       TransportConfig config)
      : core{.dma = dma,
             .mkeys = mkeys,
             .port = port,
             .port_attributes = port.attributes(),
             .way_epoch = port.way_epoch(),
             .clock = clock,
             .events = events,
             .srqs = srqs,
             .q_counters = q_counters,
             .config = config,
             .lent = {},
             .turn_lent = false,
             .pool = port.packets(),
             .outgoing = {},
             .lender = {},
             .staging = {},
             .umr_list = {},
             .ready = {},
             .stalled = {},
             .interrupted = {},
             .owing = {},
             .parked = {},
             .uncounted = {},
             .timers = {}} {}

  void deliver(ib::Packet& packet);
  void deliver_multicast(const ib::Packet& packet);
  bool qkey_ok(const QueuePair& qp, const ib::Packet& packet);
  bool pkey_ok(const QueuePair& qp, const ib::Packet& packet);
  void run_timers();
  Nanoseconds earliest_timer() const;
  void resume_waiting();
  QueuePair* special(std::uint32_t qpn);

  Core core;
  ObjectTable<CompletionQueue> cqs;
  ObjectTable<SharedReceiveQueue> srqs;
  ObjectTable<QCounterSet> q_counters{QCounterSet::kFirst, QCounterSet::kLimit};
  ObjectTable<QueuePair> qps{kFirstQpn};
  SendWatch watch{core.dma};
  std::uint32_t next_swept_qp = 0;
  std::uint32_t next_swept_cq = 0;
  QueuePair* special_qps[2] = {nullptr, nullptr};  ///< QP0, QP1.
  std::map<ib::Gid, std::vector<std::uint32_t>> multicast;
  TimerWheel<CompletionQueue> cq_timers;
};

Transport::Transport(DmaSpace& dma, MkeyTable& mkeys, ib::Port& port, const Clock& clock,
                     AsyncEvents& events, TransportConfig config)
    : impl_(std::make_unique<Impl>(dma, mkeys, port, clock, events, config)) {
  dma.on_revoke([&core = impl_->core] { core.lender.recall(); });
}

Transport::~Transport() {
  clear();
  impl_->core.dma.on_revoke(nullptr);
}

TransportConfig& Transport::config() {
  return impl_->core.config;
}

void Transport::clear() {
  Core& core = impl_->core;
  core.lender.recall();
  core.port.ways_changed();
  core.ready.clear();
  core.parked.clear();
  core.owing.clear();
  core.stalled.clear();
  core.interrupted.clear();
  core.timers.clear();
  core.earliest_timer = kNever;
  core.listed = false;
  core.staging.owner = nullptr;
  impl_->cq_timers.clear();
  impl_->multicast.clear();
  impl_->special_qps[0] = impl_->special_qps[1] = nullptr;
  impl_->watch.clear();
  impl_->qps.clear();  // Before what the QPs refer to.
  impl_->srqs.clear();
  impl_->cqs.clear();
  impl_->q_counters.clear();
}

// ---- objects

CompletionQueue* Transport::create_cq(CqParams params) {
  Core& core = impl_->core;
  const unsigned entry = params.cqe128 ? 7 : 6;
  if (params.log_size > 23 || params.buffer.size() < std::uint64_t{1}
                                                         << (params.log_size + entry)) {
    return nullptr;
  }
  return impl_->cqs.emplace(core.dma, core.clock, core.events, *this, std::move(params));
}
DestroyResult Transport::destroy_cq(std::uint32_t cqn) {
  CompletionQueue* cq = impl_->cqs.find(cqn);
  if (cq != nullptr && impl_->cqs.use_count(cqn) == 0) impl_->cq_timers.stop(cq->timer);
  return impl_->cqs.destroy(cqn);
}
ObjectTable<CompletionQueue>& Transport::cqs() {
  return impl_->cqs;
}

SharedReceiveQueue* Transport::create_srq(SrqParams params) {
  Core& core = impl_->core;
  const std::uint64_t stride = params.ring.stride;
  const bool stride_ok = stride >= 32 && stride <= 1024 && (stride & (stride - 1)) == 0;
  if (!stride_ok || params.ring.log_size > 15 ||
      params.buffer.size() < stride << params.ring.log_size) {
    return nullptr;
  }
  return impl_->srqs.emplace(core.dma, core.events, std::move(params));
}
DestroyResult Transport::destroy_srq(std::uint32_t srqn) {
  return impl_->srqs.destroy(srqn);
}
ObjectTable<SharedReceiveQueue>& Transport::srqs() {
  return impl_->srqs;
}

QCounterSet* Transport::create_q_counters(std::uint16_t uid) {
  return impl_->q_counters.emplace(uid);
}
DestroyResult Transport::destroy_q_counters(std::uint32_t set) {
  const QCounterSet* dead = impl_->q_counters.find(set);
  if (dead == nullptr) return DestroyResult::not_found;
  impl_->qps.for_each([&](QueuePair& qp) { qp.stop_counting(dead->counters); });
  return impl_->q_counters.destroy(set);
}
QCounterSet* Transport::q_counters(std::uint32_t set) const {
  return impl_->q_counters.find(set);
}

std::optional<std::uint32_t> Transport::create_qp(QpParams params) {
  const auto fits = [&params](std::uint64_t start, std::uint64_t size) {
    return start <= params.buffer.size() && size <= params.buffer.size() - start;
  };
  if (params.has_sq) {
    const bool ok = params.sq.log_size <= 15 && params.send_cq &&
                    fits(params.sq.start, prm::kWqeBasicBlock << params.sq.log_size);
    if (!ok) return std::nullopt;
  }
  if (params.has_rq) {
    const std::uint64_t stride = params.rq.stride;
    const bool stride_ok = stride >= 16 && stride <= 1024 && (stride & (stride - 1)) == 0;
    const bool ok = stride_ok && params.rq.log_size <= 15 && params.recv_cq &&
                    fits(params.rq.start, stride << params.rq.log_size);
    if (!ok) return std::nullopt;
  }
  if (params.srq && !params.recv_cq) return std::nullopt;
  params.log_msg_max = std::min<std::uint8_t>(params.log_msg_max, 30);
  params.cs_req = std::min<std::uint8_t>(params.cs_req, 64);
  params.cs_res = std::min<std::uint8_t>(params.cs_res, 64);
  const auto type = params.type;
  QueuePair* qp = impl_->qps.emplace(impl_->core, std::move(params));
  if (qp == nullptr) return std::nullopt;
  if (type == prm::QpServiceType::qp0) impl_->special_qps[0] = qp;
  if (type == prm::QpServiceType::qp1) impl_->special_qps[1] = qp;
  return qp->number();
}

DestroyResult Transport::destroy_qp(std::uint32_t qpn) {
  QueuePair* qp = impl_->qps.find(qpn);
  if (qp == nullptr) return DestroyResult::not_found;
  for (const auto& [mgid, members] : impl_->multicast) {
    if (std::find(members.begin(), members.end(), qpn) != members.end()) {
      return DestroyResult::in_use;
    }
  }
  qp->responder.acknowledge();
  impl_->core.forget(*qp);
  impl_->watch.forget(*qp);
  for (QueuePair*& special : impl_->special_qps) {
    if (special == qp) special = nullptr;
  }
  return impl_->qps.destroy(qpn);
}

bool Transport::has_qp(std::uint32_t qpn) const {
  return impl_->qps.find(qpn) != nullptr;
}
std::size_t Transport::qp_count() const {
  return impl_->qps.size();
}

std::uint32_t Transport::next_qp(std::uint32_t from) const {
  if (impl_->qps.size() == 0) return kNoQp;
  for (std::uint32_t qpn = std::max(from, impl_->qps.first()); qpn < impl_->qps.end(); ++qpn) {
    if (impl_->qps.find(qpn) != nullptr) return qpn;
  }
  return kNoQp;
}

ModifyResult Transport::modify_qp(std::uint32_t qpn, QpTransition transition,
                                  const QpAttributes& attributes, std::uint32_t opt_mask) {
  QueuePair* qp = impl_->qps.find(qpn);
  if (qp == nullptr) return ModifyResult::bad_parameter;
  return qp->modify(transition, attributes, opt_mask);
}

std::optional<QpSnapshot> Transport::query_qp(std::uint32_t qpn) const {
  const QueuePair* qp = impl_->qps.find(qpn);
  if (qp == nullptr) return std::nullopt;
  return qp->snapshot();
}

const QpParams* Transport::qp_params(std::uint32_t qpn) const {
  const QueuePair* qp = impl_->qps.find(qpn);
  return qp == nullptr ? nullptr : &qp->params;
}

bool Transport::attach_multicast(std::uint32_t qpn, const ib::Gid& mgid) {
  const QueuePair* qp = impl_->qps.find(qpn);
  if (qp == nullptr || !qp->is_datagram()) return false;
  auto& members = impl_->multicast[mgid];
  // Attaching twice is one membership (IBA 11.2.10.1).
  if (std::find(members.begin(), members.end(), qpn) == members.end()) members.push_back(qpn);
  return true;
}

bool Transport::detach_multicast(std::uint32_t qpn, const ib::Gid& mgid) {
  const auto group = impl_->multicast.find(mgid);
  if (group == impl_->multicast.end()) return false;
  const bool found = std::erase(group->second, qpn) != 0;
  if (group->second.empty()) impl_->multicast.erase(group);
  return found;
}

// ---- inputs

void Transport::doorbell(std::uint32_t qpn) {
  if (QueuePair* qp = impl_->qps.find(qpn)) qp->doorbell();
}

void Transport::hint(std::uint32_t qpn) {
  QueuePair* qp = impl_->qps.find(qpn);
  if (qp == nullptr) return;
  qp->doorbell();
  impl_->watch.hinted(*qp);
}

void Transport::watch_in(std::atomic<std::uint32_t>* word) {
  impl_->watch.publish_in(word);
}

void Transport::end_watch() {
  impl_->watch.clear();
}

bool Transport::repair_watch() {
  const std::uint32_t found = impl_->watch.repair();
  // Who believed it has not been heard.
  if (found != 0) doorbell(found - 1);
  return found != 0;
}

bool Transport::watched_rung() const {
  return impl_->watch.rung();
}

bool Transport::look_at_watched() {
  return impl_->watch.look();
}

void Transport::expect_doorbell(std::uint32_t qpn) const {
  if (const QueuePair* qp = impl_->qps.find(qpn)) qp->sq.prefetch();
}

void Transport::doorbell(std::uint32_t qpn, std::span<const std::uint8_t> wqe) {
  QueuePair* qp = impl_->qps.find(qpn);
  if (qp == nullptr) return;
  if (!wqe.empty()) qp->sq.offer_copy(wqe);
  qp->doorbell();
}

void Transport::arm_cq(std::uint32_t word0, std::uint32_t word1) {
  if (CompletionQueue* cq = impl_->cqs.find(word1 & 0xffffff)) cq->arm(word0);
}

void Transport::arm_cq_from_record(std::uint32_t cqn) {
  if (CompletionQueue* cq = impl_->cqs.find(cqn)) cq->arm_from_record();
}

Sweep Transport::sweep_doorbells(std::uint32_t queues) {
  Sweep sweep;
  Impl& impl = *impl_;
  VisitBudget budget(queues);
  impl.next_swept_qp = impl.qps.visit_some(impl.next_swept_qp, budget, [&](QueuePair& qp) {
    // The one that is watched is looked at anyway.
    if (!qp.params.has_sq || qp.state == prm::QpState::reset || impl.watch.watches(qp)) return;
    const std::uint16_t before = qp.sq.posted();
    qp.doorbell();
    sweep.moved |= qp.sq.posted() != before;
  });
  if (impl.next_swept_qp < impl.qps.end()) return sweep;
  impl.next_swept_cq = impl.cqs.visit_some(impl.next_swept_cq, budget, [&](CompletionQueue& cq) {
    sweep.moved |= cq.arm_from_record();
  });
  if (impl.next_swept_cq < impl.cqs.end()) return sweep;
  impl.next_swept_qp = impl.next_swept_cq = 0;
  sweep.whole = true;
  return sweep;
}

bool Transport::has_doorbell_records() const {
  return impl_->qps.size() != 0 || impl_->cqs.size() != 0;
}

void Transport::receive(ib::Packet& packet) {
  impl_->deliver(packet);
}

bool Transport::Impl::pkey_ok(const QueuePair& qp, const ib::Packet& packet) {
  using prm::QpServiceType;
  if (qp.params.type == QpServiceType::qp0) return true;  // IBA 9.6.1.1.3: not for SMPs.
  if (qp.params.type == QpServiceType::qp1) {
    const auto& table = core.port.attributes().pkeys;
    return std::any_of(table.begin(), table.end(), [&packet](std::uint16_t pkey) {
      return pkeys_match(pkey, packet.bth.pkey);
    });
  }
  return pkeys_match(core.pkey(qp.attributes.pkey_index), packet.bth.pkey);
}

bool Transport::Impl::qkey_ok(const QueuePair& qp, const ib::Packet& packet) {
  if (qp.params.type == prm::QpServiceType::qp0) return true;
  const std::uint32_t expected =
      qp.params.type == prm::QpServiceType::qp1 ? ib::kQp1Qkey : qp.attributes.qkey;
  return packet.deth.qkey == expected;
}

QueuePair* Transport::Impl::special(std::uint32_t qpn) {
  return qpn < 2 ? special_qps[qpn] : qps.find(qpn);
}

void Transport::Impl::deliver(ib::Packet& packet) {
  if (packet.bth.dest_qp == ib::kMulticastQp) {
    deliver_multicast(packet);
    return;
  }
  QueuePair* qp = special(packet.bth.dest_qp);
  if (qp == nullptr) {
    ++core.unknown_qp_drops;
    return;
  }
  // IBA 9.6.1.1: P_Key, then Q_Key; violations are counted and dropped silently.
  if (!pkey_ok(*qp, packet)) {
    ++core.pkey_violations;
    return;
  }
  // IBA 9.6.1.5: a connection takes packets of its peer alone.
  if (!qp->is_datagram() && packet.path.slid != qp->attributes.path.dlid) {
    ++qp->counters.packets_dropped;
    return;
  }
  if (qp->is_datagram() && !qkey_ok(*qp, packet)) {
    ++core.qkey_violations;
    return;
  }
  qp->receive(packet);
}

ib::Answerer Transport::direct_receiver(const ib::Destination& there) {
  QueuePair* qp = impl_->qps.find(there.qpn);
  if (qp == nullptr || qp->service() != ib::Service::rc) return {};
  // As deliver() does for packets.
  const bool reaches = pkeys_match(impl_->core.pkey(qp->attributes.pkey_index), there.pkey) &&
                       there.slid == qp->attributes.path.dlid;
  if (!reaches) return {};
  return {&qp->responder, qp->destination()};
}

/// A copy for each attached QP but the sender (IBA 10.5.2).
void Transport::Impl::deliver_multicast(const ib::Packet& packet) {
  if (!packet.path.has_grh) return;
  const auto group = multicast.find(packet.path.grh.dgid);
  if (group == multicast.end()) return;
  const bool own = packet.path.slid == core.port.attributes().lid;
  for (const std::uint32_t qpn : group->second) {
    QueuePair* qp = qps.find(qpn);
    if (qp == nullptr) continue;
    if (own && (packet.deth.src_qp == qpn || qp->params.block_lb_mc)) continue;
    if (!pkey_ok(*qp, packet)) {
      ++core.pkey_violations;
      continue;
    }
    if (!qkey_ok(*qp, packet)) {
      ++core.qkey_violations;
      continue;
    }
    // A QP that keeps its packet empties it.
    ib::PacketPtr copy = core.pool.acquire(packet, 0);
    copy->payload = packet.payload;
    qp->receive(*copy);
    core.pool.release(std::move(copy));
  }
}

void Transport::delivered() {
  impl_->core.send_owed();
}

void Transport::port_ready() {}

void Transport::memory_arrived() {
  const auto parked = std::exchange(impl_->core.parked, {});
  for (QueuePair* qp : parked) qp->parked = false;
  for (QueuePair* qp : parked) qp->memory_arrived();
  impl_->cqs.for_each([](CompletionQueue& cq) { cq.memory_arrived(); });
}

void Transport::Impl::run_timers() {
  const Nanoseconds now = core.clock.now();
  core.timers.expire(now, [](QueuePair& qp) { qp.timer_expired(); });
  cq_timers.expire(now, [](CompletionQueue& cq) { cq.expire(); });
  core.earliest_timer = earliest_timer();
}

Nanoseconds Transport::Impl::earliest_timer() const {
  return std::min(core.timers.earliest(), cq_timers.earliest());
}

/// The port has room again.
void Transport::Impl::resume_waiting() {
  while (!core.stalled.empty()) core.ready.push_front(core.stalled.pop_back());
  while (!core.interrupted.empty()) core.ready.push_back(core.interrupted.pop_front());
}

void Transport::lend_turn(const TransportBudget& budget) {
  impl_->core.lent = turn_of(budget);
  impl_->core.turn_lent = true;
}

void Transport::end_turn() {
  impl_->core.turn_lent = false;
}

TransportBudget Transport::left_of(const TransportBudget& budget) const {
  const Quantum whole = turn_of(budget);
  const Quantum& left = impl_->core.lent;
  return {budget.wqes - (whole.wqes - left.wqes), budget.bytes - (whole.bytes - left.bytes)};
}

bool Transport::lends() const {
  return impl_->core.lender.lends();
}

bool Transport::has_work() const {
  const Core& core = impl_->core;
  return core.listed || core.timer_due();
}

bool Transport::step(const TransportBudget& budget) {
  Core& core = impl_->core;
  if (core.timer_due()) impl_->run_timers();
  if (!core.listed) return false;
  if (!core.owing.empty()) core.send_owed();
  const auto none_waits = [&core] { return core.stalled.empty() && core.interrupted.empty(); };
  if (!none_waits() && core.port.ready()) impl_->resume_waiting();
  std::uint32_t wqes = budget.wqes;
  std::uint64_t bytes = budget.bytes;
  while (!core.ready.empty() && wqes > 0 && bytes > 0) {
    QueuePair* qp = core.ready.pop_front();
    Quantum quantum = turn_of({wqes, bytes});
    const Quantum before = quantum;
    qp->queued = false;
    const bool more = qp->run(quantum);
    // A turn that charged nothing is not free: the step ends though every turn wants another.
    const bool charged = quantum.wqes != before.wqes || quantum.packets != before.packets;
    wqes -= charged ? before.wqes - quantum.wqes : 1;
    bytes -= before.bytes - quantum.bytes;
    if (!more) continue;
    if (quantum.spent() || core.port.ready()) {
      core.schedule(*qp);
      continue;
    }
    // What ran may have put the QP on the list already; it is in one place only.
    if (qp->queued) core.ready.erase(qp);
    qp->queued = true;
    (charged ? core.interrupted : core.stalled).push_back(qp);
  }
  core.port.end_turn();
  const bool ready = !core.ready.empty();
  const bool none = none_waits();
  core.listed = ready || !none || !core.owing.empty();
  return ready || (!none && core.port.ready());
}

Nanoseconds Transport::next_deadline() const {
  impl_->core.earliest_timer = impl_->earliest_timer();
  return impl_->core.earliest_timer;
}

void Transport::start_cq_timer(CompletionQueue& cq, Nanoseconds deadline) {
  impl_->cq_timers.start(cq.timer, deadline);
  impl_->core.note_timer(deadline);
}

std::uint64_t Transport::pkey_violations() const {
  return impl_->core.pkey_violations;
}
std::uint64_t Transport::qkey_violations() const {
  return impl_->core.qkey_violations;
}
std::uint64_t Transport::unknown_qp_drops() const {
  return impl_->core.unknown_qp_drops;
}

}  // namespace softhca
