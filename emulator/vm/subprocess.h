// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "emulator/runtime/result.h"

namespace softhca::vm {

/// Full path of a program: $PATH, then the folders of system programs, which users' paths lack.
std::optional<std::string> find_program(const std::string& name);

/// stdout of a program that ends with status 0; its stderr is dropped.
runtime::Result<std::string> capture_output(const std::vector<std::string>& command);

/// Runs a program with empty input; its stdout and stderr are appended to `log_file`. EIO: it ended
/// with another status than 0.
runtime::Result<runtime::Done> run_logged(const std::vector<std::string>& command,
                                          const std::string& log_file);

/// `text` as one word of a POSIX shell.
std::string shell_quoted(const std::string& text);

}  // namespace softhca::vm
