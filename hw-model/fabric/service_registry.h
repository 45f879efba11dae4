// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <list>

#include "hw-model/fabric/end_port.h"
#include "hw-model/fabric/sa_query.h"
#include "hw-model/runtime/clock.h"

namespace softhca::fabric {

/// ServiceRecords that ports have registered, each until its lease ends (IBA 15.2.5.14).
class ServiceRegistry {
 public:
  static constexpr std::size_t kMaxServices = 1024;
  static constexpr std::size_t kMaxServicesPerPort = 64;

  /// SubnAdmSet: registers, or renews a record with the same ID, GID and P_Key. `port` is the
  /// requester, whose GID the record must have. Writes the answer to `record`.
  std::uint16_t set(const SaQuery& query, const EndPort& port, Nanoseconds now,
                    std::uint8_t* record);
  /// SubnAdmDelete of the record with this ID, GID, P_Key and key.
  std::uint16_t remove(const SaQuery& query, const EndPort& port, std::uint8_t* record);
  RecordList find_records(const SaQuery& query) const;

  void forget(std::uint64_t port_guid);
  void clear() { services_.clear(); }
  std::size_t size() const { return services_.size(); }

  /// Drops what is over. Returns how many.
  std::size_t step(Nanoseconds now);
  Nanoseconds next_deadline() const;

 private:
  struct Service {
    std::uint64_t port_guid;
    Nanoseconds end;
    std::array<std::uint8_t, ib::ServiceRecord::size> record;
  };
  std::list<Service>::iterator find(const std::uint8_t* record);

  std::list<Service> services_;
};

}  // namespace softhca::fabric
