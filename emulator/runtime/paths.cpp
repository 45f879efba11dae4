// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/runtime/paths.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

namespace softhca::runtime {
namespace {

namespace fs = std::filesystem;

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_own_folder(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid();
}

std::string absolute(const std::string& path) {
  std::error_code error;
  const fs::path full = fs::absolute(path, error).lexically_normal();
  std::string text = error ? path : full.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

/// `path` is a real directory of ours that nobody else may enter.
Result<Done> verify_private(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return system_error(errno, path);
  if (!S_ISDIR(status.st_mode)) return Error{ENOTDIR, path + " is not a directory"};
  if (status.st_uid != ::geteuid()) {
    return Error{
        EPERM, path + " belongs to another user; set SOFTHCA_RUNTIME_DIR to a folder of your own"};
  }
  if ((status.st_mode & 077) != 0) {
    return Error{EPERM, path + " is open to other users; close it with: chmod 700 " + path};
  }
  return Done{};
}

Result<Done> make_one(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return system_error(errno, path);
  return verify_private(path);
}

std::vector<std::string> folder_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    std::string name = entry->path().filename().string();
    if (is_valid_name(name) && entry->is_directory(ignored)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

bool is_valid_name(std::string_view name) {
  if (name.empty() || name.size() > 64) return false;
  if (!is_letter_or_digit(name[0]) && name[0] != '_') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return is_letter_or_digit(c) || c == '_' || c == '.' || c == '-';
  });
}

std::string root_folder() {
  if (const char* own = std::getenv("SOFTHCA_RUNTIME_DIR"); own != nullptr && *own != 0) {
    return absolute(own);
  }
  // Under su or in a container the variable may name a folder that is not ours, or not there.
  if (const char* xdg = std::getenv("XDG_RUNTIME_DIR");
      xdg != nullptr && *xdg == '/' && is_own_folder(xdg)) {
    return absolute(std::string(xdg) + "/softhca");
  }
  return "/tmp/softhca-" + std::to_string(::geteuid());
}

FabricPaths fabric_paths(std::string_view fabric) {
  FabricPaths paths;
  paths.folder = root_folder() + "/" + std::string(fabric);
  paths.control_socket = paths.folder + "/control.sock";
  paths.lock = paths.folder + "/lock";
  paths.log = paths.folder + "/emulator.log";
  paths.hosts = paths.folder + "/hosts";
  return paths;
}

HostPaths host_paths(std::string_view fabric, std::string_view host) {
  HostPaths paths;
  paths.folder = fabric_paths(fabric).hosts + "/" + std::string(host);
  paths.device_socket = paths.folder + "/device.sock";
  paths.kernel_socket = paths.folder + "/kernel.sock";
  paths.lock = paths.folder + "/lock";
  paths.log = paths.folder + "/daemon.log";
  paths.sys = paths.folder + "/sys";
  paths.dev = paths.folder + "/dev";
  return paths;
}

Result<Done> make_private_folder(const std::string& folder) {
  const std::string root = root_folder();
  const bool inside = folder == root || folder.starts_with(root + "/");
  if (!inside) return Error{EINVAL, folder + " is not below the runtime folder " + root};

  std::error_code error;
  fs::create_directories(fs::path(root).parent_path(), error);
  if (error) return system_error(error.value(), fs::path(root).parent_path().string());
  if (auto made = make_one(root); !made) return made;
  std::string path = root;
  for (const fs::path& part : fs::path(folder).lexically_relative(root)) {
    if (part == ".") continue;
    path += "/" + part.string();
    if (auto made = make_one(path); !made) return made;
  }
  return Done{};
}

Result<FabricPaths> make_fabric_folder(std::string_view fabric) {
  if (!is_valid_name(fabric)) {
    return Error{EINVAL, "bad fabric name: 1 to 64 letters, digits, '_', '.', '-'"};
  }
  FabricPaths paths = fabric_paths(fabric);
  if (auto made = make_private_folder(paths.hosts); !made) return made.error();
  return paths;
}

Result<HostPaths> make_host_folder(std::string_view fabric, std::string_view host) {
  if (!is_valid_name(fabric)) {
    return Error{EINVAL, "bad fabric name: 1 to 64 letters, digits, '_', '.', '-'"};
  }
  if (!is_valid_name(host)) {
    return Error{EINVAL, "bad host name: 1 to 64 letters, digits, '_', '.', '-'"};
  }
  HostPaths paths = host_paths(fabric, host);
  if (auto made = make_private_folder(paths.folder); !made) return made.error();
  return paths;
}

std::vector<std::string> known_fabrics() {
  return folder_names(root_folder());
}

std::vector<std::string> known_hosts(std::string_view fabric) {
  return folder_names(fabric_paths(fabric).hosts);
}

}  // namespace softhca::runtime
