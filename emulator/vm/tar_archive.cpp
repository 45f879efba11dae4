// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/tar_archive.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace softhca::vm {
namespace {

namespace fs = std::filesystem;
using runtime::Done;
using runtime::Error;
using runtime::Result;
using runtime::UniqueFd;

constexpr std::size_t kBlock = 512;
constexpr std::uint64_t kMaxSize = 077777777777;  // what the size field holds

/// POSIX.1-1988 ustar header.
struct Header {
  char name[100];
  char mode[8];
  char uid[8];
  char gid[8];
  char size[12];
  char mtime[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[6];
  char version[2];
  char user[32];
  char group[32];
  char device_major[8];
  char device_minor[8];
  char prefix[155];
  char padding[12];
};
static_assert(sizeof(Header) == kBlock);

template <std::size_t size>
void put_octal(char (&field)[size], std::uint64_t value) {
  std::snprintf(field, size, "%0*llo", static_cast<int>(size - 1),
                static_cast<unsigned long long>(value));
}

/// Splits a long name at a slash between prefix and name; false: it does not fit.
bool put_name(Header& header, const std::string& name) {
  std::size_t cut = 0;
  if (name.size() > sizeof(header.name)) {
    const auto slash = name.find('/', name.size() - sizeof(header.name) - 1);
    if (slash == std::string::npos || slash == 0 || slash > sizeof(header.prefix)) return false;
    std::memcpy(header.prefix, name.data(), slash);
    cut = slash + 1;
  }
  std::memcpy(header.name, name.data() + cut, name.size() - cut);
  return true;
}

}  // namespace

Result<TarArchive> TarArchive::create(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return runtime::system_error(errno, path);
  return TarArchive(std::move(file), path);
}

void TarArchive::fail(const std::string& reason) {
  if (error_.empty()) error_ = reason;
}

void TarArchive::write(std::string_view bytes) {
  written_ += bytes.size();
  while (error_.empty() && !bytes.empty()) {
    const ssize_t put = ::write(file_.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail(path_ + ": " + std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
}

void TarArchive::pad() {
  write(std::string((kBlock - written_ % kBlock) % kBlock, '\0'));
}

void TarArchive::add_header(const Member& member) {
  Header header{};
  if (!put_name(header, member.name) || member.link.size() > sizeof(header.link)) {
    return fail("the name " + member.name + " is too long for the guest's archive");
  }
  if (member.size > kMaxSize) return fail(member.name + " is over 8 GiB");
  put_octal(header.mode, member.mode & 07777);
  put_octal(header.uid, 0);
  put_octal(header.gid, 0);
  put_octal(header.size, member.size);
  put_octal(header.mtime, 0);
  header.type = member.type;
  std::memcpy(header.link, member.link.data(), member.link.size());
  std::memcpy(header.magic, "ustar", sizeof("ustar"));
  std::memcpy(header.version, "00", 2);
  std::memset(header.checksum, ' ', sizeof(header.checksum));
  unsigned sum = 0;
  for (const unsigned char byte : std::string_view(reinterpret_cast<char*>(&header), kBlock)) {
    sum += byte;
  }
  std::snprintf(header.checksum, sizeof(header.checksum), "%06o", sum);
  write({reinterpret_cast<char*>(&header), kBlock});
}

void TarArchive::add_text(const std::string& name, std::string_view text, unsigned mode) {
  add_header({name, '0', mode, text.size(), {}});
  write(text);
  pad();
}

void TarArchive::add_path(const std::string& name, const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return fail(path + ": " + std::strerror(errno));
  if (S_ISLNK(status.st_mode)) {
    std::error_code error;
    add_header({name, '2', 0777, 0, fs::read_symlink(path, error).string()});
  } else if (S_ISDIR(status.st_mode)) {
    add_header({name + "/", '5', status.st_mode, 0, {}});
    add_folder(name, path);
  } else if (S_ISREG(status.st_mode)) {
    add_file(name, path, status.st_mode);
  }
}

void TarArchive::add_folder(const std::string& name, const std::string& path) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    add_path(name + "/" + entry.path().filename().string(), entry.path().string());
  }
  if (error) fail(path + ": " + error.message());
}

void TarArchive::add_file(const std::string& name, const std::string& path, unsigned mode) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return fail(path + ": " + std::strerror(errno));
  auto left = static_cast<std::uint64_t>(status.st_size);
  add_header({name, '0', mode, left, {}});
  char buffer[65536];
  while (error_.empty() && left > 0) {
    const ssize_t got = ::read(file.get(), buffer, std::min<std::uint64_t>(left, sizeof(buffer)));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return fail(path + " changed or failed while it was read");
    write({buffer, static_cast<std::size_t>(got)});
    left -= static_cast<std::uint64_t>(got);
  }
  pad();
}

Result<Done> TarArchive::finish() {
  write(std::string(2 * kBlock, '\0'));
  if (!error_.empty()) return Error{EIO, error_};
  return Done{};
}

}  // namespace softhca::vm
