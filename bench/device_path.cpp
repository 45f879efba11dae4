// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Work of the device model alone, both ends in one process under virtual time: for counting
// instructions (valgrind --tool=callgrind) and for time per message without threads.
//   device_path write|read|send SIZE MESSAGES [DEPTH]
// Prints nanoseconds per message, from the doorbell to the polled completion.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/two_hosts.h"

namespace {

using softhca::prm::WqeOpcode;
using softhca::test::DriverCq;
using softhca::test::DriverMr;
using softhca::test::DriverQp;
using softhca::test::MiniDriver;
using softhca::test::SendRequest;
using softhca::test::Sge;
using softhca::test::TwoHosts;

constexpr std::uint32_t kPsn = 1;

struct End {
  explicit End(TwoHosts::Host& host, std::uint32_t size)
      : driver(host.driver),
        lid(host.lid()),
        cq(driver.create_cq(10)),
        qp(driver.create_qp(cq, cq)),
        mr(driver.allocate_mr(size, softhca::test::kAllAccess)) {}
  MiniDriver& driver;
  std::uint16_t lid;
  DriverCq cq;
  DriverQp qp;
  DriverMr mr;
};

bool connect(End& from, End& to) {
  return from.driver.to_init(from.qp).ok() &&
         from.driver.to_rtr(from.qp, to.qp.qpn, to.lid, kPsn, 5).ok() &&
         from.driver.to_rts(from.qp, kPsn).ok();
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t size = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 0;
  const long messages = argc > 3 ? std::atol(argv[3]) : 0;
  const long depth = argc > 4 ? std::atol(argv[4]) : 1;
  if (size == 0 || size > (16U << 20) || messages <= 0 || depth <= 0 || depth > 64) {
    std::fprintf(stderr,
                 "usage: device_path write|read|send SIZE(1..16 MiB) MESSAGES [DEPTH(1..64)]\n");
    return 2;
  }
  TwoHosts world;
  End a(*world.a, static_cast<std::uint32_t>(size));
  End b(*world.b, static_cast<std::uint32_t>(size));
  if (!connect(a, b) || !connect(b, a)) return 1;
  SendRequest request;
  request.sges = {{a.mr.address, static_cast<std::uint32_t>(size), a.mr.key}};
  request.remote_address = b.mr.address;
  request.rkey = b.mr.key;
  request.opcode = std::strcmp(argv[1], "read") == 0   ? WqeOpcode::rdma_read
                   : std::strcmp(argv[1], "send") == 0 ? WqeOpcode::send
                                                       : WqeOpcode::rdma_write;
  const bool receives = request.opcode == WqeOpcode::send;
  const std::array<Sge, 1> room{Sge{b.mr.address, static_cast<std::uint32_t>(size), b.mr.key}};
  long posted = 0;
  long done = 0;
  const auto start = std::chrono::steady_clock::now();
  while (done < messages) {
    for (; posted < messages && posted - done < depth; ++posted) {
      if (receives) b.driver.post_receive(b.qp, room);
      a.driver.post_send(a.qp, request);
    }
    world.step();
    while (const auto completion = a.driver.poll_cq(a.cq)) {
      if (completion->error()) return 1;
      ++done;
    }
    while (b.driver.poll_cq(b.cq)) {
    }
  }
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  std::printf("%.1f\n", elapsed.count() / static_cast<double>(messages));
  return 0;
}
