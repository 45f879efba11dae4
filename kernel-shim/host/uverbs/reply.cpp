// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/uverbs/reply.h"

#include <algorithm>

#include "kernel-shim/host/uverbs/wire_items.h"

namespace softhca::shim {

void Reply::item(ItemKind kind, std::uint64_t target, std::uint32_t value, std::uint32_t length,
                 std::uint32_t fd_flags) {
  ReplyItem head;
  head.kind = kind;
  head.value = value;
  head.target = target;
  head.length = length;
  head.fd_flags = fd_flags;
  raw(std::as_bytes(std::span(&head, 1)));
  ++count_;
}

void Reply::bytes(std::uint64_t target, std::span<const std::byte> data, std::size_t length) {
  if (length == 0) return;
  item(ItemKind::bytes, target, 0, static_cast<std::uint32_t>(length), 0);
  const std::size_t start = body_.size();
  body_.resize(start + padded(length));
  std::copy_n(data.begin(), std::min(data.size(), length),
              body_.begin() + static_cast<std::ptrdiff_t>(start));
}

void Reply::attr_data(std::uint64_t position, std::uint64_t value) {
  item(ItemKind::attr_data, position, 0, sizeof(value), 0);
  raw(std::as_bytes(std::span(&value, 1)));
}

void Reply::fd_attr(std::uint64_t position, runtime::UniqueFd fd, std::uint32_t fd_flags) {
  item(ItemKind::fd_attr, position, 0, 0, fd_flags);
  attach(std::move(fd));
}

void Reply::fd_in_bytes(std::uint64_t target, std::uint32_t offset, runtime::UniqueFd fd,
                        std::uint32_t fd_flags) {
  item(ItemKind::fd_in_bytes, target, offset, 0, fd_flags);
  attach(std::move(fd));
}

void Reply::unused_pages(std::uint64_t inode, std::span<const FileRange> ranges) {
  const auto data = std::as_bytes(ranges);
  item(ItemKind::unused_pages, inode, 0, static_cast<std::uint32_t>(data.size()), 0);
  raw(data);
}

void Reply::share(const ShareRange& range) {
  if (status_ != ReplyStatus::share) {
    clear();
    status_ = ReplyStatus::share;
  }
  raw(std::as_bytes(std::span(&range, 1)));
  ++count_;
}

void Reply::raw(std::span<const std::byte> data) {
  body_.insert(body_.end(), data.begin(), data.end());
}

void Reply::clear() {
  status_ = ReplyStatus::done;
  count_ = 0;
  body_.clear();
  fds_.clear();
}

}  // namespace softhca::shim
