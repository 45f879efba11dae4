// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/ib/codec.h"
#include "hw-model/ib/opcodes.h"

namespace softhca::ib {

/// What the packets of a message of several are called whose single packet would be called `only`
/// (IBA table 35): a SEND, an RDMA WRITE or the response of an RDMA READ.
struct SegmentOperations {
  Operation first = Operation::send_first;
  Operation middle = Operation::send_middle;
  Operation last = Operation::send_last;
};
constexpr SegmentOperations segments_of(Operation only) {
  switch (only) {
    case Operation::send_only_immediate:
      return {Operation::send_first, Operation::send_middle, Operation::send_last_immediate};
    case Operation::rdma_write_only:
      return {Operation::rdma_write_first, Operation::rdma_write_middle,
              Operation::rdma_write_last};
    case Operation::rdma_write_only_immediate:
      return {Operation::rdma_write_first, Operation::rdma_write_middle,
              Operation::rdma_write_last_immediate};
    case Operation::rdma_read_response_only:
      return {Operation::rdma_read_response_first, Operation::rdma_read_response_middle,
              Operation::rdma_read_response_last};
    default:
      return {};
  }
}

/// Words of 4 bytes, as wire_words() counts them, of all packets of a message of several: `length`
/// bytes in `packets` >= 2 packets, each but the last of `mtu` bytes. `only`: BTH.OpCode that the
/// message would have as a single packet, of one of the operations that segments_of() knows.
constexpr std::uint64_t message_words(std::uint8_t only, bool has_grh, std::uint64_t length,
                                      std::uint32_t packets, std::uint32_t mtu) {
  const Service service = service_of(only);
  const SegmentOperations segments = segments_of(operation_of(only));
  const std::uint64_t before = std::uint64_t{packets - 1} * mtu;
  return wire_words(make_opcode(service, segments.first), has_grh, mtu) +
         (packets - 2) * wire_words(make_opcode(service, segments.middle), has_grh, mtu) +
         wire_words(make_opcode(service, segments.last), has_grh, length - before);
}

}  // namespace softhca::ib
