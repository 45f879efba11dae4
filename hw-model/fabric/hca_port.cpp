// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/hca_port.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hw-model/fabric/directed_route.h"
#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/psn.h"

namespace softhca::fabric {
namespace {

constexpr std::size_t kLoopbackSoftLimit = Channel::kSoftLimit;
constexpr std::size_t kLoopbackHardLimit = Channel::kHardLimit;
constexpr std::size_t kMaxEvents = 64;
constexpr std::uint8_t kManagementVl = 15;

bool is_smp(const ib::Packet& packet) {
  return packet.bth.dest_qp == ib::kQp0;
}

}  // namespace

HcaPort::HcaPort(const HostConfig& config, const Clock& clock, ib::PacketPool& packets,
                 CutThrough& short_way, StepRequest& request, std::uint8_t switch_port,
                 std::function<void(LinkRequest)> on_link_request)
    : link_(packets),
      short_way_(short_way),
      request_(request),
      switch_port_(switch_port),
      agent_(
          config, clock, counters_,
          [this](ib::PortEvent event) {
            // A driver that never looks is not owed more than the latest ones.
            if (events_.size() == kMaxEvents) events_.pop_front();
            events_.push_back(event);
            request_.make();
          },
          std::move(on_link_request)) {
  link_.name = config.name;
  link_.up = false;
}

void HcaPort::connect(ib::PortClient* client) {
  client_ = client;
  request_.make();
  events_.clear();
  if (client_ == nullptr) return;
  switch (attributes().state) {
    case ib::PortState::active:
      events_.push_back(ib::PortEvent::active);
      break;
    case ib::PortState::init:
    case ib::PortState::armed:
      events_.push_back(ib::PortEvent::initialized);
      break;
    case ib::PortState::down:
      break;
  }
}

void HcaPort::set_link(bool up) {
  link_.up = up;
  if (up) {
    agent_.set_state(ib::PortState::init);
    return;
  }
  counters_.xmit_discards += link_.channel(Direction::from_host).waiting();
  link_.clear();
  ++counters_.link_downed;
  agent_.set_state(ib::PortState::down);
}

bool HcaPort::owns_lid(std::uint16_t lid) const {
  const ib::PortAttributes& port = attributes();
  return port.lid != 0 && (lid >> port.lmc) == (port.lid >> port.lmc);
}

void HcaPort::detach_multicast(const ib::Gid& mgid) {
  const auto entry = multicast_.find(mgid);
  if (entry != multicast_.end() && --entry->second == 0) multicast_.erase(entry);
}

bool HcaPort::ready() const {
  return link_.channel(Direction::from_host).ready() && loopback_.size() < kLoopbackSoftLimit;
}

// SMPs pass as soon as the link is up; all else wants an ACTIVE port (IBA 7.2.7).
bool HcaPort::may_send(const ib::Packet& packet) const {
  const ib::PortState state = attributes().state;
  return is_smp(packet) ? state != ib::PortState::down : state == ib::PortState::active;
}

void HcaPort::send(ib::PacketPtr packet) {
  const unsigned count = packet->count;
  request_.make();
  if (!may_send(*packet)) {
    counters_.xmit_discards += count;
    return;
  }
  packet->vl = is_smp(*packet) ? kManagementVl : 0;
  if (packet->path.slid == 0) packet->path.slid = attributes().lid;
  const std::uint16_t dlid = packet->path.dlid;
  if (dlid != ib::kPermissiveLid && !ib::is_multicast_lid(dlid) && owns_lid(dlid)) {
    loop_back(std::move(packet));
    return;
  }
  // The switch does not send a multicast packet back to where it came from: the HCA copies it.
  if (ib::is_multicast_lid(dlid) && packet->path.has_grh && joined(packet->path.grh.dgid)) {
    loop_back(std::make_unique<ib::Packet>(*packet));
  }
  if (!link_.channel(Direction::from_host).push(std::move(packet))) {
    counters_.xmit_discards += count;
  }
}

bool HcaPort::cut_through(ib::Packet& packet) {
  if (attributes().state != ib::PortState::active || owns_lid(packet.path.dlid)) return false;
  return short_way_.carry(*this, switch_port_, packet);
}

bool HcaPort::open_way(const ib::Destination& there, ib::Way& way) {
  if (attributes().state != ib::PortState::active) return false;
  way.epoch = request_.epoch();
  if (owns_lid(there.dlid)) return open_inner_way(there, way);
  return short_way_.open(*this, switch_port_, there, way);
}

/// To the port itself: such packets pass no link, and no port counts them.
bool HcaPort::open_inner_way(const ib::Destination& there, ib::Way& way) {
  if (client_ == nullptr || !loopback_.empty()) return false;
  way.peer = client_->direct_receiver(there);
  if (way.peer.responder == nullptr) return false;
  way.has_grh = there.has_grh;
  way.passed = {};
  return owns_lid(way.peer.answers_to.dlid);
}

void HcaPort::loop_back(ib::PacketPtr packet) {
  if (loopback_.size() >= kLoopbackHardLimit) {
    ++counters_.xmit_discards;
    return;
  }
  loopback_.push_back(std::move(packet));
  if (loopback_.size() >= kLoopbackSoftLimit) loopback_was_full_ = true;
}

std::size_t HcaPort::deliver_loopback(std::size_t max_packets) {
  const std::size_t count = std::min(max_packets, loopback_.size());
  for (std::size_t i = 0; i < count; ++i) {
    ib::PacketPtr packet = loopback_.pop_front();
    receive(*packet);
    link_.packets.release(std::move(packet));
  }
  return count;
}

std::size_t HcaPort::tell_client() {
  if (client_ == nullptr) return 0;
  std::size_t told = 0;
  // Only what was queued before: a client that causes events from inside is told in the next step.
  for (std::size_t count = events_.size(); count > 0; --count, ++told) {
    const ib::PortEvent event = events_.front();
    events_.pop_front();
    client_->port_event(event);
  }
  bool room = link_.channel(Direction::from_host).take_room_notice();
  if (loopback_was_full_ && loopback_.size() <= kLoopbackSoftLimit / 2) {
    loopback_was_full_ = false;
    room = true;
  }
  if (room) {
    client_->port_ready();
    ++told;
  }
  return told;
}

void HcaPort::receive(ib::Packet& packet) {
  const bool management = packet.bth.dest_qp <= ib::kQp1;
  if (!management && attributes().state != ib::PortState::active) return;
  if (management && (client_ == nullptr || !client_->owns_special_qp(packet.bth.dest_qp))) {
    answer_mad(packet);
    return;
  }
  if (client_ == nullptr) return;
  delivered_ = true;
  client_->receive(packet);
}

void HcaPort::answer_mad(const ib::Packet& request) {
  if (request.payload.size() != ib::kMadSize) return;
  std::array<std::uint8_t, ib::kMadSize> in{};
  std::array<std::uint8_t, ib::kMadSize> out{};
  std::memcpy(in.data(), request.payload.data(), in.size());
  const auto mgmt_class = static_cast<std::uint8_t>(ib::MadHeader::mgmt_class::get(in.data()));
  const bool smp_class =
      mgmt_class == static_cast<std::uint8_t>(ib::MgmtClass::subn_lid_routed) ||
      mgmt_class == static_cast<std::uint8_t>(ib::MgmtClass::subn_directed_route);
  // SMPs belong to QP0, everything else to QP1 (IBA 13.5.1).
  if (smp_class != is_smp(request)) return;
  const bool directed = mgmt_class == static_cast<std::uint8_t>(ib::MgmtClass::subn_directed_route);
  if (directed && arrive_at_end_node(in, 1).kind != RouteStep::Kind::here) return;
  if (agent_.process(in, out, ib::MKeyCheck::enforced) != ib::MadResult::answered) return;
  std::uint16_t dlid = request.path.slid;
  if (directed) {
    const RouteStep way = leave_node(out);
    if (way.kind == RouteStep::Kind::drop) return;
    if (way.kind == RouteStep::Kind::by_port) dlid = ib::kPermissiveLid;
    if (way.kind == RouteStep::Kind::by_lid && way.lid != ib::kPermissiveLid) dlid = way.lid;
  }
  send_answer(request, dlid, out);
}

void HcaPort::send_answer(const ib::Packet& request, std::uint16_t dlid, ib::MadIn mad) {
  auto response = std::make_unique<ib::Packet>();
  response->path = request.path;
  response->path.slid = request.path.dlid == ib::kPermissiveLid ? 0 : request.path.dlid;
  response->path.dlid = dlid;
  std::swap(response->path.grh.sgid, response->path.grh.dgid);
  response->bth.opcode = ib::make_opcode(ib::Service::ud, ib::Operation::send_only);
  response->bth.pkey = request.bth.pkey;
  response->bth.dest_qp = is_smp(request) ? ib::kQp0 : request.deth.src_qp;
  response->bth.psn = mad_psn_ = ib::psn_add(mad_psn_, 1);
  response->deth.qkey = is_smp(request) ? 0 : ib::kQp1Qkey;
  response->deth.src_qp = request.bth.dest_qp;
  response->payload.resize(mad.size());
  std::memcpy(response->payload.bytes(), mad.data(), mad.size());
  send(std::move(response));
}

}  // namespace softhca::fabric
