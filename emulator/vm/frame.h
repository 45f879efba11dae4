// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace softhca::vm {

/// What `softhca vm` and the agent in its guest say to each other over a virtio-serial port.
///
/// A stream of frames: magic (4 bytes), type (4), channel (4), length of the payload (4), all
/// little endian, then the payload. One command in the guest is one channel; its number is chosen
/// by who runs it.
///
/// Either end may begin anew in the middle of a frame (the guest reboots). The agent begins with
/// kResyncZeros zero bytes, which complete a frame cut short and are skipped between frames, then
/// `hello`; it ignores its input until the other end has answered with kSyncMark.
enum class FrameType : std::uint32_t {
  kHello = 1,        ///< Agent: it has started. No payload; channel 0.
  kRun = 2,          ///< To the agent: run the payload with `bash -c`.
  kInput = 3,        ///< To the agent: bytes for stdin; none: end of file.
  kSignal = 4,       ///< To the agent: payload is one byte, a signal for the process group.
  kOutput = 5,       ///< Agent: bytes of stdout.
  kErrorOutput = 6,  ///< Agent: bytes of stderr.
  kExit = 7,         ///< Agent: one byte, the exit status (128 + n for signal n). Ends the channel.
  kLost = 8,         ///< To a client: the guest restarted or ended. Ends the channel.
};

inline constexpr std::size_t kFrameHeaderBytes = 16;
inline constexpr std::size_t kMaxPayload = 32768;
inline constexpr std::size_t kResyncZeros = kFrameHeaderBytes + kMaxPayload;
inline constexpr std::string_view kSyncMark = "\x01softhca-agent-sync\x02";
/// Name of the virtio-serial port (/sys/class/virtio-ports/*/name).
inline constexpr std::string_view kPortName = "softhca.agent";

struct Frame {
  FrameType type = FrameType::kHello;
  std::uint32_t channel = 0;
  std::string payload;
};

/// Appends a frame to `stream`; the payload is at most kMaxPayload bytes.
void append_frame(std::string& stream, FrameType type, std::uint32_t channel,
                  std::string_view payload = {});

/// Takes a byte stream apart.
class FrameReader {
 public:
  void append(std::string_view bytes) { buffer_.append(bytes); }
  /// The next complete frame. Bytes that cannot begin a frame are skipped.
  std::optional<Frame> next();

 private:
  std::string buffer_;
};

}  // namespace softhca::vm
