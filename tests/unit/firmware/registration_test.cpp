// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory registration by work requests, as a kernel driver prepares it by commands.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "hw-model/firmware/syndromes.h"
#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/commands_resources.h"
#include "hw-model/prm/mkey_context.h"
#include "tests/support/one_host.h"
#include "tests/support/umr_request.h"

namespace softhca::test {
namespace {

using prm::CommandOpcode;
using prm::CommandStatus;
using prm::MkeyContext;
using prm::UmrMask;
using transport_test::UmrRequest;

class RegistrationTest : public ::testing::Test {
 protected:
  RegistrationTest() {
    driver.bring_up();
    cq = driver.create_cq(6);
  }

  CommandReply with_number(CommandOpcode opcode, std::uint32_t number, std::size_t out = 16) {
    CommandBuffer command(opcode, 16);
    return driver.run(command.set<prm::Field<0x48, 24>>(number), out);
  }
  template <typename Change>
  CommandReply create_key(prm::MkeyAccessMode mode, Change&& change) {
    CommandBuffer create(CommandOpcode::create_mkey, prm::CreateMkeyInput::size);
    std::uint8_t* context = create.at<prm::CreateMkeyInput::memory_key_mkey_entry>();
    MkeyContext::free::set(context, 1);
    MkeyContext::umr_en::set(context, 1);
    MkeyContext::access_mode_1_0::set(context, static_cast<unsigned>(mode));
    MkeyContext::qpn::set(context, prm::kMkeyAnyQp);
    MkeyContext::log_page_size::set(context, 12);
    MkeyContext::translations_octword_size::set(context, 2);
    change(context);
    return driver.run(create);
  }
  static std::uint32_t index_of(const CommandReply& reply) {
    return static_cast<std::uint32_t>(prm::CreateMkeyOutput::mkey_index::get(reply.out.data()));
  }
  /// A QP that only registers memory, in RTS. It belongs to no protection domain.
  DriverQp registrar() {
    DriverQp qp;
    qp.options.type = prm::QpServiceType::reg_umr;
    qp.options.log_sq_size = 4;
    qp.uar = driver.uar();
    qp.sq = driver.memory().allocate(4096);
    qp.doorbell = driver.memory().allocate(8, 64);
    CommandBuffer create(CommandOpcode::create_qp, prm::CreateQpInput::size);
    std::uint8_t* context = create.at<prm::CreateQpInput::qpc>();
    prm::QpContext::st::set(context, static_cast<unsigned>(prm::QpServiceType::reg_umr));
    prm::QpContext::uar_page::set(context, driver.uar());
    prm::QpContext::log_sq_size::set(context, qp.options.log_sq_size);
    prm::QpContext::rq_type::set(context, static_cast<unsigned>(prm::QpReceiveQueueType::none));
    prm::QpContext::cqn_snd::set(context, cq.cqn);
    prm::QpContext::cqn_rcv::set(context, cq.cqn);
    prm::QpContext::dbr_addr::set(context, qp.doorbell);
    create.append(std::array<std::uint64_t, 1>{qp.sq});
    const CommandReply reply = driver.must(create);
    qp.qpn = static_cast<std::uint32_t>(prm::CreateQpOutput::qpn::get(reply.out.data()));
    EXPECT_TRUE(driver.to_init(qp).ok());
    EXPECT_TRUE(driver.to_rtr(qp, 0, 0, 0).ok());
    EXPECT_TRUE(driver.to_rts(qp, 0).ok());
    return qp;
  }
  Completion post(DriverQp& qp, std::uint32_t key, const UmrRequest& request) {
    const std::size_t size = prm::CtrlSegment::size + request.bytes.size();
    std::uint8_t* wqe = driver.memory().bytes(qp.sq + qp.sq_blocks * prm::kWqeBasicBlock);
    std::fill_n(wqe, prm::CtrlSegment::size, std::uint8_t{0});
    prm::CtrlSegment::wqe_index::set(wqe, qp.sq_blocks);
    prm::CtrlSegment::opcode::set(wqe, static_cast<unsigned>(prm::WqeOpcode::umr));
    prm::CtrlSegment::qpn::set(wqe, qp.qpn);
    prm::CtrlSegment::ds_count::set(wqe, size / prm::kWqeUnit);
    prm::CtrlSegment::completion::set(wqe, 2);
    prm::CtrlSegment::immediate::set(wqe, key);
    std::copy(request.bytes.begin(), request.bytes.end(), wqe + prm::CtrlSegment::size);
    qp.sq_blocks = static_cast<std::uint16_t>(qp.sq_blocks + (size + 63) / 64);
    prm::Field<0, 32>::set(driver.memory().bytes(qp.doorbell + 4), qp.sq_blocks);
    driver.ring_sq(qp);
    std::optional<Completion> completion;
    EXPECT_TRUE(driver.pump_until([&] { return (completion = driver.poll_cq(cq)).has_value(); }));
    return completion.value_or(Completion{});
  }

  OneHost host;
  MiniDriver& driver = host.driver;
  DriverCq cq;
};

TEST_F(RegistrationTest, a_key_that_is_registered_holds_its_domain_until_it_leaves_it) {
  const CommandReply created = create_key(prm::MkeyAccessMode::mtt, [](std::uint8_t*) {});
  ASSERT_TRUE(created.ok()) << "a free key needs no protection domain";
  const std::uint32_t index = index_of(created);
  DriverQp qp = registrar();

  CommandBuffer alloc(CommandOpcode::alloc_pd, 16);
  const auto pd =
      static_cast<std::uint32_t>(prm::AllocPdOutput::pd::get(driver.must(alloc).out.data()));
  auto request = transport_test::fast_register(1, 0x5000, 4096);
  request.mask(transport_test::kFastRegisterMask | UmrMask::pd).context<MkeyContext::pd>(pd);
  const std::array pages{driver.memory().allocate(4096)};
  request.inline_list(transport_test::page_list(pages));
  ASSERT_FALSE(post(qp, index << 8 | 1, request).error());
  EXPECT_EQ(with_number(CommandOpcode::dealloc_pd, pd).syndrome,
            static_cast<std::uint32_t>(Syndrome::pd_in_use));

  const CommandReply reply =
      with_number(CommandOpcode::query_mkey, index, prm::QueryMkeyOutput::size);
  const std::uint8_t* context = prm::QueryMkeyOutput::memory_key_mkey_entry::at(reply.out.data());
  EXPECT_EQ(MkeyContext::free::get(context), 0U);
  EXPECT_EQ(MkeyContext::umr_en::get(context), 1U);
  EXPECT_EQ(MkeyContext::start_addr::get(context), 0x5000U);
  EXPECT_EQ(MkeyContext::pd::get(context), pd);
  EXPECT_EQ(MkeyContext::translations_octword_size::get(context), 2U);

  auto revoke = transport_test::make_free();
  revoke.mask(UmrMask::free | UmrMask::pd).context<MkeyContext::pd>(driver.pd());
  ASSERT_FALSE(post(qp, index << 8 | 1, revoke).error());
  EXPECT_TRUE(with_number(CommandOpcode::dealloc_pd, pd).ok());
  auto astray = transport_test::make_free();
  astray.mask(UmrMask::free | UmrMask::pd).context<MkeyContext::pd>(0xabcde);
  EXPECT_EQ(post(qp, index << 8 | 1, astray).syndrome,
            static_cast<std::uint8_t>(prm::CqeSyndrome::memory_window_bind));
}

TEST_F(RegistrationTest, an_indirect_key_is_made_with_its_list_or_free) {
  EXPECT_TRUE(create_key(prm::MkeyAccessMode::klms, [](std::uint8_t*) {}).ok());
  EXPECT_TRUE(create_key(prm::MkeyAccessMode::ksm, [](std::uint8_t*) {}).ok());
  const auto valid = [this](std::uint8_t* context) {
    MkeyContext::free::set(context, 0);
    MkeyContext::pd::set(context, driver.pd());
  };
  EXPECT_TRUE(create_key(prm::MkeyAccessMode::klms, valid).ok()) << "an empty list";
  CommandBuffer create(CommandOpcode::create_mkey, prm::CreateMkeyInput::size);
  std::uint8_t* context = create.at<prm::CreateMkeyInput::memory_key_mkey_entry>();
  MkeyContext::access_mode_1_0::set(context, static_cast<unsigned>(prm::MkeyAccessMode::klms));
  MkeyContext::pd::set(context, driver.pd());
  create.set<prm::CreateMkeyInput::translations_octword_actual_size>(3);
  create.append(std::array<std::uint64_t, 4>{1, 2, 3, 4});
  const CommandReply reply = driver.run(create);
  EXPECT_EQ(reply.status, CommandStatus::bad_parameter);
  EXPECT_EQ(reply.syndrome, static_cast<std::uint32_t>(Syndrome::translation_too_small));
}

TEST_F(RegistrationTest, a_user_context_names_no_addresses) {
  CommandBuffer open(CommandOpcode::create_uctx, prm::CreateUctxInput::size);
  const auto uid =
      static_cast<std::uint16_t>(prm::CreateUctxOutput::uid::get(driver.must(open).out.data()));
  using Uid = prm::CommandInput::uid;
  CommandBuffer key(CommandOpcode::create_mkey, prm::CreateMkeyInput::size);
  key.set<Uid>(uid);
  std::uint8_t* context = key.at<prm::CreateMkeyInput::memory_key_mkey_entry>();
  MkeyContext::pd::set(context, driver.pd());
  MkeyContext::length64::set(context, 1);
  EXPECT_EQ(driver.run(key).syndrome, static_cast<std::uint32_t>(Syndrome::bad_access_mode));
  CommandBuffer qp(CommandOpcode::create_qp, prm::CreateQpInput::size);
  qp.set<Uid>(uid);
  prm::QpContext::st::set(qp.at<prm::CreateQpInput::qpc>(),
                          static_cast<unsigned>(prm::QpServiceType::reg_umr));
  EXPECT_EQ(driver.run(qp).syndrome, static_cast<std::uint32_t>(Syndrome::bad_service_type));
}

TEST_F(RegistrationTest, an_xrc_queue_pair_holds_its_domain) {
  CommandBuffer alloc(CommandOpcode::alloc_xrcd, 16);
  const auto xrcd =
      static_cast<std::uint32_t>(prm::AllocXrcdOutput::xrcd::get(driver.must(alloc).out.data()));
  const auto create = [&](std::uint32_t domain) {
    CommandBuffer command(CommandOpcode::create_qp, prm::CreateQpInput::size);
    std::uint8_t* context = command.at<prm::CreateQpInput::qpc>();
    prm::QpContext::st::set(context, static_cast<unsigned>(prm::QpServiceType::xrc));
    prm::QpContext::pd::set(context, driver.pd());
    prm::QpContext::no_sq::set(context, 1);
    prm::QpContext::rq_type::set(context, 1);
    prm::QpContext::srqn_rmpn_xrqn::set(context, 0x777);  // a dummy
    prm::QpContext::cqn_snd::set(context, cq.cqn);
    prm::QpContext::cqn_rcv::set(context, cq.cqn);
    prm::QpContext::xrcd::set(context, domain);
    return driver.run(command);
  };
  EXPECT_EQ(create(0x555).syndrome, static_cast<std::uint32_t>(Syndrome::no_such_xrcd));
  const CommandReply made = create(xrcd);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(with_number(CommandOpcode::dealloc_xrcd, xrcd).syndrome,
            static_cast<std::uint32_t>(Syndrome::xrcd_in_use));
  const auto qpn = static_cast<std::uint32_t>(prm::CreateQpOutput::qpn::get(made.out.data()));
  EXPECT_TRUE(with_number(CommandOpcode::destroy_qp, qpn).ok());
  EXPECT_TRUE(with_number(CommandOpcode::dealloc_xrcd, xrcd).ok());
}

}  // namespace
}  // namespace softhca::test
