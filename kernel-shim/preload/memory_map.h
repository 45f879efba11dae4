// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include <sys/types.h>

namespace softhca::shim::preload {

/// One line of /proc/self/maps.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  int protection = 0;  ///< PROT_*.
  bool is_shared = false;
  std::uint64_t offset = 0;
  std::uint64_t device = 0;  ///< makedev() of the file; 0: none.
  std::uint64_t inode = 0;
  /// The main thread's stack, or memory of the kernel ([vdso], [vvar]).
  bool is_stack_or_kernels = false;
  bool is_heap = false;  ///< Memory of brk().
};

/// Reads /proc/self/maps without allocating. Either all of it (next) or what is asked for (find).
/// Changes made while it is being read are seen or not.
///
/// The descriptor is kept for the next reader: opening it takes longer than a question. So there
/// must be only one reader at a time.
class MemoryMap {
 public:
  MemoryMap();
  /// After fork(), in the child: the descriptor shows the parent's memory.
  static void forget_kept();
  MemoryMap(const MemoryMap&) = delete;
  MemoryMap& operator=(const MemoryMap&) = delete;
  ~MemoryMap();

  bool is_open() const { return fd_ >= 0; }
  /// The next mapping in order of addresses; false at the end.
  bool next(Mapping& mapping);
  /// The mapping at `address`, or else the one behind it; false: there is none. Addresses must not
  /// fall from call to call.
  bool find(std::uint64_t address, Mapping& mapping);

 private:
  int get();
  bool own_descriptor();
  bool query(std::uint64_t address, Mapping& mapping);

  int fd_;
  bool is_kept_ = false;
  bool has_query_ = true;
  ssize_t length_ = 0;
  ssize_t at_ = 0;
  char buffer_[4096];
};

}  // namespace softhca::shim::preload
