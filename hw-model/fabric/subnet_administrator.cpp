// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/subnet_administrator.h"

#include <algorithm>
#include <utility>

#include "hw-model/fabric/end_port.h"
#include "hw-model/fabric/sa_paths.h"
#include "hw-model/fabric/sa_records.h"
#include "hw-model/ib/mad.h"
#include "hw-model/ib/sa.h"

namespace softhca::fabric {
namespace {

using Header = ib::MadHeader;
using ib::SaAttribute;
using ib::SaMad;

constexpr std::uint8_t kIpoibMtu = 5;  // 4096 bytes

ib::MadMethod method_of(const std::uint8_t* mad) {
  return static_cast<ib::MadMethod>(Header::method::get(mad));
}

std::uint16_t attribute_of(const std::uint8_t* mad) {
  return static_cast<std::uint16_t>(Header::attribute_id::get(mad));
}

SaQuery query_of(const std::uint8_t* mad) {
  return {SaMad::component_mask::get(mad), SaMad::data::at(mad),
          SaMad::sm_key::get(mad) == SubnetManager::kSmKey};
}

void write_class_port_info(std::uint8_t* data) {
  ib::ClassPortInfo::base_version::set(data, 1);
  ib::ClassPortInfo::class_version::set(data, SaMad::class_version);
  ib::ClassPortInfo::capability_mask::set(data, ib::kSaCapOptionalRecords | ib::kSaCapUdMulticast);
  ib::ClassPortInfo::capability_mask2::set(data, ib::kSaCap2SendOnlyFullMember);
  ib::ClassPortInfo::resp_time_value::set(data, 16);
}

}  // namespace

SubnetAdministrator::SubnetAdministrator(Subnet& subnet, const SubnetManager& manager,
                                         MadOutbox& outbox, const Clock& clock)
    : subnet_(subnet),
      manager_(manager),
      outbox_(outbox),
      clock_(clock),
      rmpp_(outbox),
      groups_([this](const MulticastGroup& group, MulticastGroups::Change change) {
        group_changed(group, change);
      }),
      subscriptions_(outbox) {
  follow_reign();
}

void SubnetAdministrator::follow_reign() {
  if (reign_ == manager_.reign()) return;
  reign_ = manager_.reign();
  rmpp_.clear();
  services_.clear();
  subscriptions_.clear();
  groups_.reset(kIpoibMtu);
}

EndPort SubnetAdministrator::own() const {
  return {&subnet_.node().management().attributes, subnet_.node().gid(), 0};
}

void SubnetAdministrator::group_changed(const MulticastGroup& group,
                                        MulticastGroups::Change change) {
  using Change = MulticastGroups::Change;
  subnet_.node().multicast().set(group.mlid,
                                 change == Change::deleted ? PortMask{} : receivers(group));
  if (change == Change::created) {
    subscriptions_.report(ib::TrapNumber::group_created, group.mgid, own(), clock_.now());
  } else if (change == Change::deleted) {
    subscriptions_.report(ib::TrapNumber::group_deleted, group.mgid, own(), clock_.now());
  }
}

void SubnetAdministrator::link_changed(Spoke& spoke, bool up) {
  if (!manager_.master()) return;
  follow_reign();
  const ib::PortAttributes& port = spoke.port.attributes();
  if (!up) {
    groups_.forget(port.port_guid);
    services_.forget(port.port_guid);
    subscriptions_.forget(port.port_guid);
  }
  subscriptions_.report(up ? ib::TrapNumber::gid_in_service : ib::TrapNumber::gid_out_of_service,
                        port.gids[0], own(), clock_.now());
}

void SubnetAdministrator::receive(const MadAddress& from, ib::MadIn mad) {
  if (!manager_.master()) return;
  follow_reign();
  Mad request;
  std::copy(mad.begin(), mad.end(), request.begin());
  const std::uint8_t* bytes = request.data();
  const auto rmpp_type = static_cast<ib::RmppType>(ib::Rmpp::type::get(bytes));
  if (ib::Rmpp::active::get(bytes) != 0 && rmpp_type != ib::RmppType::data) {
    rmpp_.control(from, request, clock_.now());
    return;
  }
  const ib::MadMethod method = method_of(bytes);
  if (method == ib::MadMethod::report_response) {
    subscriptions_.response(from, Header::transaction_id::get(bytes));
    return;
  }
  if ((Header::method::get(bytes) & ib::kMadResponseBit) != 0) return;
  if (Header::base_version::get(bytes) != 1 ||
      Header::class_version::get(bytes) != SaMad::class_version) {
    respond(from, request, ib::kMadBadVersion);
    return;
  }
  switch (method) {
    case ib::MadMethod::get:
    case ib::MadMethod::get_table:
      get(from, request);
      return;
    case ib::MadMethod::set:
    case ib::MadMethod::remove:
      modify(from, request);
      return;
    default:
      respond(from, request, ib::kMadUnsupportedMethod);
  }
}

std::optional<RecordList> SubnetAdministrator::find(std::uint16_t attribute, const SaQuery& query) {
  switch (static_cast<SaAttribute>(attribute)) {
    case SaAttribute::class_port_info: {
      RecordList list(ib::ClassPortInfo::size);
      write_class_port_info(list.add());
      return list;
    }
    case SaAttribute::node_record:
      return find_nodes(subnet_, query);
    case SaAttribute::port_info_record:
      return find_port_infos(subnet_, query);
    case SaAttribute::switch_info_record:
      return find_switch_infos(subnet_, query);
    case SaAttribute::linear_fdb_record:
      return find_linear_tables(subnet_, query);
    case SaAttribute::multicast_fdb_record:
      return find_multicast_tables(subnet_, query);
    case SaAttribute::sm_info_record:
      return find_managers(subnet_, manager_, query);
    case SaAttribute::link_record:
      return find_links(subnet_, query);
    case SaAttribute::guid_info_record:
      return find_guid_infos(subnet_, query);
    case SaAttribute::pkey_record:
      return find_pkey_tables(subnet_, query);
    case SaAttribute::service_record:
      return services_.find_records(query);
    case SaAttribute::path_record:
      return find_paths(subnet_, groups_, query);
    case SaAttribute::mc_member_record:
      return groups_.find_records(query);
    default:
      return std::nullopt;
  }
}

void SubnetAdministrator::get(const MadAddress& from, const Mad& request) {
  std::optional<RecordList> list = find(attribute_of(request.data()), query_of(request.data()));
  if (!list) {
    respond(from, request, ib::kMadUnsupportedMethodAttribute);
    return;
  }
  if (method_of(request.data()) == ib::MadMethod::get_table) {
    respond_records(from, request, std::move(*list));
    return;
  }
  // A Get is for one record; of paths any will do (IBA 15.2.5.16).
  const bool path =
      static_cast<SaAttribute>(attribute_of(request.data())) == SaAttribute::path_record;
  if (list->count() == 0) {
    respond(from, request, ib::kSaNoRecords);
  } else if (list->count() > 1 && !path) {
    respond(from, request, ib::kSaTooManyRecords);
  } else {
    Mad answer = request;
    std::uint8_t* data = SaMad::data::at(answer.data());
    std::fill_n(data, SaMad::data::size, std::uint8_t{0});
    std::copy_n(list->front(), list->record_size(), data);
    SaMad::attribute_offset::set(answer.data(), list->attribute_offset());
    respond(from, answer, ib::kMadOk);
  }
}

std::optional<EndPort> SubnetAdministrator::requester(const MadAddress& from) {
  const Spoke* spoke = subnet_.at_port(from.in_port);
  if (spoke == nullptr || !spoke->port.owns_lid(from.lid)) return std::nullopt;
  return EndPort{&spoke->port.attributes(), spoke->port.attributes().gids[0], spoke->number};
}

void SubnetAdministrator::modify(const MadAddress& from, const Mad& request) {
  const std::optional<EndPort> port = requester(from);
  Mad answer = request;
  std::uint16_t status = ib::kSaRequestInvalid;
  if (port && method_of(request.data()) == ib::MadMethod::set) {
    status = set(from, *port, request, SaMad::data::at(answer.data()));
  } else if (port) {
    status = remove(*port, request, SaMad::data::at(answer.data()));
  }
  respond(from, answer, status);
}

std::uint16_t SubnetAdministrator::set(const MadAddress& from, const EndPort& port,
                                       const Mad& request, std::uint8_t* record) {
  const SaQuery query = query_of(request.data());
  switch (static_cast<SaAttribute>(attribute_of(request.data()))) {
    case SaAttribute::mc_member_record:
      if (!owns_gid(port, gid_at(ib::McMemberRecord::port_gid::at(query.record)))) {
        return ib::kSaRequestInvalid;
      }
      return groups_.join(query, port, record);
    case SaAttribute::service_record:
      return services_.set(query, port, clock_.now(), record);
    case SaAttribute::inform_info:
      return subscriptions_.set(from, port, query.record);
    default:
      return ib::kMadUnsupportedMethodAttribute;
  }
}

std::uint16_t SubnetAdministrator::remove(const EndPort& port, const Mad& request,
                                          std::uint8_t* record) {
  const SaQuery query = query_of(request.data());
  switch (static_cast<SaAttribute>(attribute_of(request.data()))) {
    case SaAttribute::mc_member_record:
      if (!owns_gid(port, gid_at(ib::McMemberRecord::port_gid::at(query.record)))) {
        return ib::kSaRequestInvalid;
      }
      return groups_.leave(query, port, record);
    case SaAttribute::service_record:
      return services_.remove(query, port, record);
    default:
      return ib::kMadUnsupportedMethodAttribute;
  }
}

void SubnetAdministrator::respond(const MadAddress& from, const Mad& request,
                                  std::uint16_t status) {
  Mad answer = request;
  const auto method = static_cast<std::uint8_t>(Header::method::get(request.data()));
  // The response to Set is GetResp (IBA 15.2.2).
  const auto response = method_of(request.data()) == ib::MadMethod::set
                            ? static_cast<std::uint8_t>(ib::MadMethod::get_response)
                            : static_cast<std::uint8_t>(method | ib::kMadResponseBit);
  Header::method::set(answer.data(), response);
  Header::status::set(answer.data(), status);
  ib::Rmpp::active::set(answer.data(), 0);
  outbox_.send(from, own().attributes->lid, answer);
}

void SubnetAdministrator::respond_records(const MadAddress& from, const Mad& request,
                                          RecordList list) {
  if (list.full()) {
    respond(from, request, ib::kSaNoResources);
    return;
  }
  Mad answer = request;
  Header::method::set(answer.data(), static_cast<std::uint8_t>(ib::MadMethod::get_table_response));
  Header::status::set(answer.data(), ib::kMadOk);
  SaMad::attribute_offset::set(answer.data(), list.attribute_offset());
  std::fill_n(SaMad::data::at(answer.data()), SaMad::data::size, std::uint8_t{0});
  if (!rmpp_.start(from, own().attributes->lid, answer, list.take(), clock_.now())) {
    respond(from, request, ib::kSaNoResources);
  }
}

std::size_t SubnetAdministrator::step(Nanoseconds now) {
  if (!manager_.master()) return 0;
  follow_reign();
  return rmpp_.step(now) + services_.step(now) + subscriptions_.step(now);
}

Nanoseconds SubnetAdministrator::next_deadline() const {
  if (!manager_.master()) return kNever;
  return std::min(
      {rmpp_.next_deadline(), services_.next_deadline(), subscriptions_.next_deadline()});
}

}  // namespace softhca::fabric
