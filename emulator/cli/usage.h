// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Error;
}  // namespace CLI

namespace softhca::cli {

/// The candidate that `word` is probably a mistyping of; empty: none is near enough.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

/// Says that `app` does not know `word` (an option, a subcommand or an argument), and what was
/// probably meant.
std::string unknown_word(const CLI::App& app, const std::string& word);

/// One line about arguments that `root` refused with `error`: which subcommand, which word, and
/// where to read on.
std::string usage_message(const CLI::App& root, const CLI::Error& error);

}  // namespace softhca::cli
