// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/service_registry.h"

#include <algorithm>

#include "hw-model/ib/mad.h"

namespace softhca::fabric {
namespace {

using Record = ib::ServiceRecord;

constexpr std::uint32_t kForEver = 0xffffffff;

template <typename Block>
bool same(const std::uint8_t* one, const std::uint8_t* other) {
  return std::equal(Block::at(one), Block::at(one) + Block::size, Block::at(other));
}

bool same_service(const std::uint8_t* one, const std::uint8_t* other) {
  return Record::service_id::get(one) == Record::service_id::get(other) &&
         same<Record::service_gid>(one, other) &&
         Record::service_p_key::get(one) == Record::service_p_key::get(other);
}

}  // namespace

std::list<ServiceRegistry::Service>::iterator ServiceRegistry::find(const std::uint8_t* record) {
  return std::find_if(services_.begin(), services_.end(), [&](const Service& service) {
    return same_service(service.record.data(), record);
  });
}

std::uint16_t ServiceRegistry::set(const SaQuery& query, const EndPort& port, Nanoseconds now,
                                   std::uint8_t* record) {
  if (!query.has(Record::kId | Record::kGid | Record::kPkey | Record::kLease | Record::kKey |
                 Record::kName)) {
    return ib::kSaInsufficientComponents;
  }
  if (!owns_gid(port, gid_at(Record::service_gid::at(query.record)))) return ib::kSaRequestInvalid;
  if (!in_partition(port, static_cast<std::uint16_t>(Record::service_p_key::get(query.record)))) {
    return ib::kSaRequestInvalid;
  }
  auto service = find(query.record);
  if (service != services_.end()) {
    if (!same<Record::service_key>(service->record.data(), query.record)) {
      return ib::kSaRequestInvalid;
    }
  } else {
    const auto held = std::count_if(services_.begin(), services_.end(), [&](const Service& one) {
      return one.port_guid == port.attributes->port_guid;
    });
    if (services_.size() >= kMaxServices || static_cast<std::size_t>(held) >= kMaxServicesPerPort) {
      return ib::kSaNoResources;
    }
    service = services_.emplace(services_.end());
    service->port_guid = port.attributes->port_guid;
  }
  std::copy_n(query.record, service->record.size(), service->record.begin());
  const auto lease = Record::service_lease::get(query.record);
  service->end = lease == kForEver ? kNever : now + lease * 1'000'000'000ULL;
  std::copy(service->record.begin(), service->record.end(), record);
  return ib::kMadOk;
}

std::uint16_t ServiceRegistry::remove(const SaQuery& query, const EndPort& port,
                                      std::uint8_t* record) {
  const auto service = find(query.record);
  if (service == services_.end()) return ib::kSaNoRecords;
  if (service->port_guid != port.attributes->port_guid ||
      !same<Record::service_key>(service->record.data(), query.record)) {
    return ib::kSaRequestInvalid;
  }
  std::copy(service->record.begin(), service->record.end(), record);
  services_.erase(service);
  return ib::kMadOk;
}

RecordList ServiceRegistry::find_records(const SaQuery& query) const {
  RecordList list(Record::size);
  for (const Service& service : services_) {
    const std::uint8_t* record = service.record.data();
    if (query.has(Record::kId) &&
        Record::service_id::get(query.record) != Record::service_id::get(record)) {
      continue;
    }
    if (query.has(Record::kGid) && !same<Record::service_gid>(query.record, record)) continue;
    if (query.has(Record::kPkey) &&
        Record::service_p_key::get(query.record) != Record::service_p_key::get(record)) {
      continue;
    }
    if (query.has(Record::kName) && !same<Record::service_name>(query.record, record)) continue;
    std::uint8_t* copy = list.add();
    std::copy_n(record, Record::size, copy);
    // The key is the registrar's secret (IBA 15.2.5.14).
    std::fill_n(Record::service_key::at(copy), Record::service_key::size, std::uint8_t{0});
  }
  return list;
}

void ServiceRegistry::forget(std::uint64_t port_guid) {
  std::erase_if(services_, [&](const Service& service) { return service.port_guid == port_guid; });
}

std::size_t ServiceRegistry::step(Nanoseconds now) {
  return std::erase_if(services_, [&](const Service& service) { return service.end <= now; });
}

Nanoseconds ServiceRegistry::next_deadline() const {
  Nanoseconds earliest = kNever;
  for (const Service& service : services_) earliest = std::min(earliest, service.end);
  return earliest;
}

}  // namespace softhca::fabric
