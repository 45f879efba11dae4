// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "kernel-shim/host/memory/call_memory.h"
#include "kernel-shim/host/memory/client_memory.h"
#include "kernel-shim/host/uverbs/reply.h"

namespace softhca::shim {

/// Where a command's output goes: an attribute of the ioctl or an address.
struct Sink {
  std::uint64_t target = 0;
  std::size_t length = 0;  ///< Room that the caller gave; 0: it wants nothing.
};

/// One attribute of an ioctl, with what it points to.
struct IoctlAttribute {
  std::uint16_t id = 0;
  std::uint16_t length = 0;
  std::uint16_t flags = 0;
  std::uint16_t enum_data = 0;
  std::uint64_t data = 0;
  std::uint32_t position = 0;
  std::span<const std::byte> payload;  ///< `length` bytes if length > 8.
  int fd = -1;                         ///< For descriptor inputs, borrowed from the request.

  std::span<const std::byte> input() const {
    if (length > sizeof(data)) return payload;
    return std::as_bytes(std::span(&data, 1)).first(length);
  }
};

/// Whether the queue memory that a command names has been made shared (protocol.h, kFlagShared).
enum class Sharing : std::uint8_t {
  not_asked,
  shared,
  partly,  ///< What Call::shared does not have cannot be.
  refused,
};

/// One command of an application while it is served: inputs as the kernel would have copied them,
/// and the answer. A write-style command sees `core` and `udata`, whichever of the three ways it
/// came; an ioctl method sees its attributes, and `udata`.
class Call {
 public:
  std::span<const std::byte> core;
  Sink core_out;
  std::span<const std::byte> udata;
  Sink udata_out;
  int core_fd = -1;  ///< Descriptor that the core structure names (descriptors.h), borrowed.
  std::vector<IoctlAttribute> attributes;
  Sharing sharing = Sharing::not_asked;
  CallMemory shared;             ///< With Sharing::shared and partly.
  std::uint32_t mkey_state = 0;  ///< RequestHeader::mkey_state.
  /// The calling process's memory, if it is not the one that opened the context.
  std::optional<ClientMemory> own_memory;
  Reply reply;

  /// Copies the core structure: what is missing is zero, more than known must be zero (EOPNOTSUPP),
  /// as uverbs_request does.
  template <typename T>
  int read_core(T& to) const {
    return read_zero_extended(core, to) ? 0 : EOPNOTSUPP;
  }
  /// As much of the driver's part as was given; the rest is zero. What lies beyond `to` is not
  /// looked at.
  template <typename T>
  void read_udata(T& to) const {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memset(static_cast<void*>(&to), 0, sizeof(T));
    std::memcpy(static_cast<void*>(&to), udata.data(), std::min(sizeof(T), udata.size()));
  }
  /// True if the driver's part is zero from `offset` on (ib_is_udata_cleared).
  bool udata_cleared(std::size_t offset) const {
    return offset >= udata.size() || all_zero(udata.subspan(offset));
  }

  /// uverbs_response: truncates or fills with zeroes.
  template <typename T>
  void write_core(const T& from) {
    write(core_out, from, core_out.length);
  }
  /// ib_copy_to_udata: at most what the caller has room for.
  template <typename T>
  void write_udata(const T& from, std::size_t length = sizeof(T)) {
    write(udata_out, from, std::min(length, udata_out.length));
  }

  const IoctlAttribute* find(std::uint16_t id) const {
    for (const IoctlAttribute& attribute : attributes) {
      if (attribute.id == id) return &attribute;
    }
    return nullptr;
  }
  /// uverbs_copy_from; ENOENT if absent. Lengths were checked against the method's table.
  template <typename T>
  int read(std::uint16_t id, T& to) const {
    const IoctlAttribute* const attribute = find(id);
    if (attribute == nullptr) return ENOENT;
    return read_zero_extended(attribute->input(), to) ? 0 : EINVAL;
  }
  /// uverbs_get_const: a 64-bit inline number; EINVAL above `most`, the largest value of its type.
  int read_const(std::uint16_t id, std::uint64_t most, std::uint64_t& to) const {
    if (const int error = read(id, to)) return error;
    return to <= most ? 0 : EINVAL;
  }
  /// uverbs_get_flags32/64: 4 or 8 bytes; bits outside `allowed` are EINVAL; absent is 0.
  int read_flags(std::uint16_t id, std::uint64_t allowed, std::uint64_t& to) const;
  /// uverbs_copy_to; nothing if the attribute is absent (optional outputs).
  template <typename T>
  void write_attribute(std::uint16_t id, const T& from) {
    if (const IoctlAttribute* const attribute = find(id)) {
      write(Sink{attribute->position, attribute->length}, from,
            std::min<std::size_t>(sizeof(T), attribute->length));
    }
  }
  /// uverbs_copy_to_struct_or_zero: the whole attribute.
  template <typename T>
  void write_attribute_padded(std::uint16_t id, const T& from) {
    if (const IoctlAttribute* const attribute = find(id)) {
      write(Sink{attribute->position, attribute->length}, from, attribute->length);
    }
  }
  void write_attribute_bytes(std::uint16_t id, std::span<const std::byte> from) {
    if (const IoctlAttribute* const attribute = find(id)) {
      reply.bytes(attribute->position, from, std::min<std::size_t>(from.size(), attribute->length));
    }
  }
  /// Tells the caller the handle of the object it made.
  void write_handle(std::uint16_t id, std::uint32_t handle) {
    if (const IoctlAttribute* const attribute = find(id)) {
      reply.attr_data(attribute->position, handle);
    }
  }

 private:
  static bool all_zero(std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  }
  template <typename T>
  static bool read_zero_extended(std::span<const std::byte> from, T& to) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memset(static_cast<void*>(&to), 0, sizeof(T));
    const std::size_t common = std::min(sizeof(T), from.size());
    std::memcpy(static_cast<void*>(&to), from.data(), common);
    return all_zero(from.subspan(common));
  }
  template <typename T>
  void write(const Sink& sink, const T& from, std::size_t length) {
    static_assert(std::is_trivially_copyable_v<T>);
    reply.bytes(sink.target, std::as_bytes(std::span(&from, 1)), length);
  }
};

}  // namespace softhca::shim
