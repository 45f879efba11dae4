// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/capture/link_capture.h"

#include <ctime>
#include <utility>

namespace softhca::capture {

LinkCapture::LinkCapture(std::unique_ptr<PcapngWriter> writer, const Clock& clock)
    : writer_(std::move(writer)) {
  std::timespec wall{};
  std::timespec_get(&wall, TIME_UTC);
  epoch_offset_ = static_cast<std::uint64_t>(wall.tv_sec) * 1'000'000'000ULL +
                  static_cast<std::uint64_t>(wall.tv_nsec) - clock.now();
}

void LinkCapture::observe(const fabric::LinkObservation& observation) {
  const auto direction = observation.direction == fabric::Direction::from_host
                             ? PacketDirection::outbound
                             : PacketDirection::inbound;
  const auto error =
      writer_->packet(interface_of(observation.link), observation.time + epoch_offset_, direction,
                      observation.bytes);
  if (!error) ++packets_;
}

std::error_code LinkCapture::flush() {
  return writer_->flush();
}

std::uint32_t LinkCapture::interface_of(std::string_view link) {
  const auto known = interfaces_.find(link);
  if (known != interfaces_.end()) return known->second;
  const std::uint32_t number = writer_->add_interface(link);
  interfaces_.emplace(link, number);
  return number;
}

}  // namespace softhca::capture
