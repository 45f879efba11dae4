// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/context.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "hw-model/prm/uar.h"
#include "provider/abi/commands.h"
#include "provider/ioctl_command.h"

namespace softhca::provider {
namespace {

/// QPs outside thread domains that get a doorbell page of their own before the rest share one.
constexpr std::size_t kDedicatedUars = 4;
/// Two bits of mlx5_ib_alloc_ucontext_resp::cmds_supp_uhw: here, query-device takes driver data.
constexpr std::uint8_t kQueryDeviceUdata = 1U << 0;

/// Members of Context after `verbs`, which libibverbs does not know: constructed in the memory it
/// gave.
void construct(Context& context) {
  new (&context.limits) DeviceLimits;
  new (&context.hints) Hints;
  new (&context.resources) ResourceTable;
  new (&context.records) DoorbellRecords;
  new (&context.shared_uar) std::unique_ptr<Uar>;
  new (&context.uar_mutex) std::mutex;
  new (&context.dedicated_uars) std::vector<std::unique_ptr<Uar>>;
  context.core_clock = nullptr;
}

void destroy(Context& context) {
  if (context.core_clock != nullptr) munmap(context.core_clock, prm::kUarPageSize);
  std::destroy_at(&context.dedicated_uars);
  std::destroy_at(&context.uar_mutex);
  std::destroy_at(&context.shared_uar);
  std::destroy_at(&context.records);
  std::destroy_at(&context.resources);
  std::destroy_at(&context.hints);
}

/// Runs GET_CONTEXT, first with firmware commands for user space, then without.
int get_context(Context& context, mlx5_ib_alloc_ucontext_resp& answer) {
  int error = 0;
  for (const std::uint32_t flags : {std::uint32_t{MLX5_IB_ALLOC_UCTX_DEVX}, std::uint32_t{0}}) {
    abi::GetContext command;
    abi::GetContextResponse response;
    // No static doorbell pages are used; the kernel still checks these numbers.
    command.driver.total_num_bfregs = 16;
    command.driver.num_low_latency_bfregs = 4;
    command.driver.flags = flags;
    command.driver.max_cqe_version = 1;
    command.driver.lib_caps = MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR;
    error = abi::ibv_cmd_get_context(&context.verbs, &command, sizeof(command), &response,
                                     sizeof(response));
    answer = response.driver;
    if (error == 0) break;
  }
  return error;
}

/// What GET_CONTEXT answered when another process opened the context that is imported here.
int query_context(Context& context, mlx5_ib_alloc_ucontext_resp& answer) {
  IoctlCommand<3> command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
  std::uint32_t vectors = 0;
  std::uint64_t core_support = 0;
  command.out(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, vectors);
  command.out(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, core_support);
  command.out(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, answer);
  if (const int error = command.run(context.command_fd()); error != 0) return error;
  ibv_context& base = context.verbs.context;
  base.num_comp_vectors = static_cast<int>(vectors);
  reinterpret_cast<abi::verbs_device*>(base.device)->core_support = core_support;
  return 0;
}

void take_limits(DeviceLimits& limits, const mlx5_ib_alloc_ucontext_resp& answer) {
  limits.blue_flame_half = answer.bf_reg_size / 2;
  limits.max_sq_descriptor = answer.max_sq_desc_sz;
  limits.max_rq_descriptor = answer.max_rq_desc_sz;
  limits.max_send_blocks = answer.max_send_wqebb;
  limits.max_recv_wr = answer.max_recv_wr;
  limits.max_srq_recv_wr = answer.max_srq_recv_wr;
  limits.num_ports = answer.num_ports;
  limits.query_device_udata = (answer.cmds_supp_uhw & kQueryDeviceUdata) != 0;
  limits.has_core_clock =
      (answer.comp_mask & MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET) != 0;
  limits.core_clock_offset = answer.hca_core_clock_offset;
}

/// Maps the device's free-running clock for ibv_query_rt_values_ex(); absence is tolerated.
void map_core_clock(Context& context) {
  if (!context.limits.has_core_clock) return;
  constexpr unsigned kCommandShift = 8;
  const off_t offset = static_cast<off_t>(MLX5_IB_MMAP_CORE_CLOCK << kCommandShift) *
                       static_cast<off_t>(prm::kUarPageSize);
  void* page =
      mmap(nullptr, prm::kUarPageSize, PROT_READ, MAP_SHARED, context.command_fd(), offset);
  if (page != MAP_FAILED) context.core_clock = page;
}

void trace_open(const ibv_device* device) {
  const char* wanted = std::getenv("SOFTHCA_PROVIDER_TRACE");
  if (wanted != nullptr && wanted[0] == '1') {
    std::fprintf(stderr, "softhca provider bound to %s\n", device->name);
  }
}

/// What follows GET_CONTEXT; 0 or an errno.
int set_up(Context& context, const mlx5_ib_alloc_ucontext_resp& answer) {
  if (answer.cqe_version != 1) {
    std::fprintf(stderr, "softhca provider: device reports CQE version %u, needed is 1\n",
                 answer.cqe_version);
    return EOPNOTSUPP;
  }
  take_limits(context.limits, answer);
  context.shared_uar = Uar::create(context.command_fd(), Uar::Kind::uncached, 0);
  if (context.shared_uar == nullptr) {
    const int error = errno;
    std::fprintf(
        stderr,
        "softhca provider: kernel gives no doorbell page (needs dynamic UARs, Linux 5.9)\n");
    return error;
  }
  // Eight-byte stores to an uncached page need no order among each other.
  context.shared_uar->lock.set_needed(false);
  context.hints.open(context.command_fd());
  map_core_clock(context);
  abi::verbs_set_ops(&context.verbs, &kContextOps);
  return 0;
}

}  // namespace

Uar* Context::acquire_uar() {
  const std::lock_guard guard(uar_mutex);
  if (limits.blue_flame_half == 0 || hints.active()) return shared_uar.get();
  for (const std::unique_ptr<Uar>& uar : dedicated_uars) {
    if (uar->users == 0) {
      ++uar->users;
      return uar.get();
    }
  }
  if (dedicated_uars.size() < kDedicatedUars) {
    std::unique_ptr<Uar> fresh =
        Uar::create(command_fd(), Uar::Kind::write_combining, limits.blue_flame_half);
    if (fresh != nullptr) {
      fresh->users = 1;
      dedicated_uars.push_back(std::move(fresh));
      return dedicated_uars.back().get();
    }
  }
  return shared_uar.get();
}

void Context::release_uar(Uar* uar) {
  const std::lock_guard guard(uar_mutex);
  if (uar != nullptr && uar != shared_uar.get()) --uar->users;
}

namespace {

/// Makes a context around `command_fd` with the kernel's description that `describe` gets. Null
/// with errno.
template <typename Describe>
verbs_context* make_context(ibv_device* device, int command_fd, Describe describe) {
  // The library allocates and zeroes the memory; on failure it has closed the descriptor.
  auto* context = static_cast<Context*>(abi::_verbs_init_and_alloc_context(
      device, command_fd, sizeof(Context), nullptr, RDMA_DRIVER_MLX5));
  if (context == nullptr) return nullptr;
  construct(*context);
  mlx5_ib_alloc_ucontext_resp answer{};
  int error = describe(*context, answer);
  if (error == 0) error = set_up(*context, answer);
  if (error != 0) {
    destroy(*context);
    abi::verbs_uninit_context(&context->verbs);
    std::free(context);
    errno = error;
    return nullptr;
  }
  trace_open(device);
  return &context->verbs;
}

}  // namespace

verbs_context* open_context(ibv_device* device, int command_fd, void* private_data) {
  return make_context(device, command_fd,
                      [&](Context& context, mlx5_ib_alloc_ucontext_resp& answer) {
                        // Attributes of mlx5dv_open_device() are for another provider.
                        return private_data != nullptr ? EINVAL : get_context(context, answer);
                      });
}

verbs_context* import_context(ibv_device* device, int command_fd) {
  return make_context(device, command_fd, query_context);
}

void free_context(ibv_context* base) {
  Context* context = Context::of(base);
  destroy(*context);
  abi::verbs_uninit_context(&context->verbs);
  std::free(context);
}

}  // namespace softhca::provider
