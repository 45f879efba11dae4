// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Event queues, completion queues, memory keys, shared receive queues.
#include <cstring>

#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/cq_context.h"
#include "hw-model/prm/eq_context.h"
#include "hw-model/prm/eqe.h"
#include "hw-model/prm/mkey_context.h"
#include "hw-model/prm/srq_context.h"
#include "hw-model/prm/uar.h"
#include "tests/support/mini_driver.h"

namespace softhca::test {
namespace {

using prm::CommandOpcode;
using prm::Cqe;

constexpr std::uint8_t kKeyVariant = 0x5a;

/// The byte that the device writes last; what it wrote before is there when the byte is.
std::uint8_t last_byte(const std::uint8_t* entry) {
  return __atomic_load_n(entry + 63, __ATOMIC_ACQUIRE);
}

}  // namespace

std::vector<std::uint64_t> MiniDriver::pages_of(std::uint64_t address, std::uint64_t bytes) const {
  std::vector<std::uint64_t> pages;
  for (std::uint64_t at = address / GuestMemory::kPage * GuestMemory::kPage; at < address + bytes;
       at += GuestMemory::kPage) {
    pages.push_back(at);
  }
  return pages;
}

DriverEq MiniDriver::create_eq(unsigned log_size, std::uint16_t vector, std::uint64_t event_mask) {
  DriverEq eq;
  eq.log_size = log_size;
  eq.uar = uar_;
  const std::uint64_t bytes = prm::Eqe::size << log_size;
  eq.buffer = memory_.allocate(bytes);
  for (unsigned i = 0; i < 1U << log_size; ++i) {
    prm::Eqe::owner::set(memory_.bytes(eq.buffer + i * prm::Eqe::size), 1);
  }
  CommandBuffer create(CommandOpcode::create_eq, prm::CreateEqInput::size);
  std::uint8_t* context = create.at<prm::CreateEqInput::eq_context_entry>();
  prm::EqContext::log_eq_size::set(context, log_size);
  prm::EqContext::uar_page::set(context, uar_);
  prm::EqContext::intr::set(context, vector);
  prm::Field<0, 64>::set(create.at<prm::CreateEqInput::event_bitmask>(), event_mask);
  create.append(pages_of(eq.buffer, bytes));
  eq.eqn = static_cast<std::uint32_t>(prm::CreateEqOutput::eq_number::get(must(create).out.data()));
  arm_eq(eq);
  return eq;
}

std::optional<DriverEvent> MiniDriver::poll_eq(DriverEq& eq) {
  const std::uint32_t size = 1U << eq.log_size;
  const std::uint8_t* eqe = memory_.bytes(eq.buffer + (eq.consumer & (size - 1)) * prm::Eqe::size);
  if ((last_byte(eqe) & 1U) != (eq.consumer >> eq.log_size & 1)) return std::nullopt;
  DriverEvent event;
  event.type = static_cast<std::uint8_t>(prm::Eqe::event_type::get(eqe));
  event.subtype = static_cast<std::uint8_t>(prm::Eqe::event_sub_type::get(eqe));
  std::memcpy(event.data.data(), prm::Eqe::event_data::at(eqe), event.data.size());
  ++eq.consumer;
  return event;
}

void MiniDriver::arm_eq(const DriverEq& eq) {
  write32(eq.uar * prm::kUarPageSize + prm::Uar::eq_arm, eq.eqn << 24 | (eq.consumer & 0xffffff));
}

void MiniDriver::update_eq(const DriverEq& eq) {
  write32(eq.uar * prm::kUarPageSize + prm::Uar::eq_update,
          eq.eqn << 24 | (eq.consumer & 0xffffff));
}

DriverCq MiniDriver::create_cq(unsigned log_size, bool cqe128, const DriverEq* eq) {
  DriverCq cq;
  cq.log_size = log_size;
  cq.uar = uar_;
  cq.cqe_size = cqe128 ? 128 : 64;
  const std::uint64_t bytes = std::uint64_t{cq.cqe_size} << log_size;
  cq.buffer = memory_.allocate(bytes);
  cq.doorbell = memory_.allocate(8, 64);
  for (unsigned i = 0; i < 1U << log_size; ++i) {
    std::uint8_t* cqe = memory_.bytes(cq.buffer + (i + 1) * cq.cqe_size - prm::kCqeSize64);
    Cqe::opcode::set(cqe, static_cast<unsigned>(prm::CqeOpcode::invalid));
    Cqe::owner::set(cqe, 1);
  }
  CommandBuffer create(CommandOpcode::create_cq, prm::CreateCqInput::size);
  std::uint8_t* context = create.at<prm::CreateCqInput::cq_context>();
  prm::CqContext::cqe_sz::set(context, cqe128 ? 1 : 0);
  prm::CqContext::log_cq_size::set(context, log_size);
  prm::CqContext::uar_page::set(context, uar_);
  prm::CqContext::c_eqn_or_apu_element::set(context, (eq != nullptr ? *eq : completion_eq_).eqn);
  prm::CqContext::dbr_addr::set(context, cq.doorbell);
  create.append(pages_of(cq.buffer, bytes));
  cq.cqn = static_cast<std::uint32_t>(prm::CreateCqOutput::cqn::get(must(create).out.data()));
  return cq;
}

std::optional<Completion> MiniDriver::poll_cq(DriverCq& cq) {
  const std::uint32_t size = 1U << cq.log_size;
  const std::uint8_t* cqe =
      memory_.bytes(cq.buffer + ((cq.consumer & (size - 1)) + 1) * cq.cqe_size - prm::kCqeSize64);
  const std::uint8_t op_own = last_byte(cqe);
  Completion completion;
  completion.opcode = static_cast<prm::CqeOpcode>(op_own >> 4);
  if (completion.opcode == prm::CqeOpcode::invalid) return std::nullopt;
  if ((op_own & 1U) != (cq.consumer >> cq.log_size & 1)) return std::nullopt;
  completion.qpn = static_cast<std::uint32_t>(Cqe::qpn::get(cqe));
  completion.user_index = static_cast<std::uint32_t>(Cqe::srqn_user_index::get(cqe));
  completion.wqe_counter = static_cast<std::uint16_t>(Cqe::wqe_counter::get(cqe));
  completion.byte_count = static_cast<std::uint32_t>(Cqe::byte_count::get(cqe));
  completion.immediate = static_cast<std::uint32_t>(Cqe::immediate::get(cqe));
  completion.source_qpn = static_cast<std::uint32_t>(Cqe::remote_qpn::get(cqe));
  completion.solicited = Cqe::solicited::get(cqe) != 0;
  if (completion.error()) {
    completion.syndrome = static_cast<std::uint8_t>(prm::ErrorCqe::syndrome::get(cqe));
    completion.vendor_syndrome =
        static_cast<std::uint8_t>(prm::ErrorCqe::vendor_syndrome::get(cqe));
  }
  ++cq.consumer;
  store_record(cq.doorbell, cq.consumer & 0xffffff);
  return completion;
}

void MiniDriver::arm_cq(DriverCq& cq, bool solicited_only) {
  const std::uint32_t word = (cq.arm_sn & 3) << prm::kCqArmSnShift |
                             (solicited_only ? prm::kCqArmSolicited : 0) | (cq.consumer & 0xffffff);
  store_record(cq.doorbell + 4, word);
  write64(cq.uar * prm::kUarPageSize + prm::Uar::cq_arm, word, cq.cqn);
}

DriverMr MiniDriver::register_memory(std::uint64_t address, std::uint64_t length, unsigned access,
                                     std::uint64_t state_record) {
  CommandBuffer create(CommandOpcode::create_mkey, prm::CreateMkeyInput::size);
  create.set<prm::CreateMkeyInput::state_record>(state_record);
  std::uint8_t* context = create.at<prm::CreateMkeyInput::memory_key_mkey_entry>();
  using prm::MkeyContext;
  const auto pages = pages_of(address, length);
  MkeyContext::lr::set(context, (access & kLocalRead) != 0);
  MkeyContext::lw::set(context, (access & kLocalWrite) != 0);
  MkeyContext::rr::set(context, (access & kRemoteRead) != 0);
  MkeyContext::rw::set(context, (access & kRemoteWrite) != 0);
  MkeyContext::a::set(context, (access & kRemoteAtomic) != 0);
  MkeyContext::access_mode_1_0::set(context, static_cast<unsigned>(prm::MkeyAccessMode::mtt));
  MkeyContext::qpn::set(context, prm::kMkeyAnyQp);
  MkeyContext::mkey_7_0::set(context, kKeyVariant);
  MkeyContext::pd::set(context, pd_);
  MkeyContext::start_addr::set(context, address);
  MkeyContext::len::set(context, length);
  MkeyContext::log_page_size::set(context, 12);
  const std::size_t octwords = (pages.size() + 1) / 2;
  MkeyContext::translations_octword_size::set(context, octwords);
  create.set<prm::CreateMkeyInput::translations_octword_actual_size>(octwords).append(pages);
  if (pages.size() % 2 != 0) create.append(std::array<std::uint64_t, 1>{0});
  const CommandReply reply = must(create);
  DriverMr mr;
  mr.address = address;
  mr.length = length;
  mr.key = static_cast<std::uint32_t>(prm::CreateMkeyOutput::mkey_index::get(reply.out.data()))
               << 8 |
           kKeyVariant;
  return mr;
}

DriverMr MiniDriver::allocate_mr(std::uint64_t length, unsigned access) {
  return register_memory(memory_.allocate(length), length, access);
}

DriverSrq MiniDriver::create_srq(unsigned log_size, unsigned log_stride) {
  DriverSrq srq;
  srq.log_size = log_size;
  srq.stride = 1U << log_stride;
  const std::uint64_t bytes = std::uint64_t{srq.stride} << log_size;
  srq.buffer = memory_.allocate(bytes);
  srq.doorbell = memory_.allocate(8, 64);
  for (unsigned i = 0; i < 1U << log_size; ++i) {
    prm::NextSegment::next_wqe_index::set(memory_.bytes(srq.buffer + i * srq.stride),
                                          (i + 1) % (1U << log_size));
  }
  CommandBuffer create(CommandOpcode::create_rmp, prm::CreateRmpInput::size);
  std::uint8_t* wq = prm::RmpContext::wq::at(create.at<prm::CreateRmpInput::ctx>());
  prm::RmpContext::state::set(create.at<prm::CreateRmpInput::ctx>(),
                              static_cast<unsigned>(prm::RmpState::ready));
  prm::WqContext::pd::set(wq, pd_);
  prm::WqContext::dbr_addr::set(wq, srq.doorbell);
  prm::WqContext::log_wq_stride::set(wq, log_stride);
  prm::WqContext::log_wq_sz::set(wq, log_size);
  create.append(pages_of(srq.buffer, bytes));
  srq.srqn = static_cast<std::uint32_t>(prm::CreateRmpOutput::rmpn::get(must(create).out.data()));
  return srq;
}

void MiniDriver::post_srq_receive(DriverSrq& srq, std::uint16_t index, std::span<const Sge> sges) {
  std::uint8_t* wqe =
      memory_.bytes(srq.buffer + std::uint64_t{index} * srq.stride) + prm::NextSegment::size;
  const std::size_t room = srq.stride / prm::DataSegment::size - 1;
  for (std::size_t i = 0; i < room && i <= sges.size(); ++i, wqe += prm::DataSegment::size) {
    const Sge sge = i < sges.size() ? sges[i] : Sge{0, 0, prm::kInvalidLkey};
    prm::DataSegment::byte_count::set(wqe, sge.length);
    prm::DataSegment::lkey::set(wqe, sge.lkey);
    prm::DataSegment::address::set(wqe, sge.address);
  }
  ++srq.posted;
  store_record(srq.doorbell, srq.posted);
}

}  // namespace softhca::test
