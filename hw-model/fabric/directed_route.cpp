// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/directed_route.h"

#include "hw-model/ib/mad.h"
#include "hw-model/ib/opcodes.h"

namespace softhca::fabric {
namespace {

using ib::Smp;
using Kind = RouteStep::Kind;

struct Hops {
  std::uint8_t pointer;
  std::uint8_t count;
  bool returning;
  std::uint16_t dr_slid;
  std::uint16_t dr_dlid;
};

Hops read_hops(std::span<const std::uint8_t, ib::kMadSize> smp) {
  return {static_cast<std::uint8_t>(Smp::hop_pointer::get(smp.data())),
          static_cast<std::uint8_t>(Smp::hop_count::get(smp.data())),
          Smp::direction::get(smp.data()) != 0,
          static_cast<std::uint16_t>(Smp::dr_slid::get(smp.data())),
          static_cast<std::uint16_t>(Smp::dr_dlid::get(smp.data()))};
}

void set_pointer(SmpBytes smp, unsigned pointer) {
  Smp::hop_pointer::set(smp.data(), pointer);
}

RouteStep outbound(SmpBytes smp, const Hops& hops, std::uint8_t in_port, bool is_switch) {
  // 14.2.2.2: a pointer of 0 with hops to go is one that its source forgot to start, unless LIDs
  // led the SMP to the switch where its directed part begins.
  if (hops.count != 0 && hops.pointer == 0) {
    if (!is_switch || hops.dr_slid == ib::kPermissiveLid) return {};
    set_pointer(smp, 1);
    return {Kind::by_port, Smp::initial_path::at(smp.data())[1], 0};
  }
  if (hops.pointer < hops.count) {
    if (!is_switch) return {};
    Smp::return_path::at(smp.data())[hops.pointer] = in_port;
    set_pointer(smp, hops.pointer + 1U);
    return {Kind::by_port, Smp::initial_path::at(smp.data())[hops.pointer + 1], 0};
  }
  if (hops.pointer == hops.count) {
    if (hops.count != 0) Smp::return_path::at(smp.data())[hops.pointer] = in_port;
    set_pointer(smp, hops.pointer + 1U);
    if (hops.dr_dlid == ib::kPermissiveLid) return {Kind::here, 0, 0};
    return is_switch ? RouteStep{Kind::by_lid, 0, hops.dr_dlid} : RouteStep{};
  }
  return hops.pointer == hops.count + 1 ? RouteStep{Kind::here, 0, 0} : RouteStep{};
}

RouteStep returning(SmpBytes smp, const Hops& hops, bool is_switch) {
  // 14.2.2.4: back where the directed part ended, if LIDs led the response there.
  if (hops.count != 0 && hops.pointer == hops.count + 1) {
    if (!is_switch || hops.dr_dlid == ib::kPermissiveLid) return {};
    set_pointer(smp, hops.count);
    return {Kind::by_port, Smp::return_path::at(smp.data())[hops.count], 0};
  }
  if (hops.pointer >= 2 && hops.pointer <= hops.count) {
    if (!is_switch) return {};
    set_pointer(smp, hops.pointer - 1U);
    return {Kind::by_port, Smp::return_path::at(smp.data())[hops.pointer - 1], 0};
  }
  if (hops.pointer == 1) {
    set_pointer(smp, 0);
    if (hops.dr_slid == ib::kPermissiveLid) return {Kind::here, 0, 0};
    return is_switch ? RouteStep{Kind::by_lid, 0, hops.dr_slid} : RouteStep{};
  }
  return hops.pointer == 0 ? RouteStep{Kind::here, 0, 0} : RouteStep{};
}

RouteStep arrive(SmpBytes smp, std::uint8_t in_port, bool is_switch) {
  const Hops hops = read_hops(smp);
  if (hops.count > Smp::max_hops) return {};
  return hops.returning ? returning(smp, hops, is_switch) : outbound(smp, hops, in_port, is_switch);
}

}  // namespace

bool in_directed_part(std::span<const std::uint8_t, ib::kMadSize> smp) {
  const Hops hops = read_hops(smp);
  return hops.pointer >= 1 && hops.pointer <= hops.count;
}

RouteStep arrive_at_switch(SmpBytes smp, std::uint8_t in_port) {
  return arrive(smp, in_port, true);
}

RouteStep arrive_at_end_node(SmpBytes smp, std::uint8_t in_port) {
  return arrive(smp, in_port, false);
}

RouteStep leave_node(SmpBytes smp) {
  const Hops hops = read_hops(smp);
  if (hops.count > Smp::max_hops) return {};
  if (!hops.returning) {
    if (hops.count == 0 || hops.pointer != 0) return {};
    set_pointer(smp, 1);
    return {Kind::by_port, Smp::initial_path::at(smp.data())[1], 0};
  }
  // 14.2.2.3
  if (hops.dr_dlid != ib::kPermissiveLid) return {Kind::by_lid, 0, ib::kPermissiveLid};
  if (hops.count == 0) {
    set_pointer(smp, 0);
    return {Kind::by_lid, 0, hops.dr_slid};
  }
  if (hops.pointer != hops.count + 1) return {};
  set_pointer(smp, hops.count);
  return {Kind::by_port, Smp::return_path::at(smp.data())[hops.count], 0};
}

}  // namespace softhca::fabric
