// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "hw-model/ib/packet_pool.h"
#include "hw-model/ib/port.h"
#include "hw-model/memory/mkey_table.h"
#include "hw-model/queues/queue_events.h"
#include "hw-model/runtime/clock.h"
#include "hw-model/runtime/ring.h"
#include "hw-model/runtime/timer_wheel.h"
#include "hw-model/transport/q_counters.h"
#include "hw-model/transport/transport.h"

namespace softhca {

class QueuePair;

/// Packets of a train at most.
inline constexpr std::uint32_t kMaxTrain = 64;
/// Payloads up to this size, in bytes, are copied: that costs less than lending them.
inline constexpr std::uint64_t kCopiedAtMost = 256;

/// Work that one QP may do in its turn.
struct Quantum {
  std::uint32_t wqes = 0;
  std::uint32_t packets = 0;
  std::uint64_t bytes = 0;
  bool spent() const { return wqes == 0 || packets == 0 || bytes == 0; }
  void charge_wqe() { wqes -= wqes > 0 ? 1 : 0; }
  /// A WQE of one packet; not when spent().
  void charge_message(std::uint64_t payload) {
    --wqes;
    --packets;
    const std::uint64_t cost = payload + 64;
    bytes -= cost < bytes ? cost : bytes;
  }
  void charge_packet(std::uint64_t payload) { charge_packets(1, payload); }
  void charge_packets(std::uint32_t count, std::uint64_t payload) {
    packets -= count < packets ? count : packets;
    // Headers cost too: an empty packet is not free.
    const std::uint64_t cost = payload + std::uint64_t{count} * 64;
    bytes -= cost < bytes ? cost : bytes;
  }
};

/// One QP's turn within a budget: others get theirs after this much.
inline Quantum turn_of(const TransportBudget& budget) {
  constexpr std::uint32_t kWqes = 32;
  constexpr std::uint32_t kPackets = 64;
  constexpr std::uint64_t kBytes = 256 << 10;
  return {std::min(budget.wqes, kWqes), kPackets, std::min(budget.bytes, kBytes)};
}

/// Payload read ahead from memory that only calls can reach, so that one call serves many packets.
struct Staging {
  static constexpr std::uint64_t kSize = 64 << 10;
  const QueuePair* owner = nullptr;
  std::uint64_t stream = 0;  ///< Which message of the owner.
  std::uint64_t offset = 0;  ///< Of the first byte, in the message.
  std::vector<std::byte> bytes;
};

/// Part of a message to be read for one packet.
struct ReadPiece {
  MemoryContext context;
  std::uint32_t key = 0;
  MemoryAccess access = MemoryAccess::local_read;
  std::uint64_t va = 0;
  std::uint64_t length = 0;     ///< Wanted now.
  std::uint64_t available = 0;  ///< Will be wanted soon, from `va` on: at least `length`.
  std::uint64_t stream = 0;     ///< Staging::stream.
  std::uint64_t offset = 0;     ///< Of `va` in the message.
};

/// What requesters and responders of one function share.
struct Core {
  DmaSpace& dma;
  MkeyTable& mkeys;
  ib::Port& port;
  const ib::PortAttributes& port_attributes;
  const std::uint64_t& way_epoch;
  const Clock& clock;
  AsyncEvents& events;
  ObjectTable<SharedReceiveQueue>& srqs;
  ObjectTable<QCounterSet>& q_counters;
  TransportConfig config;
  Quantum lent;            ///< What is left of the last Transport::lend_turn().
  bool turn_lent = false;  ///< It has not ended.

  ib::PacketPool& pool;
  ib::Packet outgoing;       ///< The packet that is being made: one at a time.
  ib::PayloadLender lender;  ///< Of registered memory that packets on their way refer to.
  Staging staging;
  std::vector<std::byte> umr_list;  ///< Translation list of a UMR being executed.
  /// QPs with work, each once here or in the next two (QueuePair::queued).
  Ring<QueuePair*> ready;
  /// QPs whose turn found the port full, in the order of their turns: they come first when it has
  /// room, so that no arrangement of turns and room passes one of them over for ever.
  Ring<QueuePair*> stalled;
  /// QPs that filled the port in the middle of their turns: their next ones come last.
  Ring<QueuePair*> interrupted;
  /// QPs that owe an ACK for what was delivered in this step, each once (QueuePair::owing).
  std::vector<QueuePair*> owing;
  std::vector<QueuePair*> parked;  ///< QPs that wait for memory, each once (QueuePair::parked).
  QCounters uncounted;             ///< Of the QPs without a counter set.

  TimerWheel<QueuePair> timers;
  /// No timer, of a QP or a CQ, is due before; kNever: none is running.
  Nanoseconds earliest_timer = kNever;
  /// False: no QP is on the lists above but that of the parked ones.
  bool listed = false;

  std::uint64_t pkey_violations = 0;
  std::uint64_t qkey_violations = 0;
  std::uint64_t unknown_qp_drops = 0;

  bool timer_due() const { return earliest_timer != kNever && earliest_timer <= clock.now(); }
  /// A timer of a QP or a CQ ends then.
  void note_timer(Nanoseconds deadline) {
    if (deadline < earliest_timer) earliest_timer = deadline;
  }
  /// Nobody waits for a turn, and one may be had before the step.
  bool has_turn_at_once() const { return turn_lent && !listed; }
  /// Puts the QP on the ready list.
  void schedule(QueuePair& qp);
  /// The QP owes an ACK, and nothing else: it leaves when the delivery ends, or with the QP's turn.
  void owe_ack(QueuePair& qp);
  /// Sends the ACKs that are owed.
  void send_owed();
  /// The QP waits for memory_arrived().
  void park(QueuePair& qp);
  /// Sets the QP's timer; kNever stops it.
  void set_timer(QueuePair& qp, Nanoseconds deadline);
  /// Reads payload: directly where possible, else through `staging`.
  MemoryStatus read_payload(const QueuePair& qp, const ReadPiece& piece, std::byte* to);
  /// Makes the payload a view of the memory, if that is one mapped piece. False: it is not, or the
  /// access is not allowed; read_payload() tells.
  bool view_payload(const ReadPiece& piece, ib::Payload& payload);
  /// Forgets everything that refers to the QP.
  void forget(QueuePair& qp);
  /// Source LID of packets with these path bits.
  std::uint16_t source_lid(std::uint8_t path_bits) const {
    return ib::source_lid(port_attributes, path_bits);
  }
  /// P_Key of the port's table; 0 when the index is not valid.
  std::uint16_t pkey(std::uint16_t index) const {
    const auto& table = port_attributes.pkeys;
    return index < table.size() ? table[index] : 0;
  }
};

/// IBA 10.9.3: same low 15 bits, and at least one of the two is a full member.
constexpr bool pkeys_match(std::uint16_t a, std::uint16_t b) {
  return (a & 0x7fff) != 0 && (a & 0x7fff) == (b & 0x7fff) && ((a | b) & 0x8000) != 0;
}

}  // namespace softhca
