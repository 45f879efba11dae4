// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <memory>

#include "emulator/runtime/result.h"
#include "kernel-shim/host/device/command.h"
#include "kernel-shim/host/device/dma_arena.h"

namespace softhca::shim {

/// What XRC target QPs name although they use none of it: the device wants a protection domain and
/// a CQ of every QP, the verbs give a target none (mlx5_ib_dev_res_init: p0 and c0).
class TargetObjects {
 public:
  /// `uar` and `eqn` are the driver's own.
  static runtime::Result<std::unique_ptr<TargetObjects>> create(CommandInterface& commands,
                                                                DmaArena& arena, std::uint32_t uar,
                                                                std::uint8_t eqn);
  ~TargetObjects();
  TargetObjects(const TargetObjects&) = delete;
  TargetObjects& operator=(const TargetObjects&) = delete;

  std::uint32_t pdn() const { return pdn_; }
  std::uint32_t cqn() const { return cqn_; }

 private:
  TargetObjects(CommandInterface& commands, DmaArena& arena) : commands_(commands), arena_(arena) {}
  int create_cq(std::uint32_t uar, std::uint8_t eqn);

  CommandInterface& commands_;
  DmaArena& arena_;
  DmaArena::Block memory_;  ///< A page of CQEs, then one with the doorbell record.
  std::uint32_t pdn_ = 0;
  std::uint32_t cqn_ = 0;
  bool has_pd_ = false;
  bool has_cq_ = false;
};

}  // namespace softhca::shim
