// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// From power-on to an initialized HCA and back: phases, pages, capabilities.
#include <gtest/gtest.h>

#include "hw-model/firmware/capabilities.h"
#include "hw-model/firmware/syndromes.h"
#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/commands_resources.h"
#include "hw-model/prm/hca_cap.h"
#include "hw-model/prm/iseg.h"
#include "tests/support/one_host.h"

namespace softhca::test {
namespace {

using prm::CommandOpcode;
using prm::CommandStatus;

class BringUpTest : public ::testing::Test {
 protected:
  void expect_failure(const CommandReply& reply, CommandStatus status, Syndrome syndrome) {
    EXPECT_EQ(reply.status, status)
        << prm::command_status_name(static_cast<std::uint8_t>(reply.status));
    EXPECT_EQ(reply.syndrome, static_cast<std::uint32_t>(syndrome))
        << syndrome_text(static_cast<Syndrome>(reply.syndrome));
  }
  std::int32_t query_pages(prm::QueryPagesOp op) {
    const CommandReply reply =
        driver.must({CommandOpcode::query_pages, 16, static_cast<std::uint16_t>(op)});
    return static_cast<std::int32_t>(prm::QueryPagesOutput::num_pages::get(reply.out.data()));
  }
  CommandReply take_pages(std::uint32_t count) {
    CommandBuffer take(CommandOpcode::manage_pages, 16,
                       static_cast<std::uint16_t>(prm::ManagePagesOp::take));
    take.set<prm::ManagePagesInput::input_num_entries>(count);
    return driver.run(take, prm::ManagePagesOutput::pas_offset + count * 8);
  }
  CommandReply query_cap(prm::HcaCapType type, bool current) {
    const auto op_mod =
        static_cast<std::uint16_t>(static_cast<unsigned>(type) << 1 | (current ? 1 : 0));
    return driver.run({CommandOpcode::query_hca_cap, 16, op_mod}, prm::QueryHcaCapOutput::size);
  }

  OneHost host;
  MiniDriver& driver = host.driver;
};

TEST_F(BringUpTest, the_initialization_segment_tells_version_queue_and_readiness) {
  using Iseg = prm::InitializationSegment;
  EXPECT_EQ(driver.read32(Iseg::cmd_interface_rev::byte_offset) >> 16, 5U);
  EXPECT_EQ(driver.read32(Iseg::cmdq_phy_addr_31_12::byte_offset) & 0xff, 0x56U)
      << "32 entries of 64 bytes";
  EXPECT_EQ(driver.read32(Iseg::initializing::byte_offset) >> 31, 0U);
  EXPECT_NE(driver.read32(0x230), 0xffffffffU) << "health buffer: firmware version";
}

TEST_F(BringUpTest, timer_and_health_counter_move_with_time) {
  using Iseg = prm::InitializationSegment;
  const std::uint32_t timer = driver.read32(Iseg::internal_timer_l::byte_offset);
  const std::uint32_t health = driver.read32(Iseg::health_counter::byte_offset);
  host.clock.advance(1'000'000'000);
  EXPECT_EQ(driver.read32(Iseg::internal_timer_l::byte_offset) - timer, 1'000'000'000U);
  EXPECT_NE(driver.read32(Iseg::health_counter::byte_offset), health);
}

TEST_F(BringUpTest, commands_wait_for_their_phase) {
  driver.start_command_queue();
  expect_failure(driver.run({CommandOpcode::query_issi, 16}, 0x70), CommandStatus::bad_system_state,
                 Syndrome::hca_disabled);
  driver.must({CommandOpcode::enable_hca, 16}, 12);
  expect_failure(driver.run({CommandOpcode::alloc_pd, 16}), CommandStatus::bad_system_state,
                 Syndrome::hca_not_initialized);
  expect_failure(driver.run({CommandOpcode::init_hca, 32}), CommandStatus::bad_system_state,
                 Syndrome::boot_pages_missing);
}

TEST_F(BringUpTest, unknown_commands_and_short_buffers_have_their_own_answers) {
  driver.initialize_hca();
  expect_failure(driver.run({static_cast<CommandOpcode>(0x7ff), 16}), CommandStatus::bad_opcode,
                 Syndrome::unknown_opcode);
  expect_failure(driver.run({CommandOpcode::create_cq, 64}), CommandStatus::bad_input_length,
                 Syndrome::input_too_short);
  expect_failure(driver.run({CommandOpcode::query_adapter, 16}, 64),
                 CommandStatus::bad_output_length, Syndrome::output_too_short);
}

TEST_F(BringUpTest, issi_is_chosen_from_what_is_offered) {
  driver.start_command_queue();
  driver.must({CommandOpcode::enable_hca, 16}, 12);
  CommandBuffer set(CommandOpcode::set_issi, 16);
  expect_failure(driver.run(set.set<prm::SetIssiInput::current_issi>(2)),
                 CommandStatus::bad_parameter, Syndrome::bad_issi);
  driver.must(set.set<prm::SetIssiInput::current_issi>(1));
  const CommandReply query =
      driver.must({CommandOpcode::query_issi, 16}, prm::QueryIssiOutput::size);
  EXPECT_EQ(prm::QueryIssiOutput::current_issi::get(query.out.data()), 1U);
  EXPECT_EQ(query.out[0x6f] & 2, 2) << "drivers look at bit 1 of the word at byte 0x6c";
}

TEST_F(BringUpTest, pages_are_asked_for_and_come_back_after_teardown) {
  driver.start_command_queue();
  driver.must({CommandOpcode::enable_hca, 16}, 12);
  const std::int32_t boot = query_pages(prm::QueryPagesOp::boot);
  ASSERT_GT(boot, 0);
  driver.give_pages(static_cast<std::uint32_t>(boot));
  EXPECT_EQ(query_pages(prm::QueryPagesOp::boot), 0);
  const std::int32_t init = query_pages(prm::QueryPagesOp::init);
  ASSERT_GT(init, 0);
  expect_failure(driver.run({CommandOpcode::init_hca, 32}), CommandStatus::bad_system_state,
                 Syndrome::init_pages_missing);
  driver.give_pages(static_cast<std::uint32_t>(init));
  driver.must({CommandOpcode::init_hca, 32});
  EXPECT_EQ(query_pages(prm::QueryPagesOp::regular), 0);
  EXPECT_EQ(prm::ManagePagesOutput::output_num_entries::get(take_pages(10).out.data()), 0U)
      << "a running device gives back only surplus";
  driver.must({CommandOpcode::teardown_hca, 16});
  const auto all = static_cast<std::uint32_t>(boot + init);
  EXPECT_EQ(prm::ManagePagesOutput::output_num_entries::get(take_pages(all + 5).out.data()), all);
  driver.must({CommandOpcode::disable_hca, 16}, 12);
}

TEST_F(BringUpTest, pages_must_be_aligned_fresh_and_as_many_as_announced) {
  driver.start_command_queue();
  driver.must({CommandOpcode::enable_hca, 16}, 12);
  const auto give = [&](std::uint32_t count, std::vector<std::uint64_t> pages) {
    CommandBuffer command(CommandOpcode::manage_pages, 16,
                          static_cast<std::uint16_t>(prm::ManagePagesOp::give));
    return driver.run(command.set<prm::ManagePagesInput::input_num_entries>(count).append(pages));
  };
  expect_failure(give(1, {0x1001}), CommandStatus::bad_parameter, Syndrome::bad_page_address);
  expect_failure(give(2, {0x1000, 0x1000}), CommandStatus::bad_parameter,
                 Syndrome::page_given_twice);
  expect_failure(give(0xffffffff, {0x1000}), CommandStatus::bad_input_length,
                 Syndrome::bad_page_count);
  EXPECT_TRUE(give(1, {0x1000}).ok());
  expect_failure(give(1, {0x1000}), CommandStatus::bad_parameter, Syndrome::page_given_twice);
}

TEST_F(BringUpTest, capabilities_say_what_the_driver_depends_on) {
  driver.initialize_hca();
  const CommandReply reply = query_cap(prm::HcaCapType::general_device, true);
  ASSERT_TRUE(reply.ok());
  const std::uint8_t* cap = prm::QueryHcaCapOutput::capability::at(reply.out.data());
  using prm::HcaCap;
  EXPECT_EQ(HcaCap::num_ports::get(cap), 1U);
  EXPECT_EQ(HcaCap::port_type::get(cap), 0U);
  EXPECT_EQ(HcaCap::xrc::get(cap), 1U) << "mlx5_ib refuses a device without it";
  EXPECT_EQ(HcaCap::num_of_uars_per_page::get(cap), 1U)
      << "0 makes UAR allocation of the stock driver crash";
  EXPECT_EQ(HcaCap::uar_4k::get(cap), 1U);
  EXPECT_EQ(HcaCap::cqe_version::get(cap), 1U);
  EXPECT_EQ(HcaCap::log_max_qp::get(cap), 18U);
  EXPECT_EQ(HcaCap::cmdif_checksum::get(cap), 0U);
}

TEST(CapabilitiesTest, blue_flame_is_offered_only_where_it_is_wanted) {
  for (const bool wanted : {false, true}) {
    const Capabilities capabilities({.blue_flame = wanted});
    for (const bool current : {false, true}) {
      const std::uint8_t* cap =
          capabilities.query(prm::HcaCapType::general_device, current)->data();
      EXPECT_EQ(prm::HcaCap::bf::get(cap), wanted ? 1U : 0U);
      EXPECT_EQ(prm::HcaCap::log_bf_reg_size::get(cap), 9U) << "where doorbell registers lie";
    }
  }
}

TEST_F(BringUpTest, chosen_capabilities_are_honoured_and_maxima_enforced) {
  driver.start_command_queue();
  driver.must({CommandOpcode::enable_hca, 16}, 12);
  const CommandReply now = query_cap(prm::HcaCapType::general_device, true);
  CommandBuffer set(CommandOpcode::set_hca_cap, prm::SetHcaCapInput::size);
  std::uint8_t* cap = set.at<prm::SetHcaCapInput::capability>();
  std::copy_n(prm::QueryHcaCapOutput::capability::at(now.out.data()), prm::kHcaCapAreaSize, cap);
  prm::HcaCap::log_max_qp::set(cap, 20);
  expect_failure(driver.run(set), CommandStatus::bad_parameter, Syndrome::cap_above_maximum);
  prm::HcaCap::log_max_qp::set(cap, 12);
  driver.must(set);
  const CommandReply chosen = query_cap(prm::HcaCapType::general_device, true);
  EXPECT_EQ(prm::HcaCap::log_max_qp::get(prm::QueryHcaCapOutput::capability::at(chosen.out.data())),
            12U);
  const CommandReply most = query_cap(prm::HcaCapType::general_device, false);
  EXPECT_EQ(prm::HcaCap::log_max_qp::get(prm::QueryHcaCapOutput::capability::at(most.out.data())),
            18U);
  expect_failure(query_cap(prm::HcaCapType::qos, true), CommandStatus::bad_parameter,
                 Syndrome::bad_cap_type);
}

TEST_F(BringUpTest, checksums_apply_from_the_command_after_the_one_that_turns_them_on) {
  driver.start_command_queue();
  driver.must({CommandOpcode::enable_hca, 16}, 12);
  const CommandReply now = query_cap(prm::HcaCapType::general_device, true);
  CommandBuffer set(CommandOpcode::set_hca_cap, prm::SetHcaCapInput::size);
  std::uint8_t* cap = set.at<prm::SetHcaCapInput::capability>();
  std::copy_n(prm::QueryHcaCapOutput::capability::at(now.out.data()), prm::kHcaCapAreaSize, cap);
  prm::HcaCap::cmdif_checksum::set(cap, 3);
  driver.must(set);
  EXPECT_EQ(driver.run({CommandOpcode::nop, 16}).delivery,
            prm::CommandDeliveryStatus::signature_error);
  driver.set_signing(true);
  EXPECT_TRUE(driver.run({CommandOpcode::nop, 16}).ok());
}

TEST_F(BringUpTest, teardown_destroys_everything_and_the_device_starts_again) {
  driver.bring_up();
  const DriverCq cq = driver.create_cq(4);
  driver.create_qp(cq, cq);
  driver.allocate_mr(4096);
  driver.tear_down();
  driver.bring_up();
  EXPECT_GT(driver.create_cq(4).cqn, 0U);
}

TEST_F(BringUpTest, command_completions_raise_the_interrupt_of_the_command_queue) {
  driver.bring_up();
  driver.arm_eq(driver.command_eq());
  const unsigned before = host.interrupts.count(MiniDriver::kCommandVector);
  driver.must({CommandOpcode::nop, 16});
  EXPECT_EQ(host.interrupts.count(MiniDriver::kCommandVector), before + 1);
}

TEST_F(BringUpTest, objects_beyond_the_init_pages_make_the_device_ask_for_more) {
  driver.bring_up();
  // Each QP takes a quarter of a page: the 32 init pages hold 128.
  const DriverCq cq = driver.create_cq(4);
  QpOptions small;
  small.log_sq_size = 2;
  small.log_rq_size = 2;
  for (int i = 0; i < 140; ++i) driver.create_qp(cq, cq, small);
  const CommandReply reply = driver.must(
      {CommandOpcode::query_pages, 16, static_cast<std::uint16_t>(prm::QueryPagesOp::regular)});
  EXPECT_GT(static_cast<std::int32_t>(prm::QueryPagesOutput::num_pages::get(reply.out.data())), 0);
}

TEST_F(BringUpTest, a_lost_command_queue_shows_in_the_health_buffer) {
  driver.initialize_hca();
  driver.write32(prm::InitializationSegment::cmdq_phy_addr_63_32::byte_offset, 0x77);
  driver.write32(prm::InitializationSegment::cmdq_phy_addr_31_12::byte_offset, 0x5000);
  driver.ring(1);
  driver.pump();
  std::array<std::byte, 1> syndrome{};
  host.function.bar_read(0x23d, syndrome);
  EXPECT_EQ(std::to_integer<unsigned>(syndrome[0]),
            static_cast<unsigned>(prm::HealthSyndrome::firmware_error));
  host.function.reset();
  host.function.bar_read(0x23d, syndrome);
  EXPECT_EQ(std::to_integer<unsigned>(syndrome[0]), 0U);
}

TEST_F(BringUpTest, adapter_and_special_contexts) {
  driver.initialize_hca();
  const CommandReply adapter =
      driver.must({CommandOpcode::query_adapter, 16}, prm::QueryAdapterOutput::size);
  const std::uint8_t* block = prm::QueryAdapterOutput::query_adapter_struct::at(adapter.out.data());
  const auto* psid =
      reinterpret_cast<const char*>(prm::AdapterParameters::vsd_contd_psid::at(block));
  EXPECT_EQ(std::string(psid, 13), "SFT0000000001");
  const CommandReply special = driver.must({CommandOpcode::query_special_contexts, 16},
                                           prm::QuerySpecialContextsOutput::size);
  EXPECT_NE(prm::QuerySpecialContextsOutput::resd_lkey::get(special.out.data()), 0U);
}

}  // namespace
}  // namespace softhca::test
