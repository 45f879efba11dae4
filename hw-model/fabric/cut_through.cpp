// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/cut_through.h"

#include "hw-model/fabric/subnet.h"
#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/train.h"

namespace softhca::fabric {

/// The host at the other end of a way that is free; null: the long way decides.
Spoke* CutThrough::find_way(const HcaPort& from, std::uint8_t from_number,
                            const ib::Destination& there) {
  // Answers to MADs are sent from inside the delivery.
  if (there.qpn <= ib::kQp1 || !from.link().is_open(Direction::from_host)) return nullptr;
  SwitchNode& node = subnet_.node();
  Spoke* to = subnet_.at_port(node.linear().port(there.dlid));
  if (to == nullptr || &to->port == &from || there.dlid == node.management().attributes.lid) {
    return nullptr;
  }
  const SwitchPort& in = node.port(from_number);
  const SwitchPort& out = node.port(to->number);
  const bool passes = in.active() && out.active() && in.admits(there.pkey, kEnforceInbound) &&
                      out.admits(there.pkey, kEnforceOutbound);
  const bool arrives = to->port.link().is_open(Direction::to_host) && to->port.takes_data();
  return passes && arrives ? to : nullptr;
}

bool CutThrough::carry(HcaPort& from, std::uint8_t from_number, ib::Packet& packet) {
  Spoke* to = find_way(from, from_number, ib::Destination(packet));
  if (to == nullptr) return false;
  active_ = true;
  packet.vl = 0;
  SwitchNode& node = subnet_.node();
  const TrafficCount count = count_of(packet);
  from.counters().transmitted(count);
  node.port(from_number).counters.received(count);
  node.port(to->number).counters.transmitted(count);
  to->port.counters().received(count);
  if (to->port.take(packet)) receivers_.push_back(&to->port);
  return true;
}

bool CutThrough::open(HcaPort& from, std::uint8_t from_number, const ib::Destination& there,
                      ib::Way& way) {
  Spoke* to = find_way(from, from_number, there);
  if (to == nullptr) return false;
  way.peer = to->port.direct_receiver(there);
  if (way.peer.responder == nullptr) return false;
  const Spoke* back = find_way(to->port, to->number, way.peer.answers_to);
  if (back == nullptr || &back->port != &from) return false;
  way.has_grh = there.has_grh;
  SwitchNode& node = subnet_.node();
  way.passed = {&from.counters(), &node.port(from_number).counters, &node.port(to->number).counters,
                &to->port.counters()};
  return true;
}

void CutThrough::end_deliveries() {
  // Answers are received, too.
  while (!receivers_.empty()) {
    HcaPort* port = receivers_.back();
    receivers_.pop_back();
    port->end_delivery();
  }
}

void CutThrough::forget(const HcaPort& port) {
  std::erase(receivers_, &port);
}

}  // namespace softhca::fabric
