// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "emulator/runtime/unique_fd.h"
#include "kernel-shim/host/memory/idle_regions.h"
#include "kernel-shim/host/memory/interval_set.h"
#include "kernel-shim/host/memory/process_map.h"
#include "kernel-shim/host/uverbs/reply.h"
#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim {

/// The memfd that holds the shared pages of a process (protocol.h, SharedPiece). Pages live as long
/// as the process has them mapped or the device uses them (Pin), as pinned pages do: the process
/// may unmap what is registered. Whoever lets go last gives them back here.
///
/// The process does not tell what it unmaps. That is looked up when a pin ends, and while it shares
/// more: of pages that pins have left mapped (tidy()), and from time to time of all.
class SharedFile {
 public:
  SharedFile(runtime::UniqueFd fd, std::uint64_t inode, std::shared_ptr<const ProcessMap> map)
      : fd_(std::move(fd)), inode_(inode), map_(std::move(map)) {}

  int fd() const { return fd_.get(); }
  bool is_gone() const { return map_->is_gone(); }
  /// False: what the process has mapped is not known, and its pages stay until all use of them
  /// ends.
  bool is_watched() const { return map_->is_readable(); }
  pid_t owner() const { return map_->pid(); }

  /// The process has put pages there.
  void appear(std::span<const SharedPiece> pieces);
  /// Gives back what neither the process nor the device has.
  void sweep();
  /// If pages have appeared: looks whether those that pins left mapped are still there. If not, and
  /// if it is worth a sweep, what is found goes to take_unused(), so that the process does not grow
  /// while it takes ever new memory. Takes some system calls.
  void tidy();
  /// What the process may give back itself. It is given back here all the same, by the next sweep.
  std::vector<FileRange> take_unused() { return std::move(unused_); }
  std::uint64_t inode() const { return inode_; }
  /// Whether pages that pins let go are left to the process, too, instead of given back at once.
  void leave_unused(bool leave) { leaves_unused_ = leave; }

  /// DMA maps of its pages that wait for their next use.
  IdleRegions& idle_regions() { return idle_regions_; }

  /// Keeps pages for the device.
  class Pin {
   public:
    Pin(std::shared_ptr<SharedFile> file, const SharedPiece& piece);
    Pin(Pin&& other) noexcept = default;
    Pin& operator=(Pin&& other) = delete;
    ~Pin();

   private:
    std::shared_ptr<SharedFile> file_;
    SharedPiece piece_;
  };

 private:
  void unpin(const SharedPiece& piece);
  std::vector<FileRange> find_unused();
  void collect();
  void give_back(std::span<const FileRange> ranges);
  void remember_mapped(const SharedPiece& piece);
  bool is_pinned(const SharedPiece& piece) const;
  std::uint64_t unpinned_bytes() const;
  bool is_mapped(const SharedPiece& piece) const;

  runtime::UniqueFd fd_;
  std::uint64_t inode_;
  std::shared_ptr<const ProcessMap> map_;
  IdleRegions idle_regions_;
  IntervalSet present_;
  std::multiset<std::pair<std::uint64_t, std::uint64_t>> pinned_;
  std::uint64_t pinned_bytes_ = 0;
  std::uint64_t unmapped_bytes_ = 0;     ///< Of pages that pins let go since the last sweep.
  std::deque<SharedPiece> left_mapped_;  ///< By pins that ended; the latest are the last.
  bool leaves_unused_ = false;
  bool has_grown_ = false;  ///< Since the last tidy().
  std::uint64_t worth_a_sweep_ = 0;
  std::vector<FileRange> unused_;  ///< For take_unused().
  std::vector<FileRange> left_to_process_;
  std::uint64_t next_sweep_ = 0;  ///< When so many bytes are present and not pinned.
};

using Pins = std::vector<SharedFile::Pin>;

/// The shared files of all processes that use the device.
class SharedFiles {
 public:
  /// The file that `fd` names; it belongs to the process with `map` if it was not known. EINVAL: no
  /// memfd, or one that may shrink, which would kill the device when it touches its mapping;
  /// EMFILE: the process has several already.
  int open(int fd, const std::shared_ptr<const ProcessMap>& map, std::shared_ptr<SharedFile>& file);
  /// Forgets those of processes that have ended, with their pages that no pin keeps.
  void purge();
  /// Ends the DMA maps that wait for their next use.
  void drop_idle_regions();
  /// Before each command but registrations.
  void tidy();
  /// Adds to an answer what the process that asked may give back.
  void add_unused(pid_t owner, Reply& reply);
  /// SharedFile::leave_unused().
  void leave_unused(bool leave);
  /// Sweeps those of a process.
  void sweep(pid_t owner);

 private:
  using Id = std::pair<std::uint64_t, std::uint64_t>;  ///< Device and inode.
  std::map<Id, std::shared_ptr<SharedFile>> files_;
};

}  // namespace softhca::shim
