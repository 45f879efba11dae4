// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emulator/runtime/unique_fd.h"
#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim {

/// Body of a reply: items or shared ranges, and the descriptors they refer to in their order.
class Reply {
 public:
  /// Writes `data` at `target`, followed by zeroes up to `length` bytes in all.
  void bytes(std::uint64_t target, std::span<const std::byte> data, std::size_t length);
  void attr_data(std::uint64_t position, std::uint64_t value);
  void fd_attr(std::uint64_t position, runtime::UniqueFd fd, std::uint32_t fd_flags);
  /// A descriptor number at byte `offset` of what bytes() wrote at `target` before.
  void fd_in_bytes(std::uint64_t target, std::uint32_t offset, runtime::UniqueFd fd,
                   std::uint32_t fd_flags);
  /// Parts of the file that the process is to give back.
  void unused_pages(std::uint64_t inode, std::span<const FileRange> ranges);
  /// Asks for a shared range; the request will be repeated. Discards items.
  void share(const ShareRange& range);
  /// Appends plain bytes (replies that are not made of items).
  void raw(std::span<const std::byte> data);
  void attach(runtime::UniqueFd fd) { fds_.push_back(std::move(fd)); }
  /// An error occurred: nothing of the body is sent.
  void clear();

  ReplyStatus status() const { return status_; }
  std::uint32_t count() const { return count_; }
  std::span<const std::byte> body() const { return body_; }
  const std::vector<runtime::UniqueFd>& fds() const { return fds_; }

 private:
  void item(ItemKind kind, std::uint64_t target, std::uint32_t value, std::uint32_t length,
            std::uint32_t fd_flags);

  ReplyStatus status_ = ReplyStatus::done;
  std::uint32_t count_ = 0;
  std::vector<std::byte> body_;
  std::vector<runtime::UniqueFd> fds_;
};

}  // namespace softhca::shim
