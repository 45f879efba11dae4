// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>

#include "hw-model/prm/commands_hca.h"
#include "kernel-shim/host/device/command.h"
#include "kernel-shim/host/device/dma_arena.h"

namespace softhca::shim {

/// Pages that the driver lends the firmware (PRM "Memory management"): boot and init pages, and
/// what it asks for or gives back by page request events. Errors are errno values.
class FirmwarePages {
 public:
  FirmwarePages(CommandInterface& commands, DmaArena& arena) : commands_(commands), arena_(arena) {}

  /// QUERY_PAGES, then gives what it asks for.
  int satisfy(prm::QueryPagesOp kind);
  /// A page request event: positive gives, negative takes back.
  int request(std::int32_t pages);
  /// After TEARDOWN_HCA: takes every page back. ETIMEDOUT-like failures leave the rest to process
  /// exit.
  int reclaim_all();

  std::size_t given() const { return given_.size(); }

 private:
  int give(std::uint32_t count);
  int take(std::uint32_t count);

  CommandInterface& commands_;
  DmaArena& arena_;
  std::map<std::uint64_t, DmaArena::Block> given_;  ///< By address.
};

}  // namespace softhca::shim
