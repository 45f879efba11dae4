// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/uverbs/ending_contexts.h"

#include <chrono>

namespace softhca::shim {

EndingContexts::~EndingContexts() {
  if (timer_) loop_.cancel(*timer_);
}

void EndingContexts::end(std::unique_ptr<Context> context) {
  contexts_.push_back(std::move(context));
  // Those that came before have their turn by the timer.
  if (!timer_) work();
}

void EndingContexts::finish() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
  while (!contexts_.empty()) {
    contexts_.pop_front();
    ended_();
  }
}

void EndingContexts::work() {
  timer_.reset();
  if (contexts_.front()->release_some(kPiece)) {
    contexts_.pop_front();
    ended_();
  }
  if (contexts_.empty()) return;
  timer_ = loop_.after(std::chrono::milliseconds(0), [this] { work(); });
}

}  // namespace softhca::shim
