// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <memory>

#include "tests/verbs/scenarios.h"

/// What hardware answers to an application's mistakes: the right status, a queue pair in error
/// whose further requests are flushed, memory untouched, and everyone else undisturbed.
namespace softhca::verbs_check {
namespace {

constexpr std::size_t kFaultSize = 4096;

/// Two connections: one to break, one that must go on.
struct Pair {
  Pair(Device& device, Side& side, const Style& style, const QpOptions& options = {})
      : buffer(device, kFaultSize),
        broken(device, side, style, options),
        healthy(device, side, style),
        remote(side.exchange(range_of(buffer))) {
    buffer.clear();
    side.barrier();
  }
  Buffer buffer;
  Connection broken;
  Connection healthy;
  RemoteRange remote;
};

/// A message over the healthy connection.
void expect_healthy(Pair& pair, Side& side) {
  constexpr std::uint32_t kSeed = 77;
  if (side.is_server()) {
    pair.buffer.clear();
    pair.healthy.qp.post_receive(1, {pair.buffer.sge(0, 256)});
    side.barrier();
    pair.healthy.cq.expect_success("another QP goes on");
    pair.buffer.verify(kSeed, 0, 256, "message of another QP");
  } else {
    pair.buffer.fill(kSeed, 0, 256);
    side.barrier();
    Request request;
    request.sges = {pair.buffer.sge(0, 256)};
    pair.healthy.qp.post(request);
    pair.healthy.cq.expect_success("another QP goes on");
  }
  side.barrier();
}

/// The client's request must fail with `status`; what it posted behind is flushed in order, the QP
/// is in error.
void expect_failure(Pair& pair, Request request, ibv_wc_status status, const std::string& what) {
  QueuePair& qp = pair.broken.qp;
  CompletionQueue& cq = pair.broken.cq;
  request.wr_id = 100;
  // A failing request completes even when it is not signaled.
  request.flags &= ~static_cast<unsigned>(IBV_SEND_SIGNALED);
  qp.post(request);
  Request behind;
  behind.wr_id = 101;
  behind.sges = {pair.buffer.sge(0, 16)};
  behind.flags = 0;
  qp.post(behind);
  require(cq.expect(status, what).wr_id == 100, what + ": the failing request completes first");
  require(cq.expect(IBV_WC_WR_FLUSH_ERR, what + ", request behind").wr_id == 101,
          "the request behind is flushed");
  require(qp.state() == IBV_QPS_ERR, what + ": the QP is in error");
  behind.wr_id = 102;
  qp.post(behind);
  require(cq.expect(IBV_WC_WR_FLUSH_ERR, "a request posted in error").wr_id == 102,
          "a request posted to a QP in error is flushed");
}

Request rdma(Pair& pair, ibv_wr_opcode opcode, std::size_t length) {
  Request request;
  request.opcode = opcode;
  request.sges = {pair.buffer.sge(0, length)};
  request.remote_address = pair.remote.address;
  request.rkey = pair.remote.rkey;
  return request;
}

template <typename Break>
void remote_fault(Device& device, Side& side, const Style& style, ibv_wc_status status,
                  const char* what, Break make_bad) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Pair pair(device, side, style);
    if (!side.is_server()) {
      Request request = rdma(pair, opcode, 256);
      make_bad(request);
      expect_failure(pair, request, status, what);
    }
    side.barrier();
    if (side.is_server()) pair.buffer.verify_blank(0, kFaultSize, what);
    expect_healthy(pair, side);
  }
}

void wrong_rkey(Device& device, Side& side, const Style& style) {
  remote_fault(device, side, style, IBV_WC_REM_ACCESS_ERR, "a wrong R_Key",
               [](Request& request) { request.rkey ^= 0x5500; });
}
void wrong_key_byte(Device& device, Side& side, const Style& style) {
  remote_fault(device, side, style, IBV_WC_REM_ACCESS_ERR, "an R_Key with a stale variant byte",
               [](Request& request) { request.rkey ^= 1; });
}
void beyond_the_end(Device& device, Side& side, const Style& style) {
  remote_fault(device, side, style, IBV_WC_REM_ACCESS_ERR,
               "a range that ends one byte behind the region",
               [](Request& request) { request.remote_address += kFaultSize - 255; });
}
void before_the_start(Device& device, Side& side, const Style& style) {
  remote_fault(device, side, style, IBV_WC_REM_ACCESS_ERR, "a range that begins before the region",
               [](Request& request) { request.remote_address -= 1; });
}
void address_overflow(Device& device, Side& side, const Style& style) {
  remote_fault(device, side, style, IBV_WC_REM_ACCESS_ERR,
               "a range that wraps around the address space",
               [](Request& request) { request.remote_address = ~0ULL - 100; });
}

void no_permission(Device& device, Side& side, const Style& style) {
  Pair pair(device, side, style);
  Buffer local_only(device, kFaultSize, IBV_ACCESS_LOCAL_WRITE);
  pair.remote = side.exchange(range_of(local_only));
  if (!side.is_server()) {
    expect_failure(pair, rdma(pair, IBV_WR_RDMA_WRITE, 64), IBV_WC_REM_ACCESS_ERR,
                   "a write to memory without remote write");
  }
  side.barrier();
  if (side.is_server()) local_only.verify_blank(0, kFaultSize, "memory without remote write");
  expect_healthy(pair, side);
}

void wrong_lkey(Device& device, Side& side, const Style& style) {
  Pair pair(device, side, style);
  if (!side.is_server()) {
    Request request = rdma(pair, IBV_WR_RDMA_WRITE, 64);
    request.sges[0].lkey ^= 0x5500;
    expect_failure(pair, request, IBV_WC_LOC_PROT_ERR, "a wrong L_Key");
  }
  side.barrier();
  if (side.is_server())
    pair.buffer.verify_blank(0, kFaultSize, "the target of a write with a wrong L_Key");
  expect_healthy(pair, side);
}

void local_beyond_the_end(Device& device, Side& side, const Style& style) {
  Pair pair(device, side, style);
  if (!side.is_server()) {
    Request request = rdma(pair, IBV_WR_RDMA_WRITE, 64);
    request.sges[0].addr += kFaultSize - 63;
    expect_failure(pair, request, IBV_WC_LOC_PROT_ERR, "a gather entry behind the region");
  }
  side.barrier();
  expect_healthy(pair, side);
}

void unaligned_atomic(Device& device, Side& side, const Style& style) {
  for (const ibv_wr_opcode opcode : {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    Pair pair(device, side, style);
    if (!side.is_server()) {
      Request request = rdma(pair, opcode, 8);
      request.remote_address += 4;
      request.compare_add = 1;
      expect_failure(pair, request, IBV_WC_REM_INV_REQ_ERR, "an unaligned atomic");
    }
    side.barrier();
    if (side.is_server())
      pair.buffer.verify_blank(0, kFaultSize, "the target of an unaligned atomic");
    expect_healthy(pair, side);
  }
}

void atomic_without_permission(Device& device, Side& side, const Style& style) {
  Pair pair(device, side, style);
  Buffer no_atomics(device, kFaultSize,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  pair.remote = side.exchange(range_of(no_atomics));
  if (!side.is_server()) {
    Request request = rdma(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
    expect_failure(pair, request, IBV_WC_REM_ACCESS_ERR, "an atomic on memory without the right");
  }
  side.barrier();
  if (side.is_server()) no_atomics.verify_blank(0, kFaultSize, "memory without atomics");
  expect_healthy(pair, side);
}

/// A message longer than the receive: both ends are told (IBA 9.9.3, 9.9.2).
void receive_too_short(Device& device, Side& side, const Style& style) {
  Pair pair(device, side, style);
  if (side.is_server()) {
    pair.broken.qp.post_receive(1, {pair.buffer.sge(0, 100)});
    pair.broken.qp.post_receive(2, {pair.buffer.sge(1000, 100)});
  }
  side.barrier();
  if (side.is_server()) {
    require(pair.broken.cq.expect(IBV_WC_LOC_LEN_ERR, "a receive that is too short").wr_id == 1,
            "it is the first receive");
    require(pair.broken.cq.expect(IBV_WC_WR_FLUSH_ERR, "the receive behind").wr_id == 2,
            "the receive behind is flushed");
    pair.buffer.verify_blank(1000, 1000, "the receive behind");
  } else {
    Request request;
    request.sges = {pair.buffer.sge(0, 101)};
    expect_failure(pair, request, IBV_WC_REM_INV_REQ_ERR, "a send longer than the receive");
  }
  side.barrier();
  expect_healthy(pair, side);
}

void receive_not_ready(Device& device, Side& side, const Style& style) {
  QpOptions options;
  options.rnr_retry = 2;
  options.min_rnr_timer = 12;  // 0.64 ms
  Pair pair(device, side, style, options);
  if (!side.is_server()) {
    Request request;
    request.sges = {pair.buffer.sge(0, 64)};
    expect_failure(pair, request, IBV_WC_RNR_RETRY_EXC_ERR, "a send that finds no receive");
  }
  side.barrier();
  expect_healthy(pair, side);
}

/// A receive that comes late is waited for, as long as retries are left (7: for ever).
void receive_comes_late(Device& device, Side& side, const Style& style) {
  Pair pair(device, side, style);
  Request request;
  request.sges = {pair.buffer.sge(0, 64)};
  if (!side.is_server()) {
    pair.buffer.fill(5, 0, 64);
    pair.broken.qp.post(request);
  }
  side.barrier();
  if (side.is_server()) {
    pair.broken.cq.expect_silence(std::chrono::milliseconds(50), "nothing to receive into yet");
    pair.broken.qp.post_receive(1, {pair.buffer.sge(0, 64)});
    pair.broken.cq.expect_success("a late receive");
    pair.buffer.verify(5, 0, 64, "a message that waited");
  } else {
    pair.broken.cq.expect_success("a send that waited");
  }
  side.barrier();
}

/// The other end's queue pair is gone: retries run out.
void dead_peer(Device& device, Side& side, const Style& style) {
  QpOptions options;
  options.timeout = 10;  // 4.2 ms
  options.retry_count = 3;
  Buffer buffer(device, kFaultSize);
  CompletionQueue cq(device, 64, style);
  auto qp = std::make_unique<QueuePair>(device, cq, cq, style, options);
  qp->connect(side);
  if (side.is_server()) qp.reset();
  side.barrier();
  if (!side.is_server()) {
    Request request;
    request.wr_id = 1;
    request.sges = {buffer.sge(0, 64)};
    qp->post(request);
    require(cq.expect(IBV_WC_RETRY_EXC_ERR, "a send to a QP that is gone").wr_id == 1,
            "it is that send");
    require(qp->state() == IBV_QPS_ERR, "the QP is in error");
  }
  side.barrier();
}

/// Moving to error flushes everything that is posted, in order, receives too.
void flush_on_error(Device& device, Side& side, const Style& style) {
  Buffer buffer(device, kFaultSize);
  CompletionQueue send_cq(device, 64, style);
  CompletionQueue recv_cq(device, 64, style);
  QueuePair qp(device, send_cq, recv_cq, style, {});
  qp.connect(side);
  for (std::uint64_t i = 0; i < 5; ++i) qp.post_receive(i, {buffer.sge(0, 64)});
  qp.modify_to_error();
  for (std::uint64_t i = 0; i < 5; ++i) {
    require(recv_cq.expect(IBV_WC_WR_FLUSH_ERR, "a receive when the QP goes to error").wr_id == i,
            "receives are flushed in order");
  }
  Request request;
  request.sges = {buffer.sge(0, 64)};
  for (std::uint64_t i = 0; i < 5; ++i) {
    request.wr_id = 10 + i;
    qp.post(request);
  }
  for (std::uint64_t i = 0; i < 5; ++i) {
    require(send_cq.expect(IBV_WC_WR_FLUSH_ERR, "a send to a QP in error").wr_id == 10 + i,
            "sends are flushed in order");
  }
  side.barrier();
}

/// A region that was deregistered is no longer reachable, however recently.
void deregistered(Device& device, Side& side, const Style& style) {
  Pair pair(device, side, style);
  auto region = std::make_unique<Buffer>(device, kFaultSize);
  pair.remote = side.exchange(range_of(*region));
  if (side.is_server()) region.reset();
  side.barrier();
  if (!side.is_server()) {
    expect_failure(pair, rdma(pair, IBV_WR_RDMA_READ, 64), IBV_WC_REM_ACCESS_ERR,
                   "a read of deregistered memory");
  }
  side.barrier();
  expect_healthy(pair, side);
}

}  // namespace

std::vector<Scenario> fault_scenarios() {
  return {{"wrong_rkey", wrong_rkey, false},
          {"wrong_key_byte", wrong_key_byte, false},
          {"beyond_the_end", beyond_the_end, false},
          {"before_the_start", before_the_start, false},
          {"address_overflow", address_overflow, false},
          {"no_permission", no_permission, false},
          {"wrong_lkey", wrong_lkey, false},
          {"local_beyond_the_end", local_beyond_the_end, false},
          {"unaligned_atomic", unaligned_atomic, false},
          {"atomic_without_permission", atomic_without_permission, false},
          {"receive_too_short", receive_too_short, false},
          {"receive_not_ready", receive_not_ready, false},
          {"receive_comes_late", receive_comes_late, false},
          {"dead_peer", dead_peer, false},
          {"flush_on_error", flush_on_error, false},
          {"deregistered", deregistered, false}};
}

}  // namespace softhca::verbs_check
