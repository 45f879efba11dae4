// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/region_commands.h"

#include <rdma/ib_user_ioctl_cmds.h>

#include "kernel-shim/preload/memory_probe.h"
#include "kernel-shim/preload/parked_regions.h"

namespace softhca::shim::preload {

RegionCommand region_method(std::uint16_t object, std::uint16_t method, std::uint64_t handle) {
  RegionCommand command;
  command.handle = static_cast<std::uint32_t>(handle);
  if (object == UVERBS_OBJECT_MR && method == UVERBS_METHOD_MR_DESTROY) {
    command.kind = RegionCommand::Kind::deregistration;
  } else if (object == UVERBS_OBJECT_PD && method == UVERBS_METHOD_PD_DESTROY) {
    command.kind = RegionCommand::Kind::end_of_domain;
  }
  return command;
}

bool do_without_daemon(int fd, const RegionCommand& command, int& error,
                       RegistrationAnswer& answer) {
  error = 0;
  switch (command.kind) {
    case RegionCommand::Kind::registration:
      return command.answer_at != nullptr && revive(fd, command.registration, answer);
    case RegionCommand::Kind::deregistration:
      switch (park(fd, command.handle)) {
        case Parked::yes:
          return true;
        case Parked::already:
          error = ENOENT;
          return true;
        case Parked::no:
          return false;
      }
      return false;
    default:
      return false;
  }
}

void begin_region_command(int fd, const RegionCommand& command, Request& request) {
  switch (command.kind) {
    case RegionCommand::Kind::registration:
      request.set_mkey_state(
          command.answer_at != nullptr ? begin_registration(fd, command.registration) : 0);
      return;
    case RegionCommand::Kind::change:
      keep_from_parking(fd, command.handle);
      return;
    case RegionCommand::Kind::end_of_domain:
      end_parked_of(fd, command.handle);
      return;
    default:
      return;
  }
}

void end_region_command(int fd, const RegionCommand& command, const Request& request, int error) {
  if (command.kind == RegionCommand::Kind::deregistration) {
    end_deregistration(fd, command.handle, error == 0);
  }
  if (command.kind != RegionCommand::Kind::registration || request.mkey_state() == 0) return;
  RegistrationAnswer answer{};
  const bool known = error == 0 && copy_from(&answer, command.answer_at, sizeof(answer));
  end_registration(fd, request.mkey_state(), command.registration, known ? &answer : nullptr,
                   request.whole());
}

bool has_made_room(const RegionCommand& command, int error) {
  return command.kind == RegionCommand::Kind::registration && error == ENOMEM && end_all_parked();
}

}  // namespace softhca::shim::preload
