// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>

#include "kernel-shim/preload/registration.h"
#include "kernel-shim/protocol/protocol.h"

namespace softhca::shim::test {

/// What the daemon knows of regions; output 0 of kRegions.
struct RegionCounts {
  std::uint64_t present = 0;
  std::uint64_t registrations = 0;
  std::uint64_t deregistrations = 0;
  std::uint64_t last_record = 0;  ///< RequestHeader::mkey_state of the last registration.
};

/// Regions of one connection to the fake daemon.
class FakeRegions {
 public:
  /// One more is ENOMEM.
  static constexpr std::size_t kMost = 20;

  /// 0 and the answer, or an errno.
  int register_region(const preload::RegistrationCommand& command, std::uint32_t record,
                      preload::RegistrationAnswer& answer);
  int change(std::uint32_t handle);
  int deregister(std::uint32_t handle);
  /// EBUSY: it has regions.
  int end_domain(std::uint32_t pd_handle) const;
  RegionCounts counts() const;
  /// The file that mmap() at this offset shows, to be closed; -1: none.
  int file_at(std::uint64_t offset);

 private:
  std::map<std::uint32_t, std::uint32_t> domains_;  ///< Of each handle.
  std::uint32_t last_handle_ = 0;
  RegionCounts counts_;
  int states_ = -1;
  int hints_ = -1;
};

}  // namespace softhca::shim::test
