// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>

#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"
#include "hw-model/transport/queue_pair.h"
#include "hw-model/transport/responder.h"

// Requests that come without packets (ib::DirectReceiver).
namespace softhca {
namespace {

/// The request that no receive belongs to.
constexpr std::uint8_t kPlainWrite =
    ib::make_opcode(ib::Service::rc, ib::Operation::rdma_write_only);

}  // namespace

ib::Destination Responder::answers_to() const {
  return qp_.destination();
}

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

/// The request is the next one, and nothing else is on the responder's mind.
[[gnu::always_inline]] inline bool Responder::expects(std::uint32_t psn,
                                                      std::uint32_t length) const {
  // Flags, which are mostly unset, cost less together than one by one.
  const bool flagged = nak_sent_ | closed_ | ack_due_ | nak_.has_value();
  return psn == expected_psn_ && length <= qp_.path_mtu() && message_ == Message::none &&
         !flagged && responses_.empty() && qp_.listens_at_once();
}

inline void Responder::count_message() {
  msn_ = ib::psn_add(msn_, 1);
  ++qp_.counters.messages_received;
}

void Responder::count_direct(std::uint32_t bytes_received, std::uint32_t bytes_sent) {
  QpCounters& counters = qp_.counters;
  ++counters.packets_received;
  ++counters.packets_sent;
  counters.bytes_received += bytes_received;
  counters.bytes_sent += bytes_sent;
}

bool Responder::execute(const ib::DirectRequest& request) {
  if (!expects(request.psn, request.length)) return false;
  const bool receives = request.opcode != kPlainWrite;
  const bool done = receives && ib::is_send(request.opcode) ? receive_direct(request)
                                                            : write_direct(request, receives);
  if (!done) return false;
  accept(1);
  count_direct(request.length, 0);
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

const std::byte* Responder::read(std::uint32_t psn, std::uint64_t va, std::uint32_t rkey,
                                 std::uint32_t length) {
  if (!expects(psn, length) || !qp_.attributes.remote_read) return nullptr;
  const std::byte* from = remote_span(va, rkey, length, MemoryAccess::remote_read);
  if (from == nullptr) return nullptr;
  accept(1);
  count_message();
  ++qp_.q_counters().rx_read_requests;
  count_direct(0, length);
  return from;
}

}  // namespace softhca
