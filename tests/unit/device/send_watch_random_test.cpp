// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Random sequences of what can happen to a queue that is watched, against a plain model: whatever
// was posted and rung by the rules completes, once and in order, and the device comes to rest.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "hw-model/device/config_space.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/runtime/doorbell_hints.h"
#include "hw-model/transport/send_watch.h"
#include "tests/support/two_hosts.h"

namespace softhca::test {
namespace {

constexpr std::uint32_t kRandomPsn = 500;
constexpr std::size_t kQps = 5;
constexpr std::uint16_t kMostPending = 60;

/// Reaches memory by calls alone.
class ReachedByCalls final : public DmaBacking {
 public:
  explicit ReachedByCalls(std::byte* base) : base_(base) {}
  DmaStatus read(std::uint64_t offset, void* to, std::size_t length) override {
    std::memcpy(to, base_ + offset, length);
    return DmaStatus::ok;
  }
  DmaStatus write(std::uint64_t offset, const void* from, std::size_t length) override {
    std::memcpy(base_ + offset, from, length);
    return DmaStatus::ok;
  }

 private:
  std::byte* base_;
};

class RandomWatch {
 public:
  explicit RandomWatch(std::uint64_t seed) : random_(seed), cq_(driver_.create_cq(12)) {
    attach();
    for (std::size_t i = 0; i < kQps; ++i) qps_.push_back(make());
  }
  ~RandomWatch() { function_.attach_doorbell_hints(nullptr); }

  void run(unsigned actions) {
    for (unsigned i = 0; i < actions && !::testing::Test::HasFailure(); ++i) act();
    settle();
  }
  std::uint64_t unmarked() const { return unmarked_; }
  std::uint64_t posts() const { return posts_; }

 private:
  struct Queue {
    DriverQp qp;
    bool in_error = false;
    std::uint16_t expected = 0;  ///< WQE counter of the next completion.
    std::uint16_t posted = 0;
  };

  unsigned below(unsigned limit) {
    return std::uniform_int_distribution<unsigned>(0, limit - 1)(random_);
  }
  Queue make() {
    QpOptions options;
    options.log_rq_size = 0;
    Queue queue{driver_.create_qp(cq_, cq_, options)};
    connect(queue);
    return queue;
  }
  void connect(Queue& queue) {
    QpTimers timers;
    timers.ack_timeout = 0;  // A retry would look at the queue again.
    EXPECT_TRUE(
        driver_.to_init(queue.qp).ok() &&
        driver_.to_rtr(queue.qp, queue.qp.qpn, world_.a->lid(), kRandomPsn, 5, {}, timers).ok() &&
        driver_.to_rts(queue.qp, kRandomPsn, timers).ok());
    queue.in_error = false;
    queue.expected = queue.posted = 0;
  }
  void attach() {
    auto fresh = std::make_unique<DoorbellHints>();
    if (below(2) == 0) fresh->watched = below(400);
    function_.attach_doorbell_hints(fresh.get());
    hints_ = std::move(fresh);
    attached_ = true;
  }

  void post(Queue& queue, unsigned count) {
    count = std::min<unsigned>(
        count, kMostPending - std::min<unsigned>(kMostPending, static_cast<std::uint16_t>(
                                                                   queue.posted - queue.expected)));
    SendRequest request;
    request.opcode = prm::WqeOpcode::rdma_write;
    request.inline_data = {1, 2, 3, 4};
    request.remote_address = target_.address;
    request.rkey = target_.key;
    for (; count != 0; --count) {
      driver_.queue_send(queue.qp, request);
      ++queue.posted;
      ++posts_;
    }
  }
  void ring(Queue& queue) {
    if (!attached_ || below(12) == 0) {
      driver_.ring_sq(queue.qp);
      return;
    }
    const auto place = hints_->sq.place_of(queue.qp.qpn);
    if (below(12) == 0) {
      hints_->sq.mark(place);
      return;
    }
    if (hints_->watched == place.field) ++unmarked_;
    hints_->ring_sq(place);
  }

  /// The queue that most is posted to.
  Queue& favourite() {
    if (below(40) == 0) favourite_ = below(kQps);
    return qps_[below(6) == 0 ? below(kQps) : favourite_];
  }

  void act() {
    Queue& queue = favourite();
    switch (below(160)) {
      case 0: {  // Goes, whether all has completed or not.
        CommandBuffer destroy(prm::CommandOpcode::destroy_qp, prm::DestroyQpInput::size);
        driver_.must(destroy.set<prm::DestroyQpInput::qpn>(queue.qp.qpn));
        collect(&queue);
        queue = make();
        break;
      }
      case 1:
        ASSERT_TRUE(driver_.to_reset(queue.qp).ok());
        collect(&queue);
        connect(queue);
        break;
      case 2:
        ASSERT_TRUE(driver_.to_error(queue.qp).ok());
        queue.in_error = true;
        break;
      case 3:
        remap(below(3) == 0);
        break;
      case 4: {  // Somewhere else.
        DmaSpace::Range range;
        range.iova = 1ULL << 40;
        range.size = elsewhere_.size();
        range.base = elsewhere_.data();
        ASSERT_EQ(function_.dma().map(range), std::errc{});
        if (below(2) == 0) function_.step({});
        ASSERT_EQ(function_.dma().unmap(range.iova, range.size), std::errc{});
        break;
      }
      case 5:
        suspended(queue);
        break;
      case 6:
        if (below(4) == 0) nonsense(queue);
        break;
      case 7:
        function_.sweep_doorbells(below(200));
        break;
      case 8:
        if (below(4) == 0) another_page();
        break;
      case 9:
        settle();
        break;
      default:
        post(queue, 1 + below(below(8) == 0 ? 20 : 2));
        ring(queue);
        for (unsigned steps = below(4); steps != 0; --steps) world_.step();
        if (below(2) == 0) collect(nullptr);
    }
  }

  /// All memory is mapped anew, with or without a place where the device sees it.
  void remap(bool indirect) {
    GuestMemory& memory = driver_.memory();
    ASSERT_EQ(function_.dma().unmap(memory.iova(), memory.size()), std::errc{});
    DmaSpace::Range range;
    range.iova = memory.iova();
    range.size = memory.size();
    if (indirect) {
      range.backing = std::make_shared<ReachedByCalls>(memory.at(memory.iova()));
    } else {
      range.base = memory.at(memory.iova());
    }
    ASSERT_EQ(function_.dma().map(range), std::errc{});
  }
  void suspended(Queue& queue) {
    constexpr std::array<std::byte, 2> kOff{std::byte{2}, std::byte{0}};
    constexpr std::array<std::byte, 2> kOn{std::byte{6}, std::byte{0}};
    function_.config_write(ConfigSpace::kCommand, kOff);
    if (below(2) == 0) {
      post(queue, 1);
      ring(queue);
    }
    rest();
    if (below(2) == 0) {
      post(queue, 1);
      ring(queue);
    }
    function_.config_write(ConfigSpace::kCommand, kOn);
  }
  /// Somebody writes into the page. The runner has it put right now and then.
  void nonsense(Queue& queue) {
    if (!attached_) return;
    hints_->watched = below(2) == 0 ? queue.qp.qpn + 1 : below(1000);
    post(queue, 1);
    ring(queue);
    for (unsigned steps = below(3); steps != 0; --steps) world_.step();
    function_.repair_hints();
  }
  void another_page() {
    if (below(3) != 0) {
      const auto before = std::move(hints_);
      attach();
      // Whoever marked the old page is not heard: as a client that goes.
      for (Queue& queue : qps_) ring(queue);
      return;
    }
    function_.attach_doorbell_hints(nullptr);
    hints_->sq.drain([](std::uint32_t) {});
    attached_ = false;
    for (Queue& queue : qps_) ring(queue);
    settle();
    attach();
  }

  /// Nothing is left to do without a doorbell, soon.
  void rest() {
    for (int i = 0; i < 2000; ++i) {
      const bool rung = function_.rung();
      const bool fabric = world_.fabric.step();
      if (!function_.step({}) && !rung && !fabric) {
        if (world_.fabric.next_deadline() == kNever) return;
        world_.clock.advance_to(world_.fabric.next_deadline());
      }
    }
    ADD_FAILURE() << "the device finds no rest; rung " << function_.rung();
  }
  void collect(const Queue* gone) {
    while (const auto completion = driver_.poll_cq(cq_)) {
      if (gone != nullptr && completion->qpn == gone->qp.qpn) continue;
      Queue* queue = nullptr;
      for (Queue& candidate : qps_) {
        if (candidate.qp.qpn == completion->qpn) queue = &candidate;
      }
      ASSERT_NE(queue, nullptr) << completion->qpn;
      EXPECT_EQ(completion->wqe_counter, queue->expected);
      EXPECT_TRUE(queue->in_error || !completion->error()) << unsigned{completion->syndrome};
      ++queue->expected;
    }
  }
  void settle() {
    rest();
    collect(nullptr);
    for (const Queue& queue : qps_) {
      EXPECT_EQ(queue.expected, queue.posted) << "queue " << queue.qp.qpn << ", watched "
                                              << hints_->watched << ", in error " << queue.in_error;
    }
  }

  std::mt19937_64 random_;
  TwoHosts world_;
  Function& function_ = world_.a->function;
  MiniDriver& driver_ = world_.a->driver;
  DriverCq cq_;
  DriverMr target_ = driver_.allocate_mr(64);
  std::unique_ptr<DoorbellHints> hints_;
  bool attached_ = false;
  alignas(64) std::array<std::byte, 4096> elsewhere_{};
  std::vector<Queue> qps_;
  std::size_t favourite_ = 0;
  std::uint64_t unmarked_ = 0;
  std::uint64_t posts_ = 0;
};

TEST(RandomWatch, WhateverIsRungByTheRulesCompletes) {
  const char* first = std::getenv("SOFTHCA_WATCH_SEED");
  const char* many = std::getenv("SOFTHCA_WATCH_SEEDS");
  const std::uint64_t from = first != nullptr ? std::strtoull(first, nullptr, 0) : 1;
  const std::uint64_t count = many != nullptr ? std::strtoull(many, nullptr, 0) : 8;
  std::uint64_t unmarked = 0;
  std::uint64_t posts = 0;
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    SCOPED_TRACE(seed);
    RandomWatch watch(seed);
    watch.run(1500);
    unmarked += watch.unmarked();
    posts += watch.posts();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(unmarked, posts / 20);
  std::printf("%llu seeds, %llu posts, %llu doorbells without a mark\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(posts),
              static_cast<unsigned long long>(unmarked));
}

}  // namespace
}  // namespace softhca::test
