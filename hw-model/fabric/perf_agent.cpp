// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Performance management agent of an HCA port (IBA chapter 16).
#include <algorithm>
#include <cstring>

#include "hw-model/fabric/port_agent.h"

namespace softhca::fabric {
namespace {

using Counters = ib::PortCountersAttribute;
using Extended = ib::PortCountersExtendedAttribute;

constexpr std::uint8_t kAllPorts = 0xff;

/// Counters stop at their highest value and stay there until they are reset (IBA 16.1.3.5).
template <typename Field>
void put(std::uint8_t* data, std::uint64_t value) {
  Field::set(data, std::min<std::uint64_t>(value, Field::mask));
}

/// One counter of an attribute, selected by one bit of CounterSelect.
struct Selected {
  unsigned bit;
  std::uint64_t PortCounters::*counter;
};

constexpr Selected kSelected[] = {
    {0, &PortCounters::symbol_error},
    {1, &PortCounters::link_error_recovery},
    {2, &PortCounters::link_downed},
    {3, &PortCounters::rcv_errors},
    {4, &PortCounters::rcv_remote_physical_errors},
    {5, &PortCounters::rcv_switch_relay_errors},
    {6, &PortCounters::xmit_discards},
    {11, &PortCounters::vl15_dropped},
    {12, &PortCounters::xmit_data},
    {13, &PortCounters::rcv_data},
    {14, &PortCounters::unicast_xmit_packets},
    {14, &PortCounters::multicast_xmit_packets},
    {15, &PortCounters::unicast_rcv_packets},
    {15, &PortCounters::multicast_rcv_packets},
};

constexpr Selected kSelectedExtended[] = {
    {0, &PortCounters::xmit_data},
    {1, &PortCounters::rcv_data},
    {2, &PortCounters::unicast_xmit_packets},
    {2, &PortCounters::multicast_xmit_packets},
    {3, &PortCounters::unicast_rcv_packets},
    {3, &PortCounters::multicast_rcv_packets},
    {4, &PortCounters::unicast_xmit_packets},
    {5, &PortCounters::unicast_rcv_packets},
    {6, &PortCounters::multicast_xmit_packets},
    {7, &PortCounters::multicast_rcv_packets},
};

template <std::size_t N>
void clear(PortCounters& counters, const Selected (&table)[N], std::uint64_t select) {
  for (const Selected& entry : table) {
    if ((select >> entry.bit & 1) != 0) counters.*entry.counter = 0;
  }
}

bool selects_this_port(const std::uint8_t* data) {
  const auto port = Counters::port_select::get(data);
  return port == 1 || port == kAllPorts;
}

}  // namespace

std::uint16_t PortAgent::process_perf(ib::MadMethod method, std::uint16_t attribute,
                                      std::uint8_t* data) {
  const bool set = method == ib::MadMethod::set;
  switch (static_cast<ib::PerfAttribute>(attribute)) {
    case ib::PerfAttribute::class_port_info:
      if (set) return ib::kMadUnsupportedMethodAttribute;
      std::memset(data, 0, ib::PerfMad::data::size);
      ib::ClassPortInfo::base_version::set(data, 1);
      ib::ClassPortInfo::class_version::set(data, 1);
      ib::ClassPortInfo::capability_mask::set(data, ib::kPerfCapExtendedWidth);
      ib::ClassPortInfo::resp_time_value::set(data, 16);
      return ib::kMadOk;
    case ib::PerfAttribute::port_counters:
      if (!selects_this_port(data)) return ib::kMadInvalidField;
      if (set) clear_counters(data);
      get_counters(data);
      return ib::kMadOk;
    case ib::PerfAttribute::port_counters_extended:
      if (!selects_this_port(data)) return ib::kMadInvalidField;
      if (set) clear_extended_counters(data);
      get_extended_counters(data);
      return ib::kMadOk;
    default:
      return ib::kMadUnsupportedMethodAttribute;
  }
}

void PortAgent::get_counters(std::uint8_t* data) const {
  const auto port = Counters::port_select::get(data);
  const auto select = Counters::counter_select::get(data);
  std::memset(data, 0, ib::PerfMad::data::size);
  Counters::port_select::set(data, port);
  Counters::counter_select::set(data, select);
  put<Counters::symbol_error_counter>(data, counters_.symbol_error);
  put<Counters::link_error_recovery_counter>(data, counters_.link_error_recovery);
  put<Counters::link_downed_counter>(data, counters_.link_downed);
  put<Counters::port_rcv_errors>(data, counters_.rcv_errors);
  put<Counters::port_rcv_remote_physical_errors>(data, counters_.rcv_remote_physical_errors);
  put<Counters::port_rcv_switch_relay_errors>(data, counters_.rcv_switch_relay_errors);
  put<Counters::port_xmit_discards>(data, counters_.xmit_discards);
  put<Counters::vl15_dropped>(data, counters_.vl15_dropped);
  put<Counters::port_xmit_data>(data, counters_.xmit_data);
  put<Counters::port_rcv_data>(data, counters_.rcv_data);
  put<Counters::port_xmit_packets>(data, counters_.xmit_packets());
  put<Counters::port_rcv_packets>(data, counters_.rcv_packets());
  put<Counters::port_xmit_wait>(data, counters_.xmit_wait);
}

void PortAgent::clear_counters(std::uint8_t* data) {
  clear(counters_, kSelected, Counters::counter_select::get(data));
  if ((Counters::counter_select2::get(data) & 1) != 0) counters_.xmit_wait = 0;
}

void PortAgent::get_extended_counters(std::uint8_t* data) const {
  const auto port = Extended::port_select::get(data);
  const auto select = Extended::counter_select::get(data);
  std::memset(data, 0, ib::PerfMad::data::size);
  Extended::port_select::set(data, port);
  Extended::counter_select::set(data, select);
  Extended::port_xmit_data::set(data, counters_.xmit_data);
  Extended::port_rcv_data::set(data, counters_.rcv_data);
  Extended::port_xmit_packets::set(data, counters_.xmit_packets());
  Extended::port_rcv_packets::set(data, counters_.rcv_packets());
  Extended::port_unicast_xmit_packets::set(data, counters_.unicast_xmit_packets);
  Extended::port_unicast_rcv_packets::set(data, counters_.unicast_rcv_packets);
  Extended::port_multicast_xmit_packets::set(data, counters_.multicast_xmit_packets);
  Extended::port_multicast_rcv_packets::set(data, counters_.multicast_rcv_packets);
}

void PortAgent::clear_extended_counters(std::uint8_t* data) {
  clear(counters_, kSelectedExtended, Extended::counter_select::get(data));
}

}  // namespace softhca::fabric
