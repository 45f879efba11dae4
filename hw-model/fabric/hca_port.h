// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "hw-model/fabric/counters.h"
#include "hw-model/fabric/cut_through.h"
#include "hw-model/fabric/link.h"
#include "hw-model/fabric/port_agent.h"
#include "hw-model/fabric/step_request.h"
#include "hw-model/ib/port.h"
#include "hw-model/runtime/ring.h"

namespace softhca::fabric {

/// The port of an attached HCA: what its transport sends into, with its link, management agents and
/// counters. Owned by Fabric, which drives it.
class HcaPort final : public ib::Port {
 public:
  /// `switch_port`: where the link ends. `on_link_request` hears that the port was told by its
  /// manager to go down.
  HcaPort(const HostConfig& config, const Clock& clock, ib::PacketPool& packets,
          CutThrough& short_way, StepRequest& request, std::uint8_t switch_port,
          std::function<void(LinkRequest)> on_link_request);
  ~HcaPort() override { short_way_.forget(*this); }

  const std::string& name() const { return link_.name; }
  Link& link() { return link_; }
  const Link& link() const { return link_; }
  PortCounters& counters() { return counters_; }
  const PortCounters& counters() const { return counters_; }
  PortAgent& agent() { return agent_; }
  const PortAgent& agent() const { return agent_; }

  /// Null: nobody receives.
  void connect(ib::PortClient* client);
  /// Brings the physical link up (port state INIT) or down; down loses everything queued or in
  /// flight.
  void set_link(bool up);
  /// True if packets to `lid` are for this port (its LID and the 2^LMC - 1 that follow).
  bool owns_lid(std::uint16_t lid) const;
  bool joined(const ib::Gid& mgid) const { return multicast_.contains(mgid); }

  // What Fabric::step() calls.

  /// Tells the client of events and of room in the queue; returns how often.
  std::size_t notify() {
    const bool room = loopback_was_full_ || link_.channel(Direction::from_host).owes_notice();
    return events_.empty() && !room ? 0 : tell_client();
  }
  /// Hands a packet that came off the link to the client, or to the agents.
  void receive(ib::Packet& packet);
  /// A packet that is neither management's nor multicast would get to the client.
  bool takes_data() const {
    return client_ != nullptr && attributes().state == ib::PortState::active;
  }
  ib::Answerer direct_receiver(const ib::Destination& there) {
    return client_->direct_receiver(there);
  }
  /// As receive(), given takes_data(). True: the first one since the client's delivered().
  bool take(ib::Packet& packet) {
    client_->receive(packet);
    return !std::exchange(delivered_, true);
  }
  /// Delivers up to `max_packets` that the port sent to itself; returns how many.
  std::size_t deliver_loopback(std::size_t max_packets);
  /// Packets were handed to the client since the last call: it answers what should be answered at
  /// once, such as by an acknowledge for all of them.
  void end_delivery() {
    if (std::exchange(delivered_, false) && client_ != nullptr) client_->delivered();
  }
  /// True if notify() or deliver_loopback() has something to do.
  bool has_local_work() const {
    return !loopback_.empty() || delivered_ || (client_ && !events_.empty());
  }

  // ib::Port
  const ib::PortAttributes& attributes() const override { return agent_.attributes(); }
  void send(ib::PacketPtr packet) override;
  bool cut_through(ib::Packet& packet) override;
  bool open_way(const ib::Destination& there, ib::Way& way) override;
  const std::uint64_t& way_epoch() const override { return request_.epoch(); }
  void ways_changed() override { request_.note_change(); }
  void end_turn() override { short_way_.end_turn(); }
  bool ready() const override;
  ib::PacketPool& packets() override { return link_.packets; }
  bool takes_trains() const override { return true; }
  ib::MadAgent* mad_agent() override {
    request_.make();
    return &agent_;
  }
  void set_capability_mask(std::uint32_t mask) override {
    request_.make();
    agent_.set_capability_mask(mask);
  }
  void set_node_description(std::span<const std::uint8_t, 64> text) override {
    agent_.set_node_description(text);
  }
  void attach_multicast(const ib::Gid& mgid) override { ++multicast_[mgid]; }
  void detach_multicast(const ib::Gid& mgid) override;

 private:
  std::size_t tell_client();
  bool open_inner_way(const ib::Destination& there, ib::Way& way);
  bool may_send(const ib::Packet& packet) const;
  void loop_back(ib::PacketPtr packet);
  void answer_mad(const ib::Packet& request);
  void send_answer(const ib::Packet& request, std::uint16_t dlid, ib::MadIn mad);

  Link link_;
  CutThrough& short_way_;
  StepRequest& request_;
  const std::uint8_t switch_port_;
  PortCounters counters_;
  PortAgent agent_;
  ib::PortClient* client_ = nullptr;
  Ring<ib::PacketPtr> loopback_;
  std::deque<ib::PortEvent> events_;
  std::map<ib::Gid, unsigned> multicast_;  ///< Joined groups, with the number of attaches.
  bool loopback_was_full_ = false;
  bool delivered_ = false;
  std::uint32_t mad_psn_ = 0;
};

}  // namespace softhca::fabric
