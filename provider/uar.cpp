// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/uar.h"

#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <sys/mman.h>

#include "hw-model/prm/uar.h"
#include "provider/ioctl_command.h"

namespace softhca::provider {

std::unique_ptr<Uar> Uar::create(int command_fd, Kind kind, std::uint32_t half) {
  std::unique_ptr<Uar> uar(new Uar);
  const std::uint32_t type = kind == Kind::write_combining ? MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF
                                                           : MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  IoctlCommand<5> command(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC);
  const std::size_t handle = command.out_object(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE);
  command.in(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, static_cast<std::uint64_t>(type));
  command.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, offset);
  command.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, length);
  command.out(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, uar->page_id_);
  if (const int error = command.run(command_fd); error != 0) {
    errno = error;
    return nullptr;
  }
  uar->command_fd_ = command_fd;
  uar->handle_ = static_cast<std::uint32_t>(command.value(handle));
  uar->kind_ = kind;
  uar->half_ = half;
  void* map = length < prm::kUarPageSize ? MAP_FAILED
                                         : mmap(nullptr, length, PROT_WRITE, MAP_SHARED, command_fd,
                                                static_cast<off_t>(offset));
  if (map == MAP_FAILED) return nullptr;
  uar->page_ = static_cast<std::uint8_t*>(map);
  uar->length_ = length;
  return uar;
}

std::unique_ptr<Uar> Uar::over(std::uint8_t* page, Kind kind, std::uint32_t half) {
  std::unique_ptr<Uar> uar(new Uar);
  uar->page_ = page;
  uar->kind_ = kind;
  uar->half_ = half;
  return uar;
}

Uar::~Uar() {
  if (length_ != 0) munmap(page_, length_);
  if (command_fd_ >= 0) {
    IoctlCommand<1> command(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY);
    command.in_object(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, handle_);
    // Nothing to do about a refusal: the kernel frees the page with the context.
    static_cast<void>(command.run(command_fd_));
  }
}

std::uint8_t* Uar::send_register() const {
  return page_ + prm::Uar::blue_flame + offset_;
}

}  // namespace softhca::provider
