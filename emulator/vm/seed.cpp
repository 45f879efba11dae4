// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/seed.h"

#include <cerrno>
#include <cstdlib>

#include <sys/ioctl.h>
#include <unistd.h>

#include "emulator/runtime/spawn.h"
#include "emulator/vm/subprocess.h"
#include "emulator/vm/tar_archive.h"

namespace softhca::vm {
namespace {

using runtime::Done;
using runtime::Error;
using runtime::Result;

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

/// Shell variables for init.sh.
std::string settings(const Options& options) {
  std::string text = "GUEST_NAME=" + shell_quoted(options.name) +
                     "\nGUEST_MODULES=" + shell_quoted(joined(options.modules)) + "\n";
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col != 0) {
    text += "TERMINAL_SIZE='rows " + std::to_string(size.ws_row) + " cols " +
            std::to_string(size.ws_col) + "'\n";
    if (const char* terminal = std::getenv("TERM"); terminal != nullptr) {
      text += "TERMINAL=" + shell_quoted(terminal) + "\n";
    }
  }
  return text;
}

}  // namespace

Result<Done> make_seed(const Options& options, const std::string& path) {
  const std::string parts = runtime::executable_folder() + "/../lib/";
  const std::string agent = parts + "softhca-vm-agent";
  const std::string init = parts + "softhca-vm-init";
  for (const std::string& part : {agent, init}) {
    if (::access(part.c_str(), R_OK) != 0) {
      return Error{ENOENT, part + " is missing: build the project (scripts/setup)"};
    }
  }
  auto archive = TarArchive::create(path);
  if (!archive) return archive.error();
  archive->add_path("softhca/agent", agent);
  archive->add_path("softhca/init", init);
  archive->add_text("softhca/settings", settings(options), 0644);
  for (const CopiedPath& copy : options.copies) {
    archive->add_path(copy.guest_path.substr(1), copy.path);
  }
  return archive->finish();
}

}  // namespace softhca::vm
