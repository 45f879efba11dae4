// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/page_accounting.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hw-model/firmware/command_queue.h"

namespace softhca {
namespace {

class PageAccountingTest : public ::testing::Test {
 protected:
  void give(std::size_t count) {
    std::vector<std::uint64_t> addresses(count);
    for (std::uint64_t& address : addresses) address = next += PageAccounting::kPageSize;
    ASSERT_EQ(pages.give(addresses), Syndrome::none);
  }
  static std::uint64_t contexts(std::uint64_t in_pages) {
    return in_pages * PageAccounting::kPageSize;
  }

  std::uint64_t next = 0;
  PageAccounting pages{4, 16};
};

TEST_F(PageAccountingTest, boot_and_init_pages_are_wanted_in_turn) {
  EXPECT_EQ(pages.wanted(prm::QueryPagesOp::boot), 4);
  give(4);
  EXPECT_TRUE(pages.booted());
  EXPECT_FALSE(pages.initialized());
  EXPECT_EQ(pages.wanted(prm::QueryPagesOp::init), 16);
  give(16);
  EXPECT_TRUE(pages.initialized());
  EXPECT_EQ(pages.wanted(prm::QueryPagesOp::regular), 0);
}

TEST_F(PageAccountingTest, growth_is_asked_for_once_and_in_chunks) {
  give(20);
  pages.set_used(contexts(17));
  EXPECT_EQ(pages.next_request(), PageAccounting::kChunk);
  EXPECT_EQ(pages.next_request(), 0) << "a request is outstanding";
  give(PageAccounting::kChunk);
  EXPECT_EQ(pages.next_request(), 0);
}

TEST_F(PageAccountingTest, surplus_is_offered_back_and_taken) {
  give(20);
  pages.set_used(contexts(200));
  give(static_cast<std::size_t>(pages.next_request()));
  pages.set_used(0);
  const std::int32_t offer = pages.next_request();
  EXPECT_LT(offer, 0);
  EXPECT_EQ(pages.take(static_cast<std::uint32_t>(-offer), true).size(),
            static_cast<std::size_t>(-offer));
  EXPECT_EQ(pages.next_request(), 0);
  EXPECT_GE(pages.held(), 20U);
}

TEST_F(PageAccountingTest, a_refusal_stops_further_objects_until_pages_come) {
  give(20);
  pages.set_used(contexts(30));
  ASSERT_GT(pages.next_request(), 0);
  EXPECT_FALSE(pages.exhausted()) << "the driver has not answered";
  pages.refuse();
  EXPECT_TRUE(pages.exhausted());
  EXPECT_EQ(pages.next_request(), 0);
  give(64);
  EXPECT_FALSE(pages.exhausted());
}

TEST_F(PageAccountingTest, more_pages_than_can_ever_be_needed_are_refused) {
  std::vector<std::uint64_t> addresses(PageAccounting::kMaxPages + 1);
  for (std::uint64_t& address : addresses) address = next += PageAccounting::kPageSize;
  EXPECT_EQ(pages.give(addresses), Syndrome::too_many_pages);
  EXPECT_EQ(pages.held(), 0U) << "all or nothing";
  addresses.pop_back();
  EXPECT_EQ(pages.give(addresses), Syndrome::none);
  addresses = {next + PageAccounting::kPageSize};
  EXPECT_EQ(pages.give(addresses), Syndrome::too_many_pages);
}

TEST_F(PageAccountingTest, an_offer_fits_into_the_output_of_the_command_that_takes_it) {
  give(20000);
  const std::int32_t offer = pages.next_request();
  EXPECT_LT(offer, 0);
  EXPECT_LE(prm::ManagePagesOutput::pas_offset + std::size_t{8} * static_cast<unsigned>(-offer),
            CommandQueue::kMaxOutputLength);
  pages.take(static_cast<std::uint32_t>(-offer), true);
  EXPECT_LT(pages.next_request(), 0) << "the rest is offered after that";
}

TEST_F(PageAccountingTest, a_page_taken_back_may_be_given_again) {
  give(20);
  const auto taken = pages.take(20, false);
  EXPECT_EQ(taken.size(), 20U);
  EXPECT_EQ(pages.give(taken), Syndrome::none);
}

}  // namespace
}  // namespace softhca
