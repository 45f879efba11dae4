// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// Programs that link libmlx5 ask it what a Mellanox device can do beyond verbs, and take an error
/// for a broken device (perftest from 25 on, before every RC QP). libmlx5 knows only contexts of
/// its own. Preloaded, this library answers for ours that there is nothing; what a program does
/// with libmlx5's other contexts goes through.

#include <dlfcn.h>
#include <infiniband/mlx5dv.h>

#include <cerrno>

#include "provider/registration.h"

namespace softhca::provider {
namespace {

using QueryDevice = int (*)(ibv_context*, mlx5dv_context*);

bool is_ours(const ibv_context* context) {
  const auto* device = reinterpret_cast<const abi::verbs_device*>(context->device);
  return device->ops == &kDeviceOps;
}

}  // namespace
}  // namespace softhca::provider

/// 0 or an errno, as libmlx5 has it.
extern "C" __attribute__((visibility("default"))) int mlx5dv_query_device(ibv_context* context,
                                                                          mlx5dv_context* answer) {
  using namespace softhca::provider;
  if (is_ours(context)) {
    answer->version = 0;
    answer->flags = 0;
    // None of the members that were asked for is filled in.
    answer->comp_mask = 0;
    return 0;
  }
  const auto next =
      reinterpret_cast<QueryDevice>(::dlvsym(RTLD_NEXT, "mlx5dv_query_device", "MLX5_1.0"));
  return next != nullptr ? next(context, answer) : EOPNOTSUPP;
}
