// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "provider/abi/driver.h"

namespace softhca::provider::abi {

/// Version of the libibverbs in use, where it changes a private layout.
enum class Version { v44 = 44, v56 = 56 };

/// Facts by which the version is told; taken from the process, or made up by a test.
struct LibraryFacts {
  std::string real_path;  ///< Of the file that holds libibverbs's functions, links resolved.
  bool has_create_cq_ex2 = false;  ///< ibv_cmd_create_cq_ex2 exists (56, not 44).
  bool has_wr_opcode_str = false;  ///< ibv_wr_opcode_str exists (56, not 44).
};

/// Handle of the libibverbs that this provider is bound to, to look names up in itself; to be
/// closed by dlclose(). Null if there is none.
void* open_library();

/// Facts about the library loaded into this process.
LibraryFacts loaded_library();

/// Package version in a file name such as "libibverbs.so.1.14.44.0": its third number after ".so.".
/// Nothing when the name has another form.
std::optional<unsigned> package_version(std::string_view path);

/// The version, or nothing and a reason in one line when the ABI is not a known one.
std::optional<Version> identify(const LibraryFacts& facts, std::string& reason);

/// Version identified when the provider was loaded.
Version current();
void set_current(Version version);

/// Offset of verbs_qp.comp_mask.
constexpr std::size_t qp_comp_mask_offset(Version version) {
  return version == Version::v44 ? kQpExSizeWithoutFlush : kQpExSizeWithoutFlush + sizeof(void*);
}
/// Offset of verbs_qp.xrcd.
constexpr std::size_t qp_xrcd_offset(Version version) {
  return qp_comp_mask_offset(version) + sizeof(void*);
}

/// Sets bits in verbs_qp.comp_mask of the library in use.
void add_qp_comp_mask(verbs_qp& qp, std::uint32_t bits);

}  // namespace softhca::provider::abi
