// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Commands on the device itself: opening, attributes of device and port, GIDs, event files, DEVX
// queries.
#include <fcntl.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <vector>

#include "hw-model/prm/commands_hca.h"
#include "kernel-shim/host/device/number_commands.h"
#include "kernel-shim/host/uverbs/device_attributes.h"
#include "kernel-shim/host/uverbs/doorbell_hints_method.h"
#include "kernel-shim/host/uverbs/method.h"

namespace softhca::shim {
namespace {

constexpr std::uint32_t kFdFlags = O_CLOEXEC;

/// CREATE_UCTX: lets the application run DEVX queries. EINVAL where the device has none
/// (mlx5_ib_devx_create).
int create_devx_context(Context& context) {
  if (!context.device().offers().devx || context.hca().cap<prm::HcaCap::log_max_uctx>() == 0) {
    return EINVAL;
  }
  const CommandInputBuffer in(prm::CommandOpcode::create_uctx, prm::CreateUctxInput::size);
  std::uint8_t out[prm::CreateUctxOutput::size] = {};
  const CommandResult result = context.commands().execute(in, out);
  if (result) context.devx_uid = static_cast<std::uint16_t>(prm::CreateUctxOutput::uid::get(out));
  return result.error;
}

/// mlx5_ib_alloc_ucontext. Only libraries that allocate UARs themselves (MLX5_LIB_CAP_DYN_UAR) are
/// served: all since rdma-core 30.
int alloc_ucontext(Context& context, Call& call) {
  if (context.opened) return EINVAL;
  if (!context.hca().alive()) return EIO;
  constexpr std::size_t min_v2 = offsetof(mlx5_ib_alloc_ucontext_req_v2, max_cqe_version);
  if (call.udata.size() != sizeof(mlx5_ib_alloc_ucontext_req) && call.udata.size() < min_v2) {
    return EINVAL;
  }
  mlx5_ib_alloc_ucontext_req_v2 request{};
  call.read_udata(request);
  if ((request.flags & ~std::uint32_t{MLX5_IB_ALLOC_UCTX_DEVX}) != 0 || request.comp_mask != 0 ||
      request.reserved0 != 0 || request.reserved1 != 0 || request.reserved2 != 0) {
    return EOPNOTSUPP;
  }
  if (request.total_num_bfregs == 0 ||
      request.num_low_latency_bfregs > request.total_num_bfregs - 1) {
    return EINVAL;
  }
  if ((request.lib_caps & MLX5_LIB_CAP_DYN_UAR) == 0) return EOPNOTSUPP;
  if ((request.flags & MLX5_IB_ALLOC_UCTX_DEVX) != 0) {
    if (const int error = create_devx_context(context)) return error;
  }
  if (context.hca().cap<prm::HcaCap::log_max_transport_domain>() != 0) {
    if (const int error = allocate_number(context.commands(), kTransportDomainResource,
                                          context.transport_domain)) {
      context.release_identity();
      return error;
    }
  }
  context.cqe_version = static_cast<std::uint8_t>(std::min<std::uint32_t>(
      context.hca().cap<prm::HcaCap::cqe_version>(), request.max_cqe_version));
  return 0;
}

void write_ucontext(Context& context, Call& call) {
  mlx5_ib_alloc_ucontext_resp response = ucontext_response(context);
  response.response_length =
      static_cast<std::uint32_t>(std::min(call.udata_out.length, sizeof(response)));
  call.write_udata(response);
}

int get_context(Context& context, Call& call) {
  if (const int error = alloc_ucontext(context, call)) return error;
  write_ucontext(context, call);
  call.write_attribute(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, kCompletionVectors);
  call.write_attribute(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT,
                       std::uint64_t{IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS});
  context.opened = true;
  return 0;
}

int get_context_legacy(Context& context, Call& call) {
  if (const int error = alloc_ucontext(context, call)) return error;
  runtime::UniqueFd file;
  if (const int error = context.make_async_file(file)) {
    context.release_identity();  // The library tries again on the same descriptor.
    return error;
  }
  ib_uverbs_get_context_resp response{};
  response.num_comp_vectors = kCompletionVectors;
  call.write_core(response);
  call.reply.fd_in_bytes(call.core_out.target, offsetof(ib_uverbs_get_context_resp, async_fd),
                         std::move(file), kFdFlags);
  write_ucontext(context, call);
  context.opened = true;
  return 0;
}

int query_context(Context& context, Call& call) {
  // mlx5_ib's output has the number that UHW_IN has in other methods.
  if (const auto* const attribute = call.find(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX)) {
    call.udata_out = Sink{attribute->position, attribute->length};
  }
  write_ucontext(context, call);
  call.write_attribute(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, kCompletionVectors);
  call.write_attribute(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT,
                       std::uint64_t{IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS});
  return 0;
}

int query_device(Context& context, Call& call) {
  call.write_core(device_attributes(context.device()));
  return 0;
}

int query_device_ex(Context& context, Call& call) {
  ib_uverbs_ex_query_device request{};
  if (const int error = call.read_core(request)) return error;
  if (request.comp_mask != 0 || request.reserved != 0) return EINVAL;
  if (!call.udata_cleared(0)) return EINVAL;
  mlx5_ib_query_device_resp driver{};
  const std::size_t wanted = call.udata_out.length;
  if (wanted != 0 && wanted < sizeof(driver.comp_mask) + sizeof(driver.response_length))
    return EINVAL;
  ib_uverbs_ex_query_device_resp response = extended_device_attributes(context.device());
  response.response_length =
      static_cast<std::uint32_t>(std::min(call.core_out.length, sizeof(response)));
  call.write_core(response);
  driver.response_length = static_cast<std::uint32_t>(std::min(wanted, sizeof(driver)));
  call.write_udata(driver);
  return 0;
}

int query_port(Context& context, Call& call) {
  std::uint64_t port = 0;
  if (const int error = call.read_const(UVERBS_ATTR_QUERY_PORT_PORT_NUM, 0xff, port)) return error;
  ib_uverbs_query_port_resp_ex response{};
  if (const int error =
          port_attributes(context.device(), static_cast<std::uint32_t>(port), response))
    return error;
  call.write_attribute_padded(UVERBS_ATTR_QUERY_PORT_RESP, response);
  return 0;
}

int query_port_legacy(Context& context, Call& call) {
  ib_uverbs_query_port request{};
  if (const int error = call.read_core(request)) return error;
  ib_uverbs_query_port_resp_ex response{};
  if (const int error = port_attributes(context.device(), request.port_num, response)) return error;
  call.write_core(response.legacy_resp);
  return 0;
}

bool is_zero(const GidBytes& gid) {
  return std::all_of(gid.begin(), gid.end(), [](std::uint8_t b) { return b == 0; });
}

ib_uverbs_gid_entry gid_entry(const GidBytes& gid, std::uint32_t index) {
  ib_uverbs_gid_entry entry{};
  static_assert(sizeof(entry.gid) == sizeof(GidBytes));
  std::memcpy(entry.gid, gid.data(), gid.size());
  entry.gid_index = index;
  entry.port_num = IbDevice::kPort;
  entry.gid_type = IB_UVERBS_GID_TYPE_IB;
  return entry;
}

int query_gid_table(Context& context, Call& call) {
  std::uint64_t entry_size = 0;
  std::uint64_t flags = 0;
  if (const int error = call.read(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, entry_size)) return error;
  if (const int error = call.read_flags(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0, flags)) return error;
  const IoctlAttribute* const room = call.find(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
  if (entry_size == 0 || entry_size > 0xffff || room->length % entry_size != 0 ||
      room->length < entry_size) {
    return EINVAL;
  }
  std::vector<std::byte> entries;
  std::uint64_t count = 0;
  const std::vector<GidBytes>& gids = context.device().gids();
  for (std::uint32_t i = 0; i < gids.size() && entries.size() + entry_size <= room->length; ++i) {
    if (is_zero(gids[i])) continue;
    const ib_uverbs_gid_entry entry = gid_entry(gids[i], i);
    const std::span<const std::byte> bytes = std::as_bytes(std::span(&entry, 1));
    const std::size_t at = entries.size();
    entries.resize(at + entry_size);
    std::copy_n(bytes.begin(), std::min<std::size_t>(bytes.size(), entry_size),
                entries.begin() + static_cast<std::ptrdiff_t>(at));
    ++count;
  }
  call.write_attribute_bytes(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, entries);
  call.write_attribute(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, count);
  return 0;
}

int query_gid_entry(Context& context, Call& call) {
  std::uint64_t flags = 0;
  std::uint64_t index = 0;
  std::uint64_t port = 0;
  if (const int error = call.read_flags(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0, flags)) return error;
  if (const int error = call.read_const(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, 0xffffffff, index))
    return error;
  if (const int error = call.read_const(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, 0xffffffff, port))
    return error;
  if (port != IbDevice::kPort) return EINVAL;
  const std::vector<GidBytes>& gids = context.device().gids();
  if (index >= gids.size() || is_zero(gids[index])) return ENODATA;
  call.write_attribute_padded(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY,
                              gid_entry(gids[index], static_cast<std::uint32_t>(index)));
  return 0;
}

int alloc_async_event(Context& context, Call& call) {
  runtime::UniqueFd file;
  if (const int error = context.make_async_file(file)) return error;
  call.reply.fd_attr(call.find(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)->position, std::move(file),
                     kFdFlags);
  return 0;
}

int create_completion_channel(Context& context, Call& call) {
  runtime::UniqueFd file;
  if (const int error = context.make_completion_channel(file)) return error;
  call.write_core(ib_uverbs_create_comp_channel_resp{});
  call.reply.fd_in_bytes(call.core_out.target, 0, std::move(file), kFdFlags);
  return 0;
}

/// devx_is_whitelist_cmd: queries that the kernel runs also for a context without DEVX, under a
/// user of its own.
bool is_open_query(std::uint16_t opcode) {
  switch (static_cast<prm::CommandOpcode>(opcode)) {
    case prm::CommandOpcode::query_hca_cap:
    case prm::CommandOpcode::query_hca_vport_context:
      return true;
    default:
      return false;
  }
}

/// devx_is_general_cmd: queries that name no object of another context.
bool is_general_query(std::uint16_t opcode) {
  switch (static_cast<prm::CommandOpcode>(opcode)) {
    case prm::CommandOpcode::query_hca_cap:
    case prm::CommandOpcode::query_hca_vport_context:
    case prm::CommandOpcode::query_vport_state:
    case prm::CommandOpcode::query_adapter:
    case prm::CommandOpcode::query_issi:
    case prm::CommandOpcode::nop:
      return true;
    default:
      return false;
  }
}

int devx_other(Context& context, Call& call) {
  const IoctlAttribute* const input = call.find(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN);
  const IoctlAttribute* const output = call.find(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT);
  std::vector<std::uint8_t> in(input->length);
  std::memcpy(in.data(), input->input().data(), in.size());
  std::vector<std::uint8_t> out(output->length);
  const auto opcode = static_cast<std::uint16_t>(prm::CommandInput::opcode::get(in.data()));
  // devx_get_uid: a device without DEVX has no user for open queries either.
  if (context.devx_uid == 0) return is_open_query(opcode) ? EOPNOTSUPP : EINVAL;
  if (!is_general_query(opcode)) return EINVAL;
  prm::CommandInput::uid::set(in.data(), context.devx_uid);
  const CommandResult result = context.commands().execute(in, out);
  // A status of the firmware is the caller's to read (mlx5_cmd_do).
  if (result.error != 0 && result.status == 0) return result.error;
  call.write_attribute_bytes(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, std::as_bytes(std::span(out)));
  return result.error == 0 ? 0 : EREMOTEIO;
}

/// Vector to event queue number.
int devx_query_eqn(Context& context, Call& call) {
  std::uint32_t vector = 0;
  if (const int error = call.read(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, vector)) return error;
  if (vector >= kCompletionVectors) return ENOENT;
  call.write_attribute(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN,
                       std::uint32_t{context.hca().completion_eqn(vector)});
  return 0;
}

const AttrSpec kGetContextAttributes[] = {
    attr_out<std::uint32_t>(UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, kOptional),
    attr_out<std::uint64_t>(UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, kOptional),
};
const AttrSpec kQueryContextAttributes[] = {
    attr_out<std::uint32_t>(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, kOptional),
    attr_out<std::uint64_t>(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, kOptional),
};
const AttrSpec kQueryPortAttributes[] = {
    attr_const(UVERBS_ATTR_QUERY_PORT_PORT_NUM, kMandatory),
    attr_out_struct<ib_uverbs_query_port_resp_ex>(UVERBS_ATTR_QUERY_PORT_RESP, kMandatory),
};
const AttrSpec kQueryGidTableAttributes[] = {
    attr_const(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, kMandatory),
    attr_flags(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS),
    attr_out_buffer(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, kMandatory, 1),
    attr_out<std::uint64_t>(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, kMandatory),
};
const AttrSpec kQueryGidEntryAttributes[] = {
    attr_const(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, kMandatory),
    attr_const(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, kMandatory),
    attr_flags(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS),
    attr_out_struct<ib_uverbs_gid_entry>(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, kMandatory),
};
const AttrSpec kAsyncEventAttributes[] = {attr_new_fd(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)};
const AttrSpec kDevxOtherAttributes[] = {
    attr_in_buffer(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, kMandatory, 16),
    attr_out_buffer(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, kMandatory, 16),
};
const AttrSpec kDevxQueryEqnAttributes[] = {
    attr_in<std::uint32_t>(MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC, kMandatory),
    attr_out<std::uint32_t>(MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, kMandatory),
};

const Method kMethods[] = {
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, kQueryPortAttributes, false, Needs::context,
     query_port},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, kGetContextAttributes, true, Needs::nothing,
     get_context},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, kQueryContextAttributes, true,
     Needs::context, query_context},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, kQueryGidTableAttributes, false,
     Needs::context, query_gid_table},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, kQueryGidEntryAttributes, false,
     Needs::context, query_gid_entry},
    {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, kAsyncEventAttributes, false,
     Needs::context, alloc_async_event},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, kDevxOtherAttributes, false, Needs::context,
     devx_other},
    {MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, kDevxQueryEqnAttributes, false,
     Needs::context, devx_query_eqn},
    {kObjectSofthca, kMethodGetDoorbellHints, kDoorbellHintsAttributes, false, Needs::context,
     get_doorbell_hints},
};

const WriteCommand kCommands[] = {
    {IB_USER_VERBS_CMD_GET_CONTEXT, sizeof(ib_uverbs_get_context),
     sizeof(ib_uverbs_get_context_resp), true, Needs::nothing, get_context_legacy},
    {IB_USER_VERBS_CMD_QUERY_DEVICE, sizeof(ib_uverbs_query_device),
     sizeof(ib_uverbs_query_device_resp), false, Needs::context, query_device},
    {extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE), sizeof(ib_uverbs_ex_query_device),
     offsetof(ib_uverbs_ex_query_device_resp, response_length) + 4, false, Needs::context,
     query_device_ex},
    {IB_USER_VERBS_CMD_QUERY_PORT, sizeof(ib_uverbs_query_port), sizeof(ib_uverbs_query_port_resp),
     false, Needs::context, query_port_legacy},
    {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, sizeof(ib_uverbs_create_comp_channel),
     sizeof(ib_uverbs_create_comp_channel_resp), false, Needs::context, create_completion_channel},
};

}  // namespace

const std::span<const Method> kDeviceMethods = kMethods;
const std::span<const WriteCommand> kDeviceCommands = kCommands;

}  // namespace softhca::shim
