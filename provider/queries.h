// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace softhca::provider {

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, std::size_t size);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr);
int query_rt_values(ibv_context* context, ibv_values_ex* values);

}  // namespace softhca::provider
