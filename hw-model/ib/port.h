// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hw-model/ib/direct.h"
#include "hw-model/ib/mad_agent.h"
#include "hw-model/ib/packet.h"
#include "hw-model/ib/packet_pool.h"

namespace softhca::ib {

/// PortInfo.PortState (IBA 14.2.5.6).
enum class PortState : std::uint8_t { down = 1, init = 2, armed = 3, active = 4 };

/// What a transport and firmware need to know of a port; owned by the fabric side, which alone
/// writes it (subnet manager, link state).
struct PortAttributes {
  PortState state = PortState::down;
  std::uint8_t phys_state = 2;  ///< PortInfo.PortPhysicalState: 2 polling, 3 disabled, 5 link up.
  std::uint16_t lid = 0;
  std::uint8_t lmc = 0;
  std::uint16_t sm_lid = 0;
  std::uint8_t sm_sl = 0;
  std::uint8_t mtu_cap = 5;                ///< 1..5: 256..4096.
  std::uint8_t active_mtu = 5;             ///< PortInfo.NeighborMTU.
  std::uint8_t link_width_active = 2;      ///< 2: 4X.
  std::uint16_t link_speed_active = 0x20;  ///< ibv_port_attr.active_speed code: 0x20 EDR.
  std::uint32_t capability_mask = 0;
  std::uint64_t subnet_prefix = 0xfe80000000000000ULL;
  std::uint64_t port_guid = 0;
  std::uint8_t subnet_timeout = 18;
  std::vector<Gid> gids;             ///< Index 0 is subnet_prefix:port_guid.
  std::vector<std::uint16_t> pkeys;  ///< 0 marks an unused entry; index 0 is 0xffff by default.
};

/// Source LID for the path bits of an address: those within the port's LMC (IBA 4.1.3).
inline std::uint16_t source_lid(const PortAttributes& port, std::uint8_t path_bits) {
  return static_cast<std::uint16_t>(port.lid | (path_bits & ((1U << port.lmc) - 1)));
}

/// A port as its HCA sees it: a place to send packets, and attributes to read. It outlives the HCA.
class Port {
 public:
  virtual ~Port() = default;
  /// Always the same object.
  virtual const PortAttributes& attributes() const = 0;
  /// Queues a packet on the link (packets to the port's own LID come back to it). Never calls
  /// receive() from inside; drops silently what a dead link would drop.
  virtual void send(PacketPtr packet) = 0;
  /// Hands a packet to the port it is for at once, as a cut-through switch does, if nothing on its
  /// way could hold, see, damage or lose it, and nothing is in front of it. False: it could, the
  /// packet is untouched; send() it. Calls receive() of the other HCA, never of this one.
  virtual bool cut_through(Packet& packet) {
    (void)packet;
    return false;
  }
  /// The way of a connection's requests to their responder, where cut_through() would hand over
  /// both them and its answers, or the responder is on this HCA. False: there is something on it.
  virtual bool open_way(const Destination& there, Way& way) {
    (void)there;
    (void)way;
    return false;
  }
  /// Where this number, always the same object, has changed since a way was opened, the way may be
  /// closed, or lead to a responder that is gone. While a step of an HCA lasts, only what the HCA
  /// does itself changes it.
  virtual const std::uint64_t& way_epoch() const { return no_epoch_; }
  /// A QP that a way may begin or end at was changed or destroyed.
  virtual void ways_changed() {}
  /// The HCA has sent what it wanted to: those who got something answer what should be answered at
  /// once (PortClient::delivered()), which may call this HCA's receive().
  virtual void end_turn() {}
  /// False while the link's queue is full: the transport then stops producing and is told by
  /// PortClient::port_ready() when there is room.
  virtual bool ready() const = 0;
  /// Where packets to send come from and received ones go to; the ports of a fabric share one.
  virtual PacketPool& packets() { return own_packets_; }
  /// True if send() takes trains of packets.
  virtual bool takes_trains() const { return false; }

  // What the firmware's commands reach of the port; a port that offers none of it (tests) answers
  // as below.

  /// Answers MAD_IFC; null: this port has no management agents.
  virtual MadAgent* mad_agent() { return nullptr; }
  /// PortInfo.CapabilityMask as the driver wants it (PCAP register), e.g. with the IsSM bit.
  virtual void set_capability_mask(std::uint32_t mask) { (void)mask; }
  /// NodeDescription, 64 bytes.
  virtual void set_node_description(std::span<const std::uint8_t, 64> text) { (void)text; }
  /// The HCA wants multicast packets to `mgid` from now on; counted, one detach for each attach.
  /// The HCA finds the QPs itself, and does not hand a packet to the QP that sent it.
  virtual void attach_multicast(const Gid& mgid) { (void)mgid; }
  virtual void detach_multicast(const Gid& mgid) { (void)mgid; }

 private:
  PacketPool own_packets_;
  std::uint64_t no_epoch_ = 0;
};

/// Kinds of port change, by the subtype of the device's port change event.
enum class PortEvent : std::uint8_t {
  down = 1,
  active = 4,
  initialized = 5,
  lid_change = 6,
  pkey_change = 7,
  guid_change = 8,
  client_reregister = 9
};

/// The HCA side of a port.
class PortClient {
 public:
  virtual ~PortClient() = default;
  /// What is to stay of the packet must be moved out of it during the call.
  virtual void receive(Packet& packet) = 0;
  /// Port::open_way() at the other end. No responder: there is none.
  virtual Answerer direct_receiver(const Destination& there) {
    (void)there;
    return {};
  }
  /// Packets were received, and no more come in this step: the time to acknowledge them, by one
  /// packet for all of a connection.
  virtual void delivered() {}
  virtual void port_ready() = 0;
  virtual void port_event(PortEvent event) = 0;
  /// True if a driver has taken over this special QP (0 or 1): its packets then come to receive().
  /// Otherwise the port's own agents answer them.
  virtual bool owns_special_qp(std::uint32_t qp) const {
    (void)qp;
    return false;
  }
};

}  // namespace softhca::ib
