// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

namespace softhca {

/// What a look at doorbell records, or at some of them, has found.
struct Sweep {
  static constexpr std::uint32_t kAll = ~0U;
  bool moved = false;  ///< One of them had moved.
  bool whole = false;  ///< The last one was among them: the next look begins with the first.
};

}  // namespace softhca
