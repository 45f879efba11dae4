// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hw-model/memory/dma_space.h"
#include "hw-model/prm/cqe.h"
#include "hw-model/queues/doorbell_record.h"
#include "hw-model/queues/object_table.h"
#include "hw-model/queues/queue_buffer.h"
#include "hw-model/queues/queue_events.h"
#include "hw-model/runtime/clock.h"
#include "hw-model/runtime/timer_wheel.h"

namespace softhca {

/// What CREATE_CQ says.
struct CqParams {
  QueueBuffer buffer;
  std::uint8_t log_size = 0;
  bool cqe128 = false;                ///< Entries of 128 bytes, the CQE in the upper half.
  std::uint64_t doorbell_record = 0;  ///< IOVA of 8 bytes.
  ObjectRef<EventQueue> eq;           ///< May be empty: then no completion events.
  bool overrun_ignore = false;        ///< cqc.oi.
  bool collapsed = false;             ///< cqc.cc: every CQE goes to entry 0.
  std::uint16_t period_us = 0;        ///< Event moderation; both 0: an event per armed CQE.
  std::uint16_t max_count = 0;
};

/// Completion queue. The device writes CQEs (owner byte last); the driver's consumer index and arm
/// word are in its doorbell record, arms also come by UAR register.
class CompletionQueue {
 public:
  /// An arm word that no driver writes: its reserved bits are set.
  static constexpr std::uint32_t kNeverArmed = 0xffffffff;
  /// What Linux' steering code writes once into the record of a CQ that it never arms.
  static constexpr std::uint32_t kNotToBeArmed = 2U << 28;

  /// Contents of the CQ context's st field.
  enum class ArmState : std::uint8_t { fired, armed, solicited_armed };

  CompletionQueue(std::uint32_t number, DmaSpace& dma, const Clock& clock, AsyncEvents& events,
                  CqTimers& timers, CqParams params);

  std::uint32_t number() const { return number_; }
  const CqParams& params() const { return params_; }

  /// Appends a CQE. `cqe` is complete but for owner bit, solicited bit, format and timestamp.
  /// `scatter`: up to 32 bytes (any CQ) or 64 (128-byte entries) of payload for
  /// CqeFormat::inline_*, or empty. A CQE that would overwrite one not consumed yet is lost, puts
  /// the CQ in error and reports cq_error. CQEs whose memory is pending are kept in order.
  /// False: the CQ is in error.
  bool post(prm::CqeWords cqe, bool solicited, std::span<const std::byte> scatter = {});

  /// post() in two calls, for a CQE of a success without `scatter`: the entry itself, of which the
  /// caller writes all but time and last byte, then commit()s. Null: it cannot be written at once
  /// and in place; post() then does what is right.
  prm::CqeWords* entry() {
    const bool known = room_in_place_ != 0 && in_place_generation_ == dma_.generation();
    if (!known && !look_in_place()) return nullptr;
    const std::size_t slot = producer_ & (entries_ - 1);
    return reinterpret_cast<prm::CqeWords*>(in_place_ + (slot << entry_shift_));
  }
  /// Hands over what entry() has given.
  void commit(prm::CqeWords& cqe, prm::CqeOpcode opcode, bool solicited) {
    cqe.timestamp = clock_.now();
    const unsigned owner = (producer_ & entries_) != 0 ? 1 : 0;
    const auto op_own = static_cast<std::uint8_t>(static_cast<unsigned>(opcode) << 4 |
                                                  (solicited ? 2U : 0U) | owner);
    __atomic_store_n(&cqe.op_own, op_own, __ATOMIC_RELEASE);
    --room_in_place_;
    advance(solicited);
  }

  /// UAR register 0x20, first word: sn << 28 | solicited << 24 | consumer index. An arm whose
  /// sequence number already produced its event is ignored.
  void arm(std::uint32_t word);
  /// For drivers that ring by stores to mapped pages, which nobody traps: puts kNeverArmed into the
  /// arm word of the doorbell record, before the driver knows of this CQ, so that its first arm
  /// (which is the word 0) changes the record as every later one does.
  void watch_record();
  /// Takes the arm word of the doorbell record, because the driver told of it (hint) or may have
  /// written it (sweep). True if it held a new arm. A record whose memory is pending is taken when
  /// that has arrived.
  bool arm_from_record();

  /// MODIFY_CQ resize: writes a CqeOpcode::resize_cq entry at the producer index of the old buffer
  /// (it takes one index) and goes on in the new one. EINVAL-like false: the unconsumed CQEs do not
  /// fit.
  bool resize(QueueBuffer buffer, std::uint8_t log_size, bool cqe128);
  void set_moderation(std::uint16_t period_us, std::uint16_t max_count);
  void set_eq(ObjectRef<EventQueue> eq) { params_.eq = std::move(eq); }

  void expire();          ///< A moderation timer has run out.
  void memory_arrived();  ///< CQEs behind pending memory are written, arms there are taken.

  std::uint32_t producer_index() const { return producer_; }
  std::uint32_t consumer_index();  ///< Read from the record.
  std::uint32_t last_solicited_index() const { return last_solicited_; }
  std::uint32_t last_notified_index() const { return last_notified_; }
  ArmState arm_state() const { return arm_; }
  bool in_error() const { return error_; }

  TimerWheel<CompletionQueue>::Entry timer{*this};  ///< Bookkeeping of CqTimers.

 private:
  struct Waiting {
    prm::CqeWords cqe;
    std::array<std::byte, 64> scatter;
    std::uint8_t scatter_size;
    bool event;
  };

  static constexpr std::uint32_t kIndexMask = 0xffffff;

  bool has_room();
  bool look_in_place();
  /// An entry was written; `event`: one that a solicited arm waits for.
  void advance(bool event) {
    producer_ = (producer_ + 1) & kIndexMask;
    if (event) {
      last_solicited_ = producer_;
      any_solicited_ = true;
    }
    maybe_fire();
  }
  DmaStatus write(const prm::CqeWords& cqe, std::span<const std::byte> scatter);
  DmaStatus write_body(const prm::CqeWords& cqe, std::uint64_t at, std::uint8_t op_own);
  DmaStatus write_inline(const prm::CqeWords& cqe, std::span<const std::byte> scatter,
                         std::uint64_t entry, std::uint64_t upper, std::uint8_t op_own);
  void append(const prm::CqeWords& cqe, std::span<const std::byte> scatter, bool event);
  void fail(std::uint8_t syndrome);
  bool event_due() const;
  void maybe_fire() {
    if (arm_ != ArmState::fired) fire_if_due();
  }
  void fire_if_due();
  void fire();

  std::uint32_t number_;
  DmaSpace& dma_;
  const Clock& clock_;
  AsyncEvents& events_;
  CqTimers& timers_;
  CqParams params_;
  std::uint32_t producer_ = 0;  ///< 24 bits, CQEs written.
  std::uint32_t consumer_ = 0;  ///< 24 bits, as last read.
  DoorbellRecord consumer_record_;
  /// Entries that can be written in place for all that was known when it was looked at: nothing is
  /// in their way but a change of the DmaSpace.
  std::uint32_t room_in_place_ = 0;
  std::uint32_t entries_ = 0;      ///< Of the ring, a power of two.
  std::uint8_t entry_shift_ = 0;   ///< log2 of the bytes of an entry.
  std::byte* in_place_ = nullptr;  ///< The CQE of the first entry.
  std::uint64_t in_place_generation_ = 0;
  std::uint32_t last_solicited_ = 0;  ///< Producer index after the last solicited or error CQE.
  std::uint32_t last_notified_ = 0;
  bool any_solicited_ = false;
  ArmState arm_ = ArmState::fired;
  std::uint32_t arm_index_ = 0;  ///< Consumer index of the pending arm.
  std::uint8_t arm_sn_ = 0;
  bool sn_used_ = false;                   ///< arm_sn_ has produced its event.
  std::uint32_t seen_word_ = kNeverArmed;  ///< Arm word as last taken.
  bool record_awaited_ = false;            ///< An arm is in the record, whose memory is pending.
  bool moderating_ = false;                ///< A timer is running for the pending event.
  Nanoseconds moderation_deadline_ = kNever;
  bool error_ = false;
  std::vector<Waiting> waiting_;
};

}  // namespace softhca
