// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "hw-model/prm/iseg.h"
#include "hw-model/runtime/clock.h"

namespace softhca {

/// Firmware revision as the device reports it.
struct FirmwareRevision {
  static constexpr std::uint16_t kMajor = 16;
  static constexpr std::uint16_t kMinor = 35;
  static constexpr std::uint16_t kSubminor = 2000;
};

/// The registers at the start of BAR0: initialization segment, health buffer, internal timer (PRM
/// "Initialization Segment"). Word accesses only, in host order; the bus is big-endian.
class InitializationSegment {
 public:
  static constexpr std::uint64_t kSize = 0x2000;  ///< Two pages; the second holds the timer.

  /// Something that a write asks the device to do.
  struct Request {
    enum class Kind : std::uint8_t { set_command_queue, disable, ring } kind;
    std::uint64_t value;  ///< Address of the command queue, or the doorbell vector.
  };

  explicit InitializationSegment(const Clock& clock);

  void reset();
  /// `offset`: a multiple of 4 below kSize.
  std::uint32_t read(std::uint64_t offset) const;
  std::optional<Request> write(std::uint64_t offset, std::uint32_t value);

  /// The device has failed: the health buffer says so and the health counter stops.
  void fail(prm::HealthSyndrome syndrome);
  std::uint8_t health_syndrome() const;
  /// The driver interface is off (as after reset by the driver).
  bool interface_disabled() const { return nic_state_ != 0; }

 private:
  std::uint32_t health_counter() const;

  const Clock& clock_;
  std::array<std::uint8_t, 0x240> bytes_{};  ///< Everything that does not move by itself.
  std::uint32_t command_queue_high_ = 0;
  std::uint32_t nic_state_ = 0;
  std::optional<std::uint32_t> stopped_counter_;
};

}  // namespace softhca
