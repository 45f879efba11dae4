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

  static std::uint32_t word(std::uint32_t sn) { return sn << prm::kCqArmSnShift; }
  void write_record(const DriverCq& cq, std::uint32_t sn) {
    prm::Field<0, 32>::set(host.driver.memory().bytes(cq.doorbell + 4), word(sn));
  }
  void store_to_uar(const DriverCq& cq, std::uint32_t sn) {
    std::byte* page =
        pages.data() + std::size_t{host.driver.uar() - Function::kFirstUar} * prm::kUarPageSize;
    auto* target = reinterpret_cast<std::uint8_t*>(page + prm::Uar::cq_arm);
    prm::Field<0, 32>::set(target, word(sn));
    prm::Field<32, 32>::set(target, cq.cqn);
  }
  void arm(const DriverCq& cq, std::uint32_t sn) {
    write_record(cq, sn);
    store_to_uar(cq, sn);
  }
  void sweep() { host.function.sweep_doorbells(); }
  bool armed(const DriverCq& cq) {
    CommandBuffer query(prm::CommandOpcode::query_cq, prm::QueryCqInput::size);
    query.set<prm::QueryCqInput::cqn>(cq.cqn);
    auto reply = host.driver.must(query, prm::QueryCqOutput::size);
    const std::uint8_t* context = prm::QueryCqOutput::cq_context::at(reply.out.data());
    return static_cast<prm::CqState>(prm::CqContext::st::get(context)) == prm::CqState::armed;
  }

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

TEST_F(UarArmsTest, a_store_whose_record_was_found_before_it_hides_no_other) {
  for (const bool in_order_of_creation : {true, false}) {
    const DriverCq created[] = {host.driver.create_cq(4), host.driver.create_cq(4)};
    const DriverCq& known = created[in_order_of_creation ? 0 : 1];
    const DriverCq& fresh = created[in_order_of_creation ? 1 : 0];
    write_record(known, 1);
    sweep();
    ASSERT_TRUE(armed(known));
    ASSERT_FALSE(armed(fresh));
    store_to_uar(fresh, 0);
    store_to_uar(known, 1);
    sweep();
    EXPECT_TRUE(armed(fresh)) << in_order_of_creation;
  }
}

TEST_F(UarArmsTest, the_same_arm_stored_again_hides_no_other) {
  const DriverCq known = host.driver.create_cq(4);
  arm(known, 1);
  sweep();
  ASSERT_TRUE(armed(known));
  const DriverCq fresh = host.driver.create_cq(4);
  sweep();
  ASSERT_FALSE(armed(fresh));
  store_to_uar(fresh, 0);
  store_to_uar(known, 1);
  sweep();
  EXPECT_TRUE(armed(fresh));
}

TEST_F(UarArmsTest, an_arm_that_a_hint_told_of_does_not_arm_its_neighbours) {
  auto hints = std::make_unique<DoorbellHints>();
  host.function.attach_doorbell_hints(hints.get());
  const DriverCq told = host.driver.create_cq(4);
  const DriverCq neighbour = host.driver.create_cq(4);
  arm(told, 1);
  hints->cq_arm.mark(told.cqn);
  host.step();
  sweep();
  EXPECT_TRUE(armed(told));
  EXPECT_FALSE(armed(neighbour));
  host.function.attach_doorbell_hints(nullptr);
}

TEST_F(UarArmsTest, a_page_without_a_new_store_arms_nothing) {
  const DriverCq cq = host.driver.create_cq(4);
  EXPECT_FALSE(host.function.sweep_doorbells());
  EXPECT_FALSE(armed(cq));
  arm(cq, 0);
  EXPECT_TRUE(host.function.sweep_doorbells());
  EXPECT_FALSE(host.function.sweep_doorbells());
}

}  // namespace
}  // namespace softhca::test
