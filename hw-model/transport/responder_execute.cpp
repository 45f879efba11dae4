// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>
#include <cstring>

#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"
#include "hw-model/ib/train.h"
#include "hw-model/transport/queue_pair.h"
#include "hw-model/transport/responder.h"

// Execution of requests. Until a packet's memory has been written nothing of it is committed, so a
// packet whose memory is pending is simply executed again.
namespace softhca {
namespace {

constexpr std::size_t kGrhSize = 40;

void put_be32(std::uint8_t* to, std::uint32_t value) {
  to[0] = static_cast<std::uint8_t>(value >> 24);
  to[1] = static_cast<std::uint8_t>(value >> 16);
  to[2] = static_cast<std::uint8_t>(value >> 8);
  to[3] = static_cast<std::uint8_t>(value);
}

/// GRH as it stands in a packet (IBA 8.3).
std::array<std::uint8_t, kGrhSize> encode_grh(const ib::Packet& packet) {
  constexpr std::uint32_t kIcrcSize = 4;
  constexpr std::uint8_t kNextHeaderIba = 0x1b;
  const ib::Grh& grh = packet.path.grh;
  std::array<std::uint8_t, kGrhSize> bytes{};
  put_be32(bytes.data(),
           6U << 28 | std::uint32_t{grh.traffic_class} << 20 | (grh.flow_label & 0xfffff));
  const auto payload = static_cast<std::uint32_t>((packet.payload.size() + 3) / 4 * 4);
  const std::uint32_t length = ib::transport_header_size(packet.bth.opcode) + payload + kIcrcSize;
  bytes[4] = static_cast<std::uint8_t>(length >> 8);
  bytes[5] = static_cast<std::uint8_t>(length);
  bytes[6] = kNextHeaderIba;
  bytes[7] = grh.hop_limit;
  std::copy(grh.sgid.begin(), grh.sgid.end(), bytes.begin() + 8);
  std::copy(grh.dgid.begin(), grh.dgid.end(), bytes.begin() + 24);
  return bytes;
}

/// Immediate data, or the key to invalidate.
std::uint32_t immediate_of(const ib::Packet& packet) {
  return ib::has_ieth(ib::last_opcode(packet)) ? packet.invalidate_key : packet.immediate;
}

void set_opcode(prm::CqeWords& cqe, prm::CqeOpcode opcode) {
  cqe.op_own = static_cast<std::uint8_t>(static_cast<unsigned>(opcode) << 4);
}

}  // namespace

/// Makes sure that the message has a receive WQE.
Responder::Wqe Responder::need_wqe() {
  if (has_current_) return Wqe::ok;
  switch (qp_.take_receive_wqe(current_)) {
    case TakeStatus::ok:
      has_current_ = true;
      return Wqe::ok;
    case TakeStatus::empty:
      return Wqe::none;
    case TakeStatus::pending:
      return Wqe::pending;
    case TakeStatus::error:
      break;
  }
  ++qp_.q_counters().resp_local_qp_error;
  if (qp_.is_reliable()) {
    nak_ = Nak{expected_psn_, ib::nak_syndrome(ib::NakCode::remote_operational_error)};
  }
  qp_.fail(EventType::wq_catastrophic);
  return Wqe::failed;
}

Handled Responder::execute_send(ib::Packet& packet) {
  const std::uint8_t opcode = packet.bth.opcode;
  const std::uint8_t end_opcode = ib::last_opcode(packet);
  switch (need_wqe()) {
    case Wqe::ok:
      break;
    case Wqe::pending:
      return Handled::pending;
    case Wqe::failed:
      return Handled::done;
    case Wqe::none:
      if (packet.count > 1) return Handled::one_by_one;
      ++qp_.q_counters().out_of_buffer;
      if (qp_.is_reliable()) {
        nak_rnr();
      } else {
        reject(packet.bth.psn, ib::NakCode::invalid_request);
      }
      return Handled::done;
  }
  const std::uint64_t offset = ib::starts_message(opcode) ? 0 : received_;
  const std::uint64_t size = packet.payload.size();
  if (offset + size > current_.capacity) {
    if (packet.count > 1) return Handled::one_by_one;
    fail_receive(kLocalLength, ib::NakCode::invalid_request);
    return Handled::done;
  }
  const bool ends = ib::ends_message(end_opcode);
  const bool to_cqe = ib::is_only(opcode) && size != 0 && size <= qp_.params.cs_res;
  if (to_cqe) {
    std::copy(packet.payload.begin(), packet.payload.end(), inline_.begin());
  } else {
    const MemoryStatus status = scatter(offset, packet.payload.data(), size, ends);
    if (status == MemoryStatus::pending) return Handled::pending;
    if (status != MemoryStatus::ok && packet.count > 1) return Handled::one_by_one;
    if (status != MemoryStatus::ok) {
      fail_receive(kLocalProtection, ib::NakCode::remote_operational_error);
      return Handled::done;
    }
  }
  if (ib::has_ieth(end_opcode)) {
    // IBA 10.7.2.5: the key is out of use before the receive completes.
    const MemoryStatus status =
        qp_.core().mkeys.invalidate(packet.invalidate_key, qp_.remote_context(packet));
    if (status != MemoryStatus::ok) {
      fail_receive(kRemoteInvalidRequest, ib::NakCode::invalid_request);
      return Handled::done;
    }
  }
  received_ = offset + size;
  message_ = ends ? Message::none : Message::send;
  qp_.counters.bytes_received += size;
  accept(packet.count);
  if (ends) complete_message(end_opcode, immediate_of(packet), packet.bth.solicited);
  if (packet.bth.ack_req && qp_.is_reliable()) {
    ack_due_ = true;
    qp_.core().owe_ack(qp_);
  }
  return Handled::done;
}

Handled Responder::execute_write(ib::Packet& packet) {
  const std::uint8_t opcode = packet.bth.opcode;
  const bool starts = ib::starts_message(opcode);
  const std::uint8_t end_opcode = ib::last_opcode(packet);
  const bool ends = ib::ends_message(end_opcode);
  if (!qp_.attributes.remote_write) {
    if (packet.count > 1) return Handled::one_by_one;
    reject(packet.bth.psn, ib::NakCode::invalid_request);
    return Handled::done;
  }
  const MemoryContext context = qp_.remote_context(packet);
  std::byte* whole = nullptr;  // The message's memory, if it begins here and is one known piece.
  if (starts) {
    write_va_ = packet.reth.va;
    write_rkey_ = packet.reth.rkey;
    write_length_ = packet.reth.length;
    // The whole range is checked at once (IBA 9.7.4.1.5); nothing is written where a later part may
    // not be.
    MkeyTable& mkeys = qp_.core().mkeys;
    constexpr auto kAccess = MemoryAccess::remote_write;
    if (write_length_ != 0) {
      whole = mkeys.quick_span(write_rkey_, context, write_va_, write_length_, kAccess);
    }
    const MemoryStatus status =
        whole != nullptr ? MemoryStatus::ok
                         : mkeys.check(write_rkey_, context, write_va_, write_length_, kAccess);
    if (status != MemoryStatus::ok) {
      if (packet.count > 1) return Handled::one_by_one;
      reject(packet.bth.psn, ib::NakCode::remote_access_error);
      return Handled::done;
    }
  }
  const std::uint64_t offset = starts ? 0 : received_;
  const std::uint64_t total = offset + packet.payload.size();
  if (total > write_length_ || (ends && total != write_length_)) {
    if (packet.count > 1) return Handled::one_by_one;
    reject(packet.bth.psn, ib::NakCode::invalid_request);
    return Handled::done;
  }
  if (ib::has_immediate(end_opcode)) {
    switch (need_wqe()) {
      case Wqe::ok:
        break;
      case Wqe::pending:
        return Handled::pending;
      case Wqe::failed:
        return Handled::done;
      case Wqe::none:
        if (packet.count > 1) return Handled::one_by_one;
        ++qp_.q_counters().out_of_buffer;
        if (qp_.is_reliable()) {
          nak_rnr();
        } else {
          reject(packet.bth.psn, ib::NakCode::invalid_request);
        }
        return Handled::done;
    }
  }
  MemoryStatus status = MemoryStatus::ok;
  if (whole != nullptr && ends) {
    copy_ordered(whole, packet.payload.data(), packet.payload.size());
  } else {
    status = remote_write(packet, context, ends);
  }
  if (status == MemoryStatus::pending) return Handled::pending;
  if (status != MemoryStatus::ok && packet.count > 1) return Handled::one_by_one;
  if (status != MemoryStatus::ok) {
    reject(packet.bth.psn, ib::NakCode::remote_access_error);
    return Handled::done;
  }
  received_ = total;
  message_ = ends ? Message::none : Message::write;
  if (starts) ++qp_.q_counters().rx_write_requests;
  qp_.counters.bytes_received += packet.payload.size();
  accept(packet.count);
  if (ends) complete_message(end_opcode, immediate_of(packet), packet.bth.solicited);
  if (packet.bth.ack_req && qp_.is_reliable()) {
    ack_due_ = true;
    qp_.core().owe_ack(qp_);
  }
  return Handled::done;
}

MemoryStatus Responder::remote_write(const ib::Packet& packet, const MemoryContext& context,
                                     bool last) {
  const std::uint64_t offset = ib::starts_message(packet.bth.opcode) ? 0 : received_;
  auto& mkeys = qp_.core().mkeys;
  const std::size_t size = packet.payload.size();
  return last ? mkeys.write_ordered(write_rkey_, context, write_va_ + offset, packet.payload.data(),
                                    size, MemoryAccess::remote_write)
              : mkeys.write(write_rkey_, context, write_va_ + offset, packet.payload.data(), size,
                            MemoryAccess::remote_write);
}

Handled Responder::execute_read(const ib::Packet& packet) {
  const ib::Reth& reth = packet.reth;
  if (!qp_.attributes.remote_read || !resource_free() || reth.length > 1U << 31) {
    reject(packet.bth.psn, ib::NakCode::invalid_request);
    return Handled::done;
  }
  const MemoryContext context = qp_.remote_context(packet);
  const MemoryStatus status =
      qp_.core().mkeys.check(reth.rkey, context, reth.va, reth.length, MemoryAccess::remote_read);
  if (status != MemoryStatus::ok) {
    reject(packet.bth.psn, ib::NakCode::remote_access_error);
    return Handled::done;
  }
  Response response;
  response.psn = packet.bth.psn;
  response.count = ib::packet_count(reth.length, qp_.mtu());
  response.va = reth.va;
  response.rkey = reth.rkey;
  response.pd = context.pd;
  response.length = reth.length;
  accept(response.count);
  msn_ = ib::psn_add(msn_, 1);
  response.msn = msn_;
  ++qp_.counters.messages_received;
  ++qp_.q_counters().rx_read_requests;
  remember({response.psn, response.count, false, 0});
  enqueue(response);
  return Handled::done;
}

Handled Responder::execute_atomic(const ib::Packet& packet) {
  const ib::AtomicEth& atomic = packet.atomic_eth;
  // IBA 9.7.4.1.4, 9.4.5.1: not enabled, or not aligned: invalid request.
  if (!qp_.attributes.remote_atomic || !resource_free() || atomic.va % 8 != 0) {
    reject(packet.bth.psn, ib::NakCode::invalid_request);
    return Handled::done;
  }
  const bool host_endian = qp_.core().config.host_endian_atomics;
  const bool swap = ib::operation_of(packet.bth.opcode) == ib::Operation::compare_swap;
  const auto convert = [host_endian](std::uint64_t word) {
    return host_endian ? word : __builtin_bswap64(word);
  };
  const auto operate = [&](std::uint64_t word) {
    const std::uint64_t value = convert(word);
    if (!swap) return convert(value + atomic.swap_or_add);
    return value == atomic.compare ? convert(atomic.swap_or_add) : word;
  };
  std::uint64_t old_word = 0;
  const MemoryStatus status = qp_.core().mkeys.atomic64(atomic.rkey, qp_.remote_context(packet),
                                                        atomic.va, operate, old_word);
  if (status == MemoryStatus::pending) return Handled::pending;
  if (status != MemoryStatus::ok) {
    reject(packet.bth.psn, ib::NakCode::remote_access_error);
    return Handled::done;
  }
  Response response;
  response.psn = packet.bth.psn;
  response.atomic = true;
  response.value = convert(old_word);
  accept(1);
  msn_ = ib::psn_add(msn_, 1);
  response.msn = msn_;
  ++qp_.counters.messages_received;
  ++qp_.q_counters().rx_atomic_requests;
  remember({response.psn, 1, true, response.value});
  enqueue(response);
  return Handled::done;
}

/// A SEND or WRITE is complete: MSN, and the CQE where a receive WQE was used. `opcode`: the last
/// packet's; `immediate`: also the key that was invalidated.
void Responder::complete_message(std::uint8_t opcode, std::uint32_t immediate, bool solicited) {
  msn_ = ib::psn_add(msn_, 1);
  ++qp_.counters.messages_received;
  if (!ib::consumes_receive(opcode)) return;
  prm::CqeWords cqe{};
  cqe.byte_count = static_cast<std::uint32_t>(received_);
  cqe.immediate = immediate;
  if (ib::is_rdma_write(opcode)) {
    set_opcode(cqe, prm::CqeOpcode::responder_write_imm);
  } else if (ib::has_immediate(opcode)) {
    set_opcode(cqe, prm::CqeOpcode::responder_send_imm);
  } else if (ib::has_ieth(opcode)) {
    set_opcode(cqe, prm::CqeOpcode::responder_send_invalidate);
  } else {
    cqe.immediate = 0;
    set_opcode(cqe, prm::CqeOpcode::responder_send);
  }
  const bool to_cqe = ib::is_send(opcode) && ib::is_only(opcode) && received_ != 0 &&
                      received_ <= qp_.params.cs_res;
  has_current_ = false;
  qp_.complete_receive(cqe, current_.index, solicited, {inline_.data(), to_cqe ? received_ : 0});
}

/// UD (IBA 9.8.3.2, 11.4.1.2): 40 bytes for the GRH, then the payload.
Handled Responder::handle_datagram(ib::Packet& packet) {
  if (packet.payload.size() > ib::mtu_bytes(5)) {
    ++qp_.counters.packets_dropped;
    return Handled::done;
  }
  switch (need_wqe()) {
    case Wqe::ok:
      break;
    case Wqe::pending:
      return Handled::pending;
    case Wqe::failed:
      return Handled::done;
    case Wqe::none:
      ++qp_.q_counters().out_of_buffer;
      ++qp_.counters.packets_dropped;
      return Handled::done;
  }
  const std::uint64_t total = kGrhSize + packet.payload.size();
  if (total > current_.capacity) {
    fail_receive(kLocalLength, ib::NakCode::invalid_request);
    return Handled::done;
  }
  MemoryStatus status = MemoryStatus::ok;
  if (packet.path.has_grh) {
    const auto grh = encode_grh(packet);
    status = scatter(0, reinterpret_cast<const std::byte*>(grh.data()), grh.size(), false);
  }
  if (status == MemoryStatus::ok) {
    status = scatter(kGrhSize, packet.payload.data(), packet.payload.size(), true);
  }
  if (status == MemoryStatus::pending) return Handled::pending;
  if (status != MemoryStatus::ok) {
    fail_receive(kLocalProtection, ib::NakCode::remote_operational_error);
    return Handled::done;
  }
  ++qp_.counters.messages_received;
  qp_.counters.bytes_received += packet.payload.size();
  prm::CqeWords cqe{};
  const bool immediate = ib::has_immediate(packet.bth.opcode);
  set_opcode(cqe, immediate ? prm::CqeOpcode::responder_send_imm : prm::CqeOpcode::responder_send);
  // Without immediate data: the P_Key's index in the table, but QP1, which takes packets of any
  // partition of the port, gets the P_Key itself (drivers look for it in the table).
  const bool any_partition = qp_.params.type == prm::QpServiceType::qp1;
  cqe.immediate = immediate       ? packet.immediate
                  : any_partition ? std::uint32_t{packet.bth.pkey}
                                  : std::uint32_t{qp_.attributes.pkey_index};
  cqe.byte_count = static_cast<std::uint32_t>(total);
  cqe.source_lid = packet.path.slid;
  cqe.ml_path = static_cast<std::uint8_t>(packet.path.dlid & 0x7f);
  cqe.flags_rqpn = (packet.path.has_grh ? 1U << 28 : 0U) |
                   std::uint32_t{packet.path.sl & 0xfU} << 24 | (packet.deth.src_qp & 0xffffff);
  has_current_ = false;
  qp_.complete_receive(cqe, current_.index, packet.bth.solicited);
  return Handled::done;
}

MemoryStatus Responder::scatter(std::uint64_t offset, const std::byte* from, std::uint64_t length,
                                bool last) {
  std::uint64_t start = 0;
  for (const DataEntry& entry : current_.entries) {
    if (length == 0) return MemoryStatus::ok;
    const std::uint64_t end = start + entry.length;
    if (offset < end) {
      const std::uint64_t skip = offset - start;
      const std::uint64_t piece = std::min(length, end - offset);
      const MemoryContext context = qp_.receive_context();
      auto& mkeys = qp_.core().mkeys;
      const std::uint64_t va = entry.address + skip;
      const MemoryStatus status =
          last && piece == length
              ? mkeys.write_ordered(entry.lkey, context, va, from, piece, MemoryAccess::local_write)
              : mkeys.write(entry.lkey, context, va, from, piece, MemoryAccess::local_write);
      if (status != MemoryStatus::ok) return status;
      from += piece;
      offset += piece;
      length -= piece;
    }
    start = end;
  }
  return length == 0 ? MemoryStatus::ok : MemoryStatus::out_of_bounds;
}

}  // namespace softhca
