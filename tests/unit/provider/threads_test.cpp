// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/provider/queue_fixture.h"

namespace softhca::provider {
namespace {

constexpr int kPerThread = 20000;

/// Plays the device for one CQ: completes everything that the doorbell record shows.
void complete_sends(PlainQueuePair& plain, PlainCompletionQueue& cq, std::uint32_t index,
                    int total) {
  std::uint32_t done = 0;
  while (done < static_cast<std::uint32_t>(total)) {
    const std::uint32_t raw = __atomic_load_n(&plain.record[1].raw, __ATOMIC_ACQUIRE);
    const auto posted = static_cast<std::uint16_t>(prm::Be32::swap(raw));
    const auto pending = static_cast<std::uint16_t>(posted - static_cast<std::uint16_t>(done));
    for (std::uint16_t i = 0; i < pending; ++i, ++done) {
      cq.write(prm::CqeOpcode::requester, index, [&](std::uint8_t* cqe) {
        prm::Cqe::send_opcode::set(cqe, static_cast<unsigned>(prm::WqeOpcode::send));
        prm::Cqe::wqe_counter::set(cqe, done & 0xffff);
      });
      ibv_wc wc{};
      ASSERT_EQ(cq.poll(wc), 1);
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    }
    if (pending == 0) std::this_thread::yield();
  }
}

TEST(Threads, TwoThreadsMayPostToOneQueue) {
  PlainQueuePair plain(IBV_QPT_RC, 64);
  PlainCompletionQueue cq(128);
  const std::uint32_t index = *cq.resources.insert(&plain.qp.resource);
  std::thread device([&] { complete_sends(plain, cq, index, 2 * kPerThread); });
  const auto post_many = [&](std::uint64_t id) {
    for (int i = 0; i < kPerThread; ++i) {
      ibv_send_wr wr{};
      wr.wr_id = id;
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED;
      while (plain.post(wr) != 0) std::this_thread::yield();
    }
  };
  std::thread first(post_many, 1);
  std::thread second(post_many, 2);
  first.join();
  second.join();
  device.join();
  EXPECT_EQ(plain.qp.sq.producer, 2U * kPerThread);
  EXPECT_EQ(plain.qp.sq.tail.load(), 2U * kPerThread);
}

TEST(Threads, TheLockIsNotTouchedWhenNotNeeded) {
  QueueLock lock;
  lock.set_needed(false);
  lock.lock();
  lock.lock();  // would hang
  lock.unlock();
  EXPECT_FALSE(lock.needed());
}

TEST(Threads, TheLockExcludes) {
  QueueLock lock;
  int counter = 0;
  const auto work = [&] {
    for (int i = 0; i < kPerThread; ++i) {
      lock.lock();
      ++counter;
      lock.unlock();
    }
  };
  std::thread first(work);
  std::thread second(work);
  first.join();
  second.join();
  EXPECT_EQ(counter, 2 * kPerThread);
}

}  // namespace
}  // namespace softhca::provider
