// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Byte positions that drivers have hard-coded, checked against the layouts.
#include <gtest/gtest.h>

#include <array>

#include "hw-model/prm/address_path.h"
#include "hw-model/prm/command_queue.h"
#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/commands_resources.h"
#include "hw-model/prm/cq_context.h"
#include "hw-model/prm/eq_context.h"
#include "hw-model/prm/eqe.h"
#include "hw-model/prm/hca_cap.h"
#include "hw-model/prm/iseg.h"
#include "hw-model/prm/mkey_context.h"
#include "hw-model/prm/opcodes.h"
#include "hw-model/prm/qp_context.h"
#include "hw-model/prm/srq_context.h"

namespace softhca::prm {
namespace {

static_assert(CommandQueueEntry::size == 64 && CommandMailbox::size == 576);
static_assert(CommandQueueEntry::input_mailbox_pointer::byte_offset == 0x8);
static_assert(CommandQueueEntry::output_mailbox_pointer::byte_offset == 0x30);
static_assert(CommandQueueEntry::output_length::byte_offset == 0x38);
static_assert(CommandMailbox::block_number::byte_offset == 0x238);
static_assert(InitializationSegment::health_buffer::offset == 0x200);
static_assert(InitializationSegment::initializing::byte_offset == 0x1fc);
static_assert(InitializationSegment::cmd_q_init_to::byte_offset == 0xffc);
static_assert(QpContext::size == 0xe8 && AddressPath::size == 0x2c);
static_assert(QpContext::primary_address_path::offset + AddressPath::size ==
              QpContext::secondary_address_path::offset);
static_assert(QpContext::dbr_addr::byte_offset == 0xa0);
static_assert(CreateQpInput::qpc::offset + QpContext::size == 0x100 &&
              CreateQpInput::pas_offset == 0x110);
static_assert(CqContext::size == 0x40 && CqContext::dbr_addr::byte_offset == 0x38);
static_assert(EqContext::size == 0x40 && MkeyContext::size == 0x40 && SrqContext::size == 0x40);
static_assert(CreateMkeyInput::klm_pas_mtt_offset == 0x110);
static_assert(Eqe::event_data::offset == 0x20 && Eqe::owner::byte_offset == 0x3c);
static_assert(HcaCap::size == 0x100 && AtomicCaps::size == 0x100);
static_assert(RmpContext::wq::offset == 0x30 && WqContext::size == 0xc0);

TEST(PrmLayouts, numbers_of_objects_are_the_24_bits_at_byte_9) {
  std::array<std::uint8_t, 16> out{};
  CreateCqOutput::cqn::set(out.data(), 0x123456);
  EXPECT_EQ(out[9], 0x12);
  EXPECT_EQ(out[11], 0x56);
  static_assert(CreateQpOutput::qpn::bit_offset == CreateCqOutput::cqn::bit_offset);
  static_assert(AllocUarOutput::uar::bit_offset == CreateCqOutput::cqn::bit_offset);
  static_assert(CreateMkeyOutput::mkey_index::bit_offset == CreateCqOutput::cqn::bit_offset);
  static_assert(CreateRmpOutput::rmpn::bit_offset == CreateCqOutput::cqn::bit_offset);
}

TEST(PrmLayouts, a_field_keeps_its_neighbours) {
  std::array<std::uint8_t, CqContext::size> context{};
  context.fill(0xff);
  CqContext::log_cq_size::set(context.data(), 0);
  EXPECT_EQ(CqContext::uar_page::get(context.data()), 0xffffffU);
  EXPECT_EQ(context[12], 0xe0);
}

TEST(PrmLayouts, events_are_read_where_the_driver_reads_them) {
  std::array<std::uint8_t, Eqe::size> eqe{};
  CompletionEventData::cqn::set(Eqe::event_data::at(eqe.data()), 0xabcdef);
  EXPECT_EQ(eqe[0x39], 0xab);
  PortChangeEventData::port_num::set(Eqe::event_data::at(eqe.data()), 1);
  EXPECT_EQ(eqe[0x28], 0x10);
  Eqe::owner::set(eqe.data(), 1);
  EXPECT_EQ(eqe[0x3f], 1);
}

TEST(PrmLayouts, commands_and_statuses_have_names) {
  EXPECT_EQ(command_name(0x500), "CREATE_QP");
  EXPECT_EQ(command_name(0x50a), "2RST_QP");
  EXPECT_EQ(command_name(0xffff), "UNKNOWN");
  EXPECT_EQ(command_status_name(0x9), "bad resource state");
}

}  // namespace
}  // namespace softhca::prm
