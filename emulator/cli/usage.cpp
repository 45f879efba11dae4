// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/cli/usage.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>

namespace softhca::cli {
namespace {

/// Letters to insert, remove, replace or swap with their neighbour to make one word the other.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t other = a[i - 1] == b[j - 1] ? 0 : 1;
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + other});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = std::exchange(last, row);
  }
  return last[b.size()];
}

bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word != "--";
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

/// `root` and the subcommands that the arguments named, as far as they were understood.
std::vector<const CLI::App*> path_of(const CLI::App& root) {
  std::vector<const CLI::App*> path{&root};
  while (!path.back()->get_subcommands().empty()) {
    path.push_back(path.back()->get_subcommands().front());
  }
  return path;
}

/// What none of `path` had a use for: the innermost one's word first.
std::optional<std::string> unknown_in(const std::vector<const CLI::App*>& path) {
  for (auto app = path.rbegin(); app != path.rend(); ++app) {
    const std::vector<std::string> words = (*app)->remaining();
    if (words.empty()) continue;
    // What follows "--", or a program's name, is another program's.
    if ((*app)->get_prefix_command() && !is_option(words.front())) continue;
    // An outer one gets the words that the innermost did not know.
    return unknown_word(*path.back(), words.front());
  }
  return std::nullopt;
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  // A third of the letters may be wrong, but a word of two or three is not guessed at.
  std::size_t best_distance = std::min<std::size_t>(3, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t found = distance(word, candidate);
    if (found >= best_distance) continue;
    best_distance = found;
    best = candidate;
  }
  return best;
}

std::string unknown_word(const CLI::App& app, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const std::vector<std::string> subcommands = subcommands_of(app);
  std::string text;
  std::string meant;
  if (is_option(word)) {
    text = "no option '" + name + "'";
    meant = nearest(name, options_of(app));
  } else if (!subcommands.empty()) {
    text = "no subcommand '" + word + "'";
    meant = nearest(word, subcommands);
  } else {
    text = "unexpected argument '" + word + "'";
  }
  return meant.empty() ? text : text + ", did you mean '" + meant + "'?";
}

std::string usage_message(const CLI::App& root, const CLI::Error& error) {
  const std::vector<const CLI::App*> path = path_of(root);
  std::string command = root.get_name();
  std::string where;
  for (std::size_t i = 1; i < path.size(); ++i) {
    command += " " + path[i]->get_name();
    where += path[i]->get_name() + (i + 1 < path.size() ? " " : ": ");
  }
  const std::string what = unknown_in(path).value_or(error.what());
  return root.get_name() + ": " + where + what + "; see: " + command + " --help\n";
}

}  // namespace softhca::cli
