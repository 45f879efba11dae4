// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdio>
#include <cstdlib>

namespace softhca::bench {

/// Ends the program with what errno says.
[[noreturn]] inline void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

}  // namespace softhca::bench
