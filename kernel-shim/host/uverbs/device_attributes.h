// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include "kernel-shim/host/uverbs/context.h"
#include "kernel-shim/host/uverbs/ib_device.h"

namespace softhca::shim {

/// What mlx5_ib_query_device says, from the device's capabilities.
ib_uverbs_query_device_resp device_attributes(IbDevice& device);
/// Without response_length.
ib_uverbs_ex_query_device_resp extended_device_attributes(IbDevice& device);
/// set_ucontext_resp, without response_length.
mlx5_ib_alloc_ucontext_resp ucontext_response(Context& context);
/// Asks the device. EINVAL: no such port.
int port_attributes(IbDevice& device, std::uint32_t port, ib_uverbs_query_port_resp_ex& response);

}  // namespace softhca::shim
