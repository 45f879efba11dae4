// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/cache.h"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <pwd.h>
#include <unistd.h>

#include "emulator/runtime/lock.h"

namespace softhca::vm {
namespace {

namespace fs = std::filesystem;
using runtime::Error;
using runtime::Result;

/// FNV-1a: tells recipes apart, nothing more.
std::string fingerprint(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char character : text) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3;
  }
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string home_folder() {
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') return home;
  const passwd* entry = ::getpwuid(::getuid());
  return entry != nullptr ? entry->pw_dir : "/tmp";
}

Result<std::string> build_entry(const std::string& folder, const std::string& log_file,
                                const std::string& what, const Builder& build) {
  const std::string partial = folder + ".partial";
  std::error_code error;
  fs::remove_all(partial, error);
  fs::create_directories(partial, error);
  if (error) return runtime::system_error(error.value(), partial);
  fs::remove(log_file, error);
  std::fprintf(stderr, "softhca: building %s (some minutes, once; log: %s)\n", what.c_str(),
               log_file.c_str());
  if (auto built = build(partial, log_file); !built) {
    fs::remove_all(partial, error);
    return built.error();
  }
  fs::rename(partial, folder, error);
  if (error) return runtime::system_error(error.value(), folder);
  fs::remove(log_file, error);
  return folder;
}

}  // namespace

std::string cache_folder() {
  for (const auto& [variable, suffix] :
       {std::pair("SOFTHCA_CACHE_DIR", ""), std::pair("XDG_CACHE_HOME", "/softhca")}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value != 0) return fs::absolute(value).string() + suffix;
  }
  return home_folder() + "/.cache/softhca";
}

Result<std::string> cached(const std::string& name, const std::string& what,
                           const std::string& recipe, const Builder& build) {
  const std::string base = cache_folder() + "/" + name;
  const std::string folder = base + "-" + fingerprint(recipe);
  std::error_code error;
  if (fs::is_directory(folder, error)) return folder;
  fs::create_directories(cache_folder(), error);
  if (error) return runtime::system_error(error.value(), cache_folder());
  const auto lock = runtime::FileLock::acquire(base + ".lock", std::chrono::hours(2));
  if (!lock) return Error{EBUSY, "another process has been building " + what + " for two hours"};
  if (fs::is_directory(folder, error)) return folder;
  return build_entry(folder, base + ".log", what, build);
}

}  // namespace softhca::vm
