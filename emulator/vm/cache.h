// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <functional>
#include <string>

#include "emulator/runtime/result.h"

namespace softhca::vm {

/// Where what was built for guests is kept: `$SOFTHCA_CACHE_DIR`, else `$XDG_CACHE_HOME/softhca`,
/// else `~/.cache/softhca`. Everything in it may be deleted at any time that nothing is built.
std::string cache_folder();

/// Fills `folder` (which exists, empty); what happens is appended to `log_file`.
using Builder = std::function<runtime::Result<runtime::Done>(const std::string& folder,
                                                             const std::string& log_file)>;

/// Folder of the cache's entry `name`, built first if it is missing or its `recipe` (any text that
/// says what goes in) has changed. Several processes at once build it once. Building is announced
/// on stderr, once, as "building <what> ...".
runtime::Result<std::string> cached(const std::string& name, const std::string& what,
                                    const std::string& recipe, const Builder& build);

}  // namespace softhca::vm
