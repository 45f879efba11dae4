// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/prm/cqe.h"

namespace softhca {

/// Why a work request ended: CQE.syndrome, and the vendor byte that ConnectX shows with it and
/// applications log.
struct Failure {
  prm::CqeSyndrome syndrome;
  std::uint8_t vendor;
};

inline constexpr Failure kFlushed{prm::CqeSyndrome::flushed, 0xf9};
inline constexpr Failure kLocalLength{prm::CqeSyndrome::local_length, 0x50};
inline constexpr Failure kLocalQpOperation{prm::CqeSyndrome::local_qp_operation, 0x68};
inline constexpr Failure kLocalProtection{prm::CqeSyndrome::local_protection, 0x51};
inline constexpr Failure kMemoryWindowBind{prm::CqeSyndrome::memory_window_bind, 0x6a};
inline constexpr Failure kBadResponse{prm::CqeSyndrome::bad_response, 0x80};
inline constexpr Failure kRemoteInvalidRequest{prm::CqeSyndrome::remote_invalid_request, 0x8a};
inline constexpr Failure kRemoteAccess{prm::CqeSyndrome::remote_access, 0x88};
inline constexpr Failure kRemoteOperation{prm::CqeSyndrome::remote_operation, 0x89};
inline constexpr Failure kTransportRetryExceeded{prm::CqeSyndrome::transport_retry_exceeded, 0x81};
inline constexpr Failure kRnrRetryExceeded{prm::CqeSyndrome::rnr_retry_exceeded, 0x87};

}  // namespace softhca
