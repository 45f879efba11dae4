// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/device-server/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <system_error>

namespace softhca::emulator {
namespace {

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Mapping::~Mapping() {
  if (base_ != nullptr) ::munmap(base_, size_);
}

SharedMemory::SharedMemory(const char* name, std::size_t size)
    : fd_(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!fd_) fail("memfd_create");
  if (::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) fail("ftruncate");
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0) {
    fail("F_ADD_SEALS");
  }
  void* base = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) fail("mmap");
  mapping_ = Mapping(static_cast<std::byte*>(base), size);
}

}  // namespace softhca::emulator
