// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The queue that a device watches needs no marks; every other one does, and is told so in time.
#include "hw-model/transport/send_watch.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/iseg.h"
#include "hw-model/runtime/doorbell_hints.h"
#include "tests/support/two_hosts.h"

namespace softhca::test {
namespace {

constexpr std::uint32_t kWatchPsn = 100;

class SendWatchTest : public ::testing::Test {
 protected:
  SendWatchTest() : peer_cq(world.b->driver.create_cq(8)), cq(driver.create_cq(8)) {
    function.attach_doorbell_hints(hints.get());
    first = connected();
    second = connected();
  }
  ~SendWatchTest() override { function.attach_doorbell_hints(nullptr); }

  DriverQp connected() {
    MiniDriver& other = world.b->driver;
    const DriverQp qp = driver.create_qp(cq, cq);
    const DriverQp peer = other.create_qp(peer_cq, peer_cq);
    EXPECT_TRUE(other.to_init(peer).ok() &&
                other.to_rtr(peer, qp.qpn, world.a->lid(), kWatchPsn).ok() &&
                other.to_rts(peer, kWatchPsn).ok());
    connect(qp, peer.qpn);
    peers.push_back(peer.qpn);
    return qp;
  }
  void connect(const DriverQp& qp, std::uint32_t peer) {
    EXPECT_TRUE(driver.to_init(qp).ok() &&
                driver.to_rtr(qp, peer, world.b->lid(), kWatchPsn).ok() &&
                driver.to_rts(qp, kWatchPsn).ok());
  }
  /// A WRITE; its doorbell record, and nothing else, tells of it.
  void queue(DriverQp& qp) {
    SendRequest request;
    request.opcode = prm::WqeOpcode::rdma_write;
    request.inline_data = {1, 2, 3, 4};
    request.remote_address = target.address;
    request.rkey = target.key;
    driver.queue_send(qp, request);
  }
  void ring(const DriverQp& qp) { hints->ring_sq(hints->sq.place_of(qp.qpn)); }
  bool marked() const { return hints->any(); }
  unsigned completions() {
    for (int i = 0; i < 8; ++i) world.step();
    unsigned count = 0;
    while (const auto completion = driver.poll_cq(cq)) {
      last_syndrome = completion->syndrome;
      ++count;
    }
    return count;
  }
  void watch(DriverQp& qp) {
    for (unsigned i = 0; i < SendWatch::kHints; ++i) {
      queue(qp);
      hints->sq.mark(qp.qpn);
      EXPECT_EQ(completions(), 1U);
    }
    EXPECT_EQ(hints->watched, qp.qpn + 1);
  }

  TwoHosts world;
  MiniDriver& driver = world.a->driver;
  Function& function = world.a->function;
  std::unique_ptr<DoorbellHints> hints = std::make_unique<DoorbellHints>();
  DriverMr target = world.b->driver.allocate_mr(64);
  DriverMr target_here = driver.allocate_mr(64);
  DriverCq peer_cq;
  DriverCq cq;
  DriverQp first;
  DriverQp second;
  std::vector<std::uint32_t> peers;
  unsigned last_syndrome = 0;
};

TEST_F(SendWatchTest, AQueueThatIsMarkedAgainAndAgainNeedsNoMoreMarks) {
  for (unsigned i = 1; i < SendWatch::kHints; ++i) {
    queue(first);
    ring(first);
    EXPECT_TRUE(marked());
    EXPECT_EQ(completions(), 1U);
    EXPECT_EQ(hints->watched, 0U);
  }
  queue(first);
  ring(first);
  EXPECT_EQ(completions(), 1U);
  EXPECT_EQ(hints->watched, first.qpn + 1);
  for (int i = 0; i < 300; ++i) {
    queue(first);
    EXPECT_TRUE(function.rung());
    ring(first);
    EXPECT_FALSE(marked());
    EXPECT_EQ(completions(), 1U);
    EXPECT_FALSE(function.rung());
  }
  queue(second);
  ring(second);
  EXPECT_TRUE(marked()) << "others do";
  EXPECT_EQ(completions(), 1U);
}

TEST_F(SendWatchTest, OtherQueuesTakeItsPlaceOnlyWhileItRests) {
  watch(first);
  for (unsigned i = 0; i < 5 * SendWatch::kHints; ++i) {
    queue(first);
    queue(second);
    ring(second);
    EXPECT_EQ(completions(), 2U);
    EXPECT_EQ(hints->watched, first.qpn + 1);
  }
  for (unsigned i = 1; i < SendWatch::kHints; ++i) {
    EXPECT_EQ(hints->watched, first.qpn + 1);
    queue(second);
    ring(second);
    EXPECT_EQ(completions(), 1U);
  }
  EXPECT_EQ(hints->watched, second.qpn + 1);
  queue(second);
  EXPECT_EQ(completions(), 1U);
  queue(first);
  EXPECT_EQ(completions(), 0U);
  ring(first);
  EXPECT_EQ(completions(), 1U);
}

TEST_F(SendWatchTest, WhoRingsWhileAnotherQueueTakesThePlaceIsHeard) {
  watch(first);
  // The last hint's own request stores to the doorbell record of the queue that is watched no more
  // when the request is done: as late as a store can be that is told by nothing else.
  DriverQp loop = driver.create_qp(cq, cq);
  ASSERT_TRUE(driver.to_init(loop).ok() &&
              driver.to_rtr(loop, loop.qpn, world.a->lid(), kWatchPsn).ok() &&
              driver.to_rts(loop, kWatchPsn).ok());
  const DriverMr record = driver.register_memory(first.doorbell, 8);
  std::uint8_t* word = driver.memory().bytes(first.doorbell) + 4;
  std::array<std::uint8_t, 4> before{};
  std::memcpy(before.data(), word, before.size());
  queue(first);
  SendRequest late;
  late.opcode = prm::WqeOpcode::rdma_write;
  late.inline_data.assign(word, word + before.size());
  late.remote_address = first.doorbell + 4;
  late.rkey = record.key;
  std::memcpy(word, before.data(), before.size());
  SendRequest harmless = late;
  harmless.remote_address = target_here.address;
  harmless.rkey = target_here.key;
  for (unsigned i = 1; i < SendWatch::kHints; ++i) {
    driver.queue_send(loop, harmless);
    hints->sq.mark(loop.qpn);
    EXPECT_EQ(completions(), 1U);
  }
  EXPECT_EQ(hints->watched, first.qpn + 1);
  driver.queue_send(loop, late);
  hints->sq.mark(loop.qpn);
  function.step({});
  EXPECT_EQ(hints->watched, loop.qpn + 1);
  EXPECT_EQ(completions(), 2U);
}

TEST_F(SendWatchTest, ADestroyedQueueIsNotWatchedAndItsSuccessorMarks) {
  watch(first);
  CommandBuffer destroy(prm::CommandOpcode::destroy_qp, prm::DestroyQpInput::size);
  driver.must(destroy.set<prm::DestroyQpInput::qpn>(first.qpn));
  EXPECT_EQ(hints->watched, 0U);
  DriverQp next = connected();
  queue(next);
  ring(next);
  EXPECT_TRUE(marked());
  EXPECT_EQ(completions(), 1U);
}

TEST_F(SendWatchTest, AQueueInErrorIsFlushedWithoutMarks) {
  watch(first);
  ASSERT_TRUE(driver.to_error(first).ok());
  queue(first);
  ring(first);
  EXPECT_EQ(completions(), 1U);
  EXPECT_EQ(last_syndrome, static_cast<unsigned>(prm::CqeSyndrome::flushed));
  EXPECT_FALSE(function.step({})) << "nothing is left";
  EXPECT_FALSE(function.rung());
}

TEST_F(SendWatchTest, AQueueThatIsResetIsHeardWhenItSendsAgain) {
  watch(first);
  ASSERT_TRUE(driver.to_reset(first).ok());
  connect(first, peers[0]);
  EXPECT_FALSE(function.rung());
  queue(first);
  ring(first);
  for (int i = 0; i < 8; ++i) world.step();
  EXPECT_FALSE(function.rung());
  // The peer, which was not reset, expects another PSN; what matters is that it was sent.
  EXPECT_NE(function.status_json().find("\"sq_posted\":1"), std::string::npos)
      << function.status_json();
}

TEST_F(SendWatchTest, ARecordThatIsMappedAnewIsWatchedOn) {
  watch(first);
  alignas(64) std::array<std::byte, 4096> more{};
  DmaSpace::Range range;
  range.iova = 1ULL << 40;
  range.size = more.size();
  range.base = more.data();
  ASSERT_EQ(function.dma().map(range), std::errc{});
  EXPECT_TRUE(function.rung()) << "any place may have changed";
  queue(first);
  ring(first);
  EXPECT_EQ(completions(), 1U);
  EXPECT_FALSE(function.rung());
  ASSERT_EQ(function.dma().unmap(range.iova, range.size), std::errc{});
  queue(first);
  ring(first);
  EXPECT_EQ(completions(), 1U);
  EXPECT_FALSE(function.rung());
}

TEST_F(SendWatchTest, AFailedDeviceWatchesNothing) {
  watch(first);
  function.fail(static_cast<std::uint8_t>(prm::HealthSyndrome::firmware_error), "test");
  queue(first);
  function.step({});
  EXPECT_EQ(hints->watched, 0U);
  EXPECT_FALSE(function.rung());
}

TEST_F(SendWatchTest, AResetDeviceWatchesNothing) {
  watch(first);
  function.reset();
  EXPECT_EQ(hints->watched, 0U);
  queue(first);
  EXPECT_FALSE(function.rung());
}

TEST_F(SendWatchTest, AnotherPageStartsAnew) {
  watch(first);
  auto other = std::make_unique<DoorbellHints>();
  other->watched = 77;
  function.attach_doorbell_hints(other.get());
  EXPECT_EQ(hints->watched, 0U);
  EXPECT_EQ(other->watched, 0U);
  std::swap(hints, other);
  watch(first);
  function.attach_doorbell_hints(nullptr);
  EXPECT_EQ(hints->watched, 0U);
  queue(first);
  EXPECT_FALSE(function.rung());
}

TEST_F(SendWatchTest, NonsenseInThePageIsPutRightAndWhoBelievedItIsHeard) {
  watch(first);
  hints->watched = second.qpn + 1;
  queue(second);
  ring(second);
  EXPECT_EQ(completions(), 0U) << "he believes that he is watched";
  EXPECT_TRUE(function.repair_hints());
  EXPECT_EQ(hints->watched, first.qpn + 1);
  EXPECT_EQ(completions(), 1U);
  EXPECT_FALSE(function.repair_hints());
  hints->watched = second.qpn + 1;
  queue(first);
  ring(first);
  EXPECT_EQ(completions(), 1U);
  EXPECT_EQ(hints->watched, first.qpn + 1) << "who is watched, and marks, shows that it is wrong";
  hints->watched = 0xffffffff;
  EXPECT_TRUE(function.repair_hints());
  EXPECT_EQ(hints->watched, first.qpn + 1);
}

TEST_F(SendWatchTest, NobodyTakesThePlaceWhoseRecordCannotBeWatched) {
  watch(first);
  DriverQp reset = driver.create_qp(cq, cq);  // Its record has never been looked at.
  for (unsigned i = 0; i < 3 * SendWatch::kHints; ++i) {
    hints->sq.mark(reset.qpn);
    function.step({});
    EXPECT_EQ(hints->watched, first.qpn + 1);
  }
}

TEST_F(SendWatchTest, ALookInPiecesSeesEveryQueueOnce) {
  std::vector<DriverQp> qps;
  for (int i = 0; i < 20; ++i) qps.push_back(connected());
  while (!function.sweep_doorbells(3).whole) {
  }
  for (DriverQp& qp : qps) queue(qp);
  unsigned pieces = 0;
  unsigned moved = 0;
  for (bool whole = false; !whole; ++pieces) {
    const Sweep sweep = function.sweep_doorbells(4);
    moved += sweep.moved ? 1U : 0U;
    whole = sweep.whole;
    ASSERT_LT(pieces, 100U);
  }
  EXPECT_GE(pieces, 6U);
  EXPECT_GE(moved, 5U);
  EXPECT_EQ(completions(), 20U);
  EXPECT_FALSE(function.sweep_doorbells().moved);
  EXPECT_TRUE(function.sweep_doorbells().whole);
}

TEST_F(SendWatchTest, APieceOfNothingEndsNoLook) {
  queue(first);
  EXPECT_FALSE(function.sweep_doorbells(0).whole);
  EXPECT_TRUE(function.sweep_doorbells().moved);
  EXPECT_EQ(completions(), 1U);
}

TEST_F(SendWatchTest, AHostThatHasHadManyQueuesIsLookedAtInOnePiece) {
  QpOptions small;
  small.log_rq_size = 0;
  small.log_sq_size = 1;
  for (int i = 0; i < 1100; ++i) {
    const DriverQp gone = driver.create_qp(cq, cq, small);
    CommandBuffer destroy(prm::CommandOpcode::destroy_qp, prm::DestroyQpInput::size);
    driver.must(destroy.set<prm::DestroyQpInput::qpn>(gone.qpn));
  }
  queue(first);
  const Sweep sweep = function.sweep_doorbells(100);
  EXPECT_TRUE(sweep.whole);
  EXPECT_TRUE(sweep.moved);
}

TEST_F(SendWatchTest, TimeGoesOnHoweverManyTimersEndAtOnce) {
  // To nobody, so that they wait for acknowledges; all in one tick of the timers.
  std::vector<DriverQp> qps;
  for (unsigned i = 0; i < 70; ++i) {
    const DriverQp qp = driver.create_qp(cq, cq);
    connect(qp, 0x30000);
    qps.push_back(qp);
  }
  for (DriverQp& qp : qps) {
    queue(qp);
    ring(qp);
  }
  while (function.step({})) {
  }
  const Nanoseconds first_timer = function.next_deadline();
  ASSERT_NE(first_timer, kNever);
  for (int i = 0; i < 10000 && world.clock.now() < first_timer; ++i) {
    ASSERT_GT(function.next_deadline(), world.clock.now());
    world.clock.advance_to(std::min(function.next_deadline(), first_timer - 1));
    if (world.clock.now() == first_timer - 1) break;
    function.step({});
  }
  for (int i = 0; i < 100; ++i) world.step();
  EXPECT_GT(world.clock.now(), first_timer);
}

}  // namespace
}  // namespace softhca::test
