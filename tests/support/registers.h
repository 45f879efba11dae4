// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca::test {

/// The BAR of a device, wherever that is, and what it needs to make requests.
class Registers {
 public:
  virtual ~Registers() = default;
  virtual void read(std::uint64_t offset, std::span<std::byte> to) = 0;
  virtual void write(std::uint64_t offset, std::span<const std::byte> from) = 0;
  virtual void enable_bus_master() = 0;
};

}  // namespace softhca::test
