// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

namespace softhca::capture {

/// Direction of a captured packet as seen by the interface's host (pcapng epb_flags bits 1:0).
enum class PacketDirection : std::uint8_t { unknown = 0, inbound = 1, outbound = 2 };

/// How packets lie in the file.
enum class LinkType : std::uint16_t {
  /// Endace ERF records of type INFINIBAND: what Wireshark and tshark decode, in all their
  /// versions.
  erf = 197,
  /// LINKTYPE_INFINIBAND: the bytes from LRH to VCRC and nothing else. Wireshark (4.0 at least) has
  /// no decoder registered for it.
  infiniband = 247,
};

/// Writes packets to a file in pcapng format (draft-ietf-opsawg-pcapng): one section, one interface
/// per link, time stamps in nanoseconds.
///
/// Blocks are gathered in memory and written by flush(), or when kFlushSize bytes have gathered. An
/// error of the file is kept and returned by every later call; nothing is written after it. Of a
/// non-blocking descriptor, what the reader does not take waits in memory; packets that find
/// kMaxWaiting bytes there are dropped and counted.
class PcapngWriter {
 public:
  static constexpr std::size_t kFlushSize = 64 << 10;
  static constexpr std::size_t kMaxWaiting = 32 << 20;

  /// Takes over an open descriptor (file, pipe or FIFO) and closes it at the end.
  explicit PcapngWriter(int descriptor, LinkType link_type = LinkType::erf);
  /// Flushes; an error there is lost, call flush() to learn of it.
  ~PcapngWriter();
  PcapngWriter(const PcapngWriter&) = delete;
  PcapngWriter& operator=(const PcapngWriter&) = delete;

  /// Creates or truncates the file `path`; null, with the reason in `error`, if that fails.
  static std::unique_ptr<PcapngWriter> create(const char* path, std::error_code& error,
                                              LinkType link_type = LinkType::erf);

  /// Describes one more link; returns its number, for packet().
  std::uint32_t add_interface(std::string_view name);
  /// Appends a packet that passed at `time_ns` (since the epoch) on an interface that
  /// add_interface() gave.
  std::error_code packet(std::uint32_t interface, std::uint64_t time_ns, PacketDirection direction,
                         std::span<const std::byte> bytes);
  std::error_code flush();
  /// Bytes that are not written yet.
  std::size_t waiting() const { return buffer_.size() - written_; }
  std::uint64_t dropped() const { return dropped_; }

 private:
  void begin_block(std::uint32_t type);
  void end_block();
  void u16(std::uint16_t value);
  void u32(std::uint32_t value);
  void option(std::uint16_t code, std::span<const std::byte> value);
  void append(std::span<const std::byte> bytes);
  void pad();

  int descriptor_;
  LinkType link_type_;
  std::uint32_t interfaces_ = 0;
  std::vector<std::byte> buffer_;
  std::size_t written_ = 0;  ///< Bytes at the front of buffer_ that are out already.
  std::size_t block_start_ = 0;
  std::uint64_t dropped_ = 0;
  std::error_code error_;
};

}  // namespace softhca::capture
