// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>

#include "emulator/runtime/result.h"
#include "emulator/runtime/unique_fd.h"
#include "kernel-shim/host/loop/event_loop.h"

namespace softhca::shim {

/// A completion channel or asynchronous event file as an application sees it: the read end of a
/// pipe of fixed-size records, so that blocking reads, O_NONBLOCK, poll and epoll are the kernel's
/// own. What does not fit the pipe waits in a queue.
///
/// Counting is the kernel's (uverbs_main.c, ib_uverbs_event_read): an object's "events reported" is
/// the number of its records that were read; records nobody has read yet vanish with the object.
class EventChannel : public std::enable_shared_from_this<EventChannel> {
 public:
  static constexpr std::size_t kMaxRecord = 16;
  /// Records that may wait for one reader; a channel that nobody reads drops later ones.
  static constexpr std::size_t kMaxWaiting = 65536;

  /// `record_size`: 8 (ib_uverbs_comp_event_desc) or 16 (ib_uverbs_async_event_desc). Second: the
  /// application's descriptor.
  static runtime::Result<std::pair<std::shared_ptr<EventChannel>, runtime::UniqueFd>> create(
      EventLoop& loop, std::size_t record_size);
  ~EventChannel();
  EventChannel(const EventChannel&) = delete;
  EventChannel& operator=(const EventChannel&) = delete;

  /// Sends a record. `reported`, if not null, counts it once it has been read; it must stay valid
  /// until retire().
  void post(std::span<const std::byte> record, std::uint32_t* reported);

  /// The object that owns `reported` goes: takes its unread records back and makes the count final.
  void retire(const std::uint32_t* reported);

  /// The device is gone: records nobody has read yet vanish, readers see the end of the file at
  /// once and for ever, later records are dropped (uverbs_std_types.c, ib_uverbs_free_event_queue).
  void end();

  /// True if `fd` is the read end (or a duplicate of it) of this channel.
  bool is_same(int fd) const;
  /// False since every reader has closed, or end(); it does not open again.
  bool open() const { return static_cast<bool>(write_end_); }
  std::size_t record_size() const { return record_size_; }

 private:
  struct Record {
    std::array<std::byte, kMaxRecord> bytes{};
    std::uint32_t* reported = nullptr;
  };

  EventChannel(EventLoop& loop, runtime::UniqueFd write_end, std::size_t record_size);
  void flush();
  void watch();
  void close();
  void drop();
  void settle(std::size_t unread);
  std::size_t unread_records() const;
  void take_back_unread();
  void wait_for_room(bool wanted);

  EventLoop& loop_;
  runtime::UniqueFd write_end_;
  std::size_t record_size_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::deque<Record> sent_;     ///< In the pipe, oldest first; a prefix may have been read already.
  std::deque<Record> waiting_;  ///< Not yet in the pipe.
  bool waits_for_room_ = false;
};

}  // namespace softhca::shim
