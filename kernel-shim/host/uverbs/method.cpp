// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/uverbs/method.h"

namespace softhca::shim {

const Method* find_method(std::uint16_t object, std::uint16_t method) {
  for (const std::span<const Method>& table :
       {kDeviceMethods, kPdMethods, kMrMethods, kCqMethods, kQpMethods, kSrqMethods, kUarMethods,
        kXrcdMethods}) {
    for (const Method& row : table) {
      if (row.object == object && row.method == method) return &row;
    }
  }
  return nullptr;
}

const WriteCommand* find_write_command(std::uint32_t command) {
  for (const std::span<const WriteCommand>& table :
       {kDeviceCommands, kPdCommands, kMrCommands, kCqCommands, kQpCommands, kQpStateCommands,
        kMulticastCommands, kSrqCommands, kXrcdCommands}) {
    for (const WriteCommand& row : table) {
      if (row.command == command) return &row;
    }
  }
  return nullptr;
}

}  // namespace softhca::shim
