// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/capture/pcapng_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace softhca::capture {
namespace {

constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a;
constexpr std::uint32_t kInterfaceDescription = 1;
constexpr std::uint32_t kEnhancedPacket = 6;
constexpr std::uint32_t kByteOrderMagic = 0x1a2b3c4d;

constexpr std::uint16_t kOptionEnd = 0;
constexpr std::uint16_t kOptionUserApplication = 4;  // shb_userappl
constexpr std::uint16_t kOptionInterfaceName = 2;    // if_name
constexpr std::uint16_t kOptionTimeResolution = 9;   // if_tsresol
constexpr std::uint16_t kOptionPacketFlags = 2;      // epb_flags

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

constexpr std::size_t kErfHeaderSize = 16;

/// ERF record header: time as 32.32 fixed point, little-endian; the rest is big-endian.
std::array<std::byte, kErfHeaderSize> erf_header(std::uint32_t interface, std::uint64_t time_ns,
                                                 std::size_t length) {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  constexpr std::uint8_t kTypeInfiniband = 21;
  constexpr std::uint8_t kVaryingLength = 4;
  const std::uint64_t time = time_ns / kSecond << 32 | ((time_ns % kSecond) << 32) / kSecond;
  const std::size_t record = length + kErfHeaderSize;
  std::array<std::byte, kErfHeaderSize> header{};
  for (unsigned i = 0; i < 8; ++i) header[i] = static_cast<std::byte>(time >> 8 * i);
  header[8] = std::byte{kTypeInfiniband};
  header[9] = static_cast<std::byte>(kVaryingLength | (interface & 3));
  header[10] = static_cast<std::byte>(record >> 8);
  header[11] = static_cast<std::byte>(record);
  header[14] = static_cast<std::byte>(length >> 8);
  header[15] = static_cast<std::byte>(length);
  return header;
}

}  // namespace

PcapngWriter::PcapngWriter(int descriptor, LinkType link_type)
    : descriptor_(descriptor), link_type_(link_type) {
  buffer_.reserve(kFlushSize + (16 << 10));
  begin_block(kSectionHeader);
  u32(kByteOrderMagic);
  u16(1);
  u16(0);
  u32(0xffffffff);  // Section length not known.
  u32(0xffffffff);
  option(kOptionUserApplication, bytes_of("softhca"));
  option(kOptionEnd, {});
  end_block();
}

PcapngWriter::~PcapngWriter() {
  (void)flush();
  ::close(descriptor_);
}

std::unique_ptr<PcapngWriter> PcapngWriter::create(const char* path, std::error_code& error,
                                                   LinkType link_type) {
  const int descriptor = ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    error.assign(errno, std::generic_category());
    return nullptr;
  }
  error.clear();
  return std::make_unique<PcapngWriter>(descriptor, link_type);
}

std::uint32_t PcapngWriter::add_interface(std::string_view name) {
  begin_block(kInterfaceDescription);
  u16(static_cast<std::uint16_t>(link_type_));
  u16(0);
  u32(0);  // No limit on the captured length.
  option(kOptionInterfaceName, bytes_of(name.substr(0, 0xffff)));
  const std::byte nanoseconds{9};
  option(kOptionTimeResolution, {&nanoseconds, 1});
  option(kOptionEnd, {});
  end_block();
  return interfaces_++;
}

std::error_code PcapngWriter::packet(std::uint32_t interface, std::uint64_t time_ns,
                                     PacketDirection direction, std::span<const std::byte> bytes) {
  if (error_) return error_;
  if (waiting() >= kMaxWaiting) {
    ++dropped_;
    return error_;
  }
  begin_block(kEnhancedPacket);
  u32(interface);
  u32(static_cast<std::uint32_t>(time_ns >> 32));
  u32(static_cast<std::uint32_t>(time_ns));
  const bool erf = link_type_ == LinkType::erf;
  const std::size_t length = bytes.size() + (erf ? kErfHeaderSize : 0);
  u32(static_cast<std::uint32_t>(length));
  u32(static_cast<std::uint32_t>(length));
  if (erf) append(erf_header(interface, time_ns, bytes.size()));
  append(bytes);
  pad();
  const auto flags = static_cast<std::uint32_t>(direction);
  option(kOptionPacketFlags, std::as_bytes(std::span(&flags, 1)));
  option(kOptionEnd, {});
  end_block();
  return waiting() >= kFlushSize ? flush() : error_;
}

std::error_code PcapngWriter::flush() {
  while (!error_ && waiting() > 0) {
    const ssize_t written = ::write(descriptor_, buffer_.data() + written_, waiting());
    if (written < 0) {
      if (errno == EAGAIN) return error_;  // the reader is behind
      if (errno != EINTR) error_.assign(errno, std::generic_category());
      continue;
    }
    written_ += static_cast<std::size_t>(written);
  }
  buffer_.clear();
  written_ = 0;
  return error_;
}

void PcapngWriter::begin_block(std::uint32_t type) {
  block_start_ = buffer_.size();
  u32(type);
  u32(0);
}

void PcapngWriter::end_block() {
  const auto length = static_cast<std::uint32_t>(buffer_.size() - block_start_ + 4);
  u32(length);
  std::memcpy(buffer_.data() + block_start_ + 4, &length, sizeof length);
}

// The section header's magic says which byte order this is: the machine's own.
void PcapngWriter::u16(std::uint16_t value) {
  append(std::as_bytes(std::span(&value, 1)));
}

void PcapngWriter::u32(std::uint32_t value) {
  append(std::as_bytes(std::span(&value, 1)));
}

void PcapngWriter::option(std::uint16_t code, std::span<const std::byte> value) {
  u16(code);
  u16(static_cast<std::uint16_t>(value.size()));
  append(value);
  pad();
}

void PcapngWriter::append(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void PcapngWriter::pad() {
  const std::size_t used = buffer_.size() - block_start_;
  buffer_.resize(buffer_.size() + (4 - used % 4) % 4);
}

}  // namespace softhca::capture
