// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

namespace softhca::shim::preload {

/// Keeps the other threads of the process from storing into memory while its pages are swapped: a
/// store between copy and mapping would be lost.
///
/// * A process with one thread needs nothing.
/// * Where userfaultfd handles faults of the kernel, too (privileged, or
/// vm.unprivileged_userfaultfd
///   is set), the memory is write-protected: whoever stores, also within a system call, waits until
///   the new pages are there.
/// * Elsewhere the other threads are stopped by a signal (thread_stop.h).
class StoreGuard {
 public:
  StoreGuard();
  StoreGuard(const StoreGuard&) = delete;
  StoreGuard& operator=(const StoreGuard&) = delete;
  ~StoreGuard();

  /// From now on nobody else stores into [begin, end), whole pages of one private mapping. 0, or
  /// EBUSY: that cannot be had.
  int protect(std::uint64_t begin, std::uint64_t end);
  /// Other pages have taken the place of those of protect(), or should have.
  void release(std::uint64_t begin, std::uint64_t end);

 private:
  bool write_protect(std::uint64_t begin, std::uint64_t end) const;

  bool alone_;
  bool stopped_ = false;
  int fault_fd_ = -1;
};

}  // namespace softhca::shim::preload
