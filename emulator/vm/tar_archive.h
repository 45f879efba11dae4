// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "emulator/runtime/result.h"
#include "emulator/runtime/unique_fd.h"

namespace softhca::vm {

/// Writes a tar archive (POSIX ustar) whose members belong to root. Any error sticks; finish() says
/// whether all went well.
class TarArchive {
 public:
  static runtime::Result<TarArchive> create(const std::string& path);

  void add_text(const std::string& name, std::string_view text, unsigned mode);
  /// A file, symbolic link or folder with all it holds. Devices and sockets are left out.
  void add_path(const std::string& name, const std::string& path);
  runtime::Result<runtime::Done> finish();

 private:
  explicit TarArchive(runtime::UniqueFd file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}

  struct Member {
    std::string name;
    char type = '0';
    unsigned mode = 0;
    std::uint64_t size = 0;
    std::string link;
  };
  void add_header(const Member& member);
  void add_folder(const std::string& name, const std::string& path);
  void add_file(const std::string& name, const std::string& path, unsigned mode);
  void write(std::string_view bytes);
  void pad();
  void fail(const std::string& reason);

  runtime::UniqueFd file_;
  std::string path_;
  std::uint64_t written_ = 0;
  std::string error_;
};

}  // namespace softhca::vm
