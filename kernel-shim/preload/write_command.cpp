// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// Commands by write(2) (include/uapi/rdma/ib_user_verbs.h), as libraries before rdma-core 22 send
/// them, and mmap(2) of what the device offers.

#include <cerrno>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/commands.h"
#include "kernel-shim/preload/errno_guard.h"
#include "kernel-shim/preload/memory_probe.h"
#include "kernel-shim/preload/next.h"
#include "kernel-shim/preload/region_commands.h"
#include "kernel-shim/preload/registration.h"
#include "kernel-shim/preload/reply_items.h"
#include "kernel-shim/preload/transaction.h"
#include "kernel-shim/protocol/descriptors.h"

namespace softhca::shim::preload {
namespace {

constexpr std::uint32_t kExtended = 0x80000000U;
constexpr std::size_t kHeader = 8;           // ib_uverbs_cmd_hdr
constexpr std::size_t kExtendedHeader = 24;  // and ib_uverbs_ex_cmd_hdr

/// Adds the descriptor that the command's structure names, if it has one. 0 or errno.
int add_descriptor(const unsigned char* data, std::size_t length, Request& request) {
  std::uint32_t command = 0;
  if (length < kHeader) return EINVAL;
  if (!copy_from(&command, data, sizeof(command))) return EFAULT;
  const std::int32_t in_core = fd_offset_in_core(command);
  if (in_core < 0) return 0;
  const std::size_t offset =
      ((command & kExtended) != 0 ? kExtendedHeader : kHeader) + static_cast<std::size_t>(in_core);
  int fd = -1;
  if (length < offset + sizeof(fd)) return EINVAL;
  if (!copy_from(&fd, data + offset, sizeof(fd))) return EFAULT;
  return fd < 0 ? 0 : request.add_callers_fd(fd);
}

RegionCommand find_region_command(const unsigned char* data, std::size_t length) {
  /// ib_uverbs_cmd_hdr.
  struct {
    std::uint32_t command;
    std::uint16_t in_words;
    std::uint16_t out_words;
  } header;
  if (length < kHeader || !copy_from(&header, data, sizeof(header))) return {};
  RegionCommand command =
      region_command(header.command, [=](std::size_t offset, void* to, std::size_t size) {
        return length >= kHeader + offset + size && copy_from(to, data + kHeader + offset, size);
      });
  if (command.kind == RegionCommand::Kind::registration && header.in_words * 4U == length &&
      header.out_words * 4U >= sizeof(RegistrationAnswer)) {
    command.answer_item.target = command.registration.response;
    command.answer_item.length = sizeof(RegistrationAnswer);
    command.answer_at = reinterpret_cast<const void*>(command.registration.response);
  }
  return command;
}

/// Outputs go to addresses that the caller gave inside the command.
class WriteOutputs {
 public:
  int store_bytes(const ReplyItem& item, const void* data) {
    void* place = reinterpret_cast<void*>(item.target);
    return copy_to(place, data, item.length) ? 0 : EFAULT;
  }
  int store_attribute(const ReplyItem&, std::uint64_t) { return EIO; }
  int store_fd_in_bytes(const ReplyItem& item, std::uint32_t fd) {
    void* place = reinterpret_cast<void*>(item.target + item.value);
    return copy_to(place, &fd, sizeof(fd)) ? 0 : EFAULT;
  }
};

}  // namespace

ssize_t command_write(int fd, const void* data, std::size_t length) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  const RegionCommand command = find_region_command(bytes, length);
  WriteOutputs outputs;
  int error = 0;
  if (do_without_daemon(fd, command, outputs, error)) {
    return error == 0 ? static_cast<ssize_t>(length) : fail(error);
  }
  Request request(RequestType::write);
  if (!request.add(data, length)) return fail(EMSGSIZE);
  error = add_descriptor(bytes, length, request);
  if (error != 0) return fail(error);
  error = do_by_daemon(fd, command, request, outputs);
  return error == 0 ? static_cast<ssize_t>(length) : fail(error);
}

void* command_mmap(int fd, void* address, std::size_t length, int protection, int flags,
                   off_t offset) {
  MmapBody body{};
  body.offset = static_cast<std::uint64_t>(offset);
  body.length = length;
  body.prot = static_cast<std::uint32_t>(protection);
  body.flags = static_cast<std::uint32_t>(flags);
  Request request(RequestType::mmap);
  request.add(&body, sizeof(body));
  Reply reply;
  int error = transact(fd, request, reply);
  if (error == 0) error = reply.error();
  MmapReply answer{};
  const int file = error == 0 ? reply.take_fd() : -1;
  if (error == 0 && (file < 0 || !reply.read(0, &answer, sizeof(answer)))) error = EIO;
  void* mapped = MAP_FAILED;
  if (error == 0) {
    mapped = next::mmap(address, length, protection, flags, file,
                        static_cast<off_t>(answer.file_offset));
    if (mapped == MAP_FAILED) error = errno;
  }
  if (file >= 0) ::syscall(SYS_close, file);
  if (error != 0) errno = error;
  return mapped;
}

}  // namespace softhca::shim::preload
