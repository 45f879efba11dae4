// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Membership of UD queue pairs in multicast groups.
#include <rdma/ib_user_ioctl_verbs.h>

#include "hw-model/prm/commands_resources.h"
#include "kernel-shim/host/uverbs/method.h"

namespace softhca::shim {
namespace {

int multicast_command(CommandInterface& commands, prm::CommandOpcode opcode, std::uint32_t qpn,
                      const std::uint8_t* gid) {
  CommandInputBuffer in(opcode, prm::AttachToMcgInput::size);
  prm::AttachToMcgInput::qpn::set(in.data(), qpn);
  std::copy_n(gid, 16, in.at(prm::AttachToMcgInput::multicast_gid::offset));
  return execute_plain(commands, in).error;
}

/// Only UD QPs, only multicast GIDs and LIDs (ib_attach_mcast).
int take_member(Context& context, Call& call, ib_uverbs_attach_mcast& core, Qp*& qp) {
  if (const int error = call.read_core(core)) return error;
  qp = context.qps.find(core.qp_handle);
  if (qp == nullptr) return ENOENT;
  const bool multicast_lid = core.mlid >= 0xc000 && core.mlid != 0xffff;
  if (core.gid[0] != 0xff || qp->real->type != IB_UVERBS_QPT_UD || !multicast_lid) return EINVAL;
  return 0;
}

int attach_mcast(Context& context, Call& call) {
  ib_uverbs_attach_mcast core{};
  Qp* qp = nullptr;
  if (const int error = take_member(context, call, core, qp)) return error;
  std::pair group{std::vector<std::uint8_t>(core.gid, core.gid + 16), core.mlid};
  if (qp->multicast.contains(group)) return 0;
  if (const int error = multicast_command(context.commands(), prm::CommandOpcode::attach_to_mcg,
                                          qp->real->qpn, core.gid)) {
    return error;
  }
  qp->multicast.insert(std::move(group));
  return 0;
}

int detach_mcast(Context& context, Call& call) {
  ib_uverbs_attach_mcast core{};
  Qp* qp = nullptr;
  if (const int error = take_member(context, call, core, qp)) return error;
  const std::pair group{std::vector<std::uint8_t>(core.gid, core.gid + 16), core.mlid};
  if (!qp->multicast.contains(group)) return EINVAL;
  if (const int error = multicast_command(context.commands(), prm::CommandOpcode::detach_from_mcg,
                                          qp->real->qpn, core.gid)) {
    return error;
  }
  qp->multicast.erase(group);
  return 0;
}

const WriteCommand kMulticastCommandTable[] = {
    {IB_USER_VERBS_CMD_ATTACH_MCAST, sizeof(ib_uverbs_attach_mcast), 0, false, Needs::context,
     attach_mcast},
    {IB_USER_VERBS_CMD_DETACH_MCAST, sizeof(ib_uverbs_detach_mcast), 0, false, Needs::context,
     detach_mcast},
};

}  // namespace

void leave_multicast_groups(Context& context, const Qp& qp) {
  for (const auto& [gid, mlid] : qp.multicast) {
    multicast_command(context.commands(), prm::CommandOpcode::detach_from_mcg, qp.real->qpn,
                      gid.data());
  }
}

const std::span<const WriteCommand> kMulticastCommands = kMulticastCommandTable;

}  // namespace softhca::shim
