// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "kernel-shim/host/loop/event_loop.h"
#include "kernel-shim/host/uverbs/context.h"

namespace softhca::shim {

/// Contexts whose last descriptor was closed. What they own is destroyed by a command each, which
/// for ten thousands of queue pairs takes seconds: so that other programs have their answers
/// meanwhile, it is done in pieces, between which the loop runs.
class EndingContexts {
 public:
  /// Objects destroyed in one piece, some milliseconds. Most contexts own less.
  static constexpr std::size_t kPiece = 32;

  /// `ended`: called for each context that has gone, also from within end().
  EndingContexts(EventLoop& loop, std::function<void()> ended)
      : loop_(loop), ended_(std::move(ended)) {}
  ~EndingContexts();
  EndingContexts(const EndingContexts&) = delete;
  EndingContexts& operator=(const EndingContexts&) = delete;

  void end(std::unique_ptr<Context> context);
  /// Destroys at once whatever is left.
  void finish();

 private:
  void work();

  EventLoop& loop_;
  std::function<void()> ended_;
  std::deque<std::unique_ptr<Context>> contexts_;
  std::optional<std::uint64_t> timer_;
};

}  // namespace softhca::shim
