// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw-model/prm/wqe.h"

namespace softhca {

/// A send work request that needs but one packet, as it is read from one basic block.
struct DirectWqe {
  prm::WqeOpcode opcode = prm::WqeOpcode::nop;
  std::uint8_t request_opcode = 0;  ///< BTH.OpCode.
  prm::CompletionMode completion = prm::CompletionMode::only_error;
  bool solicited = false;
  std::uint32_t immediate = 0;
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t lkey = 0;
  std::uint64_t address = 0;
  std::uint32_t length = 0;         ///< Bytes of the message.
  const std::byte* data = nullptr;  ///< Inline data, in the block that was parsed.

  /// Decodes a WQE; `block` has 64 bytes, and stays. False: it is for the long way, be it good or
  /// bad.
  bool parse(const std::uint8_t* block);
};

}  // namespace softhca
