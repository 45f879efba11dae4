// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/port_agent.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hw-model/fabric/perf_agent.h"

namespace softhca::fabric {
namespace {

constexpr std::uint32_t kDefaultCapabilities =
    ib::kPortCapSlMapping | ib::kPortCapSystemImageGuid | ib::kPortCapExtendedSpeeds |
    ib::kPortCapCommunicationManagement | ib::kPortCapClientReregistration;

bool is_smp_class(std::uint8_t mgmt_class) {
  return mgmt_class == static_cast<std::uint8_t>(ib::MgmtClass::subn_lid_routed) ||
         mgmt_class == static_cast<std::uint8_t>(ib::MgmtClass::subn_directed_route);
}

HostConfig with_defaults(HostConfig config) {
  if (config.port_guid == 0) config.port_guid = config.node_guid;
  if (config.system_image_guid == 0) config.system_image_guid = config.node_guid;
  if (config.node_description.empty()) config.node_description = config.name;
  return config;
}

}  // namespace

PortAgent::PortAgent(const HostConfig& config, const Clock& clock, PortCounters& counters,
                     std::function<void(ib::PortEvent)> on_event,
                     std::function<void(LinkRequest)> on_link_request)
    : identity_(with_defaults(config)),
      clock_(clock),
      counters_(counters),
      on_event_(std::move(on_event)),
      on_link_request_(std::move(on_link_request)) {
  const std::string& text = identity_.node_description;
  std::copy_n(text.begin(), std::min(text.size(), node_description_.size()),
              node_description_.begin());
  attributes_.capability_mask = kDefaultCapabilities;
  attributes_.port_guid = identity_.port_guid;
  attributes_.pkeys.assign(kPkeys, 0);
  attributes_.pkeys[0] = 0xffff;
  guids_[0] = identity_.port_guid;
  refresh_gids();
}

void PortAgent::set_state(ib::PortState state) {
  if (attributes_.state == state) return;
  attributes_.state = state;
  attributes_.phys_state = state == ib::PortState::down ? kPhysPolling : kPhysLinkUp;
  switch (state) {
    case ib::PortState::down:
      on_event_(ib::PortEvent::down);
      break;
    case ib::PortState::init:
      on_event_(ib::PortEvent::initialized);
      break;
    case ib::PortState::active:
      on_event_(ib::PortEvent::active);
      break;
    case ib::PortState::armed:
      break;
  }
}

void PortAgent::set_disabled(bool disabled) {
  if (attributes_.state != ib::PortState::down) return;
  attributes_.phys_state = disabled ? kPhysDisabled : kPhysPolling;
}

void PortAgent::assign_lid(std::uint16_t lid, std::uint16_t sm_lid) {
  if (attributes_.lid == lid && attributes_.sm_lid == sm_lid) return;
  attributes_.lid = lid;
  attributes_.sm_lid = sm_lid;
  on_event_(ib::PortEvent::lid_change);
}

void PortAgent::set_node_description(std::span<const std::uint8_t, 64> text) {
  std::copy(text.begin(), text.end(), node_description_.begin());
}

void PortAgent::refresh_gids() {
  attributes_.gids.assign(kGuids, ib::Gid{});
  for (unsigned i = 0; i < kGuids; ++i) {
    if (guids_[i] == 0) continue;
    prm::Field<0, 64>::set(attributes_.gids[i].data(), attributes_.subnet_prefix);
    prm::Field<64, 64>::set(attributes_.gids[i].data(), guids_[i]);
  }
}

ib::MadResult PortAgent::process(ib::MadIn in, ib::MadOut out, ib::MKeyCheck check) {
  using Header = ib::MadHeader;
  touched_ = true;
  std::fill(out.begin(), out.end(), std::uint8_t{0});
  const auto method = static_cast<ib::MadMethod>(Header::method::get(in.data()));
  const bool smp = is_smp_class(static_cast<std::uint8_t>(Header::mgmt_class::get(in.data())));
  if (check == ib::MKeyCheck::ignored || !smp) return execute(in, out);
  // Of the SMPs only Get, Set and TrapRepress are for an agent; only they are checked.
  const bool checked = method == ib::MadMethod::get || method == ib::MadMethod::set ||
                       method == ib::MadMethod::trap_repress;
  return checked ? process_checked(method, in, out) : ib::MadResult::no_answer;
}

ib::MadResult PortAgent::process_checked(ib::MadMethod method, ib::MadIn in, ib::MadOut out) {
  const MKeyVerdict verdict =
      m_key_guard_.check(stored_, method, ib::Smp::m_key::get(in.data()), clock_.now());
  if (verdict == MKeyVerdict::drop) return ib::MadResult::m_key_wrong;
  const ib::MadResult result = execute(in, out);
  const auto attribute = static_cast<ib::SmpAttribute>(ib::MadHeader::attribute_id::get(in.data()));
  if (result == ib::MadResult::answered && verdict == MKeyVerdict::pass_hidden &&
      attribute == ib::SmpAttribute::port_info) {
    ib::PortInfo::m_key::set(ib::Smp::data::at(out.data()), 0);
  }
  return result;
}

bool PortAgent::read(ib::SmpAttribute attribute, std::uint32_t modifier, std::uint8_t* data) {
  return process_smp(ib::MadMethod::get, static_cast<std::uint16_t>(attribute), modifier, data) ==
         ib::kMadOk;
}

std::uint16_t PortAgent::process_perf_mad(ib::MadMethod method, std::uint16_t attribute,
                                          std::uint8_t* data) {
  PortCounters* const own = &counters_;
  return process_perf(
      method, attribute, data, [&](std::uint8_t port) { return port == 1 ? own : nullptr; },
      std::span<PortCounters* const>(&own, 1));
}

ib::MadResult PortAgent::execute(ib::MadIn in, ib::MadOut out) {
  using Header = ib::MadHeader;
  const auto method = static_cast<ib::MadMethod>(Header::method::get(in.data()));
  if (method != ib::MadMethod::get && method != ib::MadMethod::set) {
    return ib::MadResult::no_answer;
  }

  std::copy(in.begin(), in.end(), out.begin());
  const auto mgmt_class = static_cast<std::uint8_t>(Header::mgmt_class::get(in.data()));
  const auto attribute = static_cast<std::uint16_t>(Header::attribute_id::get(in.data()));
  const auto modifier = static_cast<std::uint32_t>(Header::attribute_modifier::get(in.data()));
  // What an unknown class is answered with, too (IBA 13.4.7).
  std::uint16_t status = ib::kMadBadVersion;
  const bool version_one =
      Header::base_version::get(in.data()) == 1 && Header::class_version::get(in.data()) == 1;
  if (version_one && is_smp_class(mgmt_class)) {
    status = process_smp(method, attribute, modifier, ib::Smp::data::at(out.data()));
  } else if (version_one && mgmt_class == static_cast<std::uint8_t>(ib::MgmtClass::perf)) {
    status = process_perf_mad(method, attribute, ib::PerfMad::data::at(out.data()));
  }
  Header::method::set(out.data(), static_cast<std::uint8_t>(ib::MadMethod::get_response));
  if (mgmt_class == static_cast<std::uint8_t>(ib::MgmtClass::subn_directed_route)) {
    ib::Smp::direction::set(out.data(), 1);
    ib::Smp::status::set(out.data(), status);
  } else {
    Header::status::set(out.data(), status);
  }
  return ib::MadResult::answered;
}

}  // namespace softhca::fabric
