// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Work of the device model alone, both ends in one process under virtual time: for counting
// instructions (valgrind --tool=callgrind; all of the model's work is inside TwoHosts::step()) and
// for time per message without threads. Doorbells are rung by hints, as our provider does.
//   device_path write|read|send SIZE MESSAGES [DEPTH [QPS [MRS]]]
// Prints nanoseconds per message, from the doorbell to the polled completion. With QPS and MRS: so
// many idle ones of each kind are there, and their bytes of device memory apiece follow.
#include <malloc.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "hw-model/runtime/doorbell_hints.h"
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

double bytes_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

/// Bytes of the model for each of `count` objects that `create` makes.
template <typename Create>
double bytes_apiece(long count, Create&& create) {
  if (count <= 0) return 0;
  const double before = bytes_in_use();
  for (long i = 0; i < count; ++i) create();
  return (bytes_in_use() - before) / static_cast<double>(count);
}

/// Connected, as QPs that wait for something to do are; all to the same peer.
void create_idle_qp(End& from, const End& to) {
  const DriverQp qp = from.driver.create_qp(from.cq, from.cq, {.log_sq_size = 0, .log_rq_size = 0});
  if (!from.driver.to_init(qp).ok() || !from.driver.to_rtr(qp, to.qp.qpn, to.lid, kPsn, 5).ok() ||
      !from.driver.to_rts(qp, kPsn).ok()) {
    std::fprintf(stderr, "device_path: no QP\n");
    std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t size = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 0;
  const long messages = argc > 3 ? std::atol(argv[3]) : 0;
  const long depth = argc > 4 ? std::atol(argv[4]) : 1;
  const long idle_qps = argc > 5 ? std::atol(argv[5]) : 0;
  const long idle_mrs = argc > 6 ? std::atol(argv[6]) : 0;
  if (size == 0 || size > (16U << 20) || messages <= 0 || depth <= 0 || depth > 64 ||
      idle_qps < 0 || idle_qps > 200'000 || idle_mrs < 0 || idle_mrs > 2'000'000) {
    std::fprintf(stderr,
                 "usage: device_path write|read|send SIZE(1..16 MiB) MESSAGES [DEPTH(1..64) "
                 "[QPS(0..200000) [MRS(0..2000000)]]]\n");
    return 2;
  }
  // A page and a record's cache line for each QP.
  TwoHosts world((64ULL << 20) + static_cast<std::uint64_t>(idle_qps) * 4352);
  End a(*world.a, static_cast<std::uint32_t>(size));
  End b(*world.b, static_cast<std::uint32_t>(size));
  if (!connect(a, b) || !connect(b, a)) return 1;
  const double qp_bytes = bytes_apiece(idle_qps, [&] { create_idle_qp(a, b); });
  const double mr_bytes = bytes_apiece(
      idle_mrs, [&] { a.driver.register_memory(a.mr.address, size, softhca::test::kAllAccess); });
  SendRequest request;
  request.sges = {{a.mr.address, static_cast<std::uint32_t>(size), a.mr.key}};
  request.remote_address = b.mr.address;
  request.rkey = b.mr.key;
  request.opcode = std::strcmp(argv[1], "read") == 0   ? WqeOpcode::rdma_read
                   : std::strcmp(argv[1], "send") == 0 ? WqeOpcode::send
                                                       : WqeOpcode::rdma_write;
  const bool receives = request.opcode == WqeOpcode::send;
  const std::array<Sge, 1> room{Sge{b.mr.address, static_cast<std::uint32_t>(size), b.mr.key}};
  const auto hints = std::make_unique<softhca::DoorbellHints>();
  world.a->function.attach_doorbell_hints(hints.get());
  long posted = 0;
  long done = 0;
  const auto start = std::chrono::steady_clock::now();
  while (done < messages) {
    for (; posted < messages && posted - done < depth; ++posted) {
      if (receives) b.driver.post_receive(b.qp, room);
      a.driver.queue_send(a.qp, request);
      hints->ring_sq(hints->sq.place_of(a.qp.qpn));
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
  std::printf("%.1f", elapsed.count() / static_cast<double>(messages));
  world.a->function.attach_doorbell_hints(nullptr);
  if (idle_qps != 0 || idle_mrs != 0) std::printf(" %.0f %.0f", qp_bytes, mr_bytes);
  std::printf("\n");
  return 0;
}
