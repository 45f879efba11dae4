// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hw-model/fabric/counters.h"
#include "hw-model/fabric/link.h"
#include "hw-model/ib/port.h"
#include "hw-model/runtime/clock.h"

namespace softhca::fabric {

/// An HCA that joins the fabric.
struct HostConfig {
  std::string name;  ///< Also the name of its link; unique in the fabric.
  std::uint64_t node_guid = 0;
  std::uint64_t port_guid = 0;          ///< 0: the node GUID.
  std::uint64_t system_image_guid = 0;  ///< 0: the node GUID.
  std::uint32_t vendor_id = 0x02c9;
  std::uint16_t device_id = 0x1019;
  std::string node_description;  ///< Empty: the name. Cut to 64 bytes.
};

/// How much one Fabric::step() may move.
struct FabricBudget {
  std::size_t packets_per_port = 64;
};

/// What `softhca status` shows of a link and its port.
struct LinkStatus {
  std::string name;
  bool cable = false;  ///< Plugged in; a link with its cable may be down by a manager's word.
  bool up = false;
  ib::PortState state = ib::PortState::down;
  std::uint16_t lid = 0;
  std::uint64_t port_guid = 0;
  PortCounters counters;
  std::size_t waiting[2] = {0, 0};  ///< Packets queued, by Direction.
};

/// An InfiniBand subnet: one switch, a link from it to each attached host, and the built-in subnet
/// manager and administrator, which give LIDs, routes and ACTIVE ports the moment a link comes up
/// (LID 1 is the switch's port 0, where they live). They stand by while a manager on a host is the
/// master.
///
/// Single-threaded and deterministic. HCA models send into their port; step() moves packets
/// and, but for ib::Port::cut_through(), is the only place that calls PortClient, so nothing
/// recurses. Hosts come and go at any time between
/// calls of step(); packets to a host that left vanish, as on a pulled cable.
class Fabric {
 public:
  explicit Fabric(const Clock& clock);
  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  /// Plugs in a host; its port is ACTIVE on return, unless another subnet manager is the master:
  /// then that one will see to it. The port lives until detach(). Null: the name
  /// or GUID is taken, or all 254 switch ports or all unicast LIDs are. A host that comes back with
  /// the same port GUID gets its old LID if that is free.
  ib::Port* attach(const HostConfig& config);
  /// Says who receives from a host's port; null: nobody (packets are then dropped, agents still
  /// answer). A new client is told of the port's state by an event in the next step(). False: no
  /// such host.
  bool connect(std::string_view name, ib::PortClient* client);
  /// Pulls the cable and forgets the host. False: no such host.
  bool detach(std::string_view name);
  ib::Port* find(std::string_view name);

  /// Takes a link down or up; both ends see it, the manager brings the port back to ACTIVE. False:
  /// no such link. No-op if it already is so.
  bool set_link(std::string_view name, bool up);
  /// Speed and length of a link. False: no such link.
  bool configure_link(std::string_view name, const LinkConfig& config);
  /// Installs (or with an empty function removes) the fault hook of a link. False: no such link.
  bool set_fault(std::string_view name, FaultHook hook);

  /// Shows the packets of a link, or with an empty name of every link there is, to `observer`,
  /// until remove_observer() or the link's end. False: no such link.
  bool add_observer(std::string_view name, LinkObserver& observer);
  void remove_observer(LinkObserver& observer);

  /// Delivers port events and moves packets that are due. True if it delivered anything or work is
  /// left that could go on at once: the runner then steps the HCAs and the fabric again.
  bool step(const FabricBudget& budget = {});
  /// Earliest time step() has something to do although nothing else happens: 0 if at once, kNever
  /// if none.
  Nanoseconds next_deadline() const;

  std::vector<LinkStatus> status() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace softhca::fabric
