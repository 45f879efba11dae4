// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "tests/support/transport_pair.h"

// Any packets, in any order, to QPs of every service, while these send and receive. Nothing may
// crash, and the host must come to rest.
namespace softhca::transport_test {
namespace {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  template <typename T>
  T take() {
    T value{};
    const std::size_t count = std::min(sizeof value, left_);
    std::memcpy(&value, data_, count);
    data_ += count;
    left_ -= count;
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

struct Rig {
  Rig() {
    pair.b.port.on_send = [](ib::PacketPtr) {};  // The peer is the fuzzer.
    pair.a.port.on_send = [](ib::PacketPtr) {};
  }
  TransportPair pair{4 << 20};
  TestCq cq{pair.b, 8};
  TestCq a_cq{pair.a, 4};
  std::uint64_t buffer = pair.b.allocate(1 << 20, 4096);
  std::uint32_t key = pair.b.register_memory(buffer, 1 << 20, kAllAccess);
};

/// Where a remote address may point: inside, at the edge, outside.
std::uint64_t address(const Rig& rig, Input& input) {
  const auto choice = input.take<std::uint8_t>();
  const auto offset = input.take<std::uint32_t>() % (1 << 20);
  if (choice < 200) return rig.buffer + offset;
  return choice < 230 ? rig.buffer + (1 << 20) - choice : input.take<std::uint64_t>();
}

ib::PacketPtr make_packet(const Rig& rig, std::span<const std::unique_ptr<TestQp>> qps,
                          Input& input) {
  auto packet = std::make_unique<ib::Packet>();
  const auto target = input.take<std::uint8_t>();
  const TestQp& qp = *qps[target % qps.size()];
  const QpSnapshot now = qp.query();
  packet->bth.dest_qp = target == 255 ? 0xffffff : qp.number();
  packet->bth.opcode = input.take<std::uint8_t>();
  // Mostly near what is expected.
  const auto where = input.take<std::int8_t>();
  const bool response = (packet->bth.opcode & 0x1f) >= 0x0d && (packet->bth.opcode & 0x1f) <= 0x12;
  const std::uint32_t base = response ? now.last_acked_psn + 1 : now.attributes.next_rcv_psn;
  packet->bth.psn = (base + static_cast<std::uint32_t>(where / 16)) & 0xffffff;
  if (where == 127) packet->bth.psn = input.take<std::uint32_t>() & 0xffffff;
  const auto flags = input.take<std::uint8_t>();
  packet->bth.ack_req = (flags & 1) != 0;
  packet->bth.solicited = (flags & 2) != 0;
  packet->path.has_grh = (flags & 4) != 0;
  packet->path.slid = 1;
  packet->path.dlid = 2;
  if ((flags & 8) != 0) packet->bth.pkey = input.take<std::uint16_t>();
  packet->reth.va = packet->atomic_eth.va = address(rig, input);
  packet->reth.rkey = packet->atomic_eth.rkey =
      (flags & 16) != 0 ? input.take<std::uint32_t>() : rig.key;
  packet->reth.length =
      (flags & 32) != 0 ? input.take<std::uint32_t>() : input.take<std::uint16_t>();
  packet->aeth.syndrome = input.take<std::uint8_t>();
  packet->deth.qkey = (flags & 64) != 0 ? input.take<std::uint32_t>() : 0x1234;
  packet->invalidate_key = rig.key;
  const auto size = input.take<std::uint8_t>();
  packet->payload.resize(size < 128 ? size : size < 250 ? 1024 : 5000);
  return packet;
}

void post_something(Rig& rig, TestQp& qp, Input& input) {
  const auto size = input.take<std::uint16_t>();
  static constexpr prm::WqeOpcode kOpcodes[] = {prm::WqeOpcode::send,
                                                prm::WqeOpcode::rdma_write,
                                                prm::WqeOpcode::rdma_read,
                                                prm::WqeOpcode::send_imm,
                                                prm::WqeOpcode::atomic_cmp_swap,
                                                prm::WqeOpcode::rdma_write_imm,
                                                prm::WqeOpcode::nop,
                                                prm::WqeOpcode::umr};
  SendRequest request;
  request.opcode = kOpcodes[input.take<std::uint8_t>() % std::size(kOpcodes)];
  const bool atomic = request.opcode == prm::WqeOpcode::atomic_cmp_swap;
  request.sges = {{rig.buffer, atomic ? 8U : size + 1U, rig.key}};
  request.remote_address = rig.buffer;
  request.destination_lid = 1;
  if (request.opcode == prm::WqeOpcode::nop || request.opcode == prm::WqeOpcode::umr) {
    request.sges.clear();
  }
  qp.post_send(request);
}

}  // namespace
}  // namespace softhca::transport_test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace softhca;                  // NOLINT(google-build-using-namespace)
  using namespace softhca::transport_test;  // NOLINT(google-build-using-namespace)
  Rig rig;
  std::vector<std::unique_ptr<TestQp>> qps;
  TestSrq srq(rig.pair.b, 4);
  for (const auto type : {prm::QpServiceType::rc, prm::QpServiceType::uc, prm::QpServiceType::ud,
                          prm::QpServiceType::rc}) {
    TestQpOptions options;
    options.type = type;
    options.cs_req = options.cs_res = 32;
    if (qps.size() == 3) options.srq = &srq;
    qps.push_back(std::make_unique<TestQp>(rig.pair.b, rig.cq, rig.cq, options));
    qps.back()->connect(*qps.back());
  }
  rig.pair.b.transport.attach_multicast(qps[2]->number(), {});
  Input input(data, size);
  for (unsigned turn = 0; !input.empty() && turn < 500; ++turn) {
    switch (input.take<std::uint8_t>() % 8) {
      case 0:
        post_something(rig, *qps[input.take<std::uint8_t>() % qps.size()], input);
        break;
      case 1: {
        const std::array sges{Sge{rig.buffer, input.take<std::uint16_t>(), rig.key}};
        TestQp& qp = *qps[input.take<std::uint8_t>() % 3];
        if (turn % 2 == 0) qp.post_recv(sges);
        if (turn % 2 == 1) srq.post(sges);
        break;
      }
      case 2: {
        const auto transition = static_cast<QpTransition>(input.take<std::uint8_t>() % 10);
        TestQp& qp = *qps[input.take<std::uint8_t>() % qps.size()];
        if (qp.modify(transition) == ModifyResult::ok && transition == QpTransition::to_reset) {
          qp.connect(qp);
        }
        break;
      }
      case 3:
        rig.pair.clock.advance(input.take<std::uint32_t>() % 200'000'000);
        rig.pair.b.transport.step({});
        break;
      default:
        rig.pair.b.transport.receive(*make_packet(rig, qps, input));
        rig.pair.b.transport.step({});
        break;
    }
    rig.cq.drain();
  }
  for (int i = 0; i < 1000 && rig.pair.b.transport.step({}); ++i) rig.cq.drain();
  return 0;
}
