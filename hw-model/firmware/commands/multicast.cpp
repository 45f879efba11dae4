// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Multicast groups (PRM "ATTACH_TO_MCG", "DETACH_FROM_MCG"; IBA 10.5).
#include <algorithm>

#include "hw-model/firmware/handlers.h"
#include "hw-model/prm/commands_resources.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;

constexpr std::uint8_t kMulticastPrefix = 0xff;  // first byte of a multicast GID (IBA 4.1.1)

ib::Gid read_gid(const std::uint8_t* from) {
  ib::Gid gid;
  std::copy_n(from, gid.size(), gid.begin());
  return gid;
}

}  // namespace

CommandResult attach_to_mcg(FirmwareState& state, const Command& command) {
  const auto qpn = static_cast<std::uint32_t>(prm::AttachToMcgInput::qpn::get(command.in.data()));
  const ib::Gid mgid = read_gid(prm::AttachToMcgInput::multicast_gid::at(command.in.data()));
  if (!state.transport.has_qp(qpn))
    return failure(CommandStatus::bad_resource, Syndrome::no_such_qp);
  if (mgid[0] != kMulticastPrefix)
    return failure(CommandStatus::bad_parameter, Syndrome::not_multicast);
  const auto group = state.multicast_groups.find(mgid);
  const bool full =
      group == state.multicast_groups.end()
          ? state.multicast_groups.size() >> DeviceLimits::kLogMaxMulticastGroups != 0
          : group->second.size() >= DeviceLimits::kMaxQpsPerGroup && !group->second.contains(qpn);
  if (full) return failure(CommandStatus::no_resources, Syndrome::out_of_multicast_groups);
  if (!state.transport.attach_multicast(qpn, mgid)) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_service_type);
  }
  // Attaching again changes nothing (IBA 11.3.1.1): one detach undoes it.
  if (state.multicast_groups[mgid].insert(qpn).second) state.port.attach_multicast(mgid);
  return {};
}

CommandResult detach_from_mcg(FirmwareState& state, const Command& command) {
  const auto qpn = static_cast<std::uint32_t>(prm::DetachFromMcgInput::qpn::get(command.in.data()));
  const ib::Gid mgid = read_gid(prm::DetachFromMcgInput::multicast_gid::at(command.in.data()));
  const auto group = state.multicast_groups.find(mgid);
  if (group == state.multicast_groups.end() || !group->second.contains(qpn) ||
      !state.transport.detach_multicast(qpn, mgid)) {
    return failure(CommandStatus::bad_resource, Syndrome::not_attached);
  }
  state.port.detach_multicast(mgid);
  group->second.erase(qpn);
  if (group->second.empty()) state.multicast_groups.erase(group);
  return {};
}

}  // namespace softhca::firmware
