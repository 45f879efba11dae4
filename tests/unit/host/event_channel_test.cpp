// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/events/event_channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

namespace softhca::shim {
namespace {

class EventChannelTest : public ::testing::Test {
 protected:
  EventChannelTest() {
    ::signal(SIGPIPE, SIG_IGN);
    auto made = EventChannel::create(loop_, 8);
    channel_ = std::move(made->first);
    reader_ = std::move(made->second);
    ::fcntl(reader_.get(), F_SETFL, O_NONBLOCK);
  }
  void post(std::uint64_t value, std::uint32_t* reported) {
    channel_->post(std::as_bytes(std::span(&value, 1)), reported);
  }
  /// 0 if nothing waits.
  std::uint64_t read() {
    std::uint64_t value = 0;
    return ::read(reader_.get(), &value, sizeof(value)) == sizeof(value) ? value : 0;
  }

  EventLoop loop_;
  std::shared_ptr<EventChannel> channel_;
  runtime::UniqueFd reader_;
};

TEST_F(EventChannelTest, RecordsArriveInOrder) {
  for (std::uint64_t i = 1; i <= 10; ++i) post(i, nullptr);
  for (std::uint64_t i = 1; i <= 10; ++i) EXPECT_EQ(read(), i);
  EXPECT_EQ(read(), 0U);
}

TEST_F(EventChannelTest, OnlyReadRecordsCountAsReported) {
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  post(1, &a);
  post(2, &b);
  post(3, &a);
  post(4, &a);
  EXPECT_EQ(read(), 1U);
  EXPECT_EQ(read(), 2U);
  channel_->retire(&a);
  EXPECT_EQ(a, 1U) << "of three records one was read";
  EXPECT_EQ(read(), 0U) << "unread records vanish with their object";
  channel_->retire(&b);
  EXPECT_EQ(b, 1U);
}

TEST_F(EventChannelTest, EndsForReadersWithWhatTheyHaveNotRead) {
  std::uint32_t reported = 0;
  post(1, &reported);
  post(2, &reported);
  EXPECT_EQ(read(), 1U);
  channel_->end();
  std::uint64_t value = 0;
  EXPECT_EQ(::read(reader_.get(), &value, sizeof(value)), 0) << "the end of the file";
  pollfd waiting{reader_.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 1) << "poll does not sleep";
  EXPECT_EQ(reported, 1U) << "what was read counts, what vanished does not";
  EXPECT_FALSE(channel_->open());
  post(3, &reported);
  channel_->retire(&reported);
  channel_->end();
  EXPECT_EQ(reported, 1U);
}

TEST_F(EventChannelTest, RetiringOneObjectKeepsTheOthersRecordsInOrder) {
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  for (std::uint64_t i = 1; i <= 6; ++i) post(i, i % 2 == 0 ? &a : &b);
  channel_->retire(&a);
  EXPECT_EQ(a, 0U);
  EXPECT_EQ(read(), 1U);
  EXPECT_EQ(read(), 3U);
  EXPECT_EQ(read(), 5U);
  channel_->retire(&b);
  EXPECT_EQ(b, 3U);
}

TEST_F(EventChannelTest, MoreThanThePipeHoldsWaitsBehindIt) {
  constexpr std::uint64_t count = 20000;
  std::uint32_t reported = 0;
  for (std::uint64_t i = 1; i <= count; ++i) post(i, &reported);
  for (std::uint64_t i = 1; i <= count; ++i) {
    std::uint64_t value = read();
    for (int turns = 0; value == 0 && turns < 100; ++turns) {
      loop_.run_once(std::chrono::milliseconds(10));
      value = read();
    }
    ASSERT_EQ(value, i);
  }
  channel_->retire(&reported);
  EXPECT_EQ(reported, count);
}

TEST_F(EventChannelTest, KnowsItsDescriptorAndItsDuplicatesOnly) {
  const runtime::UniqueFd copy(::dup(reader_.get()));
  EXPECT_TRUE(channel_->is_same(copy.get()));
  auto other = EventChannel::create(loop_, 8);
  EXPECT_FALSE(channel_->is_same(other->second.get()));
  EXPECT_FALSE(channel_->is_same(0));
  EXPECT_FALSE(channel_->is_same(-1));
}

TEST_F(EventChannelTest, ClosesWithItsLastReaderThoughNothingIsSent) {
  runtime::UniqueFd copy(::dup(reader_.get()));
  reader_.reset();
  loop_.run_once(std::chrono::milliseconds(0));
  EXPECT_TRUE(channel_->open());
  copy.reset();
  loop_.run_once(std::chrono::milliseconds(0));
  EXPECT_FALSE(channel_->open());
}

TEST_F(EventChannelTest, WhatWasReadCountsAlsoAfterTheReaderIsGone) {
  std::uint32_t reported = 0;
  for (std::uint64_t i = 1; i <= 3; ++i) post(i, &reported);
  EXPECT_EQ(read(), 1U);
  EXPECT_EQ(read(), 2U);
  reader_.reset();
  loop_.run_once(std::chrono::milliseconds(0));
  channel_->retire(&reported);
  EXPECT_EQ(reported, 2U);
}

TEST_F(EventChannelTest, AChannelWithoutReadersTakesNothingAndDoesNotFail) {
  std::uint32_t reported = 0;
  reader_.reset();
  post(1, &reported);
  EXPECT_FALSE(channel_->open());
  channel_->retire(&reported);
  EXPECT_EQ(reported, 0U);
}

}  // namespace
}  // namespace softhca::shim
