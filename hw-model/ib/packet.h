// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "hw-model/ib/payload.h"

namespace softhca::ib {

/// 128-bit global identifier, network order (IBA 4.1.1).
using Gid = std::array<std::uint8_t, 16>;

/// Global route header fields (IBA 8.3).
struct Grh {
  Gid sgid{};
  Gid dgid{};
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;  ///< 20 bits.
  std::uint8_t hop_limit = 0;
};

/// Where a packet goes and came from, below the transport. The transport copies it from an address
/// vector (or reverses that of a request) and does not look inside.
struct Path {
  std::uint16_t slid = 0;
  std::uint16_t dlid = 0;
  std::uint8_t sl = 0;
  bool has_grh = false;
  Grh grh;
};

/// Base transport header (IBA 9.2); `opcode` as in opcodes.h.
struct Bth {
  std::uint8_t opcode = 0;
  bool solicited = false;
  bool migrated = true;  ///< BTH.MigReq.
  std::uint16_t pkey = 0xffff;
  bool fecn = false;
  bool becn = false;
  std::uint32_t dest_qp = 0;  ///< 24 bits.
  bool ack_req = false;
  std::uint32_t psn = 0;  ///< 24 bits.
};

/// RDMA extended transport header (IBA 9.3.3).
struct Reth {
  std::uint64_t va = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
};
/// Atomic extended transport header (IBA 9.3.4).
struct AtomicEth {
  std::uint64_t va = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_or_add = 0;
  std::uint64_t compare = 0;
};
/// ACK extended transport header (IBA 9.3.5).
struct Aeth {
  std::uint8_t syndrome = 0;
  std::uint32_t msn = 0;  ///< 24 bits.
};
/// Datagram extended transport header (IBA 9.3.2).
struct Deth {
  std::uint32_t qkey = 0;
  std::uint32_t src_qp = 0;  ///< 24 bits.
};

/// Decoded headers of an InfiniBand packet. Which extension headers are
/// meaningful follows from bth.opcode (opcodes.h).
struct PacketHeaders {
  Path path;
  std::uint8_t vl = 0;
  Bth bth;
  Reth reth;
  AtomicEth atomic_eth;
  std::uint64_t atomic_ack = 0;  ///< AtomicAckETH: original remote data.
  Aeth aeth;
  Deth deth;
  std::uint32_t immediate = 0;       ///< ImmDt, host order value of the big-endian word.
  std::uint32_t invalidate_key = 0;  ///< IETH.
  std::uint32_t xrc_srqn = 0;        ///< XRCETH.

  /// More than 1: a train, see Packet.
  std::uint16_t count = 1;
  std::uint16_t segment = 0;     ///< Of a train: payload bytes of each packet but the last.
  std::uint8_t last_opcode = 0;  ///< Of a train: BTH.OpCode of the last packet.
};

/// One InfiniBand packet inside the process. Bytes, ICRC and VCRC are made only where a packet
/// leaves the process, is captured, or crosses a link that may damage it (codec.h).
///
/// A train stands for `count` packets of one message with consecutive PSNs, as segmentation offload
/// knows them: the headers are those of the first one, but AckReq, SE, ImmDt and IETH are the last
/// one's, and the payload is that of all. Only an HCA's port makes and takes trains
/// (Port::takes_trains); a link that shows, delays or damages packets takes them apart.
struct Packet : PacketHeaders {
  Payload payload;  ///< Without pad; pad count is derived when encoded.
};

using PacketPtr = std::unique_ptr<Packet>;

}  // namespace softhca::ib
