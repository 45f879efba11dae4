// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/switch_agent.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hw-model/fabric/directed_route.h"
#include "hw-model/ib/mad.h"

namespace softhca::fabric {
namespace {

using Header = ib::MadHeader;

constexpr std::uint8_t code(ib::MgmtClass mgmt_class) {
  return static_cast<std::uint8_t>(mgmt_class);
}

std::uint8_t class_of(const std::uint8_t* mad) {
  return static_cast<std::uint8_t>(Header::mgmt_class::get(mad));
}

ib::MadMethod method_of(const std::uint8_t* mad) {
  return static_cast<ib::MadMethod>(Header::method::get(mad));
}

ib::SmpAttribute attribute_of(const std::uint8_t* mad) {
  return static_cast<ib::SmpAttribute>(Header::attribute_id::get(mad));
}

bool is_directed(const std::uint8_t* mad) {
  return class_of(mad) == code(ib::MgmtClass::subn_directed_route);
}

bool version_one(const std::uint8_t* mad) {
  return Header::base_version::get(mad) == 1 && Header::class_version::get(mad) == 1;
}

/// Where an answer to `packet` goes.
MadAddress sender_of(const ib::Packet& packet, std::uint8_t in_port) {
  MadAddress from;
  from.lid = packet.path.slid;
  from.qp = packet.bth.dest_qp == ib::kQp0 ? ib::kQp0 : packet.deth.src_qp;
  from.sl = packet.path.sl;
  from.pkey = packet.bth.pkey;
  from.has_grh = packet.path.has_grh;
  from.grh = packet.path.grh;
  std::swap(from.grh.sgid, from.grh.dgid);
  from.in_port = in_port;
  return from;
}

}  // namespace

SwitchAgent::SwitchAgent(Subnet& subnet, SubnetManager& manager, SubnetAdministrator& administrator,
                         MadOutbox& outbox, const Clock& clock)
    : subnet_(subnet),
      manager_(manager),
      administrator_(administrator),
      outbox_(outbox),
      clock_(clock) {}

bool SwitchAgent::takes(const ib::Packet& packet) {
  if (packet.bth.dest_qp != ib::kQp0) return false;
  if (packet.path.dlid == ib::kPermissiveLid) return true;
  if (packet.payload.size() != ib::kMadSize) return false;
  const auto* mad = reinterpret_cast<const std::uint8_t*>(packet.payload.data());
  return is_directed(mad) &&
         in_directed_part(std::span<const std::uint8_t, ib::kMadSize>(mad, ib::kMadSize));
}

void SwitchAgent::receive(const ib::Packet& packet, std::uint8_t in_port) {
  if (packet.payload.size() != ib::kMadSize) return;
  Mad mad;
  std::memcpy(mad.data(), packet.payload.data(), mad.size());
  const MadAddress from = sender_of(packet, in_port);
  const bool smp_class =
      class_of(mad.data()) == code(ib::MgmtClass::subn_lid_routed) || is_directed(mad.data());
  // SMPs belong to QP0, everything else to QP1 (IBA 13.5.1).
  if (packet.bth.dest_qp == ib::kQp0) {
    if (smp_class) receive_smp(from, mad);
  } else if (packet.bth.dest_qp == ib::kQp1 && !smp_class && packet.deth.qkey == ib::kQp1Qkey) {
    receive_gmp(from, mad);
  }
}

void SwitchAgent::receive_smp(const MadAddress& from, Mad& smp) {
  if (is_directed(smp.data())) {
    receive_directed(from, smp);
    return;
  }
  Mad response;
  if (consume(from, smp) || !answer(from, smp, response)) return;
  outbox_.send(from, own_lid(), response);
}

void SwitchAgent::receive_directed(const MadAddress& from, Mad& smp) {
  RouteStep step = arrive_at_switch(smp, from.in_port);
  Mad response;
  if (step.kind == RouteStep::Kind::here) {
    if (consume(from, smp) || !answer(from, smp, response)) return;
    step = leave_node(response);
    smp = response;
  }
  if (step.kind == RouteStep::Kind::by_port) {
    outbox_.send_by_port(step.port, smp);
  } else if (step.kind == RouteStep::Kind::by_lid) {
    MadAddress to = from;
    if (step.lid != ib::kPermissiveLid) to.lid = step.lid;
    outbox_.send(to, own_lid(), smp);
  }
}

// Responses and traps, which nobody answers.
bool SwitchAgent::consume(const MadAddress& from, const Mad& smp) {
  const ib::MadMethod method = method_of(smp.data());
  if (method == ib::MadMethod::get_response) {
    if (attribute_of(smp.data()) == ib::SmpAttribute::sm_info) {
      manager_.sm_info_response(from.in_port, smp);
    }
    return true;
  }
  if (method == ib::MadMethod::trap) {
    manager_.hurry();
    Mad repress = smp;
    Header::method::set(repress.data(), static_cast<std::uint8_t>(ib::MadMethod::trap_repress));
    if (!is_directed(smp.data())) outbox_.send(from, own_lid(), repress);
    return true;
  }
  if (method == ib::MadMethod::trap_repress) {
    trap_.repress(Header::transaction_id::get(smp.data()));
    return true;
  }
  return method != ib::MadMethod::get && method != ib::MadMethod::set;
}

bool SwitchAgent::answer(const MadAddress& from, const Mad& request, Mad& response) {
  const ib::MadMethod method = method_of(request.data());
  const bool sm_info = attribute_of(request.data()) == ib::SmpAttribute::sm_info;
  // SMInfo belongs to the manager, which the M_Key does not guard (IBA 14.2.4.2).
  const MKeyVerdict verdict =
      sm_info
          ? MKeyVerdict::pass
          : subnet_.node().check_m_key(method, ib::Smp::m_key::get(request.data()), clock_.now());
  if (verdict == MKeyVerdict::drop) return false;
  response = request;
  std::uint8_t* data = ib::Smp::data::at(response.data());
  const std::uint16_t status = version_one(request.data()) ? execute(from, request, data)
                                                           : std::uint16_t{ib::kMadBadVersion};
  if (verdict == MKeyVerdict::pass_hidden &&
      attribute_of(request.data()) == ib::SmpAttribute::port_info) {
    ib::PortInfo::m_key::set(data, 0);
  }
  Header::method::set(response.data(), static_cast<std::uint8_t>(ib::MadMethod::get_response));
  if (is_directed(request.data())) {
    ib::Smp::direction::set(response.data(), 1);
    ib::Smp::status::set(response.data(), status);
  } else {
    Header::status::set(response.data(), status);
  }
  return true;
}

std::uint16_t SwitchAgent::execute(const MadAddress& from, const Mad& request, std::uint8_t* data) {
  const ib::MadMethod method = method_of(request.data());
  const auto modifier = static_cast<std::uint32_t>(Header::attribute_modifier::get(request.data()));
  if (attribute_of(request.data()) == ib::SmpAttribute::sm_info) {
    return manager_.sm_info(method, modifier, from.in_port, data);
  }
  if (method == ib::MadMethod::set) notice_foreign_manager(from, request);
  return subnet_.node().process_smp(method,
                                    static_cast<std::uint16_t>(attribute_of(request.data())),
                                    modifier, from.in_port, data);
}

// Only a subnet manager writes the forwarding tables; PortInfo is set by tools as well.
void SwitchAgent::notice_foreign_manager(const MadAddress& from, const Mad& request) {
  const ib::SmpAttribute attribute = attribute_of(request.data());
  bool manager = attribute == ib::SmpAttribute::switch_info ||
                 attribute == ib::SmpAttribute::linear_forwarding_table ||
                 attribute == ib::SmpAttribute::multicast_forwarding_table;
  if (attribute == ib::SmpAttribute::port_info) {
    const auto port = Header::attribute_modifier::get(request.data()) & 0xff;
    const auto sm_lid = ib::PortInfo::master_sm_lid::get(ib::Smp::data::at(request.data()));
    manager = port == 0 && sm_lid != own_lid();
  }
  if (manager) manager_.configured_by(from.in_port);
}

void SwitchAgent::receive_gmp(const MadAddress& from, const Mad& mad) {
  const std::uint8_t mgmt_class = class_of(mad.data());
  if (mgmt_class == code(ib::MgmtClass::subn_adm)) {
    administrator_.receive(from, mad);
    return;
  }
  const ib::MadMethod method = method_of(mad.data());
  if (method != ib::MadMethod::get && method != ib::MadMethod::set) return;
  Mad response = mad;
  std::uint16_t status = ib::kMadBadVersion;  // also for an unknown class (IBA 13.4.7)
  if (version_one(mad.data()) && mgmt_class == code(ib::MgmtClass::perf)) {
    status = subnet_.node().process_perf_mad(
        method, static_cast<std::uint16_t>(Header::attribute_id::get(mad.data())),
        ib::PerfMad::data::at(response.data()));
  }
  Header::method::set(response.data(), static_cast<std::uint8_t>(ib::MadMethod::get_response));
  Header::status::set(response.data(), status);
  outbox_.send(from, own_lid(), response);
}

void SwitchAgent::link_changed() {
  if (!manager_.master()) trap_.raise(clock_.now());
}

std::size_t SwitchAgent::step(Nanoseconds now) {
  return trap_.step(now, subnet_.node().management().attributes, outbox_);
}

}  // namespace softhca::fabric
