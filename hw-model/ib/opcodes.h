// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>

namespace softhca::ib {

/// Transport service: the upper three bits of BTH.OpCode (IBA 9.2.1, table 35).
enum class Service : std::uint8_t { rc = 0, uc = 1, rd = 2, ud = 3, cnp = 4, xrc = 5 };

/// Operation: the lower five bits of BTH.OpCode (IBA 9.2.1, table 35).
enum class Operation : std::uint8_t {
  send_first = 0x00,
  send_middle = 0x01,
  send_last = 0x02,
  send_last_immediate = 0x03,
  send_only = 0x04,
  send_only_immediate = 0x05,
  rdma_write_first = 0x06,
  rdma_write_middle = 0x07,
  rdma_write_last = 0x08,
  rdma_write_last_immediate = 0x09,
  rdma_write_only = 0x0a,
  rdma_write_only_immediate = 0x0b,
  rdma_read_request = 0x0c,
  rdma_read_response_first = 0x0d,
  rdma_read_response_middle = 0x0e,
  rdma_read_response_last = 0x0f,
  rdma_read_response_only = 0x10,
  acknowledge = 0x11,
  atomic_acknowledge = 0x12,
  compare_swap = 0x13,
  fetch_add = 0x14,
  resync = 0x15,  ///< RD only.
  send_last_invalidate = 0x16,
  send_only_invalidate = 0x17,
};

/// BTH.OpCode of an operation of a service.
constexpr std::uint8_t make_opcode(Service service, Operation operation) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(service) << 5 |
                                   static_cast<unsigned>(operation));
}
constexpr Service service_of(std::uint8_t opcode) {
  return static_cast<Service>(opcode >> 5);
}
constexpr Operation operation_of(std::uint8_t opcode) {
  return static_cast<Operation>(opcode & 0x1f);
}

namespace detail {

enum OpcodeFlags : std::uint32_t {
  kKnown = 1U << 0,
  kRequest = 1U << 1,
  kResponse = 1U << 2,
  kFirst = 1U << 3,
  kMiddle = 1U << 4,
  kLast = 1U << 5,
  kOnly = 1U << 6,
  kSend = 1U << 7,
  kWrite = 1U << 8,
  kReadResponse = 1U << 9,
  kAtomic = 1U << 10,
  kReth = 1U << 11,
  kAtomicEth = 1U << 12,
  kAeth = 1U << 13,
  kAtomicAck = 1U << 14,
  kImmediate = 1U << 15,
  kIeth = 1U << 16,
  kDeth = 1U << 17,
  kXrcEth = 1U << 18,
  kRdEth = 1U << 19,
  kPayload = 1U << 20,
};

/// What an operation is and carries, whatever its service (IBA table 35).
constexpr std::uint32_t operation_flags(Operation operation) {
  switch (operation) {
    case Operation::send_first:
      return kRequest | kSend | kFirst | kPayload;
    case Operation::send_middle:
      return kRequest | kSend | kMiddle | kPayload;
    case Operation::send_last:
      return kRequest | kSend | kLast | kPayload;
    case Operation::send_last_immediate:
      return kRequest | kSend | kLast | kImmediate | kPayload;
    case Operation::send_only:
      return kRequest | kSend | kOnly | kPayload;
    case Operation::send_only_immediate:
      return kRequest | kSend | kOnly | kImmediate | kPayload;
    case Operation::send_last_invalidate:
      return kRequest | kSend | kLast | kIeth | kPayload;
    case Operation::send_only_invalidate:
      return kRequest | kSend | kOnly | kIeth | kPayload;
    case Operation::rdma_write_first:
      return kRequest | kWrite | kFirst | kReth | kPayload;
    case Operation::rdma_write_middle:
      return kRequest | kWrite | kMiddle | kPayload;
    case Operation::rdma_write_last:
      return kRequest | kWrite | kLast | kPayload;
    case Operation::rdma_write_last_immediate:
      return kRequest | kWrite | kLast | kImmediate | kPayload;
    case Operation::rdma_write_only:
      return kRequest | kWrite | kOnly | kReth | kPayload;
    case Operation::rdma_write_only_immediate:
      return kRequest | kWrite | kOnly | kReth | kImmediate | kPayload;
    case Operation::rdma_read_request:
      return kRequest | kOnly | kReth;
    case Operation::compare_swap:
    case Operation::fetch_add:
      return kRequest | kOnly | kAtomic | kAtomicEth;
    case Operation::rdma_read_response_first:
      return kResponse | kReadResponse | kFirst | kAeth | kPayload;
    case Operation::rdma_read_response_middle:
      return kResponse | kReadResponse | kMiddle | kPayload;
    case Operation::rdma_read_response_last:
      return kResponse | kReadResponse | kLast | kAeth | kPayload;
    case Operation::rdma_read_response_only:
      return kResponse | kReadResponse | kOnly | kAeth | kPayload;
    case Operation::acknowledge:
      return kResponse | kOnly | kAeth;
    case Operation::atomic_acknowledge:
      return kResponse | kOnly | kAeth | kAtomicAck;
    case Operation::resync:
      return kRequest | kOnly;
  }
  return 0;
}

constexpr std::uint32_t compute_opcode_flags(std::uint8_t opcode) {
  const auto operation = operation_of(opcode);
  const std::uint32_t flags = operation_flags(operation);
  const bool invalidate = (flags & kIeth) != 0;
  const bool write = (flags & kWrite) != 0;
  const bool request = (flags & kRequest) != 0;
  if (flags == 0) return 0;
  switch (service_of(opcode)) {
    case Service::rc:
      return operation == Operation::resync ? 0 : flags | kKnown;
    case Service::uc:
      return ((flags & kSend) != 0 && !invalidate) || write ? flags | kKnown : 0;
    case Service::rd:
      if (invalidate) return 0;
      return flags | kKnown | kRdEth | (request ? kDeth : 0U);
    case Service::ud:
      return operation == Operation::send_only || operation == Operation::send_only_immediate
                 ? flags | kKnown | kDeth
                 : 0;
    case Service::xrc:
      if (operation == Operation::resync) return 0;
      return flags | kKnown | (request ? kXrcEth : 0U);
    case Service::cnp:
      return 0;
  }
  return 0;
}

inline constexpr std::array<std::uint32_t, 256> kOpcodeFlags = [] {
  std::array<std::uint32_t, 256> table{};
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    table[opcode] = compute_opcode_flags(static_cast<std::uint8_t>(opcode));
  }
  return table;
}();

constexpr bool opcode_has(std::uint8_t opcode, std::uint32_t flags) {
  return (kOpcodeFlags[opcode] & flags) != 0;
}

}  // namespace detail

/// The opcode is assigned in IBA table 35 (RC, UC, RD, UD, XRC). All predicates below are false for
/// others.
constexpr bool is_known(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kKnown);
}
/// Travels from requester to responder.
constexpr bool is_request(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kRequest);
}
/// Travels from responder to requester: ACK, atomic ACK or RDMA READ response.
constexpr bool is_response(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kResponse);
}
/// First packet of a message of several packets ("only" is not "first"; see starts_message()).
constexpr bool is_first(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kFirst);
}
constexpr bool is_middle(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kMiddle);
}
/// Last packet of a message of several packets ("only" is not "last"; see ends_message()).
constexpr bool is_last(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kLast);
}
/// A message in one packet; also READ requests, atomics and acknowledgements.
constexpr bool is_only(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kOnly);
}
constexpr bool starts_message(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kFirst | detail::kOnly);
}
constexpr bool ends_message(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kLast | detail::kOnly);
}
constexpr bool is_send(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kSend);
}
constexpr bool is_rdma_write(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kWrite);
}
constexpr bool is_rdma_read_request(std::uint8_t opcode) {
  return is_known(opcode) && operation_of(opcode) == Operation::rdma_read_request;
}
constexpr bool is_rdma_read_response(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kReadResponse);
}
/// CmpSwap or FetchAdd request.
constexpr bool is_atomic(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kAtomic);
}
constexpr bool has_reth(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kReth);
}
constexpr bool has_atomic_eth(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kAtomicEth);
}
constexpr bool has_aeth(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kAeth);
}
constexpr bool has_atomic_ack_eth(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kAtomicAck);
}
constexpr bool has_immediate(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kImmediate);
}
constexpr bool has_ieth(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kIeth);
}
constexpr bool has_deth(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kDeth);
}
constexpr bool has_xrceth(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kXrcEth);
}
constexpr bool has_rdeth(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kRdEth);
}
/// May carry payload bytes.
constexpr bool has_payload(std::uint8_t opcode) {
  return detail::opcode_has(opcode, detail::kPayload);
}
/// Consumes a receive WQE when its message ends: SENDs, and WRITEs with immediate.
constexpr bool consumes_receive(std::uint8_t opcode) {
  return is_send(opcode) || (is_rdma_write(opcode) && has_immediate(opcode));
}

namespace detail {

constexpr std::uint8_t compute_header_size(std::uint8_t opcode) {
  return static_cast<std::uint8_t>(
      12U + (has_rdeth(opcode) ? 4U : 0U) + (has_deth(opcode) ? 8U : 0U) +
      (has_xrceth(opcode) ? 4U : 0U) + (has_reth(opcode) ? 16U : 0U) +
      (has_atomic_eth(opcode) ? 28U : 0U) + (has_aeth(opcode) ? 4U : 0U) +
      (has_atomic_ack_eth(opcode) ? 8U : 0U) + (has_immediate(opcode) ? 4U : 0U) +
      (has_ieth(opcode) ? 4U : 0U));
}

inline constexpr std::array<std::uint8_t, 256> kHeaderSizes = [] {
  std::array<std::uint8_t, 256> table{};
  for (unsigned opcode = 0; opcode < 256; ++opcode) {
    table[opcode] = compute_header_size(static_cast<std::uint8_t>(opcode));
  }
  return table;
}();

}  // namespace detail

/// Bytes of BTH and all extension headers of a packet with this opcode.
constexpr std::uint32_t transport_header_size(std::uint8_t opcode) {
  return detail::kHeaderSizes[opcode];
}

/// Name for messages and logs, e.g. "RC RDMA_WRITE_LAST_WITH_IMMEDIATE"; "unknown" if not assigned.
const char* opcode_name(std::uint8_t opcode);

/// AETH.Syndrome (IBA 9.7.5.1.1, table 45): bits 6:5 give the kind, bits 4:0 its value.
enum class AethKind : std::uint8_t { ack = 0, rnr_nak = 1, reserved = 2, nak = 3 };
constexpr AethKind aeth_kind(std::uint8_t syndrome) {
  return static_cast<AethKind>(syndrome >> 5 & 3);
}
constexpr std::uint8_t aeth_value(std::uint8_t syndrome) {
  return syndrome & 0x1f;
}
constexpr std::uint8_t make_syndrome(AethKind kind, std::uint8_t value) {
  return static_cast<std::uint8_t>(static_cast<unsigned>(kind) << 5 | (value & 0x1fU));
}
/// Credit value of an ACK that says "no end-to-end flow control".
inline constexpr std::uint8_t kCreditsInvalid = 0x1f;

/// Values of a NAK (IBA 9.7.5.1.1, table 47).
enum class NakCode : std::uint8_t {
  psn_sequence_error = 0,
  invalid_request = 1,
  remote_access_error = 2,
  remote_operational_error = 3,
  invalid_rd_request = 4,
};
constexpr std::uint8_t nak_syndrome(NakCode code) {
  return make_syndrome(AethKind::nak, static_cast<std::uint8_t>(code));
}

/// RNR NAK timer field to nanoseconds (IBA 9.7.5.2.8, table 45): 0 stands for 655.36 ms, 31 for
/// 491.52 ms.
constexpr std::uint64_t rnr_timer_ns(std::uint8_t field) {
  // In units of 10 microseconds.
  constexpr std::uint32_t kTable[32] = {65536, 1,    2,    3,     4,     6,     8,     12,
                                        16,    24,   32,   48,    64,    96,    128,   192,
                                        256,   384,  512,  768,   1024,  1536,  2048,  3072,
                                        4096,  6144, 8192, 12288, 16384, 24576, 32768, 49152};
  return static_cast<std::uint64_t>(kTable[field & 0x1f]) * 10'000;
}

/// MTU code of PortInfo and address vectors (1..5) to bytes; 0 for any other code.
constexpr std::uint32_t mtu_bytes(std::uint8_t code) {
  return code >= 1 && code <= 5 ? 128U << code : 0;
}

/// Well-known QP numbers, LIDs and queue keys (IBA 3.5.10, 4.1.3, 10.2.5).
inline constexpr std::uint32_t kQp0 = 0;
inline constexpr std::uint32_t kQp1 = 1;
inline constexpr std::uint32_t kMulticastQp = 0xffffff;
inline constexpr std::uint16_t kMulticastLidFirst = 0xc000;
inline constexpr std::uint16_t kPermissiveLid = 0xffff;
inline constexpr std::uint32_t kQp1Qkey = 0x80010000;

constexpr bool is_multicast_lid(std::uint16_t lid) {
  return lid >= kMulticastLidFirst && lid != kPermissiveLid;
}

}  // namespace softhca::ib
