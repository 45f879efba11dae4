// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/property/host_memory.h"
#include "tests/property/sim_host.h"

namespace softhca::property {

/// What a host's registered memory must hold: one value for each byte, other values that are as
/// good where an operation was cut off, or anything.
class Model {
 public:
  explicit Model(const HostMemory& memory);

  std::vector<std::uint8_t> bytes(std::uint64_t va, std::uint64_t length) const;
  void write(std::uint64_t va, std::span<const std::uint8_t> data);
  /// Writes `data` over the pieces in order.
  void scatter(const std::vector<Piece>& pieces, std::span<const std::uint8_t> data);
  /// The bytes may also have these values.
  void may_write(std::uint64_t va, std::span<const std::uint8_t> data);
  void may_scatter(const std::vector<Piece>& pieces, std::span<const std::uint8_t> data);
  /// The bytes may have any value.
  void ignore(std::uint64_t va, std::uint64_t length);
  /// The first `length` bytes of the pieces may have any value.
  void ignore(const std::vector<Piece>& pieces, std::uint64_t length);

  /// First difference as a sentence; empty if there is none.
  std::string compare(const HostMemory& memory) const;

 private:
  std::vector<std::uint8_t> value_;
  std::vector<bool> ignored_;
  struct Alternative {
    std::uint64_t offset;
    std::vector<std::uint8_t> data;
  };
  std::vector<Alternative> others_;
};

}  // namespace softhca::property
