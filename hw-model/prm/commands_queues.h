// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include "hw-model/prm/field.h"

namespace softhca::prm {

// Commands on event, completion and shared receive queues.

/// CREATE_EQ 0x301: input.
struct CreateEqInput {
  static constexpr std::size_t size = 0x110;

  using eq_context_entry = Block<0x10, 0x40>;
  using event_bitmask =
      Block<0x58, 0x20>;  ///< Bit of event type t is bit t of the first 64-bit word (t < 64).
  static constexpr std::size_t pas_offset = 0x110;
};

/// CREATE_EQ 0x301: output.
struct CreateEqOutput {
  static constexpr std::size_t size = 0x10;

  using eq_number = Field<0x58, 8>;
};

/// DESTROY_EQ 0x302: input.
struct DestroyEqInput {
  static constexpr std::size_t size = 0x10;

  using eq_number = Field<0x58, 8>;
};

/// QUERY_EQ 0x303: input.
struct QueryEqInput {
  static constexpr std::size_t size = 0x10;

  using eq_number = Field<0x58, 8>;
};

/// QUERY_EQ 0x303: output.
struct QueryEqOutput {
  static constexpr std::size_t size = 0x110;

  using eq_context_entry = Block<0x10, 0x40>;
  using event_bitmask = Field<0x2c0, 64>;
  static constexpr std::size_t pas_offset = 0x110;
};

/// CREATE_CQ 0x400: input.
struct CreateCqInput {
  static constexpr std::size_t size = 0x110;

  using cq_context = Block<0x10, 0x40>;
  using cq_umem_valid = Field<0x2e0, 1>;
  static constexpr std::size_t pas_offset = 0x110;
};

/// CREATE_CQ 0x400: output.
struct CreateCqOutput {
  static constexpr std::size_t size = 0x10;

  using cqn = Field<0x48, 24>;
};

/// DESTROY_CQ 0x401: input.
struct DestroyCqInput {
  static constexpr std::size_t size = 0x10;

  using cqn = Field<0x48, 24>;
};

/// QUERY_CQ 0x402: input.
struct QueryCqInput {
  static constexpr std::size_t size = 0x10;

  using cqn = Field<0x48, 24>;
};

/// QUERY_CQ 0x402: output.
struct QueryCqOutput {
  static constexpr std::size_t size = 0x110;

  using cq_context = Block<0x10, 0x40>;
  static constexpr std::size_t pas_offset = 0x110;
};

/// MODIFY_CQ 0x403, op_mod 0 modify, 1 resize: input.
struct ModifyCqInput {
  static constexpr std::size_t size = 0x110;

  using cqn = Field<0x48, 24>;
  using modify_field_select_resize_field_select =
      Block<0xc, 0x4>;  ///< op_mod 0: CqModifyField; op_mod 1: CqResizeField.
  using cq_context = Block<0x10, 0x40>;
  using cq_umem_valid = Field<0x2e0, 1>;
  static constexpr std::size_t pas_offset = 0x110;
};

/// CREATE_SRQ 0x700: input.
struct CreateSrqInput {
  static constexpr std::size_t size = 0x110;

  using srq_context_entry = Block<0x10, 0x40>;
  static constexpr std::size_t pas_offset = 0x110;
};

/// CREATE_SRQ 0x700: output.
struct CreateSrqOutput {
  static constexpr std::size_t size = 0x10;

  using srqn = Field<0x48, 24>;
};

/// DESTROY_SRQ 0x701: input.
struct DestroySrqInput {
  static constexpr std::size_t size = 0x10;

  using srqn = Field<0x48, 24>;
};

/// QUERY_SRQ 0x702: input.
struct QuerySrqInput {
  static constexpr std::size_t size = 0x10;

  using srqn = Field<0x48, 24>;
};

/// QUERY_SRQ 0x702: output.
struct QuerySrqOutput {
  static constexpr std::size_t size = 0x110;

  using srq_context_entry = Block<0x10, 0x40>;
  static constexpr std::size_t pas_offset = 0x110;
};

/// ARM_RQ 0x703, op_mod 1 is SRQ: input.
struct ArmRqInput {
  static constexpr std::size_t size = 0x10;

  using srq_number = Field<0x48, 24>;
  using lwm = Field<0x70, 16>;
};

/// CREATE_XRC_SRQ 0x705: input.
struct CreateXrcSrqInput {
  static constexpr std::size_t size = 0x110;

  using xrc_srq_context_entry = Block<0x10, 0x40>;
  using xrc_srq_umem_valid = Field<0x2e0, 1>;
  static constexpr std::size_t pas_offset = 0x110;
};

/// CREATE_XRC_SRQ 0x705: output.
struct CreateXrcSrqOutput {
  static constexpr std::size_t size = 0x10;

  using xrc_srqn = Field<0x48, 24>;
};

/// DESTROY_XRC_SRQ 0x706: input.
struct DestroyXrcSrqInput {
  static constexpr std::size_t size = 0x10;

  using xrc_srqn = Field<0x48, 24>;
};

/// QUERY_XRC_SRQ 0x707: input.
struct QueryXrcSrqInput {
  static constexpr std::size_t size = 0x10;

  using xrc_srqn = Field<0x48, 24>;
};

/// QUERY_XRC_SRQ 0x707: output.
struct QueryXrcSrqOutput {
  static constexpr std::size_t size = 0x110;

  using xrc_srq_context_entry = Block<0x10, 0x40>;
  static constexpr std::size_t pas_offset = 0x110;
};

/// ARM_XRC_SRQ 0x708, op_mod 1: input.
struct ArmXrcSrqInput {
  static constexpr std::size_t size = 0x10;

  using xrc_srqn = Field<0x48, 24>;
  using lwm = Field<0x70, 16>;
};

/// CREATE_RMP 0x90c: input.
struct CreateRmpInput {
  static constexpr std::size_t size = 0x110;

  using ctx = Block<0x20, 0xf0>;
};

/// CREATE_RMP 0x90c: output.
struct CreateRmpOutput {
  static constexpr std::size_t size = 0x10;

  using rmpn = Field<0x48, 24>;
};

/// MODIFY_RMP 0x90d: input.
struct ModifyRmpInput {
  static constexpr std::size_t size = 0x110;

  using rmp_state = Field<0x40, 4>;
  using rmpn = Field<0x48, 24>;
  using bitmask = Block<0x10, 0x8>;
  using ctx = Block<0x20, 0xf0>;
};

/// DESTROY_RMP 0x90e: input.
struct DestroyRmpInput {
  static constexpr std::size_t size = 0x10;

  using rmpn = Field<0x48, 24>;
};

/// QUERY_RMP 0x90f: input.
struct QueryRmpInput {
  static constexpr std::size_t size = 0x10;

  using rmpn = Field<0x48, 24>;
};

/// QUERY_RMP 0x90f: output.
struct QueryRmpOutput {
  static constexpr std::size_t size = 0x110;

  using rmp_context = Block<0x20, 0xf0>;
};

/// MODIFY_CQ, op_mod 0: fields to change.
enum CqModifyField : std::uint32_t {
  kCqModifyPeriod = 1U << 0,
  kCqModifyMaxCount = 1U << 1,
  kCqModifyOverrunIgnore = 1U << 2,
  kCqModifyEqn = 1U << 3,
  kCqModifyPeriodMode = 1U << 4,
};
/// MODIFY_CQ, op_mod 1: fields to change.
enum CqResizeField : std::uint32_t {
  kCqResizeLogSize = 1U << 0,
  kCqResizePageOffset = 1U << 1,
  kCqResizeLogPageSize = 1U << 2,
};

/// ModifyRmpInput::bitmask, low bit of the second word: lwm changes.
inline constexpr std::uint32_t kRmpBitmaskLwm = 1;

}  // namespace softhca::prm
