// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "fake_regions.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hw-model/runtime/doorbell_hints.h"
#include "hw-model/runtime/mkey_state.h"

namespace softhca::shim::test {
namespace {

int copy_of(int& file, const char* name, std::uint64_t size) {
  if (file < 0) {
    file = ::memfd_create(name, MFD_CLOEXEC);
    if (::ftruncate(file, static_cast<off_t>(size)) != 0) return -1;
  }
  return ::fcntl(file, F_DUPFD_CLOEXEC, 0);
}

}  // namespace

int FakeRegions::register_region(const preload::RegistrationCommand& command, std::uint32_t record,
                                 preload::RegistrationAnswer& answer) {
  if (domains_.size() == kMost) return ENOMEM;
  ++counts_.registrations;
  counts_.last_record = record;
  domains_[++last_handle_] = command.pd_handle;
  const std::uint32_t key = last_handle_ << 8 | 0x42;
  answer = {last_handle_, key, key};
  return 0;
}

int FakeRegions::change(std::uint32_t handle) {
  return domains_.contains(handle) ? 0 : ENOENT;
}

int FakeRegions::deregister(std::uint32_t handle) {
  if (domains_.erase(handle) == 0) return ENOENT;
  ++counts_.deregistrations;
  return 0;
}

int FakeRegions::end_domain(std::uint32_t pd_handle) const {
  for (const auto& [handle, domain] : domains_) {
    if (domain == pd_handle) return EBUSY;
  }
  return 0;
}

RegionCounts FakeRegions::counts() const {
  RegionCounts counts = counts_;
  counts.present = domains_.size();
  return counts;
}

int FakeRegions::file_at(std::uint64_t offset) {
  if (offset == kMkeyStatesMmapOffset) {
    return copy_of(states_, "states", MkeyStatePage::kAlignment);
  }
  return offset == kHintsMmapOffset ? copy_of(hints_, "hints", kDoorbellHintsSize) : -1;
}

}  // namespace softhca::shim::test
