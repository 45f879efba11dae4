// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/tree/counters.h"

#include <cstring>

#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/commands_resources.h"

namespace softhca::shim {
namespace {

constexpr std::uint8_t kPerfMgtClass = 0x04;
constexpr std::uint8_t kMethodGet = 0x01;
constexpr std::uint16_t kAttrPortCounters = 0x0012;
constexpr std::uint16_t kAttrPortCountersExtended = 0x001d;
constexpr std::uint8_t kPort = 1;
constexpr std::uint16_t kNoKeyChecks = 3;
/// PMA data starts 64 bytes into the MAD (IBA 16.1.1).
constexpr std::size_t kDataOffset = 64;

struct PmaCounter {
  const char* name;
  std::uint16_t attribute;
  unsigned bit;  ///< Offset inside the attribute.
  unsigned width;
};

constexpr PmaCounter kCounters[] = {
    {"symbol_error", kAttrPortCounters, 32, 16},
    {"link_error_recovery", kAttrPortCounters, 48, 8},
    {"link_downed", kAttrPortCounters, 56, 8},
    {"port_rcv_errors", kAttrPortCounters, 64, 16},
    {"port_rcv_remote_physical_errors", kAttrPortCounters, 80, 16},
    {"port_rcv_switch_relay_errors", kAttrPortCounters, 96, 16},
    {"port_xmit_discards", kAttrPortCounters, 112, 16},
    {"port_xmit_constraint_errors", kAttrPortCounters, 128, 8},
    {"port_rcv_constraint_errors", kAttrPortCounters, 136, 8},
    {"local_link_integrity_errors", kAttrPortCounters, 152, 4},
    {"excessive_buffer_overrun_errors", kAttrPortCounters, 156, 4},
    {"VL15_dropped", kAttrPortCounters, 176, 16},
    {"port_xmit_wait", kAttrPortCounters, 320, 32},
    {"port_xmit_data", kAttrPortCountersExtended, 64, 64},
    {"port_rcv_data", kAttrPortCountersExtended, 128, 64},
    {"port_xmit_packets", kAttrPortCountersExtended, 192, 64},
    {"port_rcv_packets", kAttrPortCountersExtended, 256, 64},
    {"unicast_xmit_packets", kAttrPortCountersExtended, 320, 64},
    {"unicast_rcv_packets", kAttrPortCountersExtended, 384, 64},
    {"multicast_xmit_packets", kAttrPortCountersExtended, 448, 64},
    {"multicast_rcv_packets", kAttrPortCountersExtended, 512, 64},
};

std::uint64_t bits(const std::uint8_t* data, unsigned offset, unsigned width) {
  std::uint64_t value = 0;
  for (unsigned i = offset; i < offset + width; ++i) {
    value = value << 1 | (data[i / 8] >> (7 - i % 8) & 1);
  }
  return value;
}

/// One Get; false if the device does not answer it.
bool get_attribute(CommandInterface& commands, std::uint16_t attribute, std::uint8_t (&mad)[256]) {
  CommandInputBuffer in(prm::CommandOpcode::mad_ifc, prm::MadIfcInput::size, kNoKeyChecks);
  prm::MadIfcInput::port::set(in.data(), kPort);
  std::uint8_t* const request = in.at(prm::MadIfcInput::mad::offset);
  request[0] = 1;  // Base version.
  request[1] = kPerfMgtClass;
  request[2] = 1;  // Class version.
  request[3] = kMethodGet;
  request[16] = static_cast<std::uint8_t>(attribute >> 8);
  request[17] = static_cast<std::uint8_t>(attribute);
  request[kDataOffset + 1] = kPort;
  std::uint8_t out[prm::MadIfcOutput::size] = {};
  if (!commands.execute(in, out)) return false;
  std::memcpy(mad, out + prm::MadIfcOutput::response_mad_packet::offset, sizeof(mad));
  return mad[4] == 0 && mad[5] == 0;  // MAD status.
}

struct QCounter {
  const char* name;
  std::uint64_t (*get)(const std::uint8_t*);
};
using Q = prm::QueryQCounterOutput;
constexpr QCounter kQCounters[] = {
    {"rx_write_requests", Q::rx_write_requests::get},
    {"rx_read_requests", Q::rx_read_requests::get},
    {"rx_atomic_requests", Q::rx_atomic_requests::get},
    {"out_of_buffer", Q::out_of_buffer::get},
    {"out_of_sequence", Q::out_of_sequence::get},
    {"duplicate_request", Q::duplicate_request::get},
    {"rnr_nak_retry_err", Q::rnr_nak_retry_err::get},
    {"packet_seq_err", Q::packet_seq_err::get},
    {"implied_nak_seq_err", Q::implied_nak_seq_err::get},
    {"local_ack_timeout_err", Q::local_ack_timeout_err::get},
    {"resp_local_length_error", Q::resp_local_length_error::get},
    {"resp_cqe_error", Q::resp_cqe_error::get},
    {"req_cqe_error", Q::req_cqe_error::get},
    {"req_remote_invalid_request", Q::req_remote_invalid_request::get},
    {"req_remote_access_errors", Q::req_remote_access_errors::get},
    {"resp_remote_access_errors", Q::resp_remote_access_errors::get},
    {"resp_cqe_flush_error", Q::resp_cqe_flush_error::get},
    {"req_cqe_flush_error", Q::req_cqe_flush_error::get},
};

}  // namespace

std::vector<CounterValue> read_port_counters(CommandInterface& commands) {
  std::uint8_t basic[256] = {};
  std::uint8_t extended[256] = {};
  const bool have_basic = get_attribute(commands, kAttrPortCounters, basic);
  const bool have_extended = get_attribute(commands, kAttrPortCountersExtended, extended);
  std::vector<CounterValue> values;
  for (const PmaCounter& counter : kCounters) {
    const bool is_basic = counter.attribute == kAttrPortCounters;
    const bool have = is_basic ? have_basic : have_extended;
    const std::uint8_t* const data = (is_basic ? basic : extended) + kDataOffset;
    values.push_back({counter.name, have ? bits(data, counter.bit, counter.width) : 0});
  }
  return values;
}

std::vector<CounterValue> read_hw_counters(CommandInterface& commands, std::uint32_t set) {
  std::uint8_t out[prm::QueryQCounterOutput::size] = {};
  if (set != 0) {
    CommandInputBuffer in(prm::CommandOpcode::query_q_counter, prm::QueryQCounterInput::size);
    prm::QueryQCounterInput::counter_set_id::set(in.data(), set);
    if (!commands.execute(in, out)) std::memset(out, 0, sizeof(out));
  }
  std::vector<CounterValue> values;
  for (const QCounter& counter : kQCounters) values.push_back({counter.name, counter.get(out)});
  return values;
}

}  // namespace softhca::shim
