// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Arms of completion queues whose driver rings by plain stores to a mapped UAR page.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/cq_context.h"
#include "hw-model/prm/uar.h"
#include "tests/support/one_host.h"

namespace softhca::test {
namespace {

class UarArmsTest : public ::testing::Test {
 protected:
  UarArmsTest() : pages(std::size_t{Function::kUarCount} * prm::kUarPageSize) {
    host.function.attach_mapped_uars(pages.data());
    host.driver.bring_up();
  }
  ~UarArmsTest() override { host.function.attach_mapped_uars(nullptr); }

  /// As drivers do it: doorbell record, then register.
  void arm(const DriverCq& cq, std::uint32_t sn, std::uint32_t command = prm::CqArmCommand::next) {
    const std::uint32_t word = sn << prm::kCqArmSnShift | command << 24;
    prm::Field<0, 32>::set(host.driver.memory().bytes(cq.doorbell + 4), word);
    std::byte* page =
        pages.data() + std::size_t{host.driver.uar() - Function::kFirstUar} * prm::kUarPageSize;
    auto* target = reinterpret_cast<std::uint8_t*>(page + prm::Uar::cq_arm);
    prm::Field<0, 32>::set(target, word);
    prm::Field<32, 32>::set(target, cq.cqn);
  }
  void sweep() { host.function.sweep_doorbells(); }
  prm::CqState state(const DriverCq& cq) {
    CommandBuffer query(prm::CommandOpcode::query_cq, prm::QueryCqInput::size);
    query.set<prm::QueryCqInput::cqn>(cq.cqn);
    auto reply = host.driver.must(query, prm::QueryCqOutput::size);
    const std::uint8_t* context = prm::QueryCqOutput::cq_context::at(reply.out.data());
    return static_cast<prm::CqState>(prm::CqContext::st::get(context));
  }
  bool armed(const DriverCq& cq) { return state(cq) == prm::CqState::armed; }

  std::vector<std::byte> pages;
  OneHost host{FunctionConfig{.node_guid = OneHost::kGuid, .mapped_uars = true}};
};

TEST_F(UarArmsTest, first_arms_of_two_queues_of_a_page_are_both_seen) {
  for (const bool in_order_of_creation : {true, false}) {
    const DriverCq created[] = {host.driver.create_cq(4), host.driver.create_cq(4)};
    const DriverCq& first = created[in_order_of_creation ? 0 : 1];
    const DriverCq& second = created[in_order_of_creation ? 1 : 0];
    arm(first, 0);
    arm(second, 0);  // Hides the store before; both records stay as they were.
    sweep();
    EXPECT_TRUE(armed(first)) << in_order_of_creation;
    EXPECT_TRUE(armed(second)) << in_order_of_creation;
  }
}

TEST_F(UarArmsTest, an_arm_arms_no_other_queue_of_its_page) {
  const DriverCq first = host.driver.create_cq(4);
  const DriverCq second = host.driver.create_cq(4);
  arm(first, 0);
  sweep();
  EXPECT_TRUE(armed(first));
  EXPECT_FALSE(armed(second));
}

TEST_F(UarArmsTest, an_arm_of_a_destroyed_queue_arms_no_later_one) {
  const DriverCq gone = host.driver.create_cq(4);
  arm(gone, 0);
  CommandBuffer destroy(prm::CommandOpcode::destroy_cq, prm::DestroyCqInput::size);
  destroy.set<prm::DestroyCqInput::cqn>(gone.cqn);
  host.driver.must(destroy, 16);
  const DriverCq fresh = host.driver.create_cq(4);
  sweep();
  EXPECT_FALSE(armed(fresh));
  arm(fresh, 0, prm::CqArmCommand::next_solicited);
  sweep();
  EXPECT_EQ(state(fresh), prm::CqState::solicited_armed);
}

TEST_F(UarArmsTest, an_arm_that_a_hint_told_of_is_taken_once) {
  auto hints = std::make_unique<DoorbellHints>();
  host.function.attach_doorbell_hints(hints.get());
  const DriverCq cq = host.driver.create_cq(4);
  arm(cq, 0);
  hints->cq_arm.mark(cq.cqn);
  host.step();
  EXPECT_TRUE(armed(cq));
  EXPECT_FALSE(host.function.sweep_doorbells().moved);
  host.function.attach_doorbell_hints(nullptr);
}

TEST_F(UarArmsTest, a_queue_that_was_never_armed_is_not) {
  const DriverCq cq = host.driver.create_cq(4);
  EXPECT_FALSE(host.function.sweep_doorbells().moved);
  EXPECT_FALSE(armed(cq));
  arm(cq, 0);
  EXPECT_TRUE(host.function.sweep_doorbells().moved);
  EXPECT_FALSE(host.function.sweep_doorbells().moved);
}

}  // namespace
}  // namespace softhca::test
