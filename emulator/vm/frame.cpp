// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/frame.h"

namespace softhca::vm {
namespace {

constexpr std::uint32_t kMagic = 0x4d565348;  // "HSVM"

void append_u32(std::string& stream, std::uint32_t value) {
  for (unsigned shift = 0; shift < 32; shift += 8) {
    stream.push_back(static_cast<char>(value >> shift));
  }
}

std::uint32_t u32_at(std::string_view bytes, std::size_t offset) {
  std::uint32_t value = 0;
  for (unsigned i = 0; i < 4; ++i) {
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[offset + i])) << (8 * i);
  }
  return value;
}

}  // namespace

void append_frame(std::string& stream, FrameType type, std::uint32_t channel,
                  std::string_view payload) {
  append_u32(stream, kMagic);
  append_u32(stream, static_cast<std::uint32_t>(type));
  append_u32(stream, channel);
  append_u32(stream, static_cast<std::uint32_t>(payload.size()));
  stream.append(payload);
}

std::optional<Frame> FrameReader::next() {
  std::size_t start = 0;
  std::optional<Frame> frame;
  while (!frame && buffer_.size() - start >= kFrameHeaderBytes) {
    const std::string_view rest = std::string_view(buffer_).substr(start);
    const std::uint32_t length = u32_at(rest, 12);
    if (u32_at(rest, 0) != kMagic || length > kMaxPayload) {
      ++start;
      continue;
    }
    if (rest.size() - kFrameHeaderBytes < length) break;
    frame = Frame{static_cast<FrameType>(u32_at(rest, 4)), u32_at(rest, 8),
                  std::string(rest.substr(kFrameHeaderBytes, length))};
    start += kFrameHeaderBytes + length;
  }
  buffer_.erase(0, start);
  return frame;
}

}  // namespace softhca::vm
