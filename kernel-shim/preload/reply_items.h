// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/exchange.h"
#include "kernel-shim/preload/shared_memory.h"

namespace softhca::shim::preload {

/// The next descriptor of a reply, with the flags that the kernel would give it; -1: none came.
inline int install_fd(Reply& reply, std::uint32_t flags) {
  const int fd = reply.take_fd();
  if (fd >= 0 && (flags & O_CLOEXEC) == 0) ::fcntl(fd, F_SETFD, 0);
  return fd;
}

/// Hands one item to `target`, whose functions return 0 or an errno:
/// store_bytes(item, data), store_attribute(item, value), store_fd_in_bytes(item, fd).
template <typename Target>
int apply_item(Reply& reply, Target& target, const ReplyItem& item, const unsigned char* data) {
  if (item.kind == ItemKind::bytes) return target.store_bytes(item, data);
  if (item.kind == ItemKind::attr_data) {
    std::uint64_t value = 0;
    if (item.length < sizeof(value)) return EIO;
    std::memcpy(&value, data, sizeof(value));
    return target.store_attribute(item, value);
  }
  if (item.kind == ItemKind::unused_pages) {
    give_back_pages(item.target, data, item.length / sizeof(FileRange));
    return 0;
  }
  if (item.kind != ItemKind::fd_attr && item.kind != ItemKind::fd_in_bytes) return EIO;
  const int fd = install_fd(reply, item.fd_flags);
  if (fd < 0) return EIO;
  const int error = item.kind == ItemKind::fd_attr
                        ? target.store_attribute(item, static_cast<std::uint64_t>(fd))
                        : target.store_fd_in_bytes(item, static_cast<std::uint32_t>(fd));
  if (error != 0) ::syscall(SYS_close, fd);
  return error;
}

/// All items of a reply, in order. 0 or the first errno.
template <typename Target>
int apply_items(Reply& reply, Target& target) {
  std::size_t offset = 0;
  for (std::uint32_t i = 0; i < reply.items(); ++i) {
    ReplyItem item;
    if (!reply.read(offset, &item, sizeof(item))) return EIO;
    offset += sizeof(item);
    const std::size_t padded = (std::size_t{item.length} + 7) / 8 * 8;
    if (padded > reply.body_length() - offset) return EIO;
    const int error = apply_item(reply, target, item, reply.body() + offset);
    if (error != 0) return error;
    offset += padded;
  }
  return 0;
}

}  // namespace softhca::shim::preload
