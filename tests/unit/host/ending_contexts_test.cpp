// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/uverbs/ending_contexts.h"

#include "tests/unit/host/verbs_host.h"

namespace softhca::shim::test {
namespace {

using prm::CommandOpcode;

class EndingContextsTest : public VerbsHost {
 protected:
  std::unique_ptr<Context> context_with(std::size_t pds) {
    auto context = new_context();
    open(*context);
    for (std::size_t i = 0; i < pds; ++i) make_pd(*context);
    return context;
  }
  std::size_t pds() { return fake_->live(CommandOpcode::alloc_pd); }
  void turn() { loop_.run_once(std::chrono::milliseconds(0)); }

  int ended_ = 0;
  EndingContexts ending_{loop_, [this] { ++ended_; }};
};

TEST_F(EndingContextsTest, AContextOfFewObjectsEndsAtOnce) {
  const std::size_t before = pds();
  ending_.end(context_with(EndingContexts::kPiece - 1));
  EXPECT_EQ(ended_, 1);
  EXPECT_EQ(pds(), before);
}

TEST_F(EndingContextsTest, OthersAreServedWhileManyObjectsAreDestroyed) {
  constexpr std::size_t kPieces = 5;
  const std::size_t before = pds();
  ending_.end(context_with(EndingContexts::kPiece * kPieces));
  for (std::size_t piece = 1; piece < kPieces; ++piece) {
    EXPECT_EQ(pds(), before + EndingContexts::kPiece * (kPieces - piece));
    EXPECT_EQ(ended_, 0);
    // A command of another context goes in between.
    const std::uint32_t pd = make_pd(*context_);
    EXPECT_EQ(destroy(*context_, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, pd), 0);
    turn();
  }
  EXPECT_EQ(ended_, 1);
  EXPECT_EQ(pds(), before);
}

TEST_F(EndingContextsTest, TheyEndInTheOrderInWhichTheyWereClosed) {
  const std::size_t before = pds();
  ending_.end(context_with(EndingContexts::kPiece * 2));
  ending_.end(context_with(1));
  EXPECT_EQ(ended_, 0);
  turn();
  EXPECT_EQ(ended_, 1);
  EXPECT_EQ(pds(), before + 1);
  turn();
  EXPECT_EQ(ended_, 2);
  EXPECT_EQ(pds(), before);
}

TEST_F(EndingContextsTest, WhatIsLeftCanBeFinishedAtOnce) {
  const std::size_t before = pds();
  ending_.end(context_with(EndingContexts::kPiece * 3));
  ending_.end(context_with(EndingContexts::kPiece * 3));
  ending_.finish();
  EXPECT_EQ(ended_, 2);
  EXPECT_EQ(pds(), before);
  turn();  // No timer is left that would look for more.
  EXPECT_EQ(ended_, 2);
}

TEST_F(EndingContextsTest, ADeviceThatFailsMeanwhileEndsThemToo) {
  ending_.end(context_with(EndingContexts::kPiece * 3));
  device_->fail();
  fake_->gone = true;
  for (int i = 0; i < 3 && ended_ == 0; ++i) turn();
  EXPECT_EQ(ended_, 1);
}

}  // namespace
}  // namespace softhca::shim::test
