// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// RDMA_VERBS_IOCTL (include/uapi/rdma/rdma_user_ioctl_cmds.h): header, attributes and what they
/// point to go to the daemon; outputs come back and are stored where the attributes say.

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/commands.h"
#include "kernel-shim/preload/errno_guard.h"
#include "kernel-shim/preload/ioctl_layout.h"
#include "kernel-shim/preload/memory_probe.h"
#include "kernel-shim/preload/region_commands.h"
#include "kernel-shim/preload/registration.h"
#include "kernel-shim/preload/reply_items.h"
#include "kernel-shim/preload/transaction.h"
#include "kernel-shim/protocol/descriptors.h"

namespace softhca::shim::preload {
namespace {

using Header = IoctlHeader;
using Attribute = IoctlAttribute;

/// The largest method of the kernel takes fewer than 32.
constexpr unsigned kMaxAttributes = 72;
static_assert(2 * kMaxAttributes + 8 <= Request::kMaxPieces);

constexpr std::uint16_t kInvokeWriteObject = 0;
constexpr std::uint16_t kInvokeWriteMethod = 0;
constexpr std::uint16_t kCoreIn = 0;
constexpr std::uint16_t kCoreOut = 1;
constexpr std::uint16_t kWriteCommand = 2;

struct Call {
  struct {
    Header header;
    Attribute attributes[kMaxAttributes];
  } copy;
  Attribute* user;  // The caller's attributes.

  unsigned count() const { return copy.header.num_attrs; }
  const Attribute* begin() const { return copy.attributes; }
  const Attribute* end() const { return copy.attributes + count(); }
};

/// Reads the caller's structure once. 0 or errno.
int read_call(const void* argument, Call& call) {
  Header& header = call.copy.header;
  if (!copy_from(&header, argument, sizeof(header))) return EFAULT;
  if (header.length != sizeof(Header) + header.num_attrs * sizeof(Attribute)) return EINVAL;
  if (header.reserved1 != 0 || header.reserved2 != 0) return EPROTONOSUPPORT;
  if (header.num_attrs > kMaxAttributes) return EINVAL;
  call.user = reinterpret_cast<Attribute*>(
      const_cast<unsigned char*>(static_cast<const unsigned char*>(argument)) + sizeof(Header));
  const std::size_t length = header.num_attrs * sizeof(Attribute);
  return copy_from(call.copy.attributes, call.user, length) ? 0 : EFAULT;
}

/// Data of an attribute of more than 8 bytes, which is a pointer.
void* pointer_of(const Attribute& attribute) {
  return reinterpret_cast<void*>(attribute.data);
}

/// A write-style command inside an ioctl.
struct WriteCommand {
  const Attribute* core = nullptr;
  std::uint32_t number = 0;

  explicit WriteCommand(const Call& call) {
    const Header& header = call.copy.header;
    if (header.object_id != kInvokeWriteObject || header.method_id != kInvokeWriteMethod) return;
    for (const Attribute& attribute : call) {
      if (attribute.attr_id == kCoreIn) core = &attribute;
      if (attribute.attr_id == kWriteCommand) number = static_cast<std::uint32_t>(attribute.data);
    }
  }
  /// True if its core structure has `length` bytes from `offset` on.
  bool holds(std::size_t offset, std::size_t length) const {
    return core != nullptr && core->len > sizeof(core->data) && core->len >= offset + length;
  }
  /// False: a bad pointer.
  bool read(std::size_t offset, void* to, std::size_t length) const {
    return copy_from(to, static_cast<const unsigned char*>(pointer_of(*core)) + offset, length);
  }
};

/// The descriptor inside the core structure of a write-style command, or -1 for "none". 0 or errno.
int descriptor_in_core(const WriteCommand& command, int& fd) {
  fd = -1;
  const std::int32_t offset = fd_offset_in_core(command.number);
  if (offset < 0 || !command.holds(static_cast<std::size_t>(offset), sizeof(fd))) return 0;
  return command.read(static_cast<std::size_t>(offset), &fd, sizeof(fd)) ? 0 : EFAULT;
}

RegionCommand find_region_command(const Call& call) {
  const Header& header = call.copy.header;
  const WriteCommand write_command(call);
  if (write_command.core == nullptr) {
    const std::uint64_t handle = header.num_attrs != 0 ? call.begin()->data : 0;
    return region_method(header.object_id, header.method_id, handle);
  }
  RegionCommand command =
      region_command(write_command.number, [&](std::size_t offset, void* to, std::size_t length) {
        return write_command.holds(offset, length) && write_command.read(offset, to, length);
      });
  if (command.kind != RegionCommand::Kind::registration) return command;
  for (const Attribute& attribute : call) {
    if (attribute.attr_id != kCoreOut || attribute.len < sizeof(RegistrationAnswer)) continue;
    command.answer_item.target = static_cast<std::uint64_t>(&attribute - call.begin());
    command.answer_item.length = sizeof(RegistrationAnswer);
    command.answer_at = pointer_of(attribute);
  }
  return command;
}

/// 0 or errno.
int add_descriptors(const Call& call, Request& request) {
  const Header& header = call.copy.header;
  for (const Attribute& attribute : call) {
    if (!is_fd_attribute(header.object_id, header.method_id, attribute.attr_id)) continue;
    const int error = request.add_callers_fd(static_cast<int>(attribute.data));
    if (error != 0) return error;
  }
  const WriteCommand command(call);
  int fd = -1;
  if (const int error = descriptor_in_core(command, fd)) return error;
  return fd < 0 ? 0 : request.add_callers_fd(fd);
}

/// 0 or errno.
int build(const Call& call, const IoctlBody& body, Request& request) {
  if (!request.add(&body, sizeof(body)) ||
      !request.add(&call.copy, sizeof(Header) + call.count() * sizeof(Attribute))) {
    return EINVAL;
  }
  for (const Attribute& attribute : call) {
    if (attribute.len <= sizeof(attribute.data)) continue;
    if (!request.add(pointer_of(attribute), attribute.len) || !request.pad()) return EMSGSIZE;
  }
  return add_descriptors(call, request);
}

/// Stores what the reply brings. 0 or errno.
class IoctlOutputs {
 public:
  explicit IoctlOutputs(const Call& call) : call_(call) {}

  int store_bytes(const ReplyItem& item, const void* data) {
    if (item.target >= call_.count()) return EIO;
    const Attribute& attribute = call_.copy.attributes[item.target];
    const std::size_t length = item.length < attribute.len ? item.length : attribute.len;
    if (!copy_to(pointer_of(attribute), data, length)) return EFAULT;
    const std::uint16_t flags = attribute.flags | kValidOutput;
    return copy_to(&call_.user[item.target].flags, &flags, sizeof(flags)) ? 0 : EFAULT;
  }

  int store_attribute(const ReplyItem& item, std::uint64_t value) {
    if (item.target >= call_.count()) return EIO;
    return copy_to(&call_.user[item.target].data, &value, sizeof(value)) ? 0 : EFAULT;
  }

  int store_fd_in_bytes(const ReplyItem& item, std::uint32_t fd) {
    if (item.target >= call_.count()) return EIO;
    const Attribute& attribute = call_.copy.attributes[item.target];
    if (attribute.len < sizeof(fd) || item.value > attribute.len - sizeof(fd)) return EIO;
    void* place = static_cast<unsigned char*>(pointer_of(attribute)) + item.value;
    return copy_to(place, &fd, sizeof(fd)) ? 0 : EFAULT;
  }

 private:
  const Call& call_;
};

}  // namespace

int command_ioctl(int fd, unsigned long request_number, void* argument) {
  if (request_number != kVerbsIoctl) return fail(ENOTTY);
  Call call;
  int error = read_call(argument, call);
  if (error != 0) return fail(error);
  const RegionCommand command = find_region_command(call);
  IoctlOutputs outputs(call);
  if (do_without_daemon(fd, command, outputs, error)) return error == 0 ? 0 : fail(error);
  IoctlBody body{};
  body.command = request_number;
  Request request(RequestType::ioctl);
  error = build(call, body, request);
  if (error != 0) return fail(error);
  error = do_by_daemon(fd, command, request, outputs);
  return error == 0 ? 0 : fail(error);
}

}  // namespace softhca::shim::preload
