// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/support/transport_pair.h"

#include <algorithm>

#include "hw-model/ib/opcodes.h"

namespace softhca::transport_test {

TransportPair::TransportPair(std::size_t memory_size)
    : a(clock, 1, memory_size), b(clock, 2, memory_size) {
  a.port.on_send = [this](ib::PacketPtr packet) { enter_wire(a, std::move(packet)); };
  b.port.on_send = [this](ib::PacketPtr packet) { enter_wire(b, std::move(packet)); };
}

void TransportPair::schedule_packet(TestHost& to, Nanoseconds when, ib::PacketPtr packet) {
  wire_.emplace(std::pair{when, packets_++}, InFlight{&to, std::move(packet)});
}

void TransportPair::enter_wire(TestHost& from, ib::PacketPtr packet) {
  const PacketFate what = fate ? fate(*packet) : PacketFate{};
  if (what.drop) return;
  TestHost& other = &from == &a ? b : a;
  const bool own = packet->path.dlid == from.port.attributes().lid;
  const bool known = own || packet->path.dlid == other.port.attributes().lid ||
                     ib::is_multicast_lid(packet->path.dlid);
  if (!known) return;
  TestHost& to = own ? from : other;
  const Nanoseconds when = clock.now() + kLatency + what.extra_delay;
  // As a port does: the switch sends no multicast back to where it came from.
  if (ib::is_multicast_lid(packet->path.dlid)) {
    schedule_packet(from, when, std::make_unique<ib::Packet>(*packet));
  }
  for (unsigned copy = 1; copy < what.copies; ++copy) {
    schedule_packet(to, when + copy * kLatency, std::make_unique<ib::Packet>(*packet));
  }
  schedule_packet(to, when, std::move(packet));
}

bool TransportPair::step_hosts() {
  const bool more_a = a.transport.step(budget);
  const bool more_b = b.transport.step(budget);
  return more_a || more_b;
}

void TransportPair::deliver_due() {
  while (!wire_.empty() && wire_.begin()->first.first <= clock.now()) {
    auto node = wire_.extract(wire_.begin());
    InFlight& flight = node.mapped();
    if (on_delivery) on_delivery(*flight.packet);
    flight.to->transport.receive(*flight.packet);
  }
}

Nanoseconds TransportPair::next_time() const {
  const Nanoseconds wire = wire_.empty() ? kNever : wire_.begin()->first.first;
  return std::min({wire, a.transport.next_deadline(), b.transport.next_deadline()});
}

bool TransportPair::run_until(const std::function<bool()>& done, Nanoseconds limit) {
  const Nanoseconds end = clock.now() + limit;
  while (!done()) {
    if (step_hosts()) continue;
    const Nanoseconds next = next_time();
    if (next > end) return done();
    clock.advance_to(next);
    deliver_due();
  }
  return true;
}

void TransportPair::run(Nanoseconds limit) {
  run_until([] { return false; }, limit);
}

void TransportPair::run_for(Nanoseconds duration) {
  const Nanoseconds end = clock.now() + duration;
  run(duration);
  clock.advance_to(end);
}

ConnectedQps::ConnectedQps(TransportPair& the_pair, TestQpOptions options, std::uint8_t log_cq_size,
                           const std::function<void(TestQp&, TestQp&)>& before_connect)
    : pair(the_pair),
      a_cq(pair.a, log_cq_size),
      b_cq(pair.b, log_cq_size),
      a(pair.a, a_cq, a_cq, options),
      b(pair.b, b_cq, b_cq, options),
      a_buffer(pair.a.allocate(kBufferSize, 4096)),
      b_buffer(pair.b.allocate(kBufferSize, 4096)),
      a_key(pair.a.register_memory(a_buffer, kBufferSize, kAllAccess)),
      b_key(pair.b.register_memory(b_buffer, kBufferSize, kAllAccess)) {
  if (before_connect) before_connect(a, b);
  a.to_init();
  b.to_init();
  a.to_rtr(&b);
  b.to_rtr(&a);
  a.to_rts();
  b.to_rts();
}

}  // namespace softhca::transport_test
