// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/prm/cqe.h"

namespace softhca {

/// Why a work request ended: CQE.syndrome and the vendor's own byte beside it.
struct Failure {
  prm::CqeSyndrome syndrome;
  std::uint8_t vendor;
};

inline constexpr Failure kFlushed{prm::CqeSyndrome::flushed, prm::VendorSyndrome::flushed};
inline constexpr Failure kLocalLength{prm::CqeSyndrome::local_length,
                                      prm::VendorSyndrome::local_length};
inline constexpr Failure kLocalQpOperation{prm::CqeSyndrome::local_qp_operation,
                                           prm::VendorSyndrome::local_qp_operation};
inline constexpr Failure kLocalProtection{prm::CqeSyndrome::local_protection,
                                          prm::VendorSyndrome::local_protection};
inline constexpr Failure kMemoryWindowBind{prm::CqeSyndrome::memory_window_bind,
                                           prm::VendorSyndrome::memory_window_bind};
inline constexpr Failure kBadResponse{prm::CqeSyndrome::bad_response,
                                      prm::VendorSyndrome::bad_response};
inline constexpr Failure kRemoteInvalidRequest{prm::CqeSyndrome::remote_invalid_request,
                                               prm::VendorSyndrome::remote_invalid_request};
inline constexpr Failure kRemoteAccess{prm::CqeSyndrome::remote_access,
                                       prm::VendorSyndrome::remote_access};
inline constexpr Failure kRemoteOperation{prm::CqeSyndrome::remote_operation,
                                          prm::VendorSyndrome::remote_operation};
inline constexpr Failure kTransportRetryExceeded{prm::CqeSyndrome::transport_retry_exceeded,
                                                 prm::VendorSyndrome::transport_retry};
inline constexpr Failure kRnrRetryExceeded{prm::CqeSyndrome::rnr_retry_exceeded,
                                           prm::VendorSyndrome::rnr_retry};

}  // namespace softhca
