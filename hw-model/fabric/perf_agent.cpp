// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/perf_agent.h"

#include <algorithm>
#include <cstring>

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
    {7, &PortCounters::xmit_constraint_errors},
    {8, &PortCounters::rcv_constraint_errors},
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

PortCounters sum(std::span<PortCounters* const> all) {
  PortCounters total;
  for (const PortCounters* counters : all) {
    for (const Selected& entry : kSelected) total.*entry.counter += counters->*entry.counter;
    total.xmit_wait += counters->xmit_wait;
  }
  return total;
}

void get_counters(const PortCounters& counters, std::uint8_t* data) {
  const auto port = Counters::port_select::get(data);
  const auto select = Counters::counter_select::get(data);
  std::memset(data, 0, ib::PerfMad::data::size);
  Counters::port_select::set(data, port);
  Counters::counter_select::set(data, select);
  put<Counters::symbol_error_counter>(data, counters.symbol_error);
  put<Counters::link_error_recovery_counter>(data, counters.link_error_recovery);
  put<Counters::link_downed_counter>(data, counters.link_downed);
  put<Counters::port_rcv_errors>(data, counters.rcv_errors);
  put<Counters::port_rcv_remote_physical_errors>(data, counters.rcv_remote_physical_errors);
  put<Counters::port_rcv_switch_relay_errors>(data, counters.rcv_switch_relay_errors);
  put<Counters::port_xmit_discards>(data, counters.xmit_discards);
  put<Counters::port_xmit_constraint_errors>(data, counters.xmit_constraint_errors);
  put<Counters::port_rcv_constraint_errors>(data, counters.rcv_constraint_errors);
  put<Counters::vl15_dropped>(data, counters.vl15_dropped);
  put<Counters::port_xmit_data>(data, counters.xmit_data);
  put<Counters::port_rcv_data>(data, counters.rcv_data);
  put<Counters::port_xmit_packets>(data, counters.xmit_packets());
  put<Counters::port_rcv_packets>(data, counters.rcv_packets());
  put<Counters::port_xmit_wait>(data, counters.xmit_wait);
}

void clear_counters(PortCounters& counters, const std::uint8_t* data) {
  clear(counters, kSelected, Counters::counter_select::get(data));
  if ((Counters::counter_select2::get(data) & 1) != 0) counters.xmit_wait = 0;
}

void get_extended_counters(const PortCounters& counters, std::uint8_t* data) {
  const auto port = Extended::port_select::get(data);
  const auto select = Extended::counter_select::get(data);
  std::memset(data, 0, ib::PerfMad::data::size);
  Extended::port_select::set(data, port);
  Extended::counter_select::set(data, select);
  Extended::port_xmit_data::set(data, counters.xmit_data);
  Extended::port_rcv_data::set(data, counters.rcv_data);
  Extended::port_xmit_packets::set(data, counters.xmit_packets());
  Extended::port_rcv_packets::set(data, counters.rcv_packets());
  Extended::port_unicast_xmit_packets::set(data, counters.unicast_xmit_packets);
  Extended::port_unicast_rcv_packets::set(data, counters.unicast_rcv_packets);
  Extended::port_multicast_xmit_packets::set(data, counters.multicast_xmit_packets);
  Extended::port_multicast_rcv_packets::set(data, counters.multicast_rcv_packets);
}

void class_port_info(std::uint8_t* data) {
  std::memset(data, 0, ib::PerfMad::data::size);
  ib::ClassPortInfo::base_version::set(data, 1);
  ib::ClassPortInfo::class_version::set(data, 1);
  ib::ClassPortInfo::capability_mask::set(data,
                                          ib::kPerfCapExtendedWidth | ib::kPerfCapAllPortSelect);
  ib::ClassPortInfo::resp_time_value::set(data, 16);
}

}  // namespace

std::uint16_t process_perf(ib::MadMethod method, std::uint16_t attribute, std::uint8_t* data,
                           const std::function<PortCounters*(std::uint8_t)>& find,
                           std::span<PortCounters* const> all) {
  const bool set = method == ib::MadMethod::set;
  const auto kind = static_cast<ib::PerfAttribute>(attribute);
  const bool extended = kind == ib::PerfAttribute::port_counters_extended;
  if (kind == ib::PerfAttribute::class_port_info && !set) {
    class_port_info(data);
    return ib::kMadOk;
  }
  if (kind != ib::PerfAttribute::port_counters && !extended) {
    return ib::kMadUnsupportedMethodAttribute;
  }
  // PortSelect is at the same place in both attributes.
  const auto select = static_cast<std::uint8_t>(Counters::port_select::get(data));
  PortCounters* one = select == kAllPorts ? nullptr : find(select);
  if (select != kAllPorts && one == nullptr) return ib::kMadInvalidField;
  const std::span<PortCounters* const> chosen =
      one != nullptr ? std::span<PortCounters* const>(&one, 1) : all;
  if (set) {
    for (PortCounters* counters : chosen) {
      if (extended) {
        clear(*counters, kSelectedExtended, Extended::counter_select::get(data));
      } else {
        clear_counters(*counters, data);
      }
    }
  }
  const PortCounters total = sum(chosen);
  if (extended) {
    get_extended_counters(total, data);
  } else {
    get_counters(total, data);
  }
  return ib::kMadOk;
}

}  // namespace softhca::fabric
