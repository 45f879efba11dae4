// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernel-shim/host/uverbs/call.h"
#include "kernel-shim/host/uverbs/context.h"

namespace softhca::shim {

/// Kinds of ioctl attributes that methods use (enum uverbs_attr_type).
enum class AttrKind : std::uint8_t { in, out, handle, new_handle, fd, new_fd };

/// One attribute of a method, as UVERBS_ATTR_* declare it in the kernel.
struct AttrSpec {
  std::uint16_t id;
  AttrKind kind;
  bool mandatory;
  std::uint16_t min_length = 0;
  std::uint16_t length = 0;    ///< Longest that this side knows.
  bool zero_trailing = false;  ///< Longer is allowed: inputs must be zero there.
};

inline constexpr bool kMandatory = true;
inline constexpr bool kOptional = false;

template <typename T>
constexpr AttrSpec attr_in(std::uint16_t id, bool mandatory) {
  return {id, AttrKind::in, mandatory, sizeof(T), sizeof(T), false};
}
/// UVERBS_ATTR_CONST_IN: an inline 64-bit number.
constexpr AttrSpec attr_const(std::uint16_t id, bool mandatory) {
  return {id, AttrKind::in, mandatory, 8, 8, false};
}
/// UVERBS_ATTR_FLAGS_IN: 32 or 64 bits, never mandatory.
constexpr AttrSpec attr_flags(std::uint16_t id) {
  return {id, AttrKind::in, false, 4, 8, false};
}
/// Anything from `min` bytes on.
constexpr AttrSpec attr_in_buffer(std::uint16_t id, bool mandatory, std::uint16_t min) {
  return {id, AttrKind::in, mandatory, min, 0xffff, false};
}
template <typename T>
constexpr AttrSpec attr_in_struct(std::uint16_t id, bool mandatory, std::uint16_t min = sizeof(T)) {
  return {id, AttrKind::in, mandatory, min, sizeof(T), true};
}
template <typename T>
constexpr AttrSpec attr_out(std::uint16_t id, bool mandatory) {
  return {id, AttrKind::out, mandatory, sizeof(T), sizeof(T), false};
}
template <typename T>
constexpr AttrSpec attr_out_struct(std::uint16_t id, bool mandatory,
                                   std::uint16_t min = sizeof(T)) {
  return {id, AttrKind::out, mandatory, min, sizeof(T), true};
}
constexpr AttrSpec attr_out_buffer(std::uint16_t id, bool mandatory, std::uint16_t min) {
  return {id, AttrKind::out, mandatory, min, 0xffff, false};
}
constexpr AttrSpec attr_handle(std::uint16_t id, bool mandatory) {
  return {id, AttrKind::handle, mandatory};
}
constexpr AttrSpec attr_new_handle(std::uint16_t id) {
  return {id, AttrKind::new_handle, true};
}
constexpr AttrSpec attr_fd(std::uint16_t id, bool mandatory) {
  return {id, AttrKind::fd, mandatory};
}
constexpr AttrSpec attr_new_fd(std::uint16_t id) {
  return {id, AttrKind::new_fd, true};
}

using Handler = int (*)(Context& context, Call& call);

/// Whether a command may come before GET_CONTEXT.
enum class Needs : std::uint8_t { context, nothing };

/// An ioctl method. The table is searched by object and method.
struct Method {
  std::uint16_t object;
  std::uint16_t method;
  std::span<const AttrSpec> attributes;
  bool has_udata;
  Needs needs;
  Handler handler;
};

/// A write-style command: number (with IB_USER_VERBS_CMD_FLAG_EXTENDED), bytes of core input and
/// output that are required, and for the legacy form, where the driver's part begins.
struct WriteCommand {
  std::uint32_t command;
  std::uint32_t request_size;
  std::uint32_t response_size;
  bool has_udata;
  Needs needs;
  Handler handler;
};

constexpr std::uint32_t extended(std::uint32_t command) {
  return command | IB_USER_VERBS_CMD_FLAG_EXTENDED;
}

// Rows by object; the file of that name holds them.
extern const std::span<const Method> kDeviceMethods;
extern const std::span<const WriteCommand> kDeviceCommands;
extern const std::span<const Method> kPdMethods;
extern const std::span<const WriteCommand> kPdCommands;
extern const std::span<const Method> kMrMethods;
extern const std::span<const WriteCommand> kMrCommands;
extern const std::span<const Method> kCqMethods;
extern const std::span<const WriteCommand> kCqCommands;
extern const std::span<const Method> kQpMethods;
extern const std::span<const WriteCommand> kQpCommands;
extern const std::span<const WriteCommand> kQpStateCommands;
extern const std::span<const WriteCommand> kMulticastCommands;
extern const std::span<const Method> kSrqMethods;
extern const std::span<const WriteCommand> kSrqCommands;
extern const std::span<const Method> kUarMethods;
extern const std::span<const Method> kXrcdMethods;
extern const std::span<const WriteCommand> kXrcdCommands;

/// For a QP that is destroyed with its context.
void leave_multicast_groups(Context& context, const Qp& qp);

/// Null: no such method or command.
const Method* find_method(std::uint16_t object, std::uint16_t method);
const WriteCommand* find_write_command(std::uint32_t command);

}  // namespace softhca::shim
