// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/queries.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "hw-model/prm/big_endian.h"
#include "hw-model/prm/uar.h"
#include "provider/abi/commands.h"
#include "provider/context.h"

namespace softhca::provider {

int query_device_ex(ibv_context* base, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, std::size_t size) {
  abi::Response<ib_uverbs_ex_query_device_resp, mlx5_ib_query_device_resp> response;
  std::size_t response_size = Context::of(base)->limits.query_device_udata
                                  ? sizeof(response)
                                  : sizeof(ib_uverbs_ex_query_device_resp);
  if (const int error =
          abi::ibv_cmd_query_device_any(base, input, attr, size, &response, &response_size);
      error != 0) {
    return error;
  }
  ib_uverbs_ex_query_device_resp core;
  std::memcpy(&core, response.core, sizeof(core));
  const std::uint64_t version = core.base.fw_ver;
  std::snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver), "%u.%u.%04u",
                static_cast<unsigned>(version >> 32 & 0xffff),
                static_cast<unsigned>(version >> 16 & 0xffff),
                static_cast<unsigned>(version & 0xffff));
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr) {
  abi::QueryPort command;
  return abi::ibv_cmd_query_port(context, port, attr, &command, sizeof(command));
}

int query_rt_values(ibv_context* base, ibv_values_ex* values) {
  const Context& context = *Context::of(base);
  if ((values->comp_mask & ~static_cast<std::uint32_t>(IBV_VALUES_MASK_RAW_CLOCK)) != 0)
    return EINVAL;
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) == 0) return 0;
  const std::uint64_t offset = context.limits.core_clock_offset & (prm::kUarPageSize - 1);
  if (context.core_clock == nullptr || offset > prm::kUarPageSize - 8) {
    values->comp_mask = 0;
    return EOPNOTSUPP;
  }
  const auto* words = reinterpret_cast<const volatile std::uint32_t*>(
      static_cast<const std::uint8_t*>(context.core_clock) + offset);
  // High word, low word, high word again: a carry between the two shows.
  std::uint32_t high = 0;
  std::uint32_t low = 0;
  std::uint32_t again = prm::Be32::swap(words[0]);
  do {
    high = again;
    low = prm::Be32::swap(words[1]);
    again = prm::Be32::swap(words[0]);
  } while (high != again);
  // The caller takes the clock as a count in tv_nsec, as all providers give it.
  values->raw_clock.tv_sec = 0;
  values->raw_clock.tv_nsec = static_cast<long>(static_cast<std::uint64_t>(high) << 32 | low);
  return 0;
}

}  // namespace softhca::provider
