// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <ctime>

#include <sched.h>

#include "hw-model/runtime/clock.h"
#include "hw-model/runtime/doorbell_hints.h"
#include "hw-model/runtime/mkey_state.h"

namespace softhca::shim {

/// The driver's side of state records (hw-model/runtime/mkey_state.h).
class MkeyStateChanger {
 public:
  /// Waits at most so long for a device that is awake; a command takes two or three times as long.
  static constexpr Nanoseconds kPatience = 20'000;

  MkeyStateChanger() = default;
  MkeyStateChanger(MkeyStatePage* page, DoorbellHints* hints) : page_(page), hints_(hints) {}
  explicit operator bool() const { return page_ != nullptr; }

  /// Makes record `number`, from 1 on, say that the key is as a command leaves it. No key has the
  /// record now.
  void reset(std::uint32_t number) {
    MkeyStateRecord& record = record_of(number);
    record.wanted.store(kMkeyAsCreated, std::memory_order_relaxed);
    record.seen.store(kMkeyAsCreated, std::memory_order_relaxed);
  }

  /// Makes it say `state`. True: from now on no access is made that this state forbids, and each
  /// that it allows can be. False: the device has not got to it in time; it may do so at any
  /// moment, or after a command.
  bool change(std::uint32_t number, std::uint32_t state, Nanoseconds patience = kPatience) {
    MkeyStateRecord& record = record_of(number);
    const std::uint32_t before = __builtin_bswap32(record.wanted.load(std::memory_order_relaxed));
    record.wanted.store(__builtin_bswap32(next_mkey_word(before, state)),
                        std::memory_order_release);
    page_->changes.fetch_add(1, std::memory_order_seq_cst);
    hints_->mark_mkey_states();
    if (is_honoured(number)) return true;
    for (const Nanoseconds begin = now(); now() - begin < patience;) {
      for (int looks = 0; looks < kLooks; ++looks) {
        if (is_honoured(number)) return true;
      }
      const auto here = static_cast<std::uint32_t>(::sched_getcpu() + 1);
      if (hints_->engine_processor.load(std::memory_order_relaxed) != here) continue;
      // It waits for this processor. One that has nothing else to do gives it back at once; another
      // one keeps it for a time slice, but not twice.
      ::sched_yield();
      break;
    }
    return is_honoured(number);
  }

  /// What change() waits for.
  bool is_honoured(std::uint32_t number) {
    const MkeyStateRecord& record = record_of(number);
    return record.seen.load(std::memory_order_acquire) ==
               record.wanted.load(std::memory_order_relaxed) ||
           page_->at_rest.load(std::memory_order_seq_cst) != 0;
  }

  MkeyStatePage* page() const { return page_; }
  DoorbellHints* hints() const { return hints_; }

 private:
  static constexpr int kLooks = 16;

  MkeyStateRecord& record_of(std::uint32_t number) { return page_->records[number - 1]; }
  static Nanoseconds now() {
    timespec time{};
    ::clock_gettime(CLOCK_MONOTONIC, &time);
    return static_cast<Nanoseconds>(time.tv_sec) * 1'000'000'000 +
           static_cast<Nanoseconds>(time.tv_nsec);
  }

  MkeyStatePage* page_ = nullptr;
  DoorbellHints* hints_ = nullptr;
};

}  // namespace softhca::shim
