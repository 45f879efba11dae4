// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/guid.h"

namespace softhca::emulator {
namespace {

/// Not 02: some targets (SRP) listen at the GUID as a service ID, and those that begin with 02 are
/// what the communication manager assigns (IBA A3.2.3).
constexpr std::uint64_t kPrefix = 0x0653460000000000ULL;
constexpr std::uint64_t kHashMask = 0x000000ffffffffffULL;

/// FNV-1a.
void add(std::uint64_t& hash, std::string_view text) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
}

}  // namespace

std::uint64_t host_guid(std::string_view fabric, std::string_view host, unsigned attempt) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  add(hash, fabric);
  add(hash, "/");
  add(hash, host);
  for (; attempt > 0; --attempt) add(hash, "+");
  return kPrefix | ((hash ^ hash >> 40) & kHashMask);
}

}  // namespace softhca::emulator
