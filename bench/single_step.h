// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <functional>

/// Counts the instructions that a program executes between two marks, by single-stepping it: exact
/// on any machine, without hardware counters. A string instruction with a prefix counts as one.
namespace softhca::bench {

/// What was executed between the last two marks.
struct Steps {
  unsigned total = 0;
  unsigned in_preload = 0;    ///< Of the total: Softhca's preload library, and what it called.
  unsigned system_calls = 0;  ///< Of the total.
};

/// Counting begins at one mark and ends at the next; what is between them should be little.
inline void mark() {
  asm volatile("int3" ::: "memory");
}

/// Runs `program` in a process of its own, under a tracer; `program` finds the steps of the last
/// two marks in its argument. Its exit status.
int run_stepped(const std::function<int(const volatile Steps&)>& program);

}  // namespace softhca::bench
