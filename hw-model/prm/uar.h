// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw-model/prm/field.h"

/// User access region (PRM "UAR Page Format") and doorbell records (PRM "Doorbell Record").
///
/// A UAR page is 4096 bytes of doorbell registers. All words are big endian. A doorbell record is 8
/// bytes of host memory, 8-byte aligned, that holds the counters which registers only hint at.
namespace softhca::prm {

inline constexpr std::size_t kUarPageSize = 4096;

struct Uar {
  static constexpr std::size_t cq_arm = 0x20;     ///< 8 bytes: CqDoorbell.
  static constexpr std::size_t eq_arm = 0x40;     ///< 4 bytes: EqDoorbell; consumer index and arm.
  static constexpr std::size_t eq_update = 0x48;  ///< 4 bytes: EqDoorbell; consumer index only.
  /// Send doorbell ("blue flame") registers: kBlueFlameCount pairs of buffers; a driver uses the
  /// two halves of a pair in turn. Eight bytes: first 8 bytes of the last WQE's control segment;
  /// wider copies (up to the half's size) carry the WQE itself.
  static constexpr std::size_t blue_flame = 0x800;
  static constexpr std::size_t blue_flame_pair = 0x200;
  static constexpr std::size_t blue_flame_half = 0x100;
  static constexpr unsigned kBlueFlameCount = 4;
};

/// Value written to Uar::cq_arm. Its first word is what the CQ's doorbell record holds as arm word.
struct CqDoorbell {
  static constexpr std::size_t size = 8;
  using command_sn =
      Field<2, 2>;              ///< Counts completion events, modulo 4: tells repeated arms apart.
  using command = Field<7, 1>;  ///< CqArmCommand.
  using consumer_index = Field<8, 24>;
  using cqn = Field<40, 24>;
};
/// CqDoorbell::command.
struct CqArmCommand {
  static constexpr std::uint32_t next = 0;            ///< Event on the next CQE.
  static constexpr std::uint32_t next_solicited = 1;  ///< Event on the next solicited or error CQE.
};
inline constexpr std::uint32_t kCqArmSolicited = 1U << 24;
inline constexpr unsigned kCqArmSnShift = 28;
static_assert(CqDoorbell::command::shift == 24 && CqDoorbell::command_sn::shift == 28);

/// Value written to Uar::eq_arm and Uar::eq_update.
struct EqDoorbell {
  using eqn = Field<0, 8>;
  using consumer_index = Field<8, 24>;
};

/// Doorbell record of a QP.
struct QpDoorbellRecord {
  static constexpr std::size_t size = 8;
  using receive_counter = Field<16, 16>;  ///< RQ producer counter, in WQEs.
  using send_counter = Field<48, 16>;     ///< SQ producer counter, in basic blocks.
  static constexpr unsigned receive_word = 0;
  static constexpr unsigned send_word = 1;
};
/// Doorbell record of a CQ.
struct CqDoorbellRecord {
  static constexpr std::size_t size = 8;
  using consumer_index = Field<8, 24>;
  using arm_sn = Field<34, 2>;
  using arm_command = Field<39, 1>;
  using arm_consumer_index = Field<40, 24>;
  static constexpr unsigned consumer_word = 0;
  static constexpr unsigned arm_word = 1;
};
/// Doorbell record of an SRQ: word 0 counts posted entries.
struct SrqDoorbellRecord {
  static constexpr std::size_t size = 8;
  using counter = Field<16, 16>;
};

}  // namespace softhca::prm
