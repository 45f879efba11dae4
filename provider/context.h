// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "provider/abi/driver.h"
#include "provider/hints.h"
#include "provider/pages.h"
#include "provider/resource_table.h"
#include "provider/uar.h"

namespace softhca::provider {

/// What the kernel said at GET_CONTEXT (struct mlx5_ib_alloc_ucontext_resp); bytes unless said.
struct DeviceLimits {
  std::uint32_t blue_flame_half = 0;
  std::uint32_t max_sq_descriptor = 0;
  std::uint32_t max_rq_descriptor = 0;
  std::uint32_t max_send_blocks = 0;  ///< 64-byte basic blocks in a send queue.
  std::uint32_t max_recv_wr = 0;
  std::uint32_t max_srq_recv_wr = 0;
  std::uint16_t num_ports = 0;
  bool query_device_udata = false;
  std::uint64_t core_clock_offset = 0;
  bool has_core_clock = false;
};

/// One opened device. `verbs` must stay first: libibverbs allocates the structure and fills it.
struct Context {
  verbs_context verbs;

  DeviceLimits limits;
  Hints hints;
  ResourceTable resources;
  DoorbellRecords records;
  /// Doorbells of CQ arms, and of QPs that have no page of their own.
  std::unique_ptr<Uar> shared_uar;
  std::mutex uar_mutex;
  std::vector<std::unique_ptr<Uar>> dedicated_uars;  ///< One QP each; guarded by uar_mutex.
  void* core_clock = nullptr;

  /// A doorbell page for a QP outside any thread domain.
  Uar* acquire_uar();
  void release_uar(Uar* uar);

  static Context* of(ibv_context* context) {
    return reinterpret_cast<Context*>(reinterpret_cast<char*>(context) -
                                      offsetof(verbs_context, context));
  }
  int command_fd() const { return verbs.context.cmd_fd; }
};

/// verbs_device_ops::alloc_context: opens the device. Null with errno.
verbs_context* open_context(ibv_device* device, int command_fd, void* private_data);
/// verbs_device_ops::import_context: joins a context by its command descriptor. Null with errno.
verbs_context* import_context(ibv_device* device, int command_fd);
void free_context(ibv_context* context);

/// The operations that every context is given.
extern const abi::verbs_context_ops kContextOps;

}  // namespace softhca::provider
