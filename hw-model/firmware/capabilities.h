// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "hw-model/firmware/syndromes.h"
#include "hw-model/prm/hca_cap.h"
#include "hw-model/transport/q_counters.h"

namespace softhca {

/// Sizes that the device stands for, advertised in the capabilities and enforced by the commands.
struct DeviceLimits {
  static constexpr unsigned kLogMaxQp = 18;
  static constexpr unsigned kLogMaxCq = 18;
  static constexpr unsigned kLogMaxSrq = 18;
  static constexpr unsigned kLogMaxMkey = 22;
  static constexpr unsigned kLogMaxPd = 18;
  static constexpr unsigned kLogMaxKlmList = 16;  ///< Pages or pieces of a fast registration.
  static constexpr unsigned kLogMaxXrcd = 16;
  static constexpr unsigned kLogMaxTransportDomain = 16;
  static constexpr unsigned kLogMaxUctx = 12;
  static constexpr unsigned kLogMaxSq = 10;
  static constexpr unsigned kMaxEqs = 120;       ///< EQNs are bytes in the doorbell.
  static constexpr unsigned kLogMaxQpSize = 15;  ///< Send blocks or receive WQEs.
  static constexpr unsigned kLogMaxSrqSize = 15;
  static constexpr unsigned kLogMaxCqSize = 22;
  static constexpr unsigned kLogMaxEqSize = 20;
  static constexpr unsigned kMaxSendWqe = 1024;  ///< Bytes.
  static constexpr unsigned kMaxReceiveWqe = 512;
  static constexpr unsigned kLogMaxMessage = 30;
  static constexpr unsigned kLogMaxRdAtomic = 4;
  static constexpr unsigned kLogMaxMulticastGroups = 13;
  static constexpr unsigned kMaxQpsPerGroup = 240;
  static constexpr unsigned kMaxQCounters = QCounterSet::kLimit - QCounterSet::kFirst;
  static constexpr std::uint32_t kTimerKhz = 1000000;  ///< The internal timer counts nanoseconds.
};

/// The capability areas of QUERY_HCA_CAP and SET_HCA_CAP: what the device can do (maximum) and what
/// the driver chose (current). Truthful: what is not built is not set.
class Capabilities {
 public:
  using Area = std::array<std::uint8_t, prm::kHcaCapAreaSize>;

  struct Options {
    /// Drivers are told that work requests change memory keys, so that they register memory that
    /// way, and bind windows.
    bool umr = true;
    /// Drivers are told that they may copy a WQE into a send doorbell register (PRM "BlueFlame").
    /// They are taken in any case.
    bool blue_flame = true;
  };

  explicit Capabilities(Options options) : options_(options) { reset(); }
  /// Back to power-on values.
  void reset();

  /// Area of a type; null: the device has no such group.
  const Area* query(prm::HcaCapType type, bool current) const;
  /// Takes over the fields of `wanted` that a driver may choose; the rest is read-only and ignored.
  /// Nothing changes unless Syndrome::none is returned.
  Syndrome set(prm::HcaCapType type, std::span<const std::uint8_t> wanted);

  bool checksums() const { return prm::HcaCap::cmdif_checksum::get(general_.current.data()) != 0; }
  bool host_endian_atomics() const {
    return prm::AtomicCaps::atomic_req_8B_endianness_mode::get(atomic_.current.data()) == 1;
  }

 private:
  struct Group {
    Area maximum{};
    Area current{};
  };
  void describe_general();
  void describe_memory_keys();
  void describe_atomic();

  Options options_;
  Group general_;
  Group atomic_;
  Group odp_;  ///< On-demand paging: present, offers nothing.
};

}  // namespace softhca
