// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/transport/direct_wqe.h"

#include "hw-model/ib/opcodes.h"

namespace softhca {

using prm::WqeOpcode;

namespace {

/// BTH.OpCode of the request of a WQE; none: not for this way.
constexpr std::uint8_t kNoOpcode = 0xff;
std::uint8_t request_opcode(WqeOpcode opcode) {
  using ib::Operation;
  switch (opcode) {
    case WqeOpcode::rdma_write:
      return ib::make_opcode(ib::Service::rc, Operation::rdma_write_only);
    case WqeOpcode::rdma_write_imm:
      return ib::make_opcode(ib::Service::rc, Operation::rdma_write_only_immediate);
    case WqeOpcode::send:
      return ib::make_opcode(ib::Service::rc, Operation::send_only);
    case WqeOpcode::send_imm:
      return ib::make_opcode(ib::Service::rc, Operation::send_only_immediate);
    case WqeOpcode::rdma_read:
      return ib::make_opcode(ib::Service::rc, Operation::rdma_read_request);
    default:
      return kNoOpcode;
  }
}

/// Address and length of the only data segment, or inline data, which is all that follows at `at`.
/// False: there is something else.
bool read_data_segment(const std::uint8_t* block, std::size_t at, std::size_t size,
                       DirectWqe& wqe) {
  const std::uint8_t* segment = block + at;
  if (prm::DataSegment::inline_data::get(segment) == 0) {
    wqe.request.length = static_cast<std::uint32_t>(prm::DataSegment::byte_count::get(segment));
    wqe.lkey = static_cast<std::uint32_t>(prm::DataSegment::lkey::get(segment));
    wqe.address = prm::DataSegment::address::get(segment);
    return size == at + prm::DataSegment::size && wqe.lkey != prm::kInvalidLkey;
  }
  wqe.request.length = static_cast<std::uint32_t>(prm::InlineSegment::byte_count::get(segment));
  wqe.request.data = reinterpret_cast<const std::byte*>(segment + prm::InlineSegment::header_size);
  return wqe.request.opcode != ib::make_opcode(ib::Service::rc, ib::Operation::rdma_read_request) &&
         size == at + prm::InlineSegment::units(wqe.request.length) * prm::kWqeUnit;
}

}  // namespace

bool DirectWqe::parse(const std::uint8_t* block) {
  using Control = prm::CtrlSegment;
  const std::size_t size = Control::ds_count::get(block) * prm::kWqeUnit;
  opcode = static_cast<WqeOpcode>(Control::opcode::get(block));
  request.opcode = request_opcode(opcode);
  if (request.opcode == kNoOpcode || size > prm::kWqeBasicBlock) return false;
  std::size_t at = Control::size;
  if (ib::has_reth(request.opcode)) {
    request.va = prm::RemoteAddressSegment::virtual_address::get(block + at);
    request.rkey = static_cast<std::uint32_t>(prm::RemoteAddressSegment::rkey::get(block + at));
    at += prm::RemoteAddressSegment::size;
  }
  if (size <= at || !read_data_segment(block, at, size, *this)) return false;
  completion = static_cast<prm::CompletionMode>(Control::completion::get(block));
  if (opcode != WqeOpcode::rdma_write) {
    request.solicited = Control::solicited::get(block) != 0;
    request.immediate = static_cast<std::uint32_t>(Control::immediate::get(block));
  }
  return request.length != 0;
}

}  // namespace softhca
