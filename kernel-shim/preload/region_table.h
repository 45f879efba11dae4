// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/runtime/mkey_state.h"
#include "kernel-shim/preload/registration.h"
#include "kernel-shim/protocol/mkey_state_change.h"

namespace softhca::shim::preload {

enum class RegionState : std::uint8_t {
  none,
  registering,  ///< Its command is under way.
  active,
  busy,     ///< About to be active again.
  leaving,  ///< The application's deregistration is on its way to the daemon.
  parked,
  ending,  ///< And so is ours.
};

/// A registered or parked region whose key has a state record.
struct Region {
  RegionState state;
  bool has_place;       ///< Its pages are one piece of the file; else it cannot be parked.
  std::uint16_t names;  ///< Variant bytes that the key has had.
  std::uint32_t handle;
  std::uint32_t key;
  std::uint32_t pd_handle;
  std::uint32_t access;
  std::uint64_t start;
  std::uint64_t length;
  std::uint64_t address;  ///< hca_va.
  std::uint64_t place;    ///< Of its first byte in the file.
  std::uint64_t parked_at;
};

/// What registrations ask of the mapping: ib_umem_get's write access.
constexpr bool is_writable_region(std::uint32_t access) {
  // IB_ACCESS_LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC, MW_BIND
  constexpr std::uint32_t kWrites = 1 | 2 | 8 | 16;
  return (access & kWrites) != 0;
}

/// The regions of a command descriptor, each in the place of its record. All zero: none.
struct RegionContext {
  std::uint64_t inode;  ///< Of the socket; 0: not in use.
  int fd;
  bool asked;          ///< For the page of records.
  unsigned exchanges;  ///< With the daemon, of this library's own.
  MkeyStateChanger changer;
  Region regions[MkeyStatePage::kRecords];

  std::uint32_t number_of(const Region& region) const {
    return static_cast<std::uint32_t>(&region - regions) + 1;
  }
  Region* find(std::uint32_t handle) {
    for (Region& region : regions) {
      const bool has_handle =
          region.state != RegionState::none && region.state != RegionState::registering;
      if (has_handle && region.handle == handle) return &region;
    }
    return nullptr;
  }
  Region* find_free() {
    for (Region& region : regions) {
      if (region.state == RegionState::none) return &region;
    }
    return nullptr;
  }
  Region* find_parked(const RegistrationCommand& command) {
    for (Region& region : regions) {
      if (region.state == RegionState::parked && region.pd_handle == command.pd_handle &&
          region.start == command.start && region.length == command.length &&
          region.address == command.hca_va && region.access == command.access_flags) {
        return &region;
      }
    }
    return nullptr;
  }
  void clear() {
    for (Region& region : regions) region = Region{};
    inode = 0;
    fd = -1;
    asked = false;
    exchanges = 0;
    changer = {};
  }
};

}  // namespace softhca::shim::preload
