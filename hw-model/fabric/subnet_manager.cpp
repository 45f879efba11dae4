// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/subnet_manager.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "hw-model/fabric/directed_route.h"
#include "hw-model/ib/opcodes.h"

namespace softhca::fabric {
namespace {

constexpr std::uint8_t kPriority = 0;  // the lowest
/// GUIDs remembered beyond those of the ports that are there.
constexpr std::size_t kMaxRemembered = 4096;
constexpr std::uint8_t kManagementPort = 0;

/// Precedence of subnet managers: higher priority, then lower GUID (IBA 14.4.1).
bool precedes(std::uint8_t priority, std::uint64_t guid, std::uint64_t our_guid) {
  return priority > kPriority || (priority == kPriority && guid < our_guid);
}

}  // namespace

SubnetManager::SubnetManager(Subnet& subnet, MadOutbox& outbox, const Clock& clock)
    : subnet_(subnet), outbox_(outbox), clock_(clock) {
  become_master();
}

bool SubnetManager::is_sm(const Spoke& spoke) {
  return spoke.port.link().up && (spoke.port.attributes().capability_mask & ib::kPortCapIsSm) != 0;
}

void SubnetManager::show_capability() {
  ib::PortAttributes& port = subnet_.node().management().attributes;
  port.capability_mask = ib::kPortCapTrap | ib::kPortCapSlMapping | ib::kPortCapSystemImageGuid |
                         ib::kPortCapExtendedSpeeds | ib::kPortCapClientReregistration;
  port.capability_mask |=
      state_ == ib::SmState::not_active ? ib::kPortCapSmDisabled : ib::kPortCapIsSm;
}

void SubnetManager::become_master() {
  state_ = ib::SmState::master;
  ++reign_;
  master_port_ = 0;
  questions_.clear();
  next_poll_ = clock_.now();
  show_capability();
  ib::PortAttributes& own = subnet_.node().management().attributes;
  if (own.lid == 0) own.lid = kFirstLid;
  own.sm_lid = own.lid;
  own.sm_sl = 0;
  routed_.clear();
  subnet_.node().linear().clear();
  subnet_.node().linear().set(own.lid, kManagementPort);
  subnet_.node().linear().set_top(LinearForwardingTable::kCapacity - 1);
  subnet_.node().multicast().clear();
  // Ports keep their LIDs, first those that have one; then the others get theirs.
  subnet_.for_each([&](Spoke& spoke) {
    if (spoke.port.link().up) follow_lid(spoke);
  });
  subnet_.for_each([&](Spoke& spoke) {
    if (!spoke.port.link().up) return;
    bring_up(spoke);
    spoke.port.agent().ask_to_reregister();
  });
}

void SubnetManager::stand_by(std::uint8_t master_port) {
  state_ = ib::SmState::standby;
  master_port_ = master_port;
  unanswered_ = 0;
  questions_.clear();
  next_poll_ = clock_.now() + kPollInterval;
  show_capability();
}

std::uint16_t SubnetManager::choose_lid(std::uint64_t port_guid) const {
  const LinearForwardingTable& routes = subnet_.node().linear();
  const auto free = [&](std::uint16_t lid) {
    return routes.entry(lid) == LinearForwardingTable::kNoRoute;
  };
  const auto remembered = lids_by_guid_.find(port_guid);
  if (remembered != lids_by_guid_.end() && free(remembered->second)) return remembered->second;
  for (std::uint16_t lid = kFirstLid; lid < ib::kMulticastLidFirst; ++lid) {
    if (free(lid)) return lid;
  }
  return 0;
}

void SubnetManager::link_changed(Spoke& spoke, bool up) {
  if (!up) {
    questions_.erase(spoke.number);
    return;
  }
  if (master()) bring_up(spoke);
}

void SubnetManager::forget(std::uint8_t port) {
  questions_.erase(port);
  if (master()) drop_routes(port);
}

void SubnetManager::drop_routes(std::uint8_t port) {
  const auto routed = routed_.find(port);
  if (routed == routed_.end()) return;
  LinearForwardingTable& routes = subnet_.node().linear();
  const std::uint32_t count = 1U << routed->second.second;
  const std::uint32_t first = routed->second.first & ~(count - 1);
  for (std::uint32_t lid = first; lid < first + count; ++lid) {
    const auto entry = static_cast<std::uint16_t>(lid);
    if (routes.entry(entry) == port) routes.set(entry, LinearForwardingTable::kNoRoute);
  }
  routed_.erase(routed);
}

// What a subnet manager does after a link came up, without the SMPs: LID, then INIT to ARMED to
// ACTIVE at both ends.
void SubnetManager::bring_up(Spoke& spoke) {
  const ib::PortAttributes& port = spoke.port.attributes();
  const std::uint16_t sm_lid = subnet_.node().management().attributes.lid;
  const bool has_lid = port.lid != 0 && subnet_.node().linear().entry(port.lid) == spoke.number;
  const std::uint16_t lid = has_lid ? port.lid : choose_lid(port.port_guid);
  if (lid == 0) return;
  spoke.port.agent().assign_lid(lid, sm_lid);
  follow_lid(spoke);
  ib::PortAttributes& near = subnet_.switch_port(spoke).attributes;
  for (const ib::PortState state : {ib::PortState::armed, ib::PortState::active}) {
    if (near.state != ib::PortState::active) near.state = state;
    if (port.state != ib::PortState::active) spoke.port.agent().set_state(state);
  }
}

// The port's driver may have moved it to another LID; the routes follow.
void SubnetManager::follow_lid(Spoke& spoke) {
  const ib::PortAttributes& port = spoke.port.attributes();
  const std::pair<std::uint16_t, std::uint8_t> now{port.lid, port.lmc};
  if (const auto routed = routed_.find(spoke.number);
      routed != routed_.end() && routed->second == now) {
    return;
  }
  drop_routes(spoke.number);
  routed_[spoke.number] = now;
  LinearForwardingTable& routes = subnet_.node().linear();
  const std::uint32_t count = 1U << port.lmc;
  const std::uint32_t first = port.lid & ~(count - 1);
  for (std::uint32_t lid = std::max(first, 1U); lid < first + count; ++lid) {
    // A port that was given (or took) a LID of another, or of the switch, does not get its packets.
    if (routes.entry(static_cast<std::uint16_t>(lid)) == LinearForwardingTable::kNoRoute) {
      routes.set(static_cast<std::uint16_t>(lid), spoke.number);
    }
  }
  if (port.lid != 0 && routes.entry(port.lid) == spoke.number) {
    if (lids_by_guid_.size() >= kMaxRemembered) {
      std::erase_if(lids_by_guid_, [&](const auto& entry) {
        return subnet_.find_by_guid(entry.first) == nullptr;
      });
    }
    lids_by_guid_[port.port_guid] = port.lid;
  } else {
    drop_routes(spoke.number);  // Looked at again: its owner may give it up.
  }
}

// A port that was told of another manager's LID: that manager is at work.
bool SubnetManager::yield_to_other_sm_lid(const Spoke& spoke) {
  const std::uint16_t sm_lid = spoke.port.attributes().sm_lid;
  if (sm_lid == 0 || sm_lid == subnet_.node().management().attributes.lid) return false;
  const Spoke* other = subnet_.find_by_lid(sm_lid);
  if (other == nullptr || !is_sm(*other)) return false;
  stand_by(other->number);
  return true;
}

std::size_t SubnetManager::step(Nanoseconds now) {
  std::size_t done = 0;
  if (state_ == ib::SmState::standby && master_is_gone()) {
    become_master();
    return 1;
  }
  if (master()) {
    for (std::size_t i = 0; i < subnet_.size(); ++i) {
      Spoke* spoke = subnet_.slot(i);
      if (spoke == nullptr) continue;
      if (yield_to_other_sm_lid(*spoke)) return 1;
      follow_lid(*spoke);
      if (is_sm(*spoke) && !questions_.contains(spoke->number)) {
        questions_[spoke->number] = 0;  // Seen for the first time: asked at once.
        next_poll_ = now;
      } else if (!is_sm(*spoke)) {
        questions_.erase(spoke->number);
      }
    }
  }
  if (now >= next_poll_) {
    poll(now);
    ++done;
  }
  return done;
}

bool SubnetManager::master_is_gone() {
  const Spoke* spoke = subnet_.at_port(master_port_);
  return spoke == nullptr || !is_sm(*spoke) || unanswered_ > kPatience;
}

void SubnetManager::poll(Nanoseconds now) {
  next_poll_ = kNever;
  if (state_ == ib::SmState::standby) {
    ++unanswered_;
    ask(master_port_, ib::MadMethod::get, ib::SmControl{});
    next_poll_ = now + kPollInterval;
  } else if (master()) {
    for (const auto& [port, transaction] : std::map(questions_)) {
      ask(port, ib::MadMethod::get, ib::SmControl{});
      next_poll_ = now + kPollInterval;
    }
  }
}

void SubnetManager::ask(std::uint8_t port, ib::MadMethod method, ib::SmControl control) {
  using Header = ib::MadHeader;
  std::array<std::uint8_t, ib::kMadSize> smp{};
  Header::base_version::set(smp.data(), 1);
  Header::mgmt_class::set(smp.data(),
                          static_cast<std::uint8_t>(ib::MgmtClass::subn_directed_route));
  Header::class_version::set(smp.data(), 1);
  Header::method::set(smp.data(), static_cast<std::uint8_t>(method));
  Header::transaction_id::set(smp.data(), ++transaction_);
  Header::attribute_id::set(smp.data(), static_cast<std::uint16_t>(ib::SmpAttribute::sm_info));
  Header::attribute_modifier::set(smp.data(), static_cast<std::uint32_t>(control));
  ib::Smp::hop_count::set(smp.data(), 1);
  ib::Smp::dr_slid::set(smp.data(), ib::kPermissiveLid);
  ib::Smp::dr_dlid::set(smp.data(), ib::kPermissiveLid);
  ib::Smp::initial_path::at(smp.data())[1] = port;
  if (method == ib::MadMethod::set) get_sm_info(ib::Smp::data::at(smp.data()));
  if (leave_node(smp).kind != RouteStep::Kind::by_port) return;
  questions_[port] = transaction_;
  ++activity_;
  outbox_.send_by_port(port, smp);
}

void SubnetManager::sm_info_response(std::uint8_t in_port, ib::MadIn smp) {
  using Header = ib::MadHeader;
  const auto question = questions_.find(in_port);
  if (question == questions_.end() || question->second == 0 ||
      question->second != Header::transaction_id::get(smp.data()) ||
      ib::Smp::status::get(smp.data()) != ib::kMadOk) {
    return;
  }
  question->second = 0;
  const std::uint8_t* data = ib::Smp::data::at(smp.data());
  if (master()) {
    const auto control = static_cast<ib::SmControl>(Header::attribute_modifier::get(smp.data()));
    if (control == ib::SmControl::handover) {
      stand_by(in_port);
    } else {
      hear_as_master(in_port, data);
    }
    return;
  }
  const auto state = static_cast<ib::SmState>(ib::SmInfo::sm_state::get(data));
  const bool alive = state == ib::SmState::master || state == ib::SmState::discovering;
  if (in_port == master_port_ && alive) unanswered_ = 0;
}

void SubnetManager::hear_as_master(std::uint8_t in_port, const std::uint8_t* data) {
  const auto state = static_cast<ib::SmState>(ib::SmInfo::sm_state::get(data));
  const bool above = precedes(static_cast<std::uint8_t>(ib::SmInfo::priority::get(data)),
                              ib::SmInfo::guid::get(data), subnet_.node().guid());
  // One that found us first waits for the handover; another is the master already.
  if (state == ib::SmState::master || (state == ib::SmState::standby && above)) {
    ask(in_port, ib::MadMethod::set, ib::SmControl::handover);
  }
}

void SubnetManager::configured_by(std::uint8_t in_port) {
  const Spoke* spoke = subnet_.at_port(in_port);
  if (master() && spoke != nullptr && is_sm(*spoke)) stand_by(in_port);
}

void SubnetManager::get_sm_info(std::uint8_t* data) const {
  std::memset(data, 0, ib::Smp::data::size);
  ib::SmInfo::guid::set(data, subnet_.node().guid());
  ib::SmInfo::sm_key::set(data, kSmKey);
  ib::SmInfo::act_count::set(data, activity_);
  ib::SmInfo::priority::set(data, kPriority);
  ib::SmInfo::sm_state::set(data, static_cast<std::uint8_t>(state_));
}

// The transitions that a master may ask for (IBA 14.4.1 figure 180). False: not from this state.
bool SubnetManager::obey(ib::SmControl control, std::uint8_t in_port) {
  const bool standby = state_ == ib::SmState::standby;
  if (standby && (control == ib::SmControl::handover || control == ib::SmControl::discover)) {
    become_master();
    return true;
  }
  if (standby && control == ib::SmControl::disable) {
    state_ = ib::SmState::not_active;
    next_poll_ = kNever;
    show_capability();
    return true;
  }
  if (state_ == ib::SmState::not_active && control == ib::SmControl::standby) {
    stand_by(in_port);
    return true;
  }
  return false;
}

std::uint16_t SubnetManager::sm_info(ib::MadMethod method, std::uint32_t modifier,
                                     std::uint8_t in_port, std::uint8_t* data) {
  const auto sender = static_cast<ib::SmState>(ib::SmInfo::sm_state::get(data));
  std::uint16_t status = ib::kMadOk;
  if (method == ib::MadMethod::set) {
    const Spoke* spoke = subnet_.at_port(in_port);
    // Only a master may say so, and it must be a manager that this one knows where to find.
    const bool from_master = sender == ib::SmState::master && spoke != nullptr && is_sm(*spoke);
    const auto control = static_cast<ib::SmControl>(modifier);
    if (control != ib::SmControl::acknowledge && !(from_master && obey(control, in_port))) {
      status = ib::kMadInvalidField;
    }
  }
  get_sm_info(data);
  return status;
}

}  // namespace softhca::fabric
