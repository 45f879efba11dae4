// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/ib/opcodes.h"

#include <string>

namespace softhca::ib {
namespace {

constexpr const char* kServices[] = {"RC", "UC", "RD", "UD", "CNP", "XRC"};
constexpr const char* kOperations[] = {
    "SEND_FIRST",
    "SEND_MIDDLE",
    "SEND_LAST",
    "SEND_LAST_WITH_IMMEDIATE",
    "SEND_ONLY",
    "SEND_ONLY_WITH_IMMEDIATE",
    "RDMA_WRITE_FIRST",
    "RDMA_WRITE_MIDDLE",
    "RDMA_WRITE_LAST",
    "RDMA_WRITE_LAST_WITH_IMMEDIATE",
    "RDMA_WRITE_ONLY",
    "RDMA_WRITE_ONLY_WITH_IMMEDIATE",
    "RDMA_READ_REQUEST",
    "RDMA_READ_RESPONSE_FIRST",
    "RDMA_READ_RESPONSE_MIDDLE",
    "RDMA_READ_RESPONSE_LAST",
    "RDMA_READ_RESPONSE_ONLY",
    "ACKNOWLEDGE",
    "ATOMIC_ACKNOWLEDGE",
    "COMPARE_SWAP",
    "FETCH_ADD",
    "RESYNC",
    "SEND_LAST_WITH_INVALIDATE",
    "SEND_ONLY_WITH_INVALIDATE",
};

std::array<std::string, 256> make_names() {
  std::array<std::string, 256> names;
  for (unsigned i = 0; i < 256; ++i) {
    const auto opcode = static_cast<std::uint8_t>(i);
    names[i] = is_known(opcode) ? std::string(kServices[i >> 5]) + " " + kOperations[i & 0x1f]
                                : std::string("unknown");
  }
  return names;
}

}  // namespace

const char* opcode_name(std::uint8_t opcode) {
  static const std::array<std::string, 256> names = make_names();
  return names[opcode].c_str();
}

}  // namespace softhca::ib
