// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/transport/send_wqe.h"

#include <algorithm>
#include <cstring>

#include "hw-model/prm/mkey_context.h"

namespace softhca {
namespace {

using prm::WqeOpcode;

/// The segments of a WQE, one 16-byte unit after the other.
class Units {
 public:
  explicit Units(const RawSendWqe& raw) : at_(raw.bytes.data()), left_(raw.size) {}

  std::size_t left() const { return left_; }
  /// Next `bytes` bytes (a multiple of 16); null if there are not so many.
  const std::uint8_t* take(std::size_t bytes) {
    if (bytes > left_) return nullptr;
    const std::uint8_t* segment = at_;
    at_ += bytes;
    left_ -= bytes;
    return segment;
  }
  const std::uint8_t* peek() const { return at_; }

 private:
  const std::uint8_t* at_;
  std::size_t left_;
};

bool parse_remote_address(Units& units, SendWqe& wqe) {
  const std::uint8_t* segment = units.take(prm::RemoteAddressSegment::size);
  if (segment == nullptr) return false;
  wqe.remote_address = prm::RemoteAddressSegment::virtual_address::get(segment);
  wqe.rkey = static_cast<std::uint32_t>(prm::RemoteAddressSegment::rkey::get(segment));
  return true;
}

bool parse_atomic(Units& units, SendWqe& wqe) {
  const std::uint8_t* segment = units.take(prm::AtomicSegment::size);
  if (segment == nullptr) return false;
  wqe.swap_add = prm::AtomicSegment::swap_add::get(segment);
  wqe.compare = prm::AtomicSegment::compare::get(segment);
  return true;
}

bool parse_address_vector(Units& units, SendWqe& wqe) {
  using Av = prm::AddressVector;
  if (units.left() < Av::compact_size) return false;
  const bool extended = Av::extended::get(units.peek()) != 0;
  const std::uint8_t* av = units.take(extended ? Av::size : Av::compact_size);
  if (av == nullptr) return false;
  DatagramAddress& address = wqe.address;
  address = {};
  address.qkey = static_cast<std::uint32_t>(Av::qkey::get(av));
  address.destination_qpn = static_cast<std::uint32_t>(Av::destination_qpn::get(av));
  address.dlid = static_cast<std::uint16_t>(Av::destination_lid::get(av));
  address.path_bits = static_cast<std::uint8_t>(Av::path_bits::get(av));
  address.sl = static_cast<std::uint8_t>(Av::service_level::get(av));
  if (!extended) return true;
  address.has_grh = Av::grh_present::get(av) != 0;
  address.sgid_index = static_cast<std::uint8_t>(Av::source_gid_index::get(av));
  address.flow_label = static_cast<std::uint32_t>(Av::flow_label::get(av));
  address.traffic_class = static_cast<std::uint8_t>(Av::traffic_class::get(av));
  address.hop_limit = static_cast<std::uint8_t>(Av::hop_limit::get(av));
  std::copy_n(Av::destination_gid::at(av), address.dgid.size(), address.dgid.begin());
  return true;
}

void keep(const std::uint8_t* from, std::size_t size, SendWqe& wqe) {
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  wqe.inline_bytes.insert(wqe.inline_bytes.end(), bytes, bytes + size);
}

bool parse_xrc(Units& units, SendWqe& wqe) {
  const std::uint8_t* segment = units.take(prm::XrcSegment::size);
  if (segment == nullptr) return false;
  wqe.xrc_srqn = static_cast<std::uint32_t>(prm::XrcSegment::srqn::get(segment));
  return true;
}

bool parse_inline(Units& units, SendWqe& wqe) {
  const auto bytes = static_cast<std::uint32_t>(prm::InlineSegment::byte_count::get(units.peek()));
  const std::uint8_t* segment = units.take(prm::InlineSegment::units(bytes) * prm::kWqeUnit);
  if (segment == nullptr) return false;
  GatherSegment piece;
  piece.is_inline = true;
  piece.data.length = bytes;
  piece.inline_offset = static_cast<std::uint32_t>(wqe.inline_bytes.size());
  const auto* data = reinterpret_cast<const std::byte*>(segment + prm::InlineSegment::header_size);
  wqe.inline_bytes.insert(wqe.inline_bytes.end(), data, data + bytes);
  wqe.length += bytes;
  if (bytes != 0) wqe.segments.push_back(piece);
  return true;
}

bool parse_data(Units& units, SendWqe& wqe) {
  while (units.left() >= prm::kWqeUnit) {
    if (prm::DataSegment::inline_data::get(units.peek()) != 0) {
      if (!parse_inline(units, wqe)) return false;
      continue;
    }
    const std::uint8_t* segment = units.take(prm::DataSegment::size);
    GatherSegment piece;
    piece.data.lkey = static_cast<std::uint32_t>(prm::DataSegment::lkey::get(segment));
    if (piece.data.lkey == prm::kInvalidLkey) return true;
    piece.data.length = static_cast<std::uint32_t>(prm::DataSegment::byte_count::get(segment));
    if (piece.data.length == 0) piece.data.length = 1U << 31;
    piece.data.address = prm::DataSegment::address::get(segment);
    wqe.length += piece.data.length;
    wqe.segments.push_back(piece);
  }
  return true;
}

/// Control segment, key context, and the translation list: inline, or where data segments say.
bool parse_umr(Units& units, SendWqe& wqe) {
  using Control = prm::UmrCtrlSegment;
  const std::uint8_t* control = units.take(Control::size);
  const std::uint8_t* mkey = units.take(prm::MkeyContext::size);
  if (control == nullptr || mkey == nullptr) return false;
  keep(control, Control::size, wqe);
  keep(mkey, prm::MkeyContext::size, wqe);
  const std::uint64_t list = Control::translation_units::get(control) * prm::kWqeUnit;
  if (list == 0) return true;
  if (Control::inline_translations::get(control) != 0) {
    const std::uint8_t* entries = units.take(list);
    if (entries != nullptr) keep(entries, list, wqe);
    return entries != nullptr;
  }
  return parse_data(units, wqe) && wqe.length >= list;
}

bool is_local(WqeOpcode opcode) {
  return opcode == WqeOpcode::nop || opcode == WqeOpcode::umr ||
         opcode == WqeOpcode::local_invalidate;
}

bool parse_segments(Units& units, SendWqe& wqe) {
  switch (wqe.opcode) {
    case WqeOpcode::nop:
      return true;
    case WqeOpcode::umr:
      return parse_umr(units, wqe);
    case WqeOpcode::local_invalidate:
      return true;
    case WqeOpcode::send:
    case WqeOpcode::send_imm:
    case WqeOpcode::send_invalidate:
      return parse_data(units, wqe);
    case WqeOpcode::rdma_write:
    case WqeOpcode::rdma_write_imm:
    case WqeOpcode::rdma_read:
      return parse_remote_address(units, wqe) && parse_data(units, wqe);
    case WqeOpcode::atomic_cmp_swap:
    case WqeOpcode::atomic_fetch_add:
      return parse_remote_address(units, wqe) && parse_atomic(units, wqe) &&
             parse_data(units, wqe) && wqe.length == 8;
    default:
      return false;
  }
}

}  // namespace

bool parse_send_wqe(const RawSendWqe& raw, SendFormat format, SendWqe& wqe) {
  const std::uint8_t* bytes = raw.bytes.data();
  wqe.index = raw.index;
  wqe.end = static_cast<std::uint16_t>(raw.index +
                                       (raw.size + prm::kWqeBasicBlock - 1) / prm::kWqeBasicBlock);
  wqe.opcode = static_cast<WqeOpcode>(prm::CtrlSegment::opcode::get(bytes));
  wqe.completion = static_cast<prm::CompletionMode>(prm::CtrlSegment::completion::get(bytes));
  wqe.solicited = prm::CtrlSegment::solicited::get(bytes) != 0;
  const auto fence = static_cast<prm::FenceMode>(prm::CtrlSegment::fence_mode::get(bytes));
  wqe.fence = fence == prm::FenceMode::fence || fence == prm::FenceMode::strong_ordering ||
              fence == prm::FenceMode::small_and_fence;
  wqe.immediate = static_cast<std::uint32_t>(prm::CtrlSegment::immediate::get(bytes));
  wqe.remote_address = 0;
  wqe.rkey = 0;
  wqe.swap_add = 0;
  wqe.compare = 0;
  wqe.xrc_srqn = 0;
  wqe.segments.clear();
  wqe.inline_bytes.clear();
  wqe.length = 0;
  wqe.psn_count = 0;
  wqe.sent = false;
  wqe.failed = false;

  Units units(raw);
  if (units.take(prm::CtrlSegment::size) == nullptr) return false;
  if (!is_local(wqe.opcode)) {
    if (format == SendFormat::datagram && !parse_address_vector(units, wqe)) return false;
    if (format == SendFormat::xrc && !parse_xrc(units, wqe)) return false;
  }
  return parse_segments(units, wqe);
}

}  // namespace softhca
