// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cerrno>
#include <cstdint>

#include "kernel-shim/preload/exchange.h"
#include "kernel-shim/preload/registration.h"
#include "kernel-shim/preload/reply_items.h"
#include "kernel-shim/preload/transaction.h"
#include "kernel-shim/protocol/protocol.h"

/// Commands that have to do with parked regions, in either form.
namespace softhca::shim::preload {

struct RegionCommand {
  enum class Kind : std::uint8_t {
    none,  ///< Any other command.
    registration,
    deregistration,
    change,
    end_of_domain,
  };
  Kind kind = Kind::none;
  std::uint32_t handle = 0;  ///< Of the region or the domain.
  RegistrationCommand registration{};
  ReplyItem answer_item{};          ///< As which the RegistrationAnswer is stored.
  const void* answer_at = nullptr;  ///< Where that is.
};

/// What a write-style command is. `read(offset, to, length)` reads its core structure; false: there
/// is no such part.
template <typename Read>
RegionCommand region_command(std::uint32_t number, Read read) {
  constexpr std::uint32_t kDeallocPd = 4;
  constexpr std::uint32_t kDeregMr = 13;
  constexpr std::uint32_t kReregMr = 11;
  RegionCommand command;
  using Kind = RegionCommand::Kind;
  if (number == RegistrationCommand::kNumber &&
      read(0, &command.registration, sizeof(command.registration))) {
    command.kind = Kind::registration;
  } else if (number == kDeregMr && read(0, &command.handle, sizeof(command.handle))) {
    command.kind = Kind::deregistration;
  } else if (number == kReregMr && read(8, &command.handle, sizeof(command.handle))) {
    command.kind = Kind::change;
  } else if (number == kDeallocPd && read(0, &command.handle, sizeof(command.handle))) {
    command.kind = Kind::end_of_domain;
  }
  return command;
}

/// What the method of an object is whose first attribute, if it has one, is this.
RegionCommand region_method(std::uint16_t object, std::uint16_t method, std::uint64_t handle);

/// True: it is done, with this error, or with an answer that has to be stored; the daemon need not
/// be asked.
bool do_without_daemon(int fd, const RegionCommand& command, int& error,
                       RegistrationAnswer& answer);

/// Before the daemon is asked; and after it has said `error`.
void begin_region_command(int fd, const RegionCommand& command, Request& request);
void end_region_command(int fd, const RegionCommand& command, const Request& request, int error);
/// What was parked has been in the way of a registration that failed with `error`, and is not any
/// more.
bool has_made_room(const RegionCommand& command, int error);

/// True: it is done, with this error; what it answers is in `outputs`. The daemon need not be
/// asked.
template <typename Outputs>
bool do_without_daemon(int fd, const RegionCommand& command, Outputs& outputs, int& error) {
  RegistrationAnswer answer;
  if (!do_without_daemon(fd, command, error, answer)) return false;
  if (command.answer_at != nullptr) error = outputs.store_bytes(command.answer_item, &answer);
  return true;
}

/// Has the daemon do the command. 0 or errno.
template <typename Outputs>
int do_by_daemon(int fd, const RegionCommand& command, Request& request, Outputs& outputs) {
  if (command.kind == RegionCommand::Kind::registration) {
    request.expect_share(pages_of(command.registration));
  }
  for (bool again = false;; again = true) {
    begin_region_command(fd, command, request);
    Reply reply;
    int error = transact(fd, request, reply);
    if (error == 0) error = apply_items(reply, outputs);
    if (error == 0) error = reply.error();
    end_region_command(fd, command, request, error);
    if (error == 0 || again || !has_made_room(command, error)) return error;
  }
}

}  // namespace softhca::shim::preload
