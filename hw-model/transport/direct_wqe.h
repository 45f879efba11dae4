// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw-model/ib/direct.h"
#include "hw-model/prm/wqe.h"

namespace softhca {

/// A send work request that needs but one packet, as it is read from one basic block.
struct DirectWqe {
  /// As the peer gets it, without PSN; the data are there if they are inline, in the block that was
  /// parsed.
  ib::DirectRequest request;
  prm::WqeOpcode opcode = prm::WqeOpcode::nop;
  prm::CompletionMode completion = prm::CompletionMode::only_error;
  std::uint32_t lkey = 0;
  std::uint64_t address = 0;

  /// Decodes a WQE; `block` has 64 bytes, and stays. False: it is for the long way, be it good or
  /// bad.
  bool parse(const std::uint8_t* block);
};

}  // namespace softhca
