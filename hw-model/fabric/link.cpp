// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/link.h"

#include <algorithm>

#include "hw-model/ib/codec.h"
#include "hw-model/ib/opcodes.h"
#include "hw-model/ib/train.h"

namespace softhca::fabric {

bool Channel::take_room_notice() {
  if (!was_full_ || waiting_packets_ > kSoftLimit / 2) return false;
  was_full_ = false;
  return true;
}

bool Channel::push(ib::PacketPtr packet) {
  if (waiting_packets_ >= kHardLimit) return false;
  waiting_packets_ += packet->count;
  waiting_.push_back(std::move(packet));
  if (!ready()) was_full_ = true;
  return true;
}

void Channel::clear() {
  waiting_.clear();
  waiting_packets_ = 0;
  flying_ = {};
  wire_free_at_ = 0;
}

ib::PacketPtr Channel::pop() {
  ib::PacketPtr packet = waiting_.pop_front();
  waiting_packets_ -= packet->count;
  return packet;
}

ib::PacketPtr Channel::pop_single(ib::PacketPool& pool) {
  if (waiting_.front()->count == 1) return pop();
  --waiting_packets_;
  return ib::take_first(*waiting_.front(), pool);
}

Nanoseconds Channel::occupy(const LinkConfig& config, std::size_t bytes, Nanoseconds now) {
  wire_free_at_ = std::max(wire_free_at_, now);
  if (config.bytes_per_second != 0) {
    wire_free_at_ += bytes * 1'000'000'000ULL / config.bytes_per_second;
  }
  return wire_free_at_ + config.delay;
}

void Channel::fly(ib::PacketPtr packet, Nanoseconds arrival) {
  flying_.push({arrival, order_++, std::move(packet)});
}

ib::PacketPtr Channel::land() {
  ib::PacketPtr packet = std::move(flying_.top().packet);
  flying_.pop();
  return packet;
}

void Link::count_received(const ib::Packet& packet, const TrafficCount& count,
                          PortCounters& receiver) {
  if (!ib::is_multicast_lid(packet.path.dlid)) {
    receiver.received(count);
    return;
  }
  receiver.rcv_data += count.words;
  receiver.multicast_rcv_packets += count.packets;
}

ib::PacketPtr Link::transmit(Direction direction, Nanoseconds now, PortCounters& sender,
                             PortCounters& receiver) {
  Channel& way = channel(direction);
  const bool plain = !takes_apart();
  ib::PacketPtr packet = plain ? way.pop() : way.pop_single(packets);
  const TrafficCount count = count_of(*packet);
  if (ib::is_multicast_lid(packet->path.dlid)) {
    sender.xmit_data += count.words;
    sender.multicast_xmit_packets += count.packets;
  } else {
    sender.transmitted(count);
  }
  if (plain && way.next_arrival() == kNever) {
    count_received(*packet, count, receiver);
    return packet;
  }
  if (fault) return transmit_with_faults(std::move(packet), direction, now, receiver);
  if (!observers.empty()) show(direction, now, *packet);
  const Nanoseconds arrival = way.occupy(config, ib::wire_size(*packet), now);
  if (arrival <= now && way.next_arrival() == kNever) {
    count_received(*packet, count, receiver);
    return packet;
  }
  way.fly(std::move(packet), arrival);
  return nullptr;
}

ib::PacketPtr Link::transmit_with_faults(ib::PacketPtr packet, Direction direction, Nanoseconds now,
                                         PortCounters& receiver) {
  Channel& way = channel(direction);
  const Verdict verdict = fault(*packet, direction, now);
  const Nanoseconds arrival =
      way.occupy(config, ib::encoded_size(*packet), now) + verdict.extra_delay;
  if (!verdict.flip_bits.empty()) {
    if (!ib::encode(*packet, scratch_)) return nullptr;
    for (const std::uint32_t bit : verdict.flip_bits) {
      const std::size_t at = bit % (scratch_.size() * 8);
      scratch_[at / 8] ^= static_cast<std::byte>(0x80U >> at % 8);
    }
    if (verdict.repair_vcrc) ib::refresh_vcrc(scratch_);
    show_bytes(direction, now, scratch_);
    if (ib::decode(scratch_, *packet) != ib::DecodeStatus::ok) {
      ++receiver.rcv_errors;
      return nullptr;
    }
  } else {
    show(direction, now, *packet);
  }
  if (verdict.drop) return nullptr;
  if (verdict.duplicate) {
    show(direction, now, *packet);
    way.fly(std::make_unique<ib::Packet>(*packet), arrival);
  }
  way.fly(std::move(packet), arrival);
  return nullptr;
}

void Link::show(Direction direction, Nanoseconds now, const ib::Packet& packet) {
  if (observers.empty() || !ib::encode(packet, scratch_)) return;
  show_bytes(direction, now, scratch_);
}

void Link::show_bytes(Direction direction, Nanoseconds now, std::span<const std::byte> bytes) {
  for (LinkObserver* observer : observers) observer->observe({name, direction, now, bytes});
}

void Link::clear() {
  for (Channel& way : channels) way.clear();
}

}  // namespace softhca::fabric
