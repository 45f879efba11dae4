// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "hw-model/prm/wqe.h"

namespace softhca::provider {

/// An address handle: the address vector as UD WQEs carry it. `ah` must stay first.
struct AddressHandle {
  ibv_ah ah{};
  prm::AddressVectorWords vector{};

  static AddressHandle* of(ibv_ah* ah) { return reinterpret_cast<AddressHandle*>(ah); }
};

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr);
int destroy_ah(ibv_ah* ah);

/// Address vector of an InfiniBand path.
void fill_vector(prm::AddressVectorWords& vector, const ibv_ah_attr& attr);

/// Address segment of a UD WQE.
inline void write_address(prm::AddressVectorWords& segment, ibv_ah* ah, std::uint32_t remote_qpn,
                          std::uint32_t remote_qkey) {
  segment = AddressHandle::of(ah)->vector;
  segment.extended_dqpn = prm::AddressVectorWords::kExtended | (remote_qpn & 0xffffff);
  segment.qkey = remote_qkey;
}

}  // namespace softhca::provider
