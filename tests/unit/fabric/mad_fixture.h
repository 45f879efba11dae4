// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "hw-model/ib/mad.h"
#include "hw-model/ib/sa.h"
#include "tests/unit/fabric/fabric_fixture.h"

namespace softhca::fabric {

/// Host "a" as a driver that owns the special QPs and talks to the switch, its manager and its
/// administrator by packets only.
class MadTest : public FabricTest {
 protected:
  using Mad = std::array<std::uint8_t, ib::kMadSize>;
  using Header = ib::MadHeader;
  static constexpr std::uint16_t kSwitchLid = 1;
  static constexpr std::uint16_t kLidA = 2;
  static constexpr std::uint16_t kLidB = 3;

  MadTest() { a.owns_special = true; }

  static Mad request(ib::MgmtClass mgmt_class, std::uint8_t version, ib::MadMethod method,
                     std::uint16_t attribute, std::uint32_t modifier) {
    static std::uint64_t transaction = 0x1000;
    Mad mad{};
    Header::base_version::set(mad.data(), 1);
    Header::mgmt_class::set(mad.data(), static_cast<std::uint8_t>(mgmt_class));
    Header::class_version::set(mad.data(), version);
    Header::method::set(mad.data(), static_cast<std::uint8_t>(method));
    Header::transaction_id::set(mad.data(), ++transaction);
    Header::attribute_id::set(mad.data(), attribute);
    Header::attribute_modifier::set(mad.data(), modifier);
    return mad;
  }
  static Mad smp(ib::MadMethod method, ib::SmpAttribute attribute, std::uint32_t modifier = 0) {
    return request(ib::MgmtClass::subn_lid_routed, 1, method, static_cast<std::uint16_t>(attribute),
                   modifier);
  }
  /// A directed route SMP as its sender's port lets it go: the first hop is made.
  static Mad directed(ib::MadMethod method, ib::SmpAttribute attribute,
                      const std::vector<std::uint8_t>& ports, std::uint32_t modifier = 0) {
    Mad mad = request(ib::MgmtClass::subn_directed_route, 1, method,
                      static_cast<std::uint16_t>(attribute), modifier);
    ib::Smp::hop_pointer::set(mad.data(), 1);
    ib::Smp::hop_count::set(mad.data(), ports.size());
    ib::Smp::dr_slid::set(mad.data(), ib::kPermissiveLid);
    ib::Smp::dr_dlid::set(mad.data(), ib::kPermissiveLid);
    std::copy(ports.begin(), ports.end(), ib::Smp::initial_path::at(mad.data()) + 1);
    return mad;
  }
  static Mad perf(ib::MadMethod method, ib::PerfAttribute attribute) {
    return request(ib::MgmtClass::perf, 1, method, static_cast<std::uint16_t>(attribute), 0);
  }
  static Mad sa(ib::MadMethod method, ib::SaAttribute attribute, std::uint64_t components = 0) {
    Mad mad = request(ib::MgmtClass::subn_adm, ib::SaMad::class_version, method,
                      static_cast<std::uint16_t>(attribute), 0);
    ib::SaMad::component_mask::set(mad.data(), components);
    return mad;
  }

  static std::uint8_t* smp_data(Mad& mad) { return ib::Smp::data::at(mad.data()); }
  static const std::uint8_t* smp_data(const Mad& mad) { return ib::Smp::data::at(mad.data()); }
  static std::uint8_t* sa_data(Mad& mad) { return ib::SaMad::data::at(mad.data()); }
  static const std::uint8_t* sa_data(const Mad& mad) { return ib::SaMad::data::at(mad.data()); }
  static std::uint64_t status(const Mad& mad) {
    const bool is_directed = Header::mgmt_class::get(mad.data()) ==
                             static_cast<std::uint8_t>(ib::MgmtClass::subn_directed_route);
    return is_directed ? ib::Smp::status::get(mad.data()) : Header::status::get(mad.data());
  }
  static ib::MadMethod method(const Mad& mad) {
    return static_cast<ib::MadMethod>(Header::method::get(mad.data()));
  }

  static ib::PacketPtr mad_packet(const Mad& mad, std::uint16_t dlid) {
    const auto mgmt_class = Header::mgmt_class::get(mad.data());
    const bool qp0 = mgmt_class == static_cast<std::uint8_t>(ib::MgmtClass::subn_lid_routed) ||
                     mgmt_class == static_cast<std::uint8_t>(ib::MgmtClass::subn_directed_route);
    auto packet = packet_to(dlid, 1);
    packet->bth.opcode = ib::make_opcode(ib::Service::ud, ib::Operation::send_only);
    packet->bth.dest_qp = qp0 ? ib::kQp0 : ib::kQp1;
    packet->deth = {qp0 ? 0 : ib::kQp1Qkey, qp0 ? ib::kQp0 : ib::kQp1};
    packet->payload.resize(mad.size());
    std::memcpy(packet->payload.bytes(), mad.data(), mad.size());
    return packet;
  }
  static Mad mad_of(const ib::Packet& packet) {
    Mad mad{};
    EXPECT_EQ(packet.payload.size(), mad.size());
    if (packet.payload.size() == mad.size()) {
      std::memcpy(mad.data(), packet.payload.data(), mad.size());
    }
    return mad;
  }

  /// Sends from host a; what comes back, or nothing.
  std::optional<Mad> try_ask(const Mad& mad, std::uint16_t dlid) {
    a.packets.clear();
    port_a->send(mad_packet(mad, dlid));
    settle();
    if (a.packets.empty()) return std::nullopt;
    return mad_of(*a.packets.front());
  }
  Mad ask(const Mad& mad, std::uint16_t dlid = kSwitchLid) {
    const auto answer = try_ask(mad, dlid);
    EXPECT_TRUE(answer.has_value()) << "no answer";
    return answer.value_or(Mad{});
  }
  Mad ask_directed(const Mad& mad) { return ask(mad, ib::kPermissiveLid); }

  /// The records of a GetTable, all segments acknowledged.
  std::vector<std::vector<std::uint8_t>> ask_table(const Mad& query) {
    std::vector<std::vector<std::uint8_t>> records;
    std::vector<std::uint8_t> bytes;
    Mad answer = ask(query);
    for (std::uint32_t segment = 1;; ++segment) {
      EXPECT_EQ(method(answer), ib::MadMethod::get_table_response);
      EXPECT_EQ(ib::Rmpp::segment_number::get(answer.data()), segment);
      if (ib::Rmpp::active::get(answer.data()) == 0) return records;
      const bool last = ib::Rmpp::last::get(answer.data()) != 0;
      const std::size_t count =
          last ? ib::Rmpp::payload_length::get(answer.data()) - ib::SaMad::segment_header
               : ib::SaMad::data::size;
      bytes.insert(bytes.end(), sa_data(answer), sa_data(answer) + count);
      Mad ack = query;
      Header::method::set(ack.data(), static_cast<std::uint8_t>(ib::MadMethod::get_table_response));
      ib::Rmpp::version::set(ack.data(), 1);
      ib::Rmpp::active::set(ack.data(), 1);
      ib::Rmpp::type::set(ack.data(), static_cast<std::uint8_t>(ib::RmppType::ack));
      ib::Rmpp::segment_number::set(ack.data(), segment);
      ib::Rmpp::new_window_last::set(ack.data(), segment + 1);
      const auto next = try_ask(ack, kSwitchLid);
      EXPECT_EQ(next.has_value(), !last);
      if (!next) break;
      answer = *next;
    }
    const std::size_t size = ib::SaMad::attribute_offset::get(answer.data()) * 8;
    for (std::size_t at = 0; size != 0 && at + size <= bytes.size(); at += size) {
      records.emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                           bytes.begin() + static_cast<std::ptrdiff_t>(at + size));
    }
    return records;
  }

  static ib::Gid gid_of(const ib::Port& port) { return port.attributes().gids.at(0); }
};

}  // namespace softhca::fabric
