// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fake_daemon.h"
#include "kernel-shim/preload/ioctl_layout.h"

namespace softhca::shim::test {

inline constexpr std::size_t kPage = 4096;

/// An ioctl under construction; attribute numbers are positions.
class FakeCall {
 public:
  explicit FakeCall(std::uint16_t method, std::uint16_t object = kFakeObject) : words_(3) {
    header().object_id = object;
    header().method_id = method;
  }

  FakeCall& pointer(const void* data, std::size_t length) {
    return add(reinterpret_cast<std::uint64_t>(data), static_cast<std::uint16_t>(length));
  }
  FakeCall& value(std::uint64_t value) { return add(value, sizeof(value)); }
  FakeCall& empty(std::uint64_t data = 0) { return add(data, 0); }

  preload::IoctlHeader& header() { return *reinterpret_cast<preload::IoctlHeader*>(words_.data()); }
  preload::IoctlAttribute& attribute(unsigned i) {
    return reinterpret_cast<preload::IoctlAttribute*>(words_.data() + 3)[i];
  }
  int run(int fd) { return ::ioctl(fd, preload::kVerbsIoctl, words_.data()); }

 private:
  FakeCall& add(std::uint64_t data, std::uint16_t length) {
    words_.resize(words_.size() + 2);
    preload::IoctlAttribute& added = attribute(header().num_attrs);
    added.attr_id = header().num_attrs++;
    added.len = length;
    added.data = data;
    header().length = static_cast<std::uint16_t>(words_.size() * 8);
    return *this;
  }

  std::vector<std::uint64_t> words_;
};

/// The opened device.
class Device {
 public:
  explicit Device(int flags = O_RDWR | O_CLOEXEC) : fd_(::open("/dev/infiniband/uverbs0", flags)) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { ::close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

/// True if kEcho works on this descriptor.
inline bool echoes(int fd, std::uint16_t method = kEcho) {
  const char sent[24] = "0123456789 0123456789";
  char got[24] = {};
  FakeCall call(method);
  call.pointer(sent, sizeof(sent)).pointer(got, sizeof(got));
  return call.run(fd) == 0 && std::equal(sent, sent + sizeof(sent), got);
}

/// Asks for sharing; 0 or errno.
inline int share(int fd, const void* address, std::uint64_t length, ShareResult& result,
                 const void* zero_at = nullptr, std::uint64_t flags = 0) {
  FakeCall call(kShare);
  call.value(reinterpret_cast<std::uint64_t>(address)).value(length);
  call.value(reinterpret_cast<std::uint64_t>(zero_at)).pointer(&result, sizeof(result));
  call.value(flags);
  return call.run(fd) == 0 ? 0 : errno;
}

}  // namespace softhca::shim::test
