// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>
#include <cstring>

#include "tests/verbs/scenarios.h"

namespace softhca::verbs_check {
namespace {

constexpr std::size_t kGrh = 40;
constexpr std::size_t kDatagram = 4096;

AhHandle address_handle(Device& device, const QueuePair& qp, bool global) {
  ibv_ah_attr attr{};
  attr.dlid = qp.remote_lid();
  attr.port_num = Device::kPort;
  if (global) {
    attr.is_global = 1;
    attr.grh.dgid = qp.remote_gid();
    attr.grh.sgid_index = 0;
    attr.grh.hop_limit = 64;
    attr.grh.flow_label = 0x12345;
    attr.grh.traffic_class = 0x20;
  }
  AhHandle handle(ibv_create_ah(device.pd(), &attr));
  require(handle != nullptr, "ibv_create_ah failed");
  return handle;
}

/// IBA 8.3: version 6, traffic class and flow label in the first word, source and destination GID.
void verify_grh(Buffer& buffer, const Device& device, const QueuePair& qp) {
  const std::uint8_t* grh = buffer.data();
  const std::uint32_t first = static_cast<std::uint32_t>(grh[0]) << 24 |
                              static_cast<std::uint32_t>(grh[1]) << 16 |
                              static_cast<std::uint32_t>(grh[2]) << 8 | grh[3];
  require(first == (6U << 28 | 0x20U << 20 | 0x12345U),
          "the GRH names version, class and flow label");
  const ibv_gid source = qp.remote_gid();
  const ibv_gid destination = device.gid();
  require(std::memcmp(grh + 8, source.raw, 16) == 0, "the GRH's source is the sender's GID");
  require(std::memcmp(grh + 24, destination.raw, 16) == 0,
          "the GRH's destination is this port's GID");
}

void datagrams(Device& device, Side& side, const Style& style) {
  QpOptions options;
  options.type = IBV_QPT_UD;
  Buffer buffer(device, kGrh + kDatagram + 64);
  CompletionQueue cq(device, 64, style);
  QueuePair qp(device, cq, cq, style, options);
  qp.connect(side);
  const std::size_t mtu = std::min<std::size_t>(128U << device.port().active_mtu, kDatagram);
  std::uint32_t seed = 0;
  for (const bool global : {false, true}) {
    const AhHandle ah = address_handle(device, qp, global);
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{2048}, mtu}) {
      ++seed;
      if (side.is_server()) {
        buffer.clear();
        qp.post_receive(seed, {buffer.sge(0, kGrh + kDatagram)});
        side.barrier();
        const Completed got = cq.expect_success("datagram of " + std::to_string(size) + " bytes");
        require(got.byte_len == kGrh + size, "byte_len counts the 40 bytes before the payload");
        require(got.src_qp == qp.remote_number(), "src_qp names the sender");
        require(((got.flags & IBV_WC_GRH) != 0) == global, "a GRH is flagged when there is one");
        require(got.imm_data == seed, "immediate data arrives");
        buffer.verify(seed, kGrh, size, "datagram of " + std::to_string(size) + " bytes");
        if (global) verify_grh(buffer, device, qp);
      } else {
        buffer.fill(seed, 0, size);
        side.barrier();
        Request request;
        request.opcode = IBV_WR_SEND_WITH_IMM;
        request.imm_data = seed;
        request.sges = {buffer.sge(0, size)};
        request.ah = ah.get();
        request.remote_qpn = qp.remote_number();
        qp.post(request);
        cq.expect_success("sending a datagram");
      }
      side.barrier();
    }
  }
}

/// A datagram that finds no receive is dropped and harms nothing.
void datagram_without_receive(Device& device, Side& side, const Style& style) {
  QpOptions options;
  options.type = IBV_QPT_UD;
  Buffer buffer(device, kGrh + 256);
  CompletionQueue cq(device, 64, style);
  QueuePair qp(device, cq, cq, style, options);
  qp.connect(side);
  const AhHandle ah = address_handle(device, qp, false);
  Request request;
  request.sges = {buffer.sge(0, 100)};
  request.ah = ah.get();
  request.remote_qpn = qp.remote_number();
  if (!side.is_server()) {
    qp.post(request);
    cq.expect_success("a datagram to a queue without receives is sent");
  }
  side.barrier();
  if (side.is_server()) {
    cq.expect_silence(std::chrono::milliseconds(50), "a dropped datagram");
    buffer.clear();
    qp.post_receive(1, {buffer.sge(0, kGrh + 200)});
  } else {
    buffer.fill(9, 0, 100);
  }
  side.barrier();
  if (side.is_server()) {
    cq.expect_success("the next datagram");
    buffer.verify(9, kGrh, 100, "the next datagram");
  } else {
    qp.post(request);
    cq.expect_success("the next datagram");
  }
  side.barrier();
}

void unreliable_connection(Device& device, Side& side, const Style& style) {
  QpOptions options;
  options.type = IBV_QPT_UC;
  Buffer buffer(device, message_sizes().back());
  Connection link(device, side, style, options);
  const RemoteRange remote = side.exchange(range_of(buffer));
  std::uint32_t seed = 0;
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    for (const std::size_t size : message_sizes()) {
      ++seed;
      if (side.is_server()) {
        buffer.clear();
        link.qp.post_receive(seed, {buffer.sge(0, buffer.size())});
        side.barrier();
        const Completed got =
            link.cq.expect_success("UC message of " + std::to_string(size) + " bytes");
        require(got.byte_len == size && got.imm_data == seed, "length and immediate data arrive");
        buffer.verify(seed, 0, size, "UC message of " + std::to_string(size) + " bytes");
      } else {
        buffer.fill(seed, 0, size);
        side.barrier();
        Request request;
        request.opcode = opcode;
        request.imm_data = seed;
        request.sges = {buffer.sge(0, size)};
        request.remote_address = remote.address;
        request.rkey = remote.rkey;
        link.qp.post(request);
        link.cq.expect_success("sending over UC");
      }
      side.barrier();
    }
  }
}

}  // namespace

std::vector<Scenario> datagram_scenarios() {
  return {{"ud", datagrams, true},
          {"ud_without_receive", datagram_without_receive, false},
          {"uc", unreliable_connection, true}};
}

}  // namespace softhca::verbs_check
