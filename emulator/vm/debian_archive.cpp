// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/debian_archive.h"

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>

#include <unistd.h>

#include "emulator/vm/subprocess.h"

namespace softhca::vm {
namespace {

using runtime::Done;
using runtime::Error;
using runtime::Result;

constexpr char kKeyring[] = "/usr/share/keyrings/debian-archive-keyring.gpg";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string without_slash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

/// Settings that tell apt how to reach servers: "Acquire::http::Proxy "..."" and the like.
std::vector<std::string> transport_options() {
  std::vector<std::string> options;
  const auto dump = capture_output({"apt-config", "dump", "Acquire"});
  if (!dump) return options;
  for (const std::string& line : lines_of(dump.value())) {
    if (line.starts_with("Acquire::http::") || line.starts_with("Acquire::https::") ||
        line.starts_with("Acquire::Retries")) {
      options.push_back(line);
    }
  }
  return options;
}

/// What in apt's log says that something could not be had; at most a few lines.
std::string fetch_errors(const std::string& log_file) {
  std::ifstream log(log_file);
  std::string errors;
  int count = 0;
  for (std::string line; std::getline(log, line) && count < 8;) {
    if (line.starts_with("E: ") || line.starts_with("Err:") || line.starts_with("W: Failed")) {
      errors += "\n  " + line;
      ++count;
    }
  }
  return errors;
}

}  // namespace

Result<DebianArchive> debian_archive() {
  DebianArchive archive;
  archive.options = transport_options();
  if (const char* mirror = std::getenv("SOFTHCA_DEBIAN_MIRROR"); mirror && *mirror != 0) {
    archive.mirror = without_slash(mirror);
    return archive;
  }
  // One line per index that apt is configured to use, e.g. "Debian|bookworm|http://...".
  const auto targets = capture_output({"apt-get", "indextargets", "--format",
                                       "$(LABEL)|$(RELEASE)|$(REPO_URI)", "Created-By: Packages"});
  if (!targets) return targets.error();
  for (const std::string& line : lines_of(targets.value())) {
    const auto first = line.find('|');
    const auto second = line.find('|', first + 1);
    if (second == std::string::npos) continue;
    const std::string label = line.substr(0, first);
    const std::string url = line.substr(second + 1);
    // Before the first `apt-get update` there are no labels, but addresses end as Debian's do.
    const bool is_debian =
        label == "Debian" || (label.starts_with("$(") && url.ends_with("/debian/"));
    if (!is_debian) continue;
    archive.mirror = without_slash(url);
    return archive;
  }
  return Error{ENOENT,
               "apt on this machine uses no Debian archive: name one by "
               "SOFTHCA_DEBIAN_MIRROR=http://..."};
}

std::string recipe_of(const Bootstrap& bootstrap) {
  std::string recipe =
      bootstrap.variant + "|" + bootstrap.suite + (bootstrap.with_backports ? "+backports" : "");
  for (const std::string& package : bootstrap.packages) recipe += "|" + package;
  for (const std::string& argument : bootstrap.arguments) recipe += "|" + argument;
  return recipe;
}

Result<Done> make_system(const Bootstrap& bootstrap, const std::string& tar_file,
                         const std::string& log_file) {
  if (!find_program("mmdebstrap")) {
    return Error{ENOENT, "mmdebstrap is missing; install it: apt-get install mmdebstrap"};
  }
  const auto archive = debian_archive();
  if (!archive) return archive.error();
  std::string include;
  for (const std::string& package : bootstrap.packages) {
    include += (include.empty() ? "" : ",") + package;
  }
  std::vector<std::string> command = {"mmdebstrap",
                                      "--variant=" + bootstrap.variant,
                                      "--architectures=amd64",
                                      "--format=tar",
                                      "--include=" + include,
                                      "--aptopt=APT::Install-Recommends \"false\""};
  for (const std::string& option : archive.value().options) command.push_back("--aptopt=" + option);
  if (::access(kKeyring, R_OK) == 0) command.push_back(std::string("--keyring=") + kKeyring);
  if (bootstrap.with_backports) {
    command.push_back("--aptopt=APT::Default-Release \"" + bootstrap.suite + "-backports\"");
  }
  command.insert(command.end(), bootstrap.arguments.begin(), bootstrap.arguments.end());
  command.push_back(bootstrap.suite);
  command.push_back(tar_file);
  const std::string& mirror = archive.value().mirror;
  command.push_back("deb " + mirror + " " + bootstrap.suite + " main");
  if (bootstrap.with_backports) {
    command.push_back("deb " + mirror + " " + bootstrap.suite + "-backports main");
  }
  if (auto made = run_logged(command, log_file); !made) {
    return Error{EIO, "mmdebstrap of " + bootstrap.suite + " from " + mirror +
                          " failed (is the network there?):" + fetch_errors(log_file) +
                          "\nthe whole log: " + log_file};
  }
  return Done{};
}

}  // namespace softhca::vm
