// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

// Initialization segment (PRM "Initialization Segment"): the first bytes of BAR0, big-endian.

/// Health buffer (iseg 0x200): why the device is unwell.
struct HealthBuffer {
  static constexpr std::size_t size = 0x40;

  using assert_existptr = Field<0x100, 32>;  ///< Program counter of the failed assertion.
  using assert_callra = Field<0x120, 32>;
  using time = Field<0x160, 32>;        ///< Seconds since start of the report.
  using fw_version = Field<0x180, 32>;  ///< Repeats the firmware revision; all ones would mean that
                                        ///< the device is gone.
  using hw_id = Field<0x1a0, 32>;       ///< Silicon identity.
  using rfr = Field<0x1c0, 1>;          ///< Recovery flow required.
  using valid = Field<0x1c4, 1>;
  using severity = Field<0x1c5, 3>;  ///< Log level of the report, 0 is emergency.
  using irisc_index = Field<0x1e0, 8>;
  using synd = Field<0x1e8, 8>;  ///< Non-zero: the device has failed; see HealthSyndrome.
  using ext_synd = Field<0x1f0, 16>;
  using assert_var0 = Field<0x0, 32>;  ///< First of six words of free detail.
};

/// HealthBuffer::synd.
enum class HealthSyndrome : std::uint8_t {
  ok = 0x0,
  firmware_error = 0x1,
  irisc_error = 0x7,
  unrecoverable_hardware_error = 0x8,
  crc_error = 0x9,
  icm_fetch_error = 0xa,
  unrecoverable_ftrace = 0xb,
  async_eq_buffer_overrun = 0xd,
  eq_error = 0xe,
  eq_invalid = 0xf,
  ffser_error = 0x10,
  high_temperature = 0x11,
};

/// Initialization segment.
struct InitializationSegment {
  static constexpr std::size_t size = 0x400c;

  using fw_rev_minor = Field<0x0, 16>;
  using fw_rev_major = Field<0x10, 16>;
  using cmd_interface_rev = Field<0x20, 16>;  ///< Version of the command interface; 5 here.
  using fw_rev_subminor = Field<0x30, 16>;
  using cmdq_phy_addr_63_32 = Field<0x80, 32>;
  using cmdq_phy_addr_31_12 = Field<0xa0, 20>;  ///< The command queue is page aligned.
  using nic_interface = Field<0xb6, 2>;         ///< 0 full driver, 1 disabled, 2 no DRAM NIC.
  using log_cmdq_size = Field<0xb8, 4>;         ///< log2 of the number of command queue entries.
  using log_cmdq_stride = Field<0xbc, 4>;       ///< log2 of the distance of entries in bytes.
  using command_doorbell_vector =
      Field<0xc0, 32>;                   ///< A set bit hands the entry of that index to the device.
  using initializing = Field<0xfe0, 1>;  ///< 1 while the device is not ready for commands.
  using nic_interface_supported = Field<0xfe5, 3>;  ///< Bits: 1 disable, 0 full driver.
  using embedded_cpu = Field<0xfe8, 1>;
  using health_buffer = Block<0x200, 0x40>;  ///< HealthBuffer.
  using cmd_q_init_to =
      Field<0x7fe0, 32>;  ///< Milliseconds a command may take; 0 leaves it to the driver.
  using cmd_exec_to = Field<0x7fc0, 32>;  ///< Unused here, 0.
  using internal_timer_h =
      Field<0x8000, 32>;  ///< Free running clock at device_frequency_khz; page 0x1000.
  using internal_timer_l = Field<0x8020, 32>;
  using health_counter = Field<0x8088, 24>;  ///< Changes as long as the device lives.
};

}  // namespace softhca::prm
