// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>

#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"
#include "hw-model/transport/queue_pair.h"
#include "hw-model/transport/responder.h"

// Requests that come without packets.
namespace softhca {
namespace {

/// The request that no receive belongs to.
constexpr std::uint8_t kPlainWrite =
    ib::make_opcode(ib::Service::rc, ib::Operation::rdma_write_only);

}  // namespace

/// Where a request goes; null: not to one piece, or it may not.
[[gnu::always_inline]] inline std::byte* Responder::remote_span(std::uint64_t va,
                                                                std::uint32_t rkey,
                                                                std::uint32_t length,
                                                                MemoryAccess access) const {
  MkeyTable& mkeys = qp_.core().mkeys;
  std::byte* known = mkeys.quick_span(rkey, qp_.params.pd, qp_.number(), va, length, access);
  return known != nullptr ? known : find_remote_span(va, rkey, length, access);
}

[[gnu::noinline]] std::byte* Responder::find_remote_span(std::uint64_t va, std::uint32_t rkey,
                                                         std::uint32_t length,
                                                         MemoryAccess access) const {
  MemoryStatus status = MemoryStatus::ok;
  return qp_.core().mkeys.try_span(rkey, {.pd = qp_.params.pd, .qpn = qp_.number()}, va, length,
                                   access, status);
}

/// Ends that agree in the number of packets of a message of several have the same path MTU.
[[gnu::always_inline]] inline bool Responder::fits(std::uint32_t packets,
                                                   std::uint32_t length) const {
  const std::uint32_t mtu = qp_.path_mtu();
  return packets == 1 ? length <= mtu : packets == ib::packet_count(length, mtu);
}

/// The request is the next one, and nothing else is on the responder's mind.
[[gnu::always_inline]] inline bool Responder::expects(std::uint32_t psn, std::uint32_t packets,
                                                      std::uint32_t length) const {
  // Flags, which are mostly unset, cost less together than one by one.
  const bool flagged = nak_sent_ | closed_ | ack_due_ | nak_.has_value();
  return psn == expected_psn_ && fits(packets, length) && message_ == Message::none && !flagged &&
         responses_.empty() && qp_.listens_at_once();
}

inline void Responder::count_message() {
  msn_ = ib::psn_add(msn_, 1);
  ++qp_.counters.messages_received;
}

bool Responder::execute(const ib::DirectRequest& request) {
  if (!expects(request.psn, request.packets, request.length)) return false;
  const bool receives = request.opcode != kPlainWrite;
  const bool done = receives && ib::is_send(request.opcode) ? receive_direct(request)
                                                            : write_direct(request, receives);
  if (!done) return false;
  accept(request.packets);
  qp_.counters.packets_received += request.packets;
  ++qp_.counters.packets_sent;
  qp_.counters.bytes_received += request.length;
  if (receives) {
    received_ = request.length;
    complete_message(request.opcode, request.immediate, request.solicited);
  } else {
    count_message();
  }
  return true;
}

inline bool Responder::write_direct(const ib::DirectRequest& request, bool receives) {
  if (!qp_.attributes.remote_write) return false;
  std::byte* to = remote_span(request.va, request.rkey, request.length, MemoryAccess::remote_write);
  if (to == nullptr) return false;
  if (receives && need_wqe() != Wqe::ok) return false;
  copy_ordered(to, request.data, request.length);
  ++qp_.q_counters().rx_write_requests;
  return true;
}

bool Responder::receive_direct(const ib::DirectRequest& request) {
  if (need_wqe() != Wqe::ok || request.length > current_.capacity) return false;
  if (request.length <= qp_.params.cs_res) {
    std::copy_n(request.data, request.length, inline_.begin());
    return true;
  }
  return scatter(0, request.data, request.length, true) == MemoryStatus::ok;
}

const std::byte* Responder::read(std::uint32_t psn, std::uint32_t packets, std::uint64_t va,
                                 std::uint32_t rkey, std::uint32_t length) {
  if (!expects(psn, packets, length) || !qp_.attributes.remote_read) return nullptr;
  const std::byte* from = remote_span(va, rkey, length, MemoryAccess::remote_read);
  if (from == nullptr) return nullptr;
  accept(packets);
  count_message();
  ++qp_.q_counters().rx_read_requests;
  ++qp_.counters.packets_received;
  qp_.counters.packets_sent += packets;
  qp_.counters.bytes_sent += length;
  return from;
}

}  // namespace softhca
