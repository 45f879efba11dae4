// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/device/initialization_segment.h"

#include "hw-model/firmware/command_queue.h"

namespace softhca {
namespace {

using prm::HealthBuffer;
using Iseg = prm::InitializationSegment;
using Word = prm::Field<0, 32>;

constexpr std::uint16_t kCommandInterfaceRevision = 5;
constexpr std::uint64_t kCommandQueueHigh = Iseg::cmdq_phy_addr_63_32::byte_offset;
constexpr std::uint64_t kCommandQueueLow = Iseg::cmdq_phy_addr_31_12::byte_offset;
constexpr std::uint64_t kDoorbell = Iseg::command_doorbell_vector::byte_offset;
constexpr std::uint64_t kTimerHigh = Iseg::internal_timer_h::byte_offset;
constexpr std::uint64_t kTimerLow = Iseg::internal_timer_l::byte_offset;
constexpr std::uint64_t kHealthCounter = Iseg::health_counter::byte_offset;
static_assert(kCommandQueueLow == 0x14 && kDoorbell == 0x18 && kTimerHigh == 0x1000 &&
              kHealthCounter == 0x1010);

// Drivers use three bits of the interface state (bits 8 to 10 of the low address word).
constexpr unsigned kNicStateShift = 8;
constexpr std::uint32_t kNicStateMask = 0x7;
constexpr std::uint32_t kNicDisabled = 1;
constexpr unsigned kHealthPeriodShift = 25;  // the counter moves every 34 ms

}  // namespace

InitializationSegment::InitializationSegment(const Clock& clock) : clock_(clock) {
  reset();
}

void InitializationSegment::reset() {
  bytes_.fill(0);
  command_queue_high_ = 0;
  stopped_counter_.reset();
  std::uint8_t* iseg = bytes_.data();
  Iseg::fw_rev_major::set(iseg, FirmwareRevision::kMajor);
  Iseg::fw_rev_minor::set(iseg, FirmwareRevision::kMinor);
  Iseg::fw_rev_subminor::set(iseg, FirmwareRevision::kSubminor);
  Iseg::cmd_interface_rev::set(iseg, kCommandInterfaceRevision);
  Iseg::log_cmdq_size::set(iseg, CommandQueue::kLogSize);
  Iseg::log_cmdq_stride::set(iseg, CommandQueue::kLogStride);
  Iseg::nic_interface_supported::set(iseg, 0x3);
  // Until a driver gives its command queue. A driver whose device is reset behind its back finds
  // out by this, and recovers.
  nic_state_ = kNicDisabled;
  Iseg::nic_interface::set(iseg, nic_state_);
  std::uint8_t* health = Iseg::health_buffer::at(iseg);
  HealthBuffer::fw_version::set(health, std::uint32_t{FirmwareRevision::kMajor} << 24 |
                                            std::uint32_t{FirmwareRevision::kMinor} << 16 |
                                            FirmwareRevision::kSubminor);
}

std::uint32_t InitializationSegment::health_counter() const {
  if (stopped_counter_) return *stopped_counter_;
  return static_cast<std::uint32_t>(clock_.now() >> kHealthPeriodShift) & 0xffffff;
}

std::uint32_t InitializationSegment::read(std::uint64_t offset) const {
  switch (offset) {
    case kDoorbell:
      return 0;
    case kTimerHigh:
      return static_cast<std::uint32_t>(clock_.now() >> 32);
    case kTimerLow:
      return static_cast<std::uint32_t>(clock_.now());
    case kHealthCounter:
      return health_counter();
    default:
      return offset < bytes_.size() ? static_cast<std::uint32_t>(Word::get(bytes_.data() + offset))
                                    : 0;
  }
}

std::optional<InitializationSegment::Request> InitializationSegment::write(std::uint64_t offset,
                                                                           std::uint32_t value) {
  switch (offset) {
    case kCommandQueueHigh:
      command_queue_high_ = value;
      return std::nullopt;
    case kCommandQueueLow: {
      const bool disable = (value >> kNicStateShift & kNicStateMask) != 0;
      nic_state_ = disable ? kNicDisabled : 0;
      Iseg::nic_interface::set(bytes_.data(), nic_state_);
      if (disable) return Request{Request::Kind::disable, 0};
      constexpr std::uint32_t kPage = 0xfff;
      return Request{Request::Kind::set_command_queue,
                     std::uint64_t{command_queue_high_} << 32 | (value & ~kPage)};
    }
    case kDoorbell:
      return Request{Request::Kind::ring, value};
    default:
      return std::nullopt;
  }
}

void InitializationSegment::fail(prm::HealthSyndrome syndrome) {
  stopped_counter_ = health_counter();
  std::uint8_t* health = Iseg::health_buffer::at(bytes_.data());
  HealthBuffer::synd::set(health, static_cast<std::uint8_t>(syndrome));
  HealthBuffer::valid::set(health, 1);
  HealthBuffer::rfr::set(health, 1);
}

std::uint8_t InitializationSegment::health_syndrome() const {
  return static_cast<std::uint8_t>(HealthBuffer::synd::get(Iseg::health_buffer::at(bytes_.data())));
}

}  // namespace softhca
