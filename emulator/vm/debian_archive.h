// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>
#include <vector>

#include "emulator/runtime/result.h"

namespace softhca::vm {

/// The Debian archive that this machine's own apt uses.
struct DebianArchive {
  std::string mirror;                ///< URL of the archive, without a slash at its end.
  std::vector<std::string> options;  ///< apt options of this machine that reach it (proxies).
};

/// From `apt-get indextargets`, or `$SOFTHCA_DEBIAN_MIRROR`. ENOENT: apt knows no Debian archive.
runtime::Result<DebianArchive> debian_archive();

/// What `mmdebstrap` makes: a tar of a Debian system, or of unpacked packages only.
struct Bootstrap {
  std::string variant;                 ///< mmdebstrap's --variant.
  std::string suite;                   ///< e.g. "trixie".
  bool with_backports = false;         ///< Adds `<suite>-backports` and prefers it.
  std::vector<std::string> packages;   ///< Beside those of the variant; no recommended ones.
  std::vector<std::string> arguments;  ///< Further ones, such as hooks.
};

/// A text that changes when what would be made changes.
std::string recipe_of(const Bootstrap& bootstrap);

/// Makes `tar_file`. The error names the packages or servers that were not to be had.
runtime::Result<runtime::Done> make_system(const Bootstrap& bootstrap, const std::string& tar_file,
                                           const std::string& log_file);

}  // namespace softhca::vm
