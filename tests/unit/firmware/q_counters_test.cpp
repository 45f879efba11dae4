// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Counter sets by command (PRM "Queue Counters").
#include <gtest/gtest.h>

#include "hw-model/firmware/capabilities.h"
#include "hw-model/firmware/syndromes.h"
#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/commands_resources.h"
#include "hw-model/prm/hca_cap.h"
#include "hw-model/prm/qp_context.h"
#include "tests/support/one_host.h"

namespace softhca::test {
namespace {

using prm::CommandOpcode;
using Output = prm::QueryQCounterOutput;

class QCounterCommandsTest : public ::testing::Test {
 protected:
  QCounterCommandsTest() { driver.bring_up(); }

  CommandReply allocate() { return driver.run({CommandOpcode::alloc_q_counter, 16}); }
  std::uint32_t allocated() {
    const CommandReply reply = driver.must({CommandOpcode::alloc_q_counter, 16});
    return static_cast<std::uint32_t>(
        prm::AllocQCounterOutput::counter_set_id::get(reply.out.data()));
  }
  CommandReply query(std::uint32_t set, bool clear = false) {
    CommandBuffer command(CommandOpcode::query_q_counter, prm::QueryQCounterInput::size);
    command.set<prm::QueryQCounterInput::counter_set_id>(set);
    command.set<prm::QueryQCounterInput::clear>(clear ? 1 : 0);
    return driver.run(command, Output::size);
  }
  CommandReply release(std::uint32_t set) {
    CommandBuffer command(CommandOpcode::dealloc_q_counter, 16);
    return driver.run(command.set<prm::DeallocQCounterInput::counter_set_id>(set));
  }
  void expect_unknown(const CommandReply& reply) {
    EXPECT_EQ(reply.status, prm::CommandStatus::bad_resource);
    EXPECT_EQ(reply.syndrome, static_cast<std::uint32_t>(Syndrome::no_such_counter));
  }

  OneHost host;
  MiniDriver& driver = host.driver;
};

TEST_F(QCounterCommandsTest, as_many_sets_as_advertised) {
  const CommandReply caps =
      driver.must({CommandOpcode::query_hca_cap, 16, 1}, 16 + prm::kHcaCapAreaSize);
  const std::uint8_t* area = prm::QueryHcaCapOutput::capability::at(caps.out.data());
  const auto count = prm::HcaCap::max_qp_cnt::get(area);
  for (std::uint64_t i = 0; i < count; ++i) ASSERT_NE(allocated(), 0U) << "0 means no set";
  EXPECT_EQ(allocate().syndrome, static_cast<std::uint32_t>(Syndrome::out_of_counters));
  ASSERT_TRUE(release(17).ok());
  EXPECT_EQ(allocated(), 17U);
}

TEST_F(QCounterCommandsTest, numbers_that_were_not_allocated_are_refused) {
  expect_unknown(query(0));
  expect_unknown(query(9));
  expect_unknown(release(9));
  const std::uint32_t set = allocated();
  ASSERT_TRUE(release(set).ok());
  expect_unknown(query(set));
}

TEST_F(QCounterCommandsTest, a_query_shows_the_counts_and_may_clear_them) {
  const std::uint32_t set = allocated();
  // A queue pair connected to itself; it gets the set when it runs.
  DriverCq cq = driver.create_cq(4);
  DriverQp qp = driver.create_qp(cq, cq);
  const DriverMr mr = driver.allocate_mr(4096);
  ASSERT_TRUE(driver.to_init(qp).ok());
  ASSERT_TRUE(driver.to_rtr(qp, qp.qpn, host.port->attributes().lid, 0).ok());
  ASSERT_TRUE(driver.to_rts(qp, 0).ok());
  CommandBuffer command(CommandOpcode::rts2rts_qp, prm::ModifyQpInput::size);
  command.set<prm::ModifyQpInput::qpn>(qp.qpn);
  command.set<prm::ModifyQpInput::opt_param_mask>(prm::kOptParamCounterSetId);
  prm::QpContext::counter_set_id::set(command.at<prm::ModifyQpInput::qpc>(), set);
  ASSERT_TRUE(driver.run(command).ok());

  SendRequest write;
  write.opcode = prm::WqeOpcode::rdma_write;
  write.sges = {{mr.address, 8, mr.key}};
  write.remote_address = mr.address + 64;
  write.rkey = mr.key;
  SendRequest bad = write;
  bad.rkey ^= 1;
  for (const SendRequest& request : {write, write, bad}) {
    driver.post_send(qp, request);
    std::optional<Completion> done;
    for (int round = 0; round < 1000 && !done; ++round) {
      host.step();
      done = driver.poll_cq(cq);
    }
    ASSERT_TRUE(done.has_value());
  }
  const CommandReply reply = query(set, /*clear=*/true);
  EXPECT_EQ(Output::rx_write_requests::get(reply.out.data()), 2U);
  EXPECT_EQ(Output::resp_remote_access_errors::get(reply.out.data()), 1U);
  EXPECT_EQ(Output::req_cqe_error::get(reply.out.data()), 1U);
  EXPECT_EQ(Output::req_cqe_flush_error::get(reply.out.data()), 1U)
      << "the responder has failed the queue pair before its requester heard of it";
  EXPECT_EQ(Output::rx_write_requests::get(query(set).out.data()), 0U) << "cleared";
}

TEST_F(QCounterCommandsTest, a_qp_takes_only_a_set_that_exists) {
  DriverCq cq = driver.create_cq(4);
  const DriverQp qp = driver.create_qp(cq, cq);
  const std::uint32_t set = allocated();
  CommandBuffer command(CommandOpcode::rst2init_qp, prm::ModifyQpInput::size);
  command.set<prm::ModifyQpInput::qpn>(qp.qpn);
  std::uint8_t* context = command.at<prm::ModifyQpInput::qpc>();
  prm::QpContext::pm_state::set(context, 3);
  prm::QpContext::counter_set_id::set(context, set + 1);
  expect_unknown(driver.run(command));
  prm::QpContext::counter_set_id::set(context, set);
  EXPECT_TRUE(driver.run(command).ok());
}

TEST_F(QCounterCommandsTest, teardown_takes_the_sets_away) {
  allocated();
  driver.tear_down();
  driver.bring_up();
  expect_unknown(query(1));
}

}  // namespace
}  // namespace softhca::test
