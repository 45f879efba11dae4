// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/address_handle.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>

#include "provider/context.h"

namespace softhca::provider {
namespace {

/// The device counts static rates from 5 for 2.5 Gb/s (PRM "Address Vector"); 0 is the port's own
/// rate.
std::uint8_t device_rate(std::uint8_t rate) {
  constexpr unsigned kOffset = 5;
  return rate < IBV_RATE_2_5_GBPS ? 0 : static_cast<std::uint8_t>((rate + kOffset) & 0xf);
}

}  // namespace

void fill_vector(prm::AddressVectorWords& vector, const ibv_ah_attr& attr) {
  vector = prm::AddressVectorWords{};
  vector.rate_sl = static_cast<std::uint8_t>(device_rate(attr.static_rate) << 4 | (attr.sl & 0xf));
  vector.path_bits = attr.src_path_bits & 0x7f;
  vector.destination_lid = attr.dlid;
  if (attr.is_global != 0) {
    vector.traffic_class = attr.grh.traffic_class;
    vector.hop_limit = attr.grh.hop_limit;
    vector.grh_gid_flow = prm::AddressVectorWords::kGrh |
                          static_cast<std::uint32_t>(attr.grh.sgid_index) << 20 |
                          (attr.grh.flow_label & 0xfffff);
    std::copy(std::begin(attr.grh.dgid.raw), std::end(attr.grh.dgid.raw), vector.destination_gid);
  }
}

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  if (attr->port_num < 1 || attr->port_num > Context::of(pd->context)->limits.num_ports) {
    errno = EINVAL;
    return nullptr;
  }
  auto* handle = new (std::nothrow) AddressHandle;
  if (handle == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  fill_vector(handle->vector, *attr);
  return &handle->ah;
}

int destroy_ah(ibv_ah* ah) {
  delete AddressHandle::of(ah);
  return 0;
}

}  // namespace softhca::provider
