// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

/// By which a driver on the same machine revokes memory keys, and makes them usable again under
/// another variant byte, without a command. CREATE_MKEY names the key's record by its I/O virtual
/// address. The page lies in memory that the device and the process have which the keys belong to,
/// so that nobody else can make either believe anything.
///
/// Driver: stores `wanted`, changes `changes`, tells the device that there is something to look at
/// (DoorbellHints::mkey_states); then it waits until `seen` says what `wanted` does, or until
/// `at_rest` is not 0. Device: where `changes` has changed it reads every `wanted`, does what
/// changed ones say, and then stores them in `seen`. At rest it has nothing under way that refers
/// to memory of the page's keys, and before it does anything else it clears `at_rest`, and looks at
/// the page.
///
/// Words are big-endian, as all that a device reads.
namespace softhca {

struct MkeyStateRecord {
  std::atomic<std::uint32_t> wanted;  ///< The driver's.
  std::atomic<std::uint32_t> seen;    ///< The device's.
};
static_assert(sizeof(MkeyStateRecord) == 8);

/// At the start of a page.
struct MkeyStatePage {
  static constexpr std::uint64_t kAlignment = 4096;
  static constexpr std::size_t kRecords = 255;

  std::atomic<std::uint32_t> changes;  ///< The driver's.
  std::atomic<std::uint32_t> at_rest;  ///< The device's.
  MkeyStateRecord records[kRecords];
};
static_assert(sizeof(MkeyStatePage) <= MkeyStatePage::kAlignment);

/// As the last command left the key: the whole word. Everything that is none of these revokes it.
inline constexpr std::uint32_t kMkeyAsCreated = 0;
/// In bits 0 to 15, with the variant byte in bits 0 to 7: the key's, or the last one that it had.
inline constexpr std::uint32_t kMkeyRevoked = 0x200;
inline constexpr std::uint32_t kMkeyUsable = 0x100;

constexpr bool is_mkey_usable(std::uint32_t word) {
  return (word & 0xff00U) == kMkeyUsable;
}
/// Bits 8 to 15 are 0 only as long as a command has said what the variant byte is.
constexpr bool is_mkey_as_created(std::uint32_t word) {
  return (word & 0xff00U) == 0;
}
/// What `wanted` becomes for `state`. Bits 16 to 31 count changes: a device that rested has not
/// stored in `seen` what was wanted meanwhile, which may still say the same state from before.
constexpr std::uint32_t next_mkey_word(std::uint32_t word, std::uint32_t state) {
  return ((word >> 16) + 1) << 16 | state;
}

}  // namespace softhca
