// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace softhca::ib {

/// Bytes of every management datagram (IBA 13.4.2).
inline constexpr std::size_t kMadSize = 256;
using MadIn = std::span<const std::uint8_t, kMadSize>;
using MadOut = std::span<std::uint8_t, kMadSize>;

/// Whoever answers the management datagrams of a port: its subnet management agent (both SMP
/// classes) and its performance management agent. The MAD_IFC command calls it, and the port itself
/// for datagrams from the wire that no driver asked to see.
class MadAgent {
 public:
  virtual ~MadAgent() = default;
  /// Executes a Get or Set and writes the whole response, with its status, to `out`. False if the
  /// datagram asks for no response (a response itself, a trap repress, ...): `out` is then all
  /// zeros. Unknown classes and attributes are answered with the status of IBA 13.4.7, never
  /// ignored.
  virtual bool process(MadIn in, MadOut out) = 0;
};

}  // namespace softhca::ib
