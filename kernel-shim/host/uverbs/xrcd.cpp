// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// XRC domains (ib_uverbs_open_xrcd, ib_uverbs_close_xrcd).
#include <fcntl.h>
#include <sys/stat.h>

#include "kernel-shim/host/uverbs/method.h"

namespace softhca::shim {
namespace {

int open_xrcd(Context& context, Call& call) {
  ib_uverbs_open_xrcd core{};
  if (const int error = call.read_core(core)) return error;
  if (!context.device().offers().xrc || context.hca().cap<prm::HcaCap::xrc>() == 0)
    return EOPNOTSUPP;
  if (context.xrcds.full()) return ENOMEM;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::shared_ptr<Xrcd> xrcd;
  if (static_cast<std::int32_t>(core.fd) != -1) {
    struct stat status {};
    if (call.core_fd < 0 || ::fstat(call.core_fd, &status) != 0) return EBADF;
    device = status.st_dev;
    inode = status.st_ino;
    xrcd = context.device().find_xrcd(device, inode);
    if (xrcd == nullptr && (core.oflags & O_CREAT) == 0) return EAGAIN;
    if (xrcd != nullptr && (core.oflags & O_EXCL) != 0) return EINVAL;
  }
  if (xrcd == nullptr) {
    if (const int error = context.device().make_xrcd(device, inode, xrcd)) return error;
  }
  auto handle = std::make_unique<XrcdHandle>();
  handle->xrcd = std::move(xrcd);
  ib_uverbs_open_xrcd_resp response{};
  response.xrcd_handle = context.xrcds.insert(context.xrcds.new_handle(), std::move(handle)).handle;
  call.write_core(response);
  return 0;
}

/// In use by an SRQ or QP of this context, each of which holds the domain too.
bool in_use(const Context& context, const XrcdHandle& handle) {
  for (const auto& [number, srq] : context.srqs) {
    if (srq->xrcd == handle.xrcd) return true;
  }
  for (const auto& [number, qp] : context.qps) {
    if (qp->xrcd == handle.xrcd) return true;
  }
  return false;
}

int close(Context& context, std::uint64_t number) {
  const XrcdHandle* const handle = context.xrcds.find(number);
  if (handle == nullptr) return ENOENT;
  if (in_use(context, *handle)) return EBUSY;
  context.xrcds.erase(handle->handle);
  return 0;
}

int close_xrcd_method(Context& context, Call& call) {
  return close(context, call.find(UVERBS_ATTR_DESTROY_XRCD_HANDLE)->data);
}

int close_xrcd_command(Context& context, Call& call) {
  ib_uverbs_close_xrcd core{};
  if (const int error = call.read_core(core)) return error;
  return close(context, core.xrcd_handle);
}

const AttrSpec kXrcdDestroyAttributes[] = {
    attr_handle(UVERBS_ATTR_DESTROY_XRCD_HANDLE, kMandatory)};

const Method kXrcdMethodTable[] = {
    {UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, kXrcdDestroyAttributes, false, Needs::context,
     close_xrcd_method},
};

const WriteCommand kXrcdCommandTable[] = {
    {IB_USER_VERBS_CMD_OPEN_XRCD, sizeof(ib_uverbs_open_xrcd), sizeof(ib_uverbs_open_xrcd_resp),
     true, Needs::context, open_xrcd},
    {IB_USER_VERBS_CMD_CLOSE_XRCD, sizeof(ib_uverbs_close_xrcd), 0, false, Needs::context,
     close_xrcd_command},
};

}  // namespace

const std::span<const Method> kXrcdMethods = kXrcdMethodTable;
const std::span<const WriteCommand> kXrcdCommands = kXrcdCommandTable;

}  // namespace softhca::shim
