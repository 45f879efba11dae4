// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "kernel-shim/preload/registration.h"
#include "kernel-shim/protocol/protocol.h"

/// Regions that the application has deregistered, and the daemon has not: their keys are revoked by
/// their state records (hw-model/runtime/mkey_state.h), their DMA maps and pins stay. A
/// registration of the same memory, which is still the very same pages, makes such a key usable
/// again under another variant byte, without asking anybody.
///
/// Only regions that this process has registered by a descriptor which it has opened itself, and of
/// which all pages are one piece of its memfd. A context has a page of records once a registration
/// follows a deregistration. The application never notices the parked ones: they are ended, by the
/// daemon, before what they could be in the way of, and when their memory goes away.
namespace softhca::shim::preload {

/// Makes a parked region that is what the command asks for. False: there is none.
bool revive(int fd, const RegistrationCommand& command, RegistrationAnswer& answer);

/// A registration is about to be sent: the record for its key, or 0. Ends parked regions of which
/// the memory is gone.
std::uint32_t begin_registration(int fd, const RegistrationCommand& command);
/// And was answered, or has failed: `answer` null. `piece`: where all of its pages lie in the file;
/// length 0: elsewhere, too.
void end_registration(int fd, std::uint32_t record, const RegistrationCommand& command,
                      const RegistrationAnswer* answer, const SharedPiece& piece);

enum class Parked : std::uint8_t {
  no,  ///< The daemon is to deregister it; then end_deregistration().
  yes,
  already,  ///< The application has deregistered it before.
};
Parked park(int fd, std::uint32_t handle);
void end_deregistration(int fd, std::uint32_t handle, bool done);

/// The region is about to be changed by a command: it will not be parked.
void keep_from_parking(int fd, std::uint32_t handle);

/// Ends the parked regions of a protection domain.
void end_parked_of(int fd, std::uint32_t pd_handle);
/// Ends all. True if there were any.
bool end_all_parked();
/// The memory was unmapped, or other memory put there: ends the parked regions that had a part.
void end_parked_in(std::uint64_t begin, std::uint64_t end);

/// The descriptor is about to be closed.
void forget_context(int fd);
/// In the child of fork(): they are the parent's.
void forget_parked_regions();

}  // namespace softhca::shim::preload
