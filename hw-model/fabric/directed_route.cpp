// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/directed_route.h"

#include "hw-model/ib/mad.h"

namespace softhca::fabric {

bool arrive_at_end_node(std::span<std::uint8_t, ib::kMadSize> smp, std::uint8_t in_port) {
  const auto pointer = ib::Smp::hop_pointer::get(smp.data());
  const auto count = ib::Smp::hop_count::get(smp.data());
  if (count > ib::Smp::max_hops || ib::Smp::direction::get(smp.data()) != 0) return false;
  if (pointer != count) return false;
  if (count != 0) ib::Smp::return_path::at(smp.data())[pointer] = in_port;
  ib::Smp::hop_pointer::set(smp.data(), count + 1);
  return true;
}

void leave_end_node(std::span<std::uint8_t, ib::kMadSize> smp) {
  const auto pointer = ib::Smp::hop_pointer::get(smp.data());
  if (pointer != 0) ib::Smp::hop_pointer::set(smp.data(), pointer - 1);
}

}  // namespace softhca::fabric
