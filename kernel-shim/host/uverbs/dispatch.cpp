// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/uverbs/dispatch.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernel-shim/host/uverbs/method.h"
#include "kernel-shim/host/uverbs/wire_items.h"
#include "kernel-shim/protocol/descriptors.h"

namespace softhca::shim {
namespace {

constexpr std::uint32_t kDriverMlx5 = 1;  // enum rdma_driver_id, RDMA_DRIVER_MLX5.
/// More attributes than any method knows are refused before anything is looked at.
constexpr std::size_t kMaxAttributes = 64;

/// Takes the attributes and their data apart; gives the descriptors to those that name one.
int parse_attributes(Call& call, const ib_uverbs_ioctl_hdr& header, std::span<const std::byte> body,
                     std::span<const int> fds) {
  std::span<const std::byte> rows = body.first(header.num_attrs * sizeof(ib_uverbs_attr));
  std::span<const std::byte> data = body.subspan(rows.size());
  std::size_t next_fd = 0;
  for (std::uint32_t position = 0; position < header.num_attrs; ++position) {
    ib_uverbs_attr row{};
    take(rows, row);
    IoctlAttribute attribute;
    attribute.id = row.attr_id;
    attribute.length = row.len;
    attribute.flags = row.flags;
    attribute.enum_data = row.attr_data.reserved;
    attribute.data = row.data;
    attribute.position = position;
    if (row.len > sizeof(row.data)) {
      if (data.size() < padded(row.len)) return EFAULT;
      attribute.payload = data.first(row.len);
      data = data.subspan(padded(row.len));
    }
    if (is_fd_attribute(header.object_id, header.method_id, row.attr_id)) {
      if (next_fd >= fds.size()) return EBADF;
      attribute.fd = fds[next_fd++];
    }
    call.attributes.push_back(attribute);
  }
  return 0;
}

/// uverbs_process_attr: lengths and reserved fields against what the method knows.
int check_attribute(const IoctlAttribute& attribute, const AttrSpec& spec) {
  if (attribute.enum_data != 0) return EINVAL;
  switch (spec.kind) {
    case AttrKind::in:
      if (attribute.length > spec.length && spec.zero_trailing) {
        const std::span<const std::byte> tail = attribute.input().subspan(spec.length);
        if (std::any_of(tail.begin(), tail.end(), [](std::byte b) { return b != std::byte{0}; })) {
          return EOPNOTSUPP;
        }
      }
      [[fallthrough]];
    case AttrKind::out:
      if (attribute.length < spec.min_length ||
          (!spec.zero_trailing && attribute.length > spec.length)) {
        return EINVAL;
      }
      return 0;
    case AttrKind::handle:
    case AttrKind::new_handle:
    case AttrKind::fd:
    case AttrKind::new_fd:
      return attribute.length == 0 ? 0 : EINVAL;
  }
  return EINVAL;
}

/// The driver's own attributes are allowed on every method that has them (UVERBS_ATTR_UHW).
bool is_udata(const Method& method, std::uint16_t id) {
  return method.has_udata && (id == UVERBS_ATTR_UHW_IN || id == UVERBS_ATTR_UHW_OUT);
}

int check_attributes(const Call& call, const Method& method) {
  for (const IoctlAttribute& attribute : call.attributes) {
    if (call.find(attribute.id) != &attribute) return EINVAL;  // Twice.
    const auto spec = std::find_if(
        method.attributes.begin(), method.attributes.end(),
        [&attribute](const AttrSpec& candidate) { return candidate.id == attribute.id; });
    if (spec != method.attributes.end()) {
      if (const int error = check_attribute(attribute, *spec)) return error;
    } else if (is_udata(method, attribute.id)) {
      if (attribute.enum_data != 0) return EINVAL;
    } else if ((attribute.flags & UVERBS_ATTR_F_MANDATORY) != 0) {
      return EPROTONOSUPPORT;
    }
  }
  for (const AttrSpec& spec : method.attributes) {
    if (spec.mandatory && call.find(spec.id) == nullptr) return EINVAL;
  }
  return 0;
}

void split_udata(Call& call, std::uint16_t in_id, std::uint16_t out_id,
                 std::span<const std::byte>& in, Sink& out) {
  if (const IoctlAttribute* const attribute = call.find(in_id)) in = attribute->input();
  if (const IoctlAttribute* const attribute = call.find(out_id)) {
    out = Sink{attribute->position, attribute->length};
  }
}

/// DEVICE_INVOKE_WRITE: core and driver parts come apart already.
int invoke_write(Context& context, Call& call, std::span<const int> fds) {
  std::uint64_t command = 0;
  if (call.read(UVERBS_ATTR_WRITE_CMD, command) != 0 || command > 0xffffffffU) return EINVAL;
  split_udata(call, UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT, call.core, call.core_out);
  call.core_fd = fds.empty() ? -1 : fds.front();
  return run_write_command(context, call, static_cast<std::uint32_t>(command));
}

const AttrSpec kInvokeWriteAttributes[] = {
    attr_in_buffer(UVERBS_ATTR_CORE_IN, kOptional, 4),
    attr_out_buffer(UVERBS_ATTR_CORE_OUT, kOptional, 0),
    attr_const(UVERBS_ATTR_WRITE_CMD, kMandatory),
};
const Method kInvokeWrite{UVERBS_OBJECT_DEVICE,   UVERBS_METHOD_INVOKE_WRITE,
                          kInvokeWriteAttributes, true,
                          Needs::nothing,         nullptr};

/// verify_hdr and ib_uverbs_write for the legacy form.
int split_legacy(Call& call, const WriteCommand& row, const ib_uverbs_cmd_hdr& header,
                 std::span<const std::byte> buffer) {
  const std::size_t count = buffer.size();
  std::span<const std::byte> rest = buffer.subspan(sizeof(header));
  if (header.in_words * 4U != count) return EINVAL;
  if (count < row.request_size + sizeof(header)) return ENOSPC;
  if (header.out_words * 4U < row.response_size) return ENOSPC;
  std::uint64_t response = 0;
  if (row.response_size != 0) {
    std::span<const std::byte> first = rest;
    if (!take(first, response)) return EINVAL;
  }
  const std::size_t core_in = row.has_udata ? row.request_size : rest.size();
  const std::size_t out = header.out_words * 4U;
  const std::size_t core_out = row.response_size == 0 ? 0 : row.has_udata ? row.response_size : out;
  call.core = rest.first(core_in);
  call.core_out = Sink{response, core_out};
  call.udata = rest.subspan(core_in);
  call.udata_out = Sink{response + core_out, row.response_size == 0 ? 0 : out - core_out};
  return 0;
}

/// The same for the extended form; sizes count 8-byte words.
int split_extended(Call& call, const WriteCommand& row, const ib_uverbs_cmd_hdr& header,
                   std::span<const std::byte> buffer) {
  std::span<const std::byte> rest = buffer.subspan(sizeof(header));
  ib_uverbs_ex_cmd_hdr extended{};
  if (!take(rest, extended)) return EINVAL;
  const std::size_t core_in = header.in_words * 8U;
  if (core_in + extended.provider_in_words * 8U != rest.size()) return EINVAL;
  if (core_in < row.request_size) return ENOSPC;
  if (extended.cmd_hdr_reserved != 0) return EINVAL;
  const std::size_t core_out = header.out_words * 8U;
  const std::size_t driver_out = extended.provider_out_words * 8U;
  if ((extended.response != 0) != (core_out + driver_out != 0)) return EINVAL;
  if (extended.response != 0 && core_out < row.response_size) return ENOSPC;
  call.core = rest.first(core_in);
  call.core_out = Sink{extended.response, core_out};
  call.udata = rest.subspan(core_in);
  call.udata_out = Sink{extended.response + core_out, driver_out};
  return 0;
}

}  // namespace

int Call::read_flags(std::uint16_t id, std::uint64_t allowed, std::uint64_t& to) const {
  to = 0;
  const IoctlAttribute* const attribute = find(id);
  if (attribute == nullptr) return 0;
  if (attribute->length != 4 && attribute->length != 8) return EINVAL;
  std::memcpy(&to, attribute->input().data(), attribute->length);
  return (to & ~allowed) == 0 ? 0 : EINVAL;
}

int run_write_command(Context& context, Call& call, std::uint32_t command) {
  const WriteCommand* const row = find_write_command(command);
  if (row == nullptr) return EOPNOTSUPP;
  if (call.core.size() < row->request_size || call.core_out.length < row->response_size) {
    return ENOSPC;
  }
  if (row->needs == Needs::context && !context.opened) return EINVAL;
  return row->handler(context, call);
}

int dispatch_ioctl(Context& context, Call& call, std::uint64_t command,
                   std::span<const std::byte> body, std::span<const int> fds) {
  if (command != RDMA_VERBS_IOCTL) return ENOTTY;
  ib_uverbs_ioctl_hdr header{};
  if (!take(body, header)) return EFAULT;
  if (header.length > 4096 ||
      header.length != sizeof(header) + header.num_attrs * sizeof(ib_uverbs_attr)) {
    return EINVAL;
  }
  if (header.reserved1 != 0 || header.reserved2 != 0) return EPROTONOSUPPORT;
  if (header.driver_id != kDriverMlx5) return EINVAL;
  if (header.num_attrs > kMaxAttributes) return EINVAL;
  if (body.size() < header.num_attrs * sizeof(ib_uverbs_attr)) return EFAULT;

  const bool invoke =
      header.object_id == UVERBS_OBJECT_DEVICE && header.method_id == UVERBS_METHOD_INVOKE_WRITE;
  const Method* const method =
      invoke ? &kInvokeWrite : find_method(header.object_id, header.method_id);
  if (method == nullptr) return EPROTONOSUPPORT;
  if (const int error = parse_attributes(call, header, body, fds)) return error;
  if (const int error = check_attributes(call, *method)) return error;
  if (method->needs == Needs::context && !context.opened) return EINVAL;
  if (method->has_udata) {
    split_udata(call, UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT, call.udata, call.udata_out);
  }
  const int error = invoke ? invoke_write(context, call, fds) : method->handler(context, call);
  // Reserved for "the framework cannot invoke this" (uverbs_ioctl.c).
  return error == EPROTONOSUPPORT ? EINVAL : error;
}

int dispatch_write(Context& context, Call& call, std::span<const std::byte> buffer,
                   std::span<const int> fds) {
  ib_uverbs_cmd_hdr header{};
  std::span<const std::byte> rest = buffer;
  if (!take(rest, header)) return EINVAL;
  constexpr std::uint32_t known = IB_USER_VERBS_CMD_COMMAND_MASK | IB_USER_VERBS_CMD_FLAG_EXTENDED;
  if ((header.command & ~known) != 0) return EINVAL;
  const WriteCommand* const row = find_write_command(header.command);
  if (row == nullptr) return EOPNOTSUPP;
  const bool is_extended = (header.command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0;
  const int error = is_extended ? split_extended(call, *row, header, buffer)
                                : split_legacy(call, *row, header, buffer);
  if (error != 0) return error;
  call.core_fd = fds.empty() ? -1 : fds.front();
  return run_write_command(context, call, header.command);
}

}  // namespace softhca::shim
