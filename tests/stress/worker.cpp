// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/stress/worker.h"

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace softhca::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kMaxBurst = 32;
constexpr unsigned kLogCqSize = 10;
static_assert(Worker::kQpsPerCq * kMaxBurst <= 1U << kLogCqSize);
constexpr unsigned kLogSqSize = 6;
static_assert(kMaxBurst <= 1U << kLogSqSize);

}  // namespace

Worker::Worker(RemoteHca& hca, std::span<const std::uint32_t> uars, std::uint16_t vector,
               std::uint64_t seed)
    : driver_(hca.driver()),
      random_(seed),
      interrupt_(hca.interrupt(vector)),
      eq_(driver_.create_eq(8, vector, 0)),
      memory_(driver_.allocate_mr(kCqs * kQpsPerCq * sizeof(std::uint64_t))) {
  QpTimers timers;
  timers.ack_timeout = 0;  // for ever: a retry would look at the queue again
  for (unsigned i = 0; i < kCqs; ++i) {
    driver_.use_uar(uars[i % uars.size()]);
    cqs_.push_back({driver_.create_cq(kLogCqSize, false, &eq_)});
  }
  for (unsigned i = 0; i < kCqs * kQpsPerCq; ++i) {
    const unsigned cq = i % kCqs;
    driver_.use_uar(uars[i / kCqs % uars.size()]);
    QpOptions options;
    options.log_sq_size = kLogSqSize;
    options.log_rq_size = 0;
    options.user_index = i;
    Qp qp{driver_.create_qp(cqs_[cq].queue, cqs_[cq].queue, options), cq};
    qp.target = memory_.address + i * sizeof(std::uint64_t);
    // Connected to itself.
    const bool connected =
        driver_.to_init(qp.queue).ok() &&
        driver_.to_rtr(qp.queue, qp.queue.qpn, hca.lid(), i, 5, {}, timers).ok() &&
        driver_.to_rts(qp.queue, i, timers).ok();
    if (!connected) throw DriverError("a QP does not connect");
    qps_.push_back(qp);
  }
}

unsigned Worker::number(unsigned first, unsigned last) {
  return std::uniform_int_distribution<unsigned>(first, last)(random_);
}

void Worker::run(std::uint64_t posts, Clock::time_point end, std::barrier<>& round,
                 std::atomic<bool>& failed) {
  try {
    while (posts_ < posts && Clock::now() < end && !failed) {
      this->round();
      round.arrive_and_wait();
    }
  } catch (const std::exception& error) {
    failure_ = error.what();
    failed = true;
  }
  round.arrive_and_drop();
}

void Worker::round() {
  ++rounds_;
  idle();
  const unsigned style = number(0, 9);
  if (style == 0) arm(/*all=*/true);
  // Most rounds are a doorbell, or a few; in the others the engine is busy when the last one comes.
  const bool small = number(0, 2) != 0;
  if (favoured_ == 0) {
    // A favourite for a while, so that the device watches its queue, or none.
    favourite_ = number(0, static_cast<unsigned>(qps_.size()) - 1);
    favoured_ = number(0, 1) == 0 ? number(1, 60) : 0;
  }
  const bool favours = favoured_ != 0;
  if (favours) --favoured_;
  for (unsigned left = small ? 1 : number(1, 16); left != 0; --left) {
    Qp& qp =
        qps_[favours && small ? favourite_ : number(0, static_cast<unsigned>(qps_.size()) - 1)];
    if (!qp.pending) post(qp, number(1, small ? 4 : kMaxBurst));
  }
  if (style < 3) {
    poll_for_completions();
  } else {
    sleep_for_completions(/*look_again=*/style < 6);
  }
}

/// Mostly about as long as the engine spins before it sleeps, now and then longer.
void Worker::idle() {
  const unsigned kind = number(0, 99);
  if (kind < 2) {
    std::this_thread::sleep_for(std::chrono::microseconds(number(1000, 30000)));
  } else if (kind < 80) {
    const auto end = Clock::now() + std::chrono::microseconds(number(0, 150));
    while (Clock::now() < end) ::sched_yield();
  }
}

void Worker::post(Qp& qp, unsigned count) {
  const bool ring_each = number(0, 3) == 0;
  for (; count != 0; --count) {
    SendRequest request;
    request.opcode = prm::WqeOpcode::rdma_write;
    ++qp.value;
    request.inline_data.resize(sizeof qp.value);
    std::memcpy(request.inline_data.data(), &qp.value, sizeof qp.value);
    request.remote_address = qp.target;
    request.rkey = memory_.key;
    request.signaled = count == 1 || number(0, 3) == 0;
    qp.last = driver_.queue_send(qp.queue, request);
    ++posts_;
    if (!qp.pending) {
      qp.pending = true;
      ++cqs_[qp.cq].pending;
      ++pending_;
    }
    if (ring_each || count == 1) driver_.ring_sq(qp.queue);
  }
}

/// Those that something will complete on, or all. An arm that is out stays.
void Worker::arm(bool all) {
  for (Cq& cq : cqs_) {
    if (cq.armed || (cq.pending == 0 && !all)) continue;
    driver_.arm_cq(cq.queue);
    cq.armed = true;
  }
}

void Worker::collect(Cq& cq) {
  while (const auto completion = driver_.poll_cq(cq.queue)) {
    if (completion->error() || completion->user_index >= qps_.size()) {
      throw std::runtime_error("a completion with syndrome " +
                               std::to_string(completion->syndrome));
    }
    Qp& qp = qps_[completion->user_index];
    if (qp.pending && completion->wqe_counter == qp.last) complete(qp);
  }
}

void Worker::complete(Qp& qp) {
  const auto written =
      __atomic_load_n(driver_.memory().as<std::uint64_t>(qp.target), __ATOMIC_ACQUIRE);
  if (written != qp.value) throw std::runtime_error("a completed write did not arrive");
  qp.pending = false;
  --cqs_[qp.cq].pending;
  --pending_;
}

void Worker::collect_all() {
  for (Cq& cq : cqs_) {
    if (cq.pending != 0) collect(cq);
  }
}

void Worker::poll_for_completions() {
  const auto end = Clock::now() + kPatience;
  while (pending_ != 0) {
    collect_all();
    if (Clock::now() > end) lost();
    ::sched_yield();
  }
}

/// As programs sleep on a completion channel. Without a second look after the arm, the device alone
/// sees that completions came between the last look and the arm.
void Worker::sleep_for_completions(bool look_again) {
  while (pending_ != 0) {
    arm(/*all=*/false);
    if (look_again) collect_all();
    if (pending_ != 0) wait_for_interrupt();
  }
}

/// As a kernel's interrupt handler: all events, then the arm of the event queue, without a second
/// look.
void Worker::wait_for_interrupt() {
  pollfd entry{interrupt_, POLLIN, 0};
  const int milliseconds = static_cast<int>(std::chrono::milliseconds(kPatience).count());
  if (::poll(&entry, 1, milliseconds) != 1) lost();
  ++sleeps_;
  std::uint64_t count = 0;
  if (::read(interrupt_, &count, sizeof count) != sizeof count) {
    throw std::runtime_error("the interrupt's eventfd is not readable");
  }
  std::array<bool, kCqs> rung{};
  while (const auto event = driver_.poll_eq(eq_)) {
    const auto cqn = static_cast<std::uint32_t>(prm::Field<0, 32>::get(event->data.data() + 24));
    for (unsigned i = 0; i < kCqs; ++i) {
      if (cqs_[i].queue.cqn != cqn) continue;
      ++cqs_[i].queue.arm_sn;
      cqs_[i].armed = false;
      rung[i] = true;
    }
  }
  driver_.arm_eq(eq_);
  for (unsigned i = 0; i < kCqs; ++i) {
    if (rung[i]) collect(cqs_[i]);
  }
}

bool Worker::completes_soon() {
  const auto end = Clock::now() + std::chrono::seconds(5);
  while (pending_ != 0 && Clock::now() < end) {
    collect_all();
    ::sched_yield();
  }
  return pending_ == 0;
}

/// What brings the missing completions tells what was lost.
std::string Worker::cure() {
  if (pending_ == 0) return "they came without an interrupt";
  driver_.read32(0);
  if (completes_soon()) return "they came when the engine was woken";
  for (const Qp& qp : qps_) {
    if (qp.pending) driver_.ring_sq(qp.queue);
  }
  return completes_soon() ? "they came when the doorbells were rung again" : "they never came";
}

void Worker::lost() {
  const unsigned waited = pending_;
  collect_all();
  const unsigned missing = pending_;
  throw std::runtime_error("round " + std::to_string(rounds_) + ", " + std::to_string(posts_) +
                           " posts: of the completions of " + std::to_string(waited) +
                           " queue pairs " + std::to_string(missing) + " are missing; " + cure());
}

}  // namespace softhca::test
