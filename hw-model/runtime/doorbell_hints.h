// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>
#include <cstdint>

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
/// to the wake eventfd. Device: clears top, summary and bit (acquire) in that order *before* it
/// reads the record. Before sleeping it stores kEngineSleeping (seq_cst), then looks at any() once
/// more.
inline constexpr unsigned kDoorbellHintsLogNumbers = 18;  ///< QPNs and CQNs covered: low 18 bits.
inline constexpr unsigned kDoorbellHintsRegionIndex =
    9;  ///< VFIO region index that maps DoorbellHints.
inline constexpr std::uint32_t kEngineAwake = 0;
inline constexpr std::uint32_t kEngineSleeping = 1;

/// Three-level bitmap over 2^18 numbers; a set bit at one level means "look below".
struct HintBitmap {
  static constexpr unsigned kWords = (1U << kDoorbellHintsLogNumbers) / 64;  // 4096
  alignas(64) std::atomic<std::uint64_t> top;
  alignas(64) std::atomic<std::uint64_t> summary[kWords / 64];
  alignas(64) std::atomic<std::uint64_t> bits[kWords];

  /// Marks `number` (bits above 2^18 are ignored). Lock-free; async-signal-safe.
  void mark(std::uint32_t number) {
    const std::uint32_t word = number / 64 % kWords;
    bits[word].fetch_or(1ULL << number % 64, std::memory_order_seq_cst);
    summary[word / 64].fetch_or(1ULL << word % 64, std::memory_order_seq_cst);
    top.fetch_or(1ULL << word / 64, std::memory_order_seq_cst);
  }

  /// Numbers that one drain() visits at most, up to the end of a word: what is marked is up to the
  /// drivers.
  static constexpr unsigned kMaxVisits = 4096;

  /// Takes marked numbers and calls `visit(number)` for each; true if there was any. Beyond
  /// kMaxVisits numbers stay marked, and `top` says so.
  template <typename Visit>
  bool drain(Visit&& visit) {
    if (top.load(std::memory_order_relaxed) == 0) return false;
    std::uint64_t groups = top.exchange(0, std::memory_order_seq_cst);
    const bool any = groups != 0;
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
        visits += static_cast<unsigned>(__builtin_popcountll(set));
        for (; set != 0; set &= set - 1)
          visit(word * 64 + static_cast<unsigned>(__builtin_ctzll(set)));
      }
    }
    return any;
  }
};

struct DoorbellHints {
  alignas(64) std::atomic<std::uint32_t> engine_state;
  HintBitmap sq;      ///< by QPN: the send doorbell record moved.
  HintBitmap cq_arm;  ///< by CQN: the arm word of the CQ's doorbell record changed.
  /// By slot: the command doorbell vector (PRM, initialization segment) is rung. The entry's owner
  /// bit tells whether there is a command.
  alignas(64) std::atomic<std::uint32_t> commands;

  /// Processor on which somebody waits for a command, plus 1; 0: nobody waits. An engine on the
  /// same one then sleeps as soon as it has nothing to do: a yield does not always give way to
  /// somebody who has yielded often.
  std::atomic<std::uint32_t> waiting_at;

  /// True if anything is marked.
  bool any() const {
    return sq.top.load(std::memory_order_seq_cst) != 0 ||
           cq_arm.top.load(std::memory_order_seq_cst) != 0 ||
           commands.load(std::memory_order_seq_cst) != 0;
  }
  /// Rings command slots, and takes them.
  void mark_commands(std::uint32_t vector) { commands.fetch_or(vector, std::memory_order_seq_cst); }
  std::uint32_t take_commands() {
    if (commands.load(std::memory_order_relaxed) == 0) return 0;
    return commands.exchange(0, std::memory_order_seq_cst);
  }

  /// True if the caller must write the wake eventfd. Call after mark() or mark_commands().
  bool must_wake() {
    return engine_state.load(std::memory_order_seq_cst) == kEngineSleeping &&
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
