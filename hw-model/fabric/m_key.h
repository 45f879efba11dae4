// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/fabric/port_info.h"
#include "hw-model/runtime/clock.h"

namespace softhca::fabric {

/// How an SMP fares at a port's M_Key (IBA 14.2.4).
enum class MKeyVerdict : std::uint8_t {
  pass,
  pass_hidden,  ///< The answer is given, but PortInfo.M_Key reads as zero.
  drop,         ///< No answer.
};

/// The M_Key check of one port, with its lease: a wrong Set starts the lease timer, and when nobody
/// with the right key is heard until it ends, the protection is lifted (IBA 14.2.4.3).
class MKeyGuard {
 public:
  MKeyVerdict check(StoredPortInfo& port, ib::MadMethod method, std::uint64_t m_key,
                    Nanoseconds now) {
    expire(port, now);
    if (port.m_key == 0 || m_key == port.m_key) {
      lease_end_ = kNever;
      return MKeyVerdict::pass;
    }
    const bool get = method == ib::MadMethod::get;
    if (get && port.m_key_protect_bits == 0) return MKeyVerdict::pass;
    if (get && port.m_key_protect_bits == 1) return MKeyVerdict::pass_hidden;
    if (port.m_key_violations != 0xffff) ++port.m_key_violations;
    if (lease_end_ == kNever && port.m_key_lease_period != 0) {
      lease_end_ = now + Nanoseconds{port.m_key_lease_period} * 1'000'000'000ULL;
    }
    return MKeyVerdict::drop;
  }

 private:
  void expire(StoredPortInfo& port, Nanoseconds now) {
    if (now < lease_end_) return;
    lease_end_ = kNever;
    port.m_key = 0;
    port.m_key_protect_bits = 0;
  }

  Nanoseconds lease_end_ = kNever;
};

}  // namespace softhca::fabric
