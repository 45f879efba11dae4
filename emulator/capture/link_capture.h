// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <system_error>

#include "emulator/capture/pcapng_writer.h"
#include "hw-model/fabric/link.h"
#include "hw-model/runtime/clock.h"

namespace softhca::capture {

/// Writes what passes over the links it observes (Fabric::add_observer) to a pcapng file, one
/// interface per link. Remove it from the fabric before it ends.
class LinkCapture final : public fabric::LinkObserver {
 public:
  /// `clock`: the one whose time the observations carry; it is placed in wall-clock time once, now.
  LinkCapture(std::unique_ptr<PcapngWriter> writer, const Clock& clock);

  void observe(const fabric::LinkObservation& observation) override;

  /// Writes out what has gathered; call it when the engine has nothing else to do. The first error
  /// of the file ends the capture: it is returned here from then on, and packets are no longer
  /// kept.
  std::error_code flush();
  /// Packets written or waiting to be.
  std::uint64_t packets() const { return packets_ - dropped(); }
  /// Packets lost because the reader was too slow.
  std::uint64_t dropped() const { return writer_->dropped(); }
  /// True while the reader has not taken all.
  bool waits() const { return writer_->waiting() > 0; }

 private:
  std::uint32_t interface_of(std::string_view link);

  std::unique_ptr<PcapngWriter> writer_;
  std::uint64_t epoch_offset_ = 0;  ///< Wall-clock time minus device time, in ns.
  std::map<std::string, std::uint32_t, std::less<>> interfaces_;
  std::uint64_t packets_ = 0;
};

}  // namespace softhca::capture
