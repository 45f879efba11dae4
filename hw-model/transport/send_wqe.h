// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hw-model/ib/packet.h"
#include "hw-model/prm/cqe.h"
#include "hw-model/prm/wqe.h"
#include "hw-model/queues/receive_queue.h"
#include "hw-model/queues/send_queue.h"

namespace softhca {

/// One piece of a message in a send WQE: a gather entry, or bytes that came inline.
struct GatherSegment {
  DataEntry data;                   ///< `length` counts for both kinds.
  std::uint32_t inline_offset = 0;  ///< Into SendWqe::inline_bytes.
  bool is_inline = false;
};

/// Address vector of a UD work request, host order.
struct DatagramAddress {
  std::uint32_t qkey = 0;
  std::uint32_t destination_qpn = 0;
  std::uint16_t dlid = 0;
  std::uint8_t path_bits = 0;
  std::uint8_t sl = 0;
  bool has_grh = false;
  std::uint8_t sgid_index = 0;
  ib::Gid dgid{};
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
  std::uint8_t hop_limit = 0;
};

/// A work request with this mode has a CQE when it succeeds.
constexpr bool is_signalled(prm::CompletionMode mode) {
  return mode >= prm::CompletionMode::always;
}

/// A send work request, decoded once from its copy, and how far the requester has come with it.
/// Objects are used again, so their vectors keep their memory.
struct SendWqe {
  std::uint16_t index = 0;  ///< CQE.wqe_counter.
  std::uint16_t end = 0;    ///< Basic block after the WQE.
  prm::WqeOpcode opcode = prm::WqeOpcode::nop;
  prm::CompletionMode completion = prm::CompletionMode::only_error;
  bool solicited = false;
  bool fence = false;
  std::uint32_t immediate = 0;  ///< Immediate data, key to invalidate, or UMR's key.
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint64_t swap_add = 0;
  std::uint64_t compare = 0;
  DatagramAddress address;
  std::uint32_t xrc_srqn = 0;  ///< XRC: SRQ of the peer that the message is for.
  std::vector<GatherSegment> segments;
  /// Bytes that came inline. UMR: control and key segment as they stood in the WQE, then the
  /// translation list if that is inline; else `segments` lead to it.
  std::vector<std::byte> inline_bytes;
  std::uint64_t length = 0;  ///< Bytes of the message.

  std::uint32_t first_psn = 0;
  std::uint32_t psn_count =
      0;                ///< PSNs used: packets sent, or response packets of a READ; 0: local.
  bool sent = false;    ///< Everything has been handed to the port (or executed) at least once
                        ///< since the requester last went back.
  bool failed = false;  ///< Completes in error when it gets to the front.
  prm::CqeSyndrome syndrome = prm::CqeSyndrome::flushed;
  std::uint8_t vendor = 0;
  /// Result kept for scatter to CQE.
  std::array<std::byte, 64> result{};

  bool is_read() const { return opcode == prm::WqeOpcode::rdma_read; }
  bool is_atomic() const {
    return opcode == prm::WqeOpcode::atomic_cmp_swap || opcode == prm::WqeOpcode::atomic_fetch_add;
  }
  /// Changes a memory key of this device.
  bool is_umr() const {
    return opcode == prm::WqeOpcode::umr || opcode == prm::WqeOpcode::local_invalidate;
  }
  bool needs_response() const { return is_read() || is_atomic(); }
  bool signalled() const { return is_signalled(completion); }
  std::uint32_t end_psn() const { return (first_psn + psn_count) & 0xffffff; }
};

/// What follows the control segment of a WQE that sends.
enum class SendFormat : std::uint8_t { connected, datagram, xrc };

/// Decodes a WQE. Datagrams (UD, QP0, QP1) have an address vector after the control segment, XRC
/// has the number of the SRQ there. False: malformed, or an opcode that the device does not have;
/// `wqe` then still has index, end, opcode and completion.
bool parse_send_wqe(const RawSendWqe& raw, SendFormat format, SendWqe& wqe);

}  // namespace softhca
