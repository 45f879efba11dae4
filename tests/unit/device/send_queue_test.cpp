// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Send queues without a transport, as drivers make them to test write combining.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/commands_sq.h"
#include "hw-model/prm/uar.h"
#include "hw-model/prm/wqe.h"
#include "tests/support/two_hosts.h"

namespace softhca::test {
namespace {

using prm::CommandOpcode;
using prm::SqContext;
using prm::SqState;
using prm::WqContext;

class SendQueueObject : public ::testing::Test {
 protected:
  CommandReply create(unsigned wq_type = 1, std::uint16_t uid = 0) {
    CommandBuffer command(CommandOpcode::create_sq, prm::CreateSqInput::size + 8);
    command.set<prm::CommandInput::uid>(uid);
    std::uint8_t* context = command.at<prm::CreateSqInput::ctx>();
    SqContext::cqn::set(context, cq.cqn);
    SqContext::user_index::set(context, 0x77);
    std::uint8_t* wq = SqContext::wq::at(context);
    WqContext::wq_type::set(wq, wq_type);
    WqContext::uar_page::set(wq, driver.uar());
    WqContext::dbr_addr::set(wq, doorbell);
    WqContext::log_wq_stride::set(wq, 6);
    WqContext::log_wq_sz::set(wq, 5);
    prm::Field<0, 64>::set(context + SqContext::pas_offset, ring);
    return driver.run(command);
  }
  CommandReply modify(SqState from, SqState to) {
    CommandBuffer command(CommandOpcode::modify_sq, prm::ModifySqInput::size);
    command.set<prm::ModifySqInput::sqn>(sqn);
    command.set<prm::ModifySqInput::sq_state>(static_cast<unsigned>(from));
    SqContext::state::set(command.at<prm::ModifySqInput::ctx>(), static_cast<unsigned>(to));
    return driver.run(command);
  }
  CommandReply numbered(CommandOpcode opcode, std::size_t out = 16) {
    CommandBuffer command(opcode, prm::DestroySqInput::size);
    command.set<prm::DestroySqInput::sqn>(sqn);
    return driver.run(command, out);
  }
  void make() {
    const CommandReply reply = create();
    ASSERT_TRUE(reply.ok());
    sqn = static_cast<std::uint32_t>(prm::CreateSqOutput::sqn::get(reply.out.data()));
  }
  void post(prm::WqeOpcode opcode) {
    std::uint8_t* wqe = driver.memory().bytes(ring + std::uint64_t{posted} * 64);
    prm::CtrlSegment::wqe_index::set(wqe, posted);
    prm::CtrlSegment::opcode::set(wqe, static_cast<unsigned>(opcode));
    prm::CtrlSegment::qpn::set(wqe, sqn);
    prm::CtrlSegment::ds_count::set(wqe, 1);
    prm::CtrlSegment::completion::set(wqe, 2);
    ++posted;
    prm::QpDoorbellRecord::send_counter::set(driver.memory().bytes(doorbell), posted);
    std::array<std::byte, 8> first{};
    std::memcpy(first.data(), wqe, first.size());
    world.a->function.bar_write(
        std::uint64_t{driver.uar()} * prm::kUarPageSize + prm::Uar::blue_flame, first);
  }
  std::optional<Completion> wait() {
    std::optional<Completion> completion;
    world.run_until([&] { return (completion = driver.poll_cq(cq)).has_value(); }, 1000);
    return completion;
  }

  TwoHosts world;
  MiniDriver& driver = world.a->driver;
  DriverCq cq = driver.create_cq(4);
  std::uint64_t ring = driver.memory().allocate(4096, 4096);
  std::uint64_t doorbell = driver.memory().allocate(64, 64);
  std::uint32_t sqn = 0;
  std::uint16_t posted = 0;
};

TEST_F(SendQueueObject, executes_what_needs_no_packet) {
  make();
  ASSERT_TRUE(modify(SqState::reset, SqState::ready).ok());
  post(prm::WqeOpcode::nop);
  const auto done = wait();
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->opcode, prm::CqeOpcode::requester);
  EXPECT_EQ(done->qpn, sqn);
  EXPECT_EQ(done->user_index, 0x77U);
  post(prm::WqeOpcode::send);
  const auto failed = wait();
  ASSERT_TRUE(failed.has_value());
  EXPECT_TRUE(failed->error()) << "an InfiniBand port sends nothing without a transport";
  const CommandReply reply = numbered(CommandOpcode::query_sq, prm::QuerySqOutput::size);
  EXPECT_EQ(SqContext::state::get(prm::QuerySqOutput::sq_context::at(reply.out.data())),
            static_cast<unsigned>(SqState::error));
  EXPECT_TRUE(numbered(CommandOpcode::destroy_sq).ok());
  EXPECT_FALSE(numbered(CommandOpcode::destroy_sq).ok());
}

TEST_F(SendQueueObject, changes_state_as_told_from_the_state_it_is_in) {
  make();
  EXPECT_FALSE(modify(SqState::ready, SqState::error).ok()) << "it is in reset";
  EXPECT_FALSE(modify(SqState::reset, SqState::error).ok());
  EXPECT_TRUE(modify(SqState::reset, SqState::ready).ok());
  EXPECT_TRUE(modify(SqState::ready, SqState::error).ok());
  EXPECT_FALSE(modify(SqState::error, SqState::ready).ok());
  EXPECT_TRUE(modify(SqState::error, SqState::reset).ok());
}

TEST_F(SendQueueObject, is_no_queue_pair) {
  make();
  EXPECT_FALSE(numbered(CommandOpcode::destroy_qp).ok());
  EXPECT_FALSE(numbered(CommandOpcode::query_qp, prm::QueryQpOutput::size).ok());
  EXPECT_FALSE(numbered(CommandOpcode::to_err_qp).ok());
  EXPECT_TRUE(numbered(CommandOpcode::destroy_sq).ok());
}

TEST_F(SendQueueObject, malformed_ones_are_refused) {
  EXPECT_FALSE(create(0).ok()) << "a list is no send queue";
  ring = 0x7fff'ffff'f000;
  EXPECT_TRUE(create().ok()) << "memory that is not there shows when it is used";
  doorbell += 4;
  EXPECT_FALSE(create().ok());
}

}  // namespace
}  // namespace softhca::test
