// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// UAR objects (mlx5_ib's MLX5_IB_OBJECT_UAR), their mapping, and the doorbell hints.
#include <fcntl.h>
#include <rdma/mlx5-abi.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/mman.h>

#include "hw-model/device/function.h"
#include "hw-model/prm/uar.h"
#include "kernel-shim/host/device/number_commands.h"
#include "kernel-shim/host/uverbs/doorbell_hints_method.h"
#include "kernel-shim/host/uverbs/method.h"
#include "kernel-shim/host/uverbs/mmap.h"

namespace softhca::shim {
namespace {

constexpr std::uint64_t kPage = prm::kUarPageSize;
/// Largest handle of a UAR, which is also its extended index of command 9 and has 16 bits there.
constexpr std::uint32_t kLastHandle = 0xffff;
constexpr std::uint64_t kCoreClockCommand = MLX5_IB_MMAP_CORE_CLOCK;
constexpr std::uint64_t kClockInfoCommand = MLX5_IB_MMAP_CLOCK_INFO;

int alloc_uar(Context& context, Call& call) {
  std::uint64_t type = 0;
  if (const int error = call.read(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, type)) return error;
  if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC) {
    return EOPNOTSUPP;
  }
  if (context.uars.size() >= kLastHandle) return ENOMEM;
  auto uar = std::make_unique<Uar>();
  if (const int error = allocate_number(context.commands(), kUarResource, uar->index)) return error;
  Uar& made = context.uars.insert(context.uars.new_handle(kLastHandle), std::move(uar));
  made.mmap_key = uar_mmap_offset(made.handle);
  call.write_handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, made.handle);
  call.write_attribute(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, made.mmap_key);
  call.write_attribute(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, static_cast<std::uint32_t>(kPage));
  call.write_attribute(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, made.index);
  return 0;
}

int destroy_uar(Context& context, Call& call) {
  Uar* const uar = context.uars.find(call.find(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE)->data);
  if (uar == nullptr) return ENOENT;
  if (const int error = context.release(*uar)) return error;
  context.uars.erase(uar->handle);
  return 0;
}

int hand_out(const MappableArea& area, MmapReply& reply, runtime::UniqueFd& fd) {
  if (area.fd < 0) return EOPNOTSUPP;
  fd.reset(::fcntl(area.fd, F_DUPFD_CLOEXEC, 0));
  if (!fd) return errno;
  reply.file_offset = area.offset;
  return 0;
}

/// mlx5_ib_mmap_clock_info_page.
int map_clock_info(Context& context, const MmapBody& request, MmapReply& reply,
                   runtime::UniqueFd& fd) {
  if ((request.flags & MAP_TYPE) == MAP_PRIVATE) return EINVAL;
  if (mmap_index(request.offset) != MLX5_IB_CLOCK_INFO_V1) return EOPNOTSUPP;
  if ((request.prot & PROT_WRITE) != 0) return EPERM;
  return hand_out({context.device().clock_info_fd(), 0, kPage}, reply, fd);
}

int map_mkey_states(Context& context, const MmapBody& request, MmapReply& reply,
                    runtime::UniqueFd& fd) {
  if (request.length != kPage) return EINVAL;
  // Without hints nobody tells the device of changes.
  if (context.hca().device().hints_area().fd < 0) return EOPNOTSUPP;
  MkeyStateMemory& memory = context.mkey_states;
  // Whoever asks anew does not know which records keys follow.
  if (memory) return EBUSY;
  if (const int error = memory.make(context.hca().device(), context.hca().iovas())) return error;
  return hand_out({memory.fd(), 0, kPage}, reply, fd);
}

const AttrSpec kAllocAttributes[] = {
    attr_new_handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE),
    attr_const(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, kMandatory),
    attr_out<std::uint64_t>(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, kMandatory),
    attr_out<std::uint32_t>(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, kMandatory),
    attr_out<std::uint32_t>(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, kMandatory),
};
const AttrSpec kUarDestroyAttributes[] = {
    attr_handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, kMandatory),
};

const Method kUarMethodTable[] = {
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, kAllocAttributes, false, Needs::context,
     alloc_uar},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, kUarDestroyAttributes, false,
     Needs::context, destroy_uar},
};

}  // namespace

int Context::release(Uar& uar) {
  return unless_gone(release_number(commands(), kUarResource, uar.index));
}

int get_doorbell_hints(Context& context, Call& call) {
  PciDevice& device = context.hca().device();
  const MappableArea area = device.hints_area();
  if (area.fd < 0 || device.wake_fd() < 0) return EOPNOTSUPP;
  runtime::UniqueFd wake(::fcntl(device.wake_fd(), F_DUPFD_CLOEXEC, 0));
  if (!wake) return errno;
  call.write_attribute(kAttrHintsOffset, kHintsMmapOffset);
  call.write_attribute(kAttrHintsLength, area.length);
  call.reply.fd_attr(call.find(kAttrHintsWakeFd)->position, std::move(wake), O_CLOEXEC);
  return 0;
}

int serve_mmap(Context& context, const MmapBody& request, MmapReply& reply, runtime::UniqueFd& fd) {
  if (!context.opened) return EINVAL;
  PciDevice& device = context.hca().device();
  if (request.offset == kHintsMmapOffset) {
    const MappableArea area = device.hints_area();
    if (area.fd < 0 || request.length > area.length) return EINVAL;
    return hand_out(area, reply, fd);
  }
  if (request.offset == kMkeyStatesMmapOffset) return map_mkey_states(context, request, reply, fd);
  if (request.length != kPage || (request.prot & PROT_EXEC) != 0) return EINVAL;
  const std::uint64_t command = mmap_command(request.offset);
  if (command == kClockInfoCommand) return map_clock_info(context, request, reply, fd);
  if (command == kCoreClockCommand) {
    if ((request.prot & PROT_WRITE) != 0) return EPERM;
    return hand_out(device.bar_area(Function::kTimerPage, kPage), reply, fd);
  }
  for (const auto& [handle, uar] : context.uars) {
    if (uar->mmap_key != request.offset) continue;
    return hand_out(device.bar_area(uar->index * kPage, kPage), reply, fd);
  }
  return EINVAL;
}

const std::span<const Method> kUarMethods = kUarMethodTable;

}  // namespace softhca::shim
