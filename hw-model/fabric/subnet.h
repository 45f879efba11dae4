// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "hw-model/fabric/hca_port.h"
#include "hw-model/fabric/switch_node.h"
#include "hw-model/runtime/clock.h"

namespace softhca::fabric {

/// A host, the link to it, and what the link is told at its two ends.
struct Spoke {
  Spoke(const HostConfig& config, const Clock& clock, ib::PacketPool& packets,
        CutThrough& short_way, StepRequest& request, std::uint8_t number,
        std::function<void(LinkRequest)> on_link_request)
      : port(config, clock, packets, short_way, request, number, std::move(on_link_request)),
        number(number) {}

  HcaPort port;
  const std::uint8_t number;  ///< Of the switch port.
  bool cable = false;         ///< Plugged in.
  bool host_disabled = false;
  bool switch_disabled = false;
  bool bounce = false;                  ///< Down first, though it may come up at once.
  Nanoseconds link_change_at = kNever;  ///< When the link does what it was told.
};

/// The nodes of the subnet, a switch and the hosts around it, and the state of the links between.
class Subnet {
 public:
  /// From the Set that takes a link down to the moment it happens: the response still gets out.
  static constexpr Nanoseconds kLinkDelay = 10'000'000;

  Subnet(const Clock& clock, std::uint64_t switch_guid);

  SwitchNode& node() { return node_; }
  const SwitchNode& node() const { return node_; }
  CutThrough& short_way() { return short_way_; }
  const CutThrough& short_way() const { return short_way_; }
  StepRequest& step_request() { return step_request_; }
  const StepRequest& step_request() const { return step_request_; }
  SwitchPort& switch_port(const Spoke& spoke) { return node_.port(spoke.number); }

  /// Null: all switch ports are taken.
  Spoke* add(const HostConfig& config);
  void remove(Spoke& spoke);
  std::size_t size() const { return spokes_.size(); }
  /// By index, 0 .. size() - 1; null: nothing plugged in.
  Spoke* slot(std::size_t index) { return spokes_[index].get(); }
  Spoke* at_port(std::uint8_t switch_port) {
    return switch_port >= 1 && switch_port <= spokes_.size() ? spokes_[switch_port - 1U].get()
                                                             : nullptr;
  }
  Spoke* find(std::string_view name);
  Spoke* find_by_guid(std::uint64_t port_guid);
  Spoke* find_by_lid(std::uint16_t lid);
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (auto& spoke : spokes_) {
      if (spoke) visit(*spoke);
    }
  }

  /// Who hears that a link went up (both ends are INIT then) or down.
  void on_link(std::function<void(Spoke&, bool up)> listener) { on_link_ = std::move(listener); }
  void set_cable(Spoke& spoke, bool plugged);
  /// Does what links were told to do by now. Returns how many changed.
  std::size_t change_links(Nanoseconds now);
  Nanoseconds next_link_change() const;

 private:
  void request(std::uint8_t number, bool by_host, LinkRequest request);
  void settle_link(Spoke& spoke);
  void set_link(Spoke& spoke, bool up);

  const Clock& clock_;
  ib::PacketPool packets_;
  CutThrough short_way_{*this};
  StepRequest step_request_;
  SwitchNode node_;
  std::vector<std::unique_ptr<Spoke>> spokes_;  ///< By switch port number - 1.
  std::function<void(Spoke&, bool up)> on_link_;
};

}  // namespace softhca::fabric
