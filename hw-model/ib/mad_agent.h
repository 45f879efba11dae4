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

/// What became of a datagram.
enum class MadResult : std::uint8_t {
  answered,
  no_answer,    ///< It asks for none: a response itself, a trap repress, ...
  m_key_wrong,  ///< An SMP that the port's M_Key keeps out (IBA 14.2.4): it is not answered.
};

/// Whether an SMP must carry the port's M_Key.
enum class MKeyCheck : std::uint8_t { enforced, ignored };

/// Whoever answers the management datagrams of a port: its subnet management agent (both SMP
/// classes) and its performance management agent. The MAD_IFC command calls it, and the port itself
/// for datagrams from the wire that no driver asked to see.
class MadAgent {
 public:
  virtual ~MadAgent() = default;
  /// Executes a Get or Set and writes the whole response, with its status, to `out`, which is all
  /// zeros if there is none. Unknown classes and attributes are answered with the status of
  /// IBA 13.4.7, never ignored.
  virtual MadResult process(MadIn in, MadOut out, MKeyCheck check) = 0;
};

}  // namespace softhca::ib
