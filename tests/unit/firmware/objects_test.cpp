// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Objects by command: every argument is checked, what is in use stays.
#include <gtest/gtest.h>

#include <cstring>

#include "hw-model/firmware/firmware_state.h"
#include "hw-model/firmware/syndromes.h"
#include "hw-model/prm/address_path.h"
#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/commands_resources.h"
#include "hw-model/prm/cq_context.h"
#include "hw-model/prm/eq_context.h"
#include "hw-model/prm/mkey_context.h"
#include "hw-model/prm/srq_context.h"
#include "tests/support/one_host.h"

namespace softhca::test {
namespace {

using prm::CommandOpcode;
using prm::CommandStatus;

class ObjectsTest : public ::testing::Test {
 protected:
  ObjectsTest() { driver.bring_up(); }

  void expect_failure(const CommandReply& reply, CommandStatus status, Syndrome syndrome) {
    EXPECT_EQ(reply.status, status)
        << prm::command_status_name(static_cast<std::uint8_t>(reply.status));
    EXPECT_EQ(reply.syndrome, static_cast<std::uint32_t>(syndrome))
        << syndrome_text(static_cast<Syndrome>(reply.syndrome));
  }

  /// Commands that name one object by the 24-bit number at byte 9.
  CommandReply with_number(CommandOpcode opcode, std::uint32_t number, std::size_t out = 16) {
    CommandBuffer command(opcode, 16);
    return driver.run(command.set<prm::Field<0x48, 24>>(number), out);
  }
  CommandReply destroy_eq(std::uint32_t eqn) {
    CommandBuffer command(CommandOpcode::destroy_eq, 16);
    return driver.run(command.set<prm::DestroyEqInput::eq_number>(eqn));
  }

  /// CREATE_CQ that would succeed, changed by `change` in its context.
  template <typename Change>
  CommandReply create_cq(Change&& change) {
    CommandBuffer create(CommandOpcode::create_cq, prm::CreateCqInput::size);
    std::uint8_t* context = create.at<prm::CreateCqInput::cq_context>();
    prm::CqContext::log_cq_size::set(context, 4);
    prm::CqContext::uar_page::set(context, driver.uar());
    prm::CqContext::c_eqn_or_apu_element::set(context, driver.completion_eq().eqn);
    prm::CqContext::dbr_addr::set(context, driver.memory().allocate(64, 64));
    const std::uint64_t page = driver.memory().allocate(4096);
    change(context);
    create.append(std::array<std::uint64_t, 1>{page});
    return driver.run(create);
  }

  template <typename Change>
  CommandReply create_mkey(std::vector<std::uint64_t> pages, Change&& change) {
    CommandBuffer create(CommandOpcode::create_mkey, prm::CreateMkeyInput::size);
    std::uint8_t* context = create.at<prm::CreateMkeyInput::memory_key_mkey_entry>();
    prm::MkeyContext::access_mode_1_0::set(context, 1);
    prm::MkeyContext::lr::set(context, 1);
    prm::MkeyContext::qpn::set(context, prm::kMkeyAnyQp);
    prm::MkeyContext::pd::set(context, driver.pd());
    prm::MkeyContext::start_addr::set(context, 0x1000);
    prm::MkeyContext::len::set(context, 8192);
    prm::MkeyContext::log_page_size::set(context, 12);
    create.set<prm::CreateMkeyInput::translations_octword_actual_size>((pages.size() + 1) / 2);
    change(context);
    create.append(pages);
    return driver.run(create);
  }

  template <typename Change>
  CommandReply create_qp(const DriverCq& cq, Change&& change) {
    CommandBuffer create(CommandOpcode::create_qp, prm::CreateQpInput::size);
    std::uint8_t* context = create.at<prm::CreateQpInput::qpc>();
    prm::QpContext::pd::set(context, driver.pd());
    prm::QpContext::uar_page::set(context, driver.uar());
    prm::QpContext::log_sq_size::set(context, 4);
    prm::QpContext::log_rq_size::set(context, 4);
    prm::QpContext::log_rq_stride::set(context, 2);
    prm::QpContext::cqn_snd::set(context, cq.cqn);
    prm::QpContext::cqn_rcv::set(context, cq.cqn);
    prm::QpContext::dbr_addr::set(context, driver.memory().allocate(64, 64));
    const std::uint64_t page = driver.memory().allocate(4096);
    change(context);
    create.append(std::array<std::uint64_t, 1>{page});
    return driver.run(create);
  }

  OneHost host;
  MiniDriver& driver = host.driver;
};

// ---- event queues

TEST_F(ObjectsTest, eq_needs_a_vector_a_uar_and_enough_pages) {
  const auto create = [&](auto&& change, std::size_t pages) {
    CommandBuffer command(CommandOpcode::create_eq, prm::CreateEqInput::size);
    std::uint8_t* context = command.at<prm::CreateEqInput::eq_context_entry>();
    prm::EqContext::log_eq_size::set(context, 6);
    prm::EqContext::uar_page::set(context, driver.uar());
    change(context);
    for (std::size_t i = 0; i < pages; ++i) {
      command.append(std::array<std::uint64_t, 1>{driver.memory().allocate(4096)});
    }
    return driver.run(command);
  };
  const auto nothing = [](std::uint8_t*) {};
  expect_failure(create([](std::uint8_t* c) { prm::EqContext::intr::set(c, 4000); }, 1),
                 CommandStatus::bad_parameter, Syndrome::bad_vector);
  expect_failure(create([](std::uint8_t* c) { prm::EqContext::uar_page::set(c, 1); }, 1),
                 CommandStatus::bad_resource, Syndrome::no_such_uar);
  expect_failure(create(nothing, 0), CommandStatus::bad_parameter, Syndrome::too_few_pages);
  expect_failure(create([](std::uint8_t* c) { prm::EqContext::log_eq_size::set(c, 31); }, 1),
                 CommandStatus::bad_parameter, Syndrome::bad_queue_size);
  EXPECT_TRUE(create(nothing, 1).ok());
}

TEST_F(ObjectsTest, eq_in_use_by_a_cq_stays) {
  const DriverCq cq = driver.create_cq(4);
  expect_failure(destroy_eq(driver.completion_eq().eqn), CommandStatus::bad_resource_state,
                 Syndrome::eq_in_use);
  EXPECT_TRUE(with_number(CommandOpcode::destroy_cq, cq.cqn).ok());
  EXPECT_TRUE(destroy_eq(driver.completion_eq().eqn).ok());
  expect_failure(destroy_eq(driver.completion_eq().eqn), CommandStatus::bad_resource,
                 Syndrome::no_such_eq);
}

TEST_F(ObjectsTest, eq_query_shows_what_was_created) {
  CommandBuffer query(CommandOpcode::query_eq, 16);
  const CommandReply reply = driver.must(
      query.set<prm::QueryEqInput::eq_number>(driver.async_eq().eqn), prm::QueryEqOutput::size);
  const std::uint8_t* context = prm::QueryEqOutput::eq_context_entry::at(reply.out.data());
  EXPECT_EQ(prm::EqContext::log_eq_size::get(context), 8U);
  EXPECT_EQ(prm::EqContext::intr::get(context), MiniDriver::kAsyncVector);
  EXPECT_EQ(prm::EqContext::st::get(context), static_cast<unsigned>(prm::EqState::armed));
}

// ---- completion queues

TEST_F(ObjectsTest, cq_arguments_are_checked) {
  expect_failure(create_cq([](std::uint8_t* c) { prm::CqContext::log_cq_size::set(c, 23); }),
                 CommandStatus::bad_parameter, Syndrome::bad_queue_size);
  expect_failure(create_cq([](std::uint8_t* c) { prm::CqContext::log_cq_size::set(c, 10); }),
                 CommandStatus::bad_parameter, Syndrome::too_few_pages);
  expect_failure(create_cq([](std::uint8_t* c) { prm::CqContext::cqe_sz::set(c, 3); }),
                 CommandStatus::bad_parameter, Syndrome::bad_cqe_size);
  expect_failure(
      create_cq([](std::uint8_t* c) { prm::CqContext::c_eqn_or_apu_element::set(c, 99); }),
      CommandStatus::bad_resource, Syndrome::no_such_eq);
  expect_failure(create_cq([](std::uint8_t* c) { prm::CqContext::uar_page::set(c, 0x123456); }),
                 CommandStatus::bad_resource, Syndrome::no_such_uar);
  expect_failure(create_cq([](std::uint8_t* c) { prm::CqContext::dbr_addr::set(c, 0x1004); }),
                 CommandStatus::bad_parameter, Syndrome::bad_doorbell_record);
  expect_failure(create_cq([](std::uint8_t* c) { prm::CqContext::log_page_size::set(c, 31); }),
                 CommandStatus::bad_parameter, Syndrome::bad_page_size);
  EXPECT_TRUE(create_cq([](std::uint8_t*) {}).ok());
}

TEST_F(ObjectsTest, cq_of_a_qp_stays) {
  const DriverCq cq = driver.create_cq(4);
  const DriverQp qp = driver.create_qp(cq, cq);
  expect_failure(with_number(CommandOpcode::destroy_cq, cq.cqn), CommandStatus::bad_resource_state,
                 Syndrome::cq_in_use);
  EXPECT_TRUE(with_number(CommandOpcode::destroy_qp, qp.qpn).ok());
  EXPECT_TRUE(with_number(CommandOpcode::destroy_cq, cq.cqn).ok());
  expect_failure(with_number(CommandOpcode::query_cq, cq.cqn, prm::QueryCqOutput::size),
                 CommandStatus::bad_resource, Syndrome::no_such_cq);
}

TEST_F(ObjectsTest, cq_query_and_moderation) {
  const DriverCq cq = driver.create_cq(6);
  CommandBuffer modify(CommandOpcode::modify_cq, prm::ModifyCqInput::size);
  modify.set<prm::ModifyCqInput::cqn>(cq.cqn);
  prm::Field<0, 32>::set(modify.at<prm::ModifyCqInput::modify_field_select_resize_field_select>(),
                         prm::kCqModifyPeriod | prm::kCqModifyMaxCount);
  std::uint8_t* context = modify.at<prm::ModifyCqInput::cq_context>();
  prm::CqContext::cq_period::set(context, 100);
  prm::CqContext::cq_max_count::set(context, 16);
  driver.must(modify);
  const CommandReply reply = with_number(CommandOpcode::query_cq, cq.cqn, prm::QueryCqOutput::size);
  const std::uint8_t* now = prm::QueryCqOutput::cq_context::at(reply.out.data());
  EXPECT_EQ(prm::CqContext::cq_period::get(now), 100U);
  EXPECT_EQ(prm::CqContext::cq_max_count::get(now), 16U);
  EXPECT_EQ(prm::CqContext::log_cq_size::get(now), 6U);
  EXPECT_EQ(prm::CqContext::dbr_addr::get(now), cq.doorbell);
}

// ---- memory keys

TEST_F(ObjectsTest, mkey_arguments_are_checked) {
  const auto nothing = [](std::uint8_t*) {};
  expect_failure(create_mkey({0x10000}, nothing), CommandStatus::bad_parameter,
                 Syndrome::translation_too_small);
  expect_failure(
      create_mkey({0x10000, 0x20000}, [](std::uint8_t* c) { prm::MkeyContext::pd::set(c, 0xabc); }),
      CommandStatus::bad_resource, Syndrome::no_such_pd);
  expect_failure(create_mkey({0x10000, 0x20000},
                             [](std::uint8_t* c) { prm::MkeyContext::access_mode_4_2::set(c, 1); }),
                 CommandStatus::bad_parameter, Syndrome::bad_access_mode);
  expect_failure(
      create_mkey({0x10000, 0x20000},
                  [](std::uint8_t* c) { prm::MkeyContext::start_addr::set(c, ~0ULL - 100); }),
      CommandStatus::bad_parameter, Syndrome::address_range_wraps);
  expect_failure(create_mkey({0x10000, 0x20000},
                             [](std::uint8_t* c) { prm::MkeyContext::len::set(c, 1ULL << 62); }),
                 CommandStatus::bad_parameter, Syndrome::translation_too_small);
  EXPECT_TRUE(create_mkey({0x10000, 0x20000}, nothing).ok());
}

TEST_F(ObjectsTest, mkey_query_shows_the_context) {
  const DriverMr mr = driver.allocate_mr(10000, kLocalRead | kRemoteRead);
  const CommandReply reply =
      with_number(CommandOpcode::query_mkey, mr.key >> 8, prm::QueryMkeyOutput::size);
  const std::uint8_t* context = prm::QueryMkeyOutput::memory_key_mkey_entry::at(reply.out.data());
  EXPECT_EQ(prm::MkeyContext::start_addr::get(context), mr.address);
  EXPECT_EQ(prm::MkeyContext::len::get(context), 10000U);
  EXPECT_EQ(prm::MkeyContext::rr::get(context), 1U);
  EXPECT_EQ(prm::MkeyContext::rw::get(context), 0U);
  EXPECT_EQ(prm::MkeyContext::mkey_7_0::get(context), mr.key & 0xff);
}

TEST_F(ObjectsTest, no_mkey_looks_like_the_end_of_a_scatter_list_or_the_reserved_lkey) {
  const DriverMr mr = driver.allocate_mr(4096);
  EXPECT_GE(mr.key >> 8, kFirstMkey);
  EXPECT_GT(kFirstMkey, prm::kInvalidLkey >> 8);
  EXPECT_GT(kFirstMkey, kReservedLkey >> 8);
}

TEST_F(ObjectsTest, a_pd_with_a_key_stays) {
  const DriverMr mr = driver.allocate_mr(4096);
  expect_failure(with_number(CommandOpcode::dealloc_pd, driver.pd()),
                 CommandStatus::bad_resource_state, Syndrome::pd_in_use);
  EXPECT_TRUE(with_number(CommandOpcode::destroy_mkey, mr.key >> 8).ok());
  expect_failure(with_number(CommandOpcode::destroy_mkey, mr.key >> 8), CommandStatus::bad_resource,
                 Syndrome::no_such_mkey);
  EXPECT_TRUE(with_number(CommandOpcode::dealloc_pd, driver.pd()).ok());
}

// ---- queue pairs

TEST_F(ObjectsTest, qp_arguments_are_checked) {
  const DriverCq cq = driver.create_cq(4);
  using prm::QpContext;
  expect_failure(create_qp(cq, [](std::uint8_t* c) { QpContext::st::set(c, 0x9); }),
                 CommandStatus::bad_parameter, Syndrome::bad_service_type);
  expect_failure(create_qp(cq, [](std::uint8_t* c) { QpContext::pd::set(c, 77); }),
                 CommandStatus::bad_resource, Syndrome::no_such_pd);
  expect_failure(create_qp(cq, [](std::uint8_t* c) { QpContext::cqn_rcv::set(c, 7777); }),
                 CommandStatus::bad_resource, Syndrome::no_such_cq);
  expect_failure(create_qp(cq, [](std::uint8_t* c) { QpContext::uar_page::set(c, 3); }),
                 CommandStatus::bad_resource, Syndrome::no_such_uar);
  expect_failure(create_qp(cq, [](std::uint8_t* c) { QpContext::rq_type::set(c, 2); }),
                 CommandStatus::bad_parameter, Syndrome::bad_receive_queue_type);
  expect_failure(create_qp(cq,
                           [](std::uint8_t* c) {
                             QpContext::rq_type::set(c, 1);
                             QpContext::srqn_rmpn_xrqn::set(c, 500);
                           }),
                 CommandStatus::bad_resource, Syndrome::no_such_srq);
  expect_failure(create_qp(cq, [](std::uint8_t* c) { QpContext::log_sq_size::set(c, 7); }),
                 CommandStatus::bad_parameter, Syndrome::too_few_pages);
  expect_failure(create_qp(cq, [](std::uint8_t* c) { QpContext::dbr_addr::set(c, 4); }),
                 CommandStatus::bad_parameter, Syndrome::bad_doorbell_record);
  EXPECT_TRUE(create_qp(cq, [](std::uint8_t*) {}).ok());
}

TEST_F(ObjectsTest, qp_moves_only_along_the_state_diagram) {
  const DriverCq cq = driver.create_cq(4);
  DriverQp qp = driver.create_qp(cq, cq);
  EXPECT_EQ(driver.query_state(qp), prm::QpState::reset);
  expect_failure(driver.to_rtr(qp, 5, 1, 0), CommandStatus::bad_qp_state,
                 Syndrome::bad_qp_transition);
  EXPECT_TRUE(driver.to_init(qp).ok());
  EXPECT_EQ(driver.query_state(qp), prm::QpState::init);
  expect_failure(driver.to_rts(qp, 0), CommandStatus::bad_qp_state, Syndrome::bad_qp_transition);
  EXPECT_TRUE(driver.to_rtr(qp, 5, 1, 0).ok());
  EXPECT_TRUE(driver.to_rts(qp, 0).ok());
  EXPECT_EQ(driver.query_state(qp), prm::QpState::rts);
  EXPECT_TRUE(driver.to_error(qp).ok());
  EXPECT_EQ(driver.query_state(qp), prm::QpState::error);
  EXPECT_TRUE(driver.to_reset(qp).ok());
  EXPECT_EQ(driver.query_state(qp), prm::QpState::reset);
}

TEST_F(ObjectsTest, qp_attributes_beyond_the_device_are_refused) {
  const DriverCq cq = driver.create_cq(4);
  const DriverQp qp = driver.create_qp(cq, cq);
  ASSERT_TRUE(driver.to_init(qp).ok());
  expect_failure(driver.to_rtr(qp, 5, 1, 0, 6), CommandStatus::bad_parameter, Syndrome::bad_mtu);
  expect_failure(driver.to_rtr(qp, 5, 1, 0, 5, {}, QpTimers{.log_rd_atomic = 5}),
                 CommandStatus::bad_parameter, Syndrome::bad_rd_atomic);
}

TEST_F(ObjectsTest, qp_query_reads_back_what_was_set) {
  const DriverCq cq = driver.create_cq(4);
  const DriverQp qp = driver.create_qp(cq, cq);
  ASSERT_TRUE(driver.to_init(qp).ok());
  ASSERT_TRUE(driver.to_rtr(qp, 0x55, 7, 0x123456, 3).ok());
  ASSERT_TRUE(
      driver.to_rts(qp, 0x654321, QpTimers{.ack_timeout = 9, .retry_count = 5, .rnr_retry = 3})
          .ok());
  const CommandReply reply = with_number(CommandOpcode::query_qp, qp.qpn, prm::QueryQpOutput::size);
  const std::uint8_t* context = prm::QueryQpOutput::qpc::at(reply.out.data());
  using prm::QpContext;
  const std::uint8_t* path = QpContext::primary_address_path::at(context);
  EXPECT_EQ(QpContext::remote_qpn::get(context), 0x55U);
  EXPECT_EQ(QpContext::mtu::get(context), 3U);
  EXPECT_EQ(QpContext::next_rcv_psn::get(context), 0x123456U);
  EXPECT_EQ(QpContext::next_send_psn::get(context), 0x654321U);
  EXPECT_EQ(QpContext::retry_count::get(context), 5U);
  EXPECT_EQ(QpContext::rnr_retry::get(context), 3U);
  EXPECT_EQ(QpContext::cqn_snd::get(context), cq.cqn);
  EXPECT_EQ(prm::AddressPath::rlid::get(path), 7U);
  EXPECT_EQ(prm::AddressPath::ack_timeout::get(path), 9U);
}

TEST_F(ObjectsTest, there_is_one_qp0_and_one_qp1) {
  const DriverCq cq = driver.create_cq(4);
  QpOptions options;
  options.type = prm::QpServiceType::qp1;
  driver.create_qp(cq, cq, options);
  expect_failure(create_qp(cq, [](std::uint8_t* c) { prm::QpContext::st::set(c, 8); }),
                 CommandStatus::bad_resource_state, Syndrome::special_qp_taken);
}

// ---- shared receive queues

TEST_F(ObjectsTest, srq_of_a_qp_stays_and_kinds_are_not_mixed) {
  const DriverSrq srq = driver.create_srq(4);
  const DriverCq cq = driver.create_cq(4);
  QpOptions options;
  options.srqn = srq.srqn;
  const DriverQp qp = driver.create_qp(cq, cq, options);
  expect_failure(with_number(CommandOpcode::destroy_rmp, srq.srqn),
                 CommandStatus::bad_resource_state, Syndrome::srq_in_use);
  expect_failure(with_number(CommandOpcode::destroy_srq, srq.srqn), CommandStatus::bad_resource,
                 Syndrome::no_such_srq);
  EXPECT_TRUE(with_number(CommandOpcode::destroy_qp, qp.qpn).ok());
  EXPECT_TRUE(with_number(CommandOpcode::destroy_rmp, srq.srqn).ok());
}

TEST_F(ObjectsTest, srq_limit_reads_back_and_is_bounded) {
  const DriverSrq srq = driver.create_srq(4);
  CommandBuffer modify(CommandOpcode::modify_rmp, prm::ModifyRmpInput::size);
  modify.set<prm::ModifyRmpInput::rmpn>(srq.srqn);
  prm::Field<32, 32>::set(modify.at<prm::ModifyRmpInput::bitmask>(), prm::kRmpBitmaskLwm);
  std::uint8_t* wq = prm::RmpContext::wq::at(modify.at<prm::ModifyRmpInput::ctx>());
  prm::WqContext::lwm::set(wq, 17);
  expect_failure(driver.run(modify), CommandStatus::bad_parameter, Syndrome::bad_limit);
  prm::WqContext::lwm::set(wq, 5);
  driver.must(modify);
  const CommandReply reply =
      with_number(CommandOpcode::query_rmp, srq.srqn, prm::QueryRmpOutput::size);
  const std::uint8_t* now =
      prm::RmpContext::wq::at(prm::QueryRmpOutput::rmp_context::at(reply.out.data()));
  EXPECT_EQ(prm::WqContext::lwm::get(now), 5U);
}

TEST_F(ObjectsTest, xrc_srq_needs_its_domain_and_cq) {
  const auto create = [&](std::uint32_t xrcd, std::uint32_t cqn) {
    CommandBuffer command(CommandOpcode::create_xrc_srq, prm::CreateXrcSrqInput::size);
    std::uint8_t* context = command.at<prm::CreateXrcSrqInput::xrc_srq_context_entry>();
    prm::XrcSrqContext::log_xrc_srq_size::set(context, 2);
    prm::XrcSrqContext::log_rq_stride::set(context, 1);
    prm::XrcSrqContext::xrcd::set(context, xrcd);
    prm::XrcSrqContext::cqn::set(context, cqn);
    prm::XrcSrqContext::pd::set(context, driver.pd());
    prm::XrcSrqContext::dbr_addr::set(context, driver.memory().allocate(64, 64));
    command.append(std::array<std::uint64_t, 1>{driver.memory().allocate(4096)});
    return driver.run(command);
  };
  const DriverCq cq = driver.create_cq(4);
  expect_failure(create(1, cq.cqn), CommandStatus::bad_resource, Syndrome::no_such_xrcd);
  const CommandReply domain = driver.must({CommandOpcode::alloc_xrcd, 16});
  const auto xrcd = static_cast<std::uint32_t>(prm::AllocXrcdOutput::xrcd::get(domain.out.data()));
  expect_failure(create(xrcd, 9999), CommandStatus::bad_resource, Syndrome::no_such_cq);
  const CommandReply srq = create(xrcd, cq.cqn);
  ASSERT_TRUE(srq.ok());
  expect_failure(with_number(CommandOpcode::dealloc_xrcd, xrcd), CommandStatus::bad_resource_state,
                 Syndrome::xrcd_in_use);
  const auto srqn =
      static_cast<std::uint32_t>(prm::CreateXrcSrqOutput::xrc_srqn::get(srq.out.data()));
  EXPECT_TRUE(with_number(CommandOpcode::destroy_xrc_srq, srqn).ok());
  EXPECT_TRUE(with_number(CommandOpcode::dealloc_xrcd, xrcd).ok());
}

// ---- numbered resources

TEST_F(ObjectsTest, uars_lie_above_the_registers_and_stay_while_used) {
  EXPECT_GE(driver.uar(), Function::kFirstUar);
  expect_failure(with_number(CommandOpcode::dealloc_uar, driver.uar()),
                 CommandStatus::bad_resource_state, Syndrome::uar_in_use);
  const CommandReply second = driver.must({CommandOpcode::alloc_uar, 16});
  const auto uar = static_cast<std::uint32_t>(prm::AllocUarOutput::uar::get(second.out.data()));
  EXPECT_NE(uar, driver.uar());
  EXPECT_TRUE(with_number(CommandOpcode::dealloc_uar, uar).ok());
  expect_failure(with_number(CommandOpcode::dealloc_uar, uar), CommandStatus::bad_resource,
                 Syndrome::no_such_uar);
}

TEST_F(ObjectsTest, multicast_members_are_ud_queue_pairs_and_multicast_gids) {
  const DriverCq cq = driver.create_cq(4);
  QpOptions options;
  options.type = prm::QpServiceType::ud;
  const DriverQp qp = driver.create_qp(cq, cq, options);
  const auto group = [&](CommandOpcode opcode, std::uint8_t first, std::uint32_t qpn) {
    CommandBuffer command(opcode, prm::AttachToMcgInput::size);
    command.set<prm::AttachToMcgInput::qpn>(qpn);
    command.at<prm::AttachToMcgInput::multicast_gid>()[0] = first;
    return driver.run(command);
  };
  expect_failure(group(CommandOpcode::attach_to_mcg, 0xfe, qp.qpn), CommandStatus::bad_parameter,
                 Syndrome::not_multicast);
  expect_failure(group(CommandOpcode::attach_to_mcg, 0xff, 0xffff), CommandStatus::bad_resource,
                 Syndrome::no_such_qp);
  EXPECT_TRUE(group(CommandOpcode::attach_to_mcg, 0xff, qp.qpn).ok());
  expect_failure(with_number(CommandOpcode::destroy_qp, qp.qpn), CommandStatus::bad_resource_state,
                 Syndrome::qp_in_use);
  EXPECT_TRUE(group(CommandOpcode::detach_from_mcg, 0xff, qp.qpn).ok());
  expect_failure(group(CommandOpcode::detach_from_mcg, 0xff, qp.qpn), CommandStatus::bad_resource,
                 Syndrome::not_attached);
}

TEST_F(ObjectsTest, a_command_with_an_unknown_user_context_is_refused) {
  CommandBuffer command(CommandOpcode::alloc_pd, 16);
  expect_failure(driver.run(command.set<prm::CommandInput::uid>(5)), CommandStatus::bad_parameter,
                 Syndrome::bad_user_context);
}

}  // namespace
}  // namespace softhca::test
