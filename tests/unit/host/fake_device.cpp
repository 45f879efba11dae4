// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/unit/host/fake_device.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hw-model/prm/access_registers.h"
#include "hw-model/prm/command_queue.h"
#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/eq_context.h"
#include "hw-model/prm/eqe.h"
#include "hw-model/prm/hca_cap.h"
#include "hw-model/prm/iseg.h"
#include "hw-model/prm/vport.h"

namespace softhca::shim::test {
namespace {

using prm::CommandOpcode;
using Number = prm::Field<0x48, 24>;

constexpr std::uint64_t kBarSize = 32ULL << 20;
constexpr unsigned kLogSlots = 5;
constexpr unsigned kLogStride = 6;

/// Creating command of each destroying one.
const std::map<CommandOpcode, CommandOpcode>& creators() {
  static const std::map<CommandOpcode, CommandOpcode> pairs = {
      {CommandOpcode::dealloc_pd, CommandOpcode::alloc_pd},
      {CommandOpcode::dealloc_uar, CommandOpcode::alloc_uar},
      {CommandOpcode::dealloc_xrcd, CommandOpcode::alloc_xrcd},
      {CommandOpcode::dealloc_transport_domain, CommandOpcode::alloc_transport_domain},
      {CommandOpcode::destroy_uctx, CommandOpcode::create_uctx},
      {CommandOpcode::destroy_cq, CommandOpcode::create_cq},
      {CommandOpcode::destroy_qp, CommandOpcode::create_qp},
      {CommandOpcode::destroy_mkey, CommandOpcode::create_mkey},
      {CommandOpcode::destroy_rmp, CommandOpcode::create_rmp},
      {CommandOpcode::destroy_xrc_srq, CommandOpcode::create_xrc_srq},
  };
  return pairs;
}

bool creates(CommandOpcode opcode) {
  return std::any_of(creators().begin(), creators().end(),
                     [opcode](const auto& pair) { return pair.second == opcode; });
}

}  // namespace

FakeDevice::FakeDevice() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0) {
    alive_[0].reset(ends[0]);
    alive_[1].reset(ends[1]);
  }
  bar_.reset(::memfd_create("fake-bar", MFD_CLOEXEC));
  [[maybe_unused]] const int grown = ::ftruncate(bar_.get(), kBarSize);
}

FakeDevice::~FakeDevice() {
  for (const auto& [iova, map] : maps_) {
    if (map.base != nullptr) ::munmap(map.base, map.size);
  }
}

int FakeDevice::bar_read(std::uint64_t offset, std::span<std::byte> to) {
  if (gone) return ENODEV;
  std::uint8_t segment[0x200] = {};
  using Iseg = prm::InitializationSegment;
  Iseg::fw_rev_major::set(segment, 16);
  Iseg::fw_rev_minor::set(segment, 35);
  Iseg::fw_rev_subminor::set(segment, 2000);
  Iseg::cmd_interface_rev::set(segment, 5);
  Iseg::log_cmdq_size::set(segment, kLogSlots);
  Iseg::log_cmdq_stride::set(segment, kLogStride);
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = offset + i < sizeof(segment) ? std::byte{segment[offset + i]} : std::byte{0};
  }
  return 0;
}

int FakeDevice::bar_write(std::uint64_t offset, std::span<const std::byte> from, bool) {
  if (gone) return ENODEV;
  std::uint32_t word = 0;
  std::memcpy(&word, from.data(), std::min(sizeof(word), from.size()));
  word = __builtin_bswap32(word);
  using Iseg = prm::InitializationSegment;
  if (offset == Iseg::cmdq_phy_addr_63_32::byte_offset) {
    queue_ = (queue_ & 0xffffffff) | static_cast<std::uint64_t>(word) << 32;
  } else if (offset == Iseg::cmdq_phy_addr_31_12::byte_offset) {
    queue_ = (queue_ & ~0xffffffffULL) | (word & ~0xfffU);
  } else if (offset == Iseg::command_doorbell_vector::byte_offset) {
    for (unsigned slot = 0; slot < 32; ++slot) {
      if ((word >> slot & 1) != 0) run_slot(slot);
    }
  } else {
    registers[offset] = word;
  }
  return 0;
}

int FakeDevice::dma_map(std::uint64_t iova, std::uint64_t size, int fd, std::uint64_t offset,
                        bool writable) {
  if (gone) return ENODEV;
  if (size == 0 || iova % 4096 != 0 || size % 4096 != 0 || iova + size < iova) return EINVAL;
  const auto next = maps_.lower_bound(iova);
  if (next != maps_.end() && next->first < iova + size) return EEXIST;
  if (next != maps_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.size > iova) return EEXIST;
  }
  void* const base = ::mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ,
                            MAP_SHARED, fd, static_cast<off_t>(offset));
  maps_[iova] = {size, base == MAP_FAILED ? nullptr : static_cast<std::uint8_t*>(base)};
  return 0;
}

int FakeDevice::dma_unmap(std::uint64_t iova, std::uint64_t size) {
  const auto found = maps_.find(iova);
  if (found == maps_.end() || found->second.size != size) return ENOENT;
  if (found->second.base != nullptr) ::munmap(found->second.base, size);
  maps_.erase(found);
  return 0;
}

int FakeDevice::connect_interrupts(std::uint32_t start, std::span<const int> eventfds) {
  for (std::size_t i = 0; i < eventfds.size(); ++i) {
    vectors_[start + static_cast<std::uint32_t>(i)] = eventfds[i];
  }
  return 0;
}

MappableArea FakeDevice::bar_area(std::uint64_t offset, std::uint64_t length) {
  if (offset < 16 * 4096 || offset + length > kBarSize) return {};
  return {bar_.get(), offset, length};
}

bool FakeDevice::is_mapped(std::uint64_t iova) const {
  const auto next = maps_.upper_bound(iova);
  return next != maps_.begin() && iova - std::prev(next)->first < std::prev(next)->second.size;
}

std::uint8_t* FakeDevice::at(std::uint64_t iova) {
  auto next = maps_.upper_bound(iova);
  if (next == maps_.begin()) return nullptr;
  --next;
  const std::uint64_t offset = iova - next->first;
  return offset < next->second.size && next->second.base != nullptr ? next->second.base + offset
                                                                    : nullptr;
}

FakeDevice::Bytes FakeDevice::gather(std::uint64_t mailbox, const std::uint8_t* inlined,
                                     std::size_t length) {
  Bytes bytes(inlined, inlined + std::min<std::size_t>(length, prm::kCommandInlineSize));
  while (bytes.size() < length) {
    const std::uint8_t* const block = at(mailbox);
    const std::size_t part = std::min(length - bytes.size(), prm::CommandMailbox::data_size);
    bytes.insert(bytes.end(), block, block + part);
    mailbox = prm::CommandMailbox::next_pointer::get(block);
  }
  return bytes;
}

void FakeDevice::scatter(std::uint64_t mailbox, std::uint8_t* inlined, const Bytes& bytes) {
  std::size_t done = std::min(bytes.size(), prm::kCommandInlineSize);
  std::copy_n(bytes.begin(), done, inlined);
  while (done < bytes.size()) {
    std::uint8_t* const block = at(mailbox);
    const std::size_t part = std::min(bytes.size() - done, prm::CommandMailbox::data_size);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(done), part, block);
    done += part;
    mailbox = prm::CommandMailbox::next_pointer::get(block);
  }
}

void FakeDevice::run_slot(unsigned slot) {
  using Entry = prm::CommandQueueEntry;
  std::uint8_t* const entry = at(queue_) + (slot << kLogStride);
  const Bytes in =
      gather(Entry::input_mailbox_pointer::get(entry), Entry::command_input_inline_data::at(entry),
             Entry::input_length::get(entry));
  const auto opcode = static_cast<CommandOpcode>(prm::CommandInput::opcode::get(in.data()));
  seen_[opcode].push_back(in);
  if (unanswered.contains(opcode)) return;
  Bytes out(Entry::output_length::get(entry));
  if (const auto status = fail_with.find(opcode); status != fail_with.end()) {
    prm::CommandOutput::status::set(out.data(), status->second);
  } else {
    execute(in, out);
  }
  scatter(Entry::output_mailbox_pointer::get(entry), Entry::command_output_inline_data::at(entry),
          out);
  entry[Entry::status_own_byte] = 0;
}

void FakeDevice::execute(const Bytes& in, Bytes& out) {
  const auto opcode = static_cast<CommandOpcode>(prm::CommandInput::opcode::get(in.data()));
  if (creates(opcode)) {
    std::uint32_t number = 0;
    if (opcode == CommandOpcode::create_mkey) {
      number = static_cast<std::uint32_t>(prm::CreateMkeyInput::input_mkey_index::get(in.data()));
    }
    if (number == 0) number = next_number_++;
    live_[opcode].insert(number);
    Number::set(out.data(), number);
    return;
  }
  if (const auto pair = creators().find(opcode); pair != creators().end()) {
    const auto number = static_cast<std::uint32_t>(Number::get(in.data()));
    if (live_[pair->second].erase(number) == 0) {
      prm::CommandOutput::status::set(out.data(),
                                      static_cast<std::uint8_t>(prm::CommandStatus::bad_resource));
    }
    return;
  }
  switch (opcode) {
    case CommandOpcode::query_issi:
      prm::QueryIssiOutput::supported_issi_dw0::set(out.data(), 2);
      return;
    case CommandOpcode::query_pages:
      prm::QueryPagesOutput::num_pages::set(
          out.data(),
          static_cast<std::uint32_t>(prm::CommandInput::op_mod::get(in.data()) == 1 ? boot_pages
                                                                                    : init_pages));
      return;
    case CommandOpcode::manage_pages:
      return manage_pages(in, out);
    case CommandOpcode::query_hca_cap:
      return query_caps(out);
    case CommandOpcode::create_eq:
      return create_eq(in, out);
    case CommandOpcode::access_reg:
      return query_register(in, out);
    case CommandOpcode::query_hca_vport_context: {
      std::uint8_t* const context =
          out.data() + prm::QueryHcaVportContextOutput::hca_vport_context::offset;
      prm::HcaVportContext::vport_state::set(context, 4);
      prm::HcaVportContext::port_physical_state::set(context, 5);
      prm::HcaVportContext::lid::set(context, 7);
      prm::HcaVportContext::node_guid::set(context, 0x0002c90300f00d00);
      return;
    }
    case CommandOpcode::query_hca_vport_gid:
      prm::QueryHcaVportGidOutput::gids_num::set(out.data(), 8);
      out[prm::QueryHcaVportGidOutput::gid_offset] = 0xfe;
      out[prm::QueryHcaVportGidOutput::gid_offset + 1] = 0x80;
      return;
    case CommandOpcode::query_hca_vport_pkey:
      out[prm::QueryHcaVportPkeyOutput::pkey_offset + 2] = 0xff;
      out[prm::QueryHcaVportPkeyOutput::pkey_offset + 3] = 0xff;
      return;
    default:
      return;
  }
}

void FakeDevice::query_caps(Bytes& out) {
  std::uint8_t* const caps = out.data() + prm::QueryHcaCapOutput::capability::offset;
  using Cap = prm::HcaCap;
  Cap::log_max_qp::set(caps, 18);
  Cap::log_max_qp_sz::set(caps, 15);
  Cap::log_max_cq::set(caps, 18);
  Cap::log_max_cq_sz::set(caps, 22);
  Cap::log_max_srq::set(caps, 18);
  Cap::log_max_srq_sz::set(caps, 15);
  Cap::log_max_mkey::set(caps, 20);
  Cap::imaicl::set(caps, 1);
  Cap::log_max_pd::set(caps, 18);
  Cap::log_max_transport_domain::set(caps, 18);
  Cap::log_max_uctx::set(caps, 16);
  Cap::log_max_ra_req_qp::set(caps, 4);
  Cap::log_max_ra_res_qp::set(caps, 4);
  Cap::max_wqe_sz_sq::set(caps, 1024);
  Cap::max_wqe_sz_rq::set(caps, 512);
  Cap::log_max_msg::set(caps, 30);
  Cap::log_pg_sz::set(caps, 12);
  Cap::cqe_version::set(caps, 1);
  Cap::cq_resize::set(caps, 1);
  Cap::cq_moderation::set(caps, 1);
  Cap::xrc::set(caps, 1);
}

void FakeDevice::query_register(const Bytes& in, Bytes& out) {
  std::uint8_t* const data = out.data() + prm::AccessRegisterOutput::register_data_offset;
  switch (static_cast<prm::RegisterId>(prm::AccessRegisterInput::register_id::get(in.data()))) {
    case prm::RegisterId::ptys:
      prm::PtysRegister::ib_link_width_oper::set(data, 4);
      prm::PtysRegister::ib_proto_oper::set(data, 32);
      return;
    case prm::RegisterId::pmtu:
      prm::PmtuRegister::max_mtu::set(data, 4096);
      prm::PmtuRegister::oper_mtu::set(data, 2048);
      return;
    case prm::RegisterId::pvlc:
      prm::PvlcRegister::vl_hw_cap::set(data, 4);
      return;
    default:
      return;
  }
}

void FakeDevice::manage_pages(const Bytes& in, Bytes& out) {
  using Entry = prm::Field<0, 64>;
  const std::uint64_t count = prm::ManagePagesInput::input_num_entries::get(in.data());
  if (prm::CommandInput::op_mod::get(in.data()) == 1) {
    for (std::uint64_t i = 0; i < count; ++i) {
      pages_.insert(Entry::get(in.data() + prm::ManagePagesInput::pas_offset + i * 8));
    }
    return;
  }
  std::uint64_t given = 0;
  for (; given < count && !pages_.empty(); ++given) {
    Entry::set(out.data() + prm::ManagePagesOutput::pas_offset + given * 8, *pages_.begin());
    pages_.erase(pages_.begin());
  }
  prm::ManagePagesOutput::output_num_entries::set(out.data(), given);
}

void FakeDevice::create_eq(const Bytes& in, Bytes& out) {
  const std::uint8_t* const context = in.data() + prm::CreateEqInput::eq_context_entry::offset;
  Queue queue;
  queue.log_size = static_cast<unsigned>(prm::EqContext::log_eq_size::get(context));
  queue.vector = static_cast<std::uint32_t>(prm::EqContext::intr::get(context));
  for (std::size_t at = prm::CreateEqInput::pas_offset; at + 8 <= in.size(); at += 8) {
    queue.pages.push_back(prm::Field<0, 64>::get(in.data() + at));
  }
  eqs_.push_back(std::move(queue));
  prm::CreateEqOutput::eq_number::set(out.data(), eqs_.size());
}

void FakeDevice::post_event(std::uint32_t eqn, std::uint8_t type, std::uint8_t subtype,
                            const std::function<void(std::uint8_t* data)>& fill) {
  Queue& queue = eqs_.at(eqn - 1);
  const std::uint32_t index = queue.producer & ((1U << queue.log_size) - 1);
  std::uint8_t* const eqe = at(queue.pages.at(index / 64)) + index % 64 * prm::Eqe::size;
  prm::Eqe::event_type::set(eqe, type);
  prm::Eqe::event_sub_type::set(eqe, subtype);
  fill(prm::Eqe::event_data::at(eqe));
  prm::Eqe::owner::set(eqe, queue.producer >> queue.log_size & 1);
  ++queue.producer;
  ::eventfd_write(vectors_.at(queue.vector), 1);
}

}  // namespace softhca::shim::test
