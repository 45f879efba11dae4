// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>
#include <cstdint>

#include "hw-model/runtime/full_fence.h"

namespace softhca {

/// Shared page(s) by which drivers on the same machine tell a device which doorbell records to look
/// at.
///
/// This is Softhca's own extension (VFIO device-specific region, see kDoorbellHintsRegionIndex);
/// nothing of it is needed for correctness of a driver that rings trapped UAR registers. Doorbell
/// records in host memory stay the truth; a set bit means "the record of this QP/CQ may have
/// moved". Spurious bits are legal.
///
/// Driver: write the record, then ring(): set the bit (release), then look at `engine_state`; when
/// it is kEngineSleeping, one ringer wins the exchange to kEngineAwake and writes 8 bytes (value 1)
/// to the wake eventfd. A driver need not mark the queue that the device says it is watching.
/// Device: clears `recent`, or top, summary and bit (acquire) in that order, *before* it reads the
/// record. Before sleeping it stores kEngineSleeping (seq_cst), then looks at any() once more.
inline constexpr unsigned kDoorbellHintsLogNumbers = 18;  ///< QPNs and CQNs covered: low 18 bits.
inline constexpr unsigned kDoorbellHintsRegionIndex =
    9;  ///< VFIO region index that maps DoorbellHints.
inline constexpr std::uint32_t kEngineAwake = 0;
inline constexpr std::uint32_t kEngineSleeping = 1;

/// Three-level bitmap over 2^18 numbers; a set bit at one level means "look below". In front of it
/// is a word with room for the numbers that were marked last: between two processors it is the
/// cache lines that cost, one in place of three.
struct HintBitmap {
  static constexpr unsigned kWords = (1U << kDoorbellHintsLogNumbers) / 64;  // 4096
  /// Numbers that `recent` holds, each plus one, in fields of kRecentBits bits; 0: free.
  static constexpr unsigned kRecent = 3;
  static constexpr unsigned kRecentBits = 21;
  alignas(64) std::atomic<std::uint64_t> recent;
  std::atomic<std::uint64_t> top;
  alignas(64) std::atomic<std::uint64_t> summary[kWords / 64];
  alignas(64) std::atomic<std::uint64_t> bits[kWords];

  /// Where a number is in the bitmap, for who marks the same one time and again.
  struct Place {
    std::atomic<std::uint64_t>* word = nullptr;
    std::atomic<std::uint64_t>* summary = nullptr;
    std::uint64_t bit = 0;
    std::uint64_t summary_bit = 0;
    std::uint64_t top_bit = 0;
    std::uint64_t field = 0;  ///< In `recent`.
  };
  /// Bits of `number` above 2^18 are ignored.
  Place place_of(std::uint32_t number) {
    const std::uint32_t word = number / 64 % kWords;
    return {&bits[word],       &summary[word / 64], 1ULL << number % 64,
            1ULL << word % 64, 1ULL << word / 64,   number % kNumbers + 1};
  }

  /// Marks a number. Lock-free; async-signal-safe.
  void mark(const Place& place) {
    // Nothing is read before it is written: mostly the word is 0, as the device left it.
    std::uint64_t there = 0;
    if (recent.compare_exchange_strong(there, place.field, std::memory_order_seq_cst)) return;
    mark_beside(place, there);
  }
  void mark(std::uint32_t number) { mark(place_of(number)); }

  /// A number is marked. Before the device sleeps it asks once more.
  bool any() const {
    return recent.load(std::memory_order_seq_cst) != 0 || top.load(std::memory_order_seq_cst) != 0;
  }

  /// Numbers of the bitmap that one drain() visits at most, up to the end of a word: what is marked
  /// is up to the drivers.
  static constexpr unsigned kMaxVisits = 4096;

  /// Takes marked numbers and calls `visit(number)` for each; true if there was any. Beyond
  /// kMaxVisits numbers stay marked, and `top` says so.
  template <typename Visit>
  bool drain(Visit&& visit) {
    return drain(visit, [](std::uint32_t) {});
  }
  /// `expect(number)` is called for one that is about to be visited, before it is taken: to take
  /// `recent` from the poster's processor is as long a wait as to fetch what the poster has
  /// written, and the two waits can be one.
  template <typename Visit, typename Expect>
  bool drain(Visit&& visit, Expect&& expect) {
    const bool any = drain_recent(visit, expect);
    if (top.load(std::memory_order_relaxed) == 0) return any;
    std::uint64_t groups = top.exchange(0, std::memory_order_seq_cst);
    unsigned visits = 0;
    for (; groups != 0; groups &= groups - 1) {
      const unsigned group = static_cast<unsigned>(__builtin_ctzll(groups));
      std::uint64_t words = summary[group].exchange(0, std::memory_order_seq_cst);
      for (; words != 0; words &= words - 1) {
        if (visits >= kMaxVisits) {
          summary[group].fetch_or(words, std::memory_order_seq_cst);
          top.fetch_or(groups, std::memory_order_seq_cst);
          return true;
        }
        const unsigned word = group * 64 + static_cast<unsigned>(__builtin_ctzll(words));
        std::uint64_t set = bits[word].exchange(0, std::memory_order_seq_cst);
        for (; set != 0; set &= set - 1, ++visits) {
          visit(word * 64 + static_cast<unsigned>(__builtin_ctzll(set)));
        }
      }
    }
    return true;
  }

 private:
  static constexpr std::uint32_t kNumbers = 1U << kDoorbellHintsLogNumbers;
  static constexpr std::uint64_t kRecentMask = (1ULL << kRecentBits) - 1;
  static_assert(kRecent * kRecentBits <= 64 && kRecentMask > kNumbers);

  template <typename Visit, typename Expect>
  bool drain_recent(Visit&& visit, Expect&& expect) {
    const std::uint64_t seen = recent.load(std::memory_order_relaxed);
    if (seen == 0) return false;
    if ((seen & kRecentMask) != 0) expect(static_cast<std::uint32_t>(seen & kRecentMask) - 1);
    for (std::uint64_t left = recent.exchange(0, std::memory_order_seq_cst); left != 0;
         left >>= kRecentBits) {
      if ((left & kRecentMask) != 0) visit(static_cast<std::uint32_t>(left & kRecentMask) - 1);
    }
    return true;
  }

  /// `there`: what `recent` holds, with this number or without it.
  void mark_beside(const Place& place, std::uint64_t there) {
    constexpr int kTries = 4;
    for (int i = 0; i < kTries; ++i) {
      std::uint64_t wanted = there;
      unsigned shift = 0;
      // What is marked already is stored once more, so that it is seen after the record.
      for (; shift < kRecent * kRecentBits; shift += kRecentBits) {
        const std::uint64_t field = there >> shift & kRecentMask;
        if (field == 0) wanted |= place.field << shift;
        if (field == 0 || field == place.field) break;
      }
      if (shift == kRecent * kRecentBits) break;
      if (recent.compare_exchange_strong(there, wanted, std::memory_order_seq_cst)) return;
    }
    place.word->fetch_or(place.bit, std::memory_order_seq_cst);
    place.summary->fetch_or(place.summary_bit, std::memory_order_seq_cst);
    top.fetch_or(place.top_bit, std::memory_order_seq_cst);
  }
};

struct DoorbellHints {
  alignas(64) std::atomic<std::uint32_t> engine_state;
  /// Where the engine runs, plus 1; 0: not known. Who polls keeps off it.
  std::atomic<std::uint32_t> engine_processor;
  /// QP whose send doorbell record the device looks at unasked (HintBitmap::Place::field); 0: none.
  /// After another value was stored here the device looks at that record once more.
  std::atomic<std::uint32_t> watched;
  HintBitmap sq;      ///< by QPN: the send doorbell record moved.
  HintBitmap cq_arm;  ///< by CQN: the arm word of the CQ's doorbell record changed.
  /// By slot: the command doorbell vector (PRM, initialization segment) is rung. The entry's owner
  /// bit tells whether there is a command.
  alignas(64) std::atomic<std::uint32_t> commands;

  bool engine_sleeps() const {
    return engine_state.load(std::memory_order_seq_cst) == kEngineSleeping;
  }
  /// Processor on which somebody waits for a command, plus 1; 0: nobody waits. An engine on the
  /// same one then sleeps as soon as it has nothing to do: a yield does not always give way to
  /// somebody who has yielded often.
  std::atomic<std::uint32_t> waiting_at;
  /// Not 0: the state of a memory key has changed (mkey_state.h). That wakes nobody.
  alignas(64) std::atomic<std::uint32_t> mkey_states;

  /// True if anything is marked.
  bool any() const {
    return sq.any() || cq_arm.any() || commands.load(std::memory_order_seq_cst) != 0;
  }
  /// Rings command slots, and takes them.
  void mark_commands(std::uint32_t vector) { commands.fetch_or(vector, std::memory_order_seq_cst); }
  std::uint32_t take_commands() {
    if (commands.load(std::memory_order_relaxed) == 0) return 0;
    return commands.exchange(0, std::memory_order_seq_cst);
  }

  /// After the change: what is read next is read after everybody could see it.
  void mark_mkey_states() {
    mkey_states.store(1, std::memory_order_seq_cst);
    full_fence();
  }
  bool take_mkey_states() {
    return mkey_states.load(std::memory_order_relaxed) != 0 &&
           mkey_states.exchange(0, std::memory_order_seq_cst) != 0;
  }

  /// Tells the device of an SQ whose record was stored before. Between two processors the record is
  /// a cache line that has to go over anyway, the mark is a second one that goes before it.
  void ring_sq(const HintBitmap::Place& place) {
    full_fence();
    if (watched.load(std::memory_order_relaxed) != place.field) sq.mark(place);
  }

  /// True if the caller must write the wake eventfd. Call after ring_sq(), mark() or
  /// mark_commands().
  bool must_wake() {
    return engine_sleeps() &&
           engine_state.exchange(kEngineAwake, std::memory_order_seq_cst) == kEngineSleeping;
  }
  /// The caller that had to write the wake eventfd could not: whoever rings next tries again. If
  /// the engine has woken meanwhile, it gets a wake too many at most.
  void wake_failed() { engine_state.store(kEngineSleeping, std::memory_order_seq_cst); }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// Size of the mapping, in bytes: whole pages.
inline constexpr std::uint64_t kDoorbellHintsSize = (sizeof(DoorbellHints) + 4095) / 4096 * 4096;

}  // namespace softhca
