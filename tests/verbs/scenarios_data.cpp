// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cstring>

#include "tests/verbs/scenarios.h"

namespace softhca::verbs_check {
namespace {

constexpr std::size_t kGuard = 64;

std::string of_size(const char* what, std::size_t size) {
  return std::string(what) + " of " + std::to_string(size) + " bytes";
}

/// Splits a range of the buffer into three uneven entries (fewer for small ones).
std::vector<ibv_sge> split(Buffer& buffer, std::size_t offset, std::size_t length) {
  if (length < 3) return {buffer.sge(offset, length)};
  const std::size_t first = length / 7 + 1;
  const std::size_t second = (length - first) / 2;
  return {buffer.sge(offset, first), buffer.sge(offset + first, second),
          buffer.sge(offset + first + second, length - first - second)};
}

std::size_t largest() {
  return message_sizes().back();
}

/// The client sends every size; the server gathers each into its own place.
void send_all_sizes(Device& device, Side& side, const Style& style, bool immediate, bool pieces) {
  Buffer buffer(device, largest() + 2 * kGuard);
  Connection link(device, side, style);
  std::uint32_t seed = 0;
  for (const std::size_t size : message_sizes()) {
    ++seed;
    const auto sges = pieces ? split(buffer, kGuard, size) : std::vector{buffer.sge(kGuard, size)};
    if (side.is_server()) {
      buffer.clear();
      link.qp.post_receive(seed, sges);
      side.barrier();
      const Completed got = link.cq.expect_success(of_size("receive", size));
      require(got.wr_id == seed, "the receive completes with its own wr_id");
      require(got.byte_len == size,
              of_size("byte_len", size) + " is " + std::to_string(got.byte_len));
      require(got.opcode == IBV_WC_RECV, "a send completes a receive as RECV");
      require(((got.flags & IBV_WC_WITH_IMM) != 0) == immediate,
              "immediate data is flagged as sent");
      if (immediate) require(got.imm_data == 0xc0de0000 + seed, "immediate data arrives unchanged");
      buffer.verify(seed, kGuard, size, of_size("send", size));
      buffer.verify_blank(0, kGuard, "before the receive buffer");
      buffer.verify_blank(kGuard + size, kGuard, "behind the receive buffer");
    } else {
      buffer.fill(seed, kGuard, size);
      side.barrier();
      Request request;
      request.wr_id = seed;
      request.opcode = immediate ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
      request.imm_data = 0xc0de0000 + seed;
      request.sges = sges;
      link.qp.post(request);
      const Completed done = link.cq.expect_success(of_size("send", size));
      require(done.wr_id == seed && done.opcode == IBV_WC_SEND, "the send completes as SEND");
    }
    side.barrier();
  }
}

void send(Device& device, Side& side, const Style& style) {
  send_all_sizes(device, side, style, false, false);
}
void send_imm(Device& device, Side& side, const Style& style) {
  send_all_sizes(device, side, style, true, false);
}
void send_multi_sge(Device& device, Side& side, const Style& style) {
  send_all_sizes(device, side, style, false, true);
}

void write(Device& device, Side& side, const Style& style) {
  Buffer buffer(device, largest() + 2 * kGuard);
  Connection link(device, side, style);
  const RemoteRange remote = side.exchange(range_of(buffer));
  std::uint32_t seed = 40;
  for (const std::size_t size : message_sizes()) {
    ++seed;
    // An odd place, so that neither end is aligned.
    const std::size_t at = kGuard - 3;
    if (side.is_server()) {
      buffer.clear();
      side.barrier();
      side.barrier();
      buffer.verify(seed, at, size, of_size("RDMA write", size));
      buffer.verify_blank(0, at, "before the written range");
      buffer.verify_blank(at + size, kGuard, "behind the written range");
    } else {
      buffer.fill(seed, 5, size);
      side.barrier();
      Request request;
      request.opcode = IBV_WR_RDMA_WRITE;
      request.sges = split(buffer, 5, size);
      request.remote_address = remote.address + at;
      request.rkey = remote.rkey;
      link.qp.post(request);
      const Completed done = link.cq.expect_success(of_size("RDMA write", size));
      require(done.opcode == IBV_WC_RDMA_WRITE, "it completes as RDMA_WRITE");
      side.barrier();
    }
    side.barrier();
  }
}

void write_imm(Device& device, Side& side, const Style& style) {
  Buffer buffer(device, largest());
  Connection link(device, side, style);
  const RemoteRange remote = side.exchange(range_of(buffer));
  std::uint32_t seed = 80;
  for (const std::size_t size : message_sizes()) {
    ++seed;
    if (side.is_server()) {
      buffer.clear();
      link.qp.post_receive(seed, {});
      side.barrier();
      const Completed got = link.cq.expect_success(of_size("RDMA write with immediate", size));
      require(got.opcode == IBV_WC_RECV_RDMA_WITH_IMM,
              "it completes a receive as RECV_RDMA_WITH_IMM");
      require(got.imm_data == seed && got.byte_len == size, "immediate data and length arrive");
      buffer.verify(seed, 0, size, of_size("RDMA write with immediate", size));
    } else {
      buffer.fill(seed, 0, size);
      side.barrier();
      Request request;
      request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      request.imm_data = seed;
      request.sges = {buffer.sge(0, size)};
      request.remote_address = remote.address;
      request.rkey = remote.rkey;
      link.qp.post(request);
      link.cq.expect_success(of_size("RDMA write with immediate", size));
    }
    side.barrier();
  }
}

void read(Device& device, Side& side, const Style& style) {
  Buffer buffer(device, largest() + 2 * kGuard);
  Connection link(device, side, style);
  const RemoteRange remote = side.exchange(range_of(buffer));
  std::uint32_t seed = 120;
  for (const std::size_t size : message_sizes()) {
    ++seed;
    if (side.is_server()) {
      buffer.fill(seed, 7, size);
      side.barrier();
    } else {
      buffer.clear();
      side.barrier();
      Request request;
      request.opcode = IBV_WR_RDMA_READ;
      request.sges = split(buffer, kGuard, size);
      request.remote_address = remote.address + 7;
      request.rkey = remote.rkey;
      link.qp.post(request);
      const Completed done = link.cq.expect_success(of_size("RDMA read", size));
      require(done.opcode == IBV_WC_RDMA_READ, "it completes as RDMA_READ");
      require(done.byte_len == size, of_size("byte_len of a read", size));
      buffer.verify(seed, kGuard, size, of_size("RDMA read", size));
      buffer.verify_blank(0, kGuard, "before the read's destination");
      buffer.verify_blank(kGuard + size, kGuard, "behind the read's destination");
    }
    side.barrier();
  }
}

std::uint64_t load(Buffer& buffer, std::size_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, buffer.data() + offset, sizeof(value));
  return value;
}
void store(Buffer& buffer, std::size_t offset, std::uint64_t value) {
  std::memcpy(buffer.data() + offset, &value, sizeof(value));
}

/// Runs one atomic and gives the old value that came back.
std::uint64_t run_atomic(Connection& link, Buffer& buffer, const RemoteRange& remote,
                         ibv_wr_opcode opcode, std::uint64_t compare_add, std::uint64_t swap) {
  Request request;
  request.opcode = opcode;
  request.sges = {buffer.sge(8, 8)};
  request.remote_address = remote.address;
  request.rkey = remote.rkey;
  request.compare_add = compare_add;
  request.swap = swap;
  link.qp.post(request);
  const Completed done = link.cq.expect_success("atomic");
  require(
      done.opcode == (opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD),
      "an atomic completes as its own kind");
  return load(buffer, 8);
}

void atomics(Device& device, Side& side, const Style& style) {
  Buffer buffer(device, 64);
  Connection link(device, side, style);
  const RemoteRange remote = side.exchange(range_of(buffer));
  constexpr std::uint64_t kStart = 0x0123456789abcdef;
  if (side.is_server()) store(buffer, 0, kStart);
  side.barrier();
  if (!side.is_server()) {
    require(run_atomic(link, buffer, remote, IBV_WR_ATOMIC_FETCH_AND_ADD, 0x11, 0) == kStart,
            "fetch-and-add returns the value before, in the processor's byte order");
    require(run_atomic(link, buffer, remote, IBV_WR_ATOMIC_CMP_AND_SWP, 99, 1) == kStart + 0x11,
            "compare-and-swap that does not match returns the value");
    require(run_atomic(link, buffer, remote, IBV_WR_ATOMIC_CMP_AND_SWP, kStart + 0x11,
                       0xfeedULL << 40) == kStart + 0x11,
            "compare-and-swap that matches returns the value before");
    require(
        run_atomic(link, buffer, remote, IBV_WR_ATOMIC_FETCH_AND_ADD, ~0ULL, 0) == 0xfeedULL << 40,
        "the swapped value is there");
  }
  side.barrier();
  if (side.is_server()) {
    require(load(buffer, 0) == (0xfeedULL << 40) - 1,
            "memory holds the result, carry across all bytes");
    buffer.verify_blank(8, 56, "behind the atomic's word");
  }
  // Many in a row: no addition is lost.
  constexpr int kAdditions = 200;
  if (side.is_server()) store(buffer, 0, 0);
  side.barrier();
  const RemoteRange word = side.is_server() ? range_of(buffer) : remote;
  if (!side.is_server()) {
    for (int i = 0; i < kAdditions; ++i) {
      run_atomic(link, buffer, word, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 0);
    }
  }
  side.barrier();
  if (side.is_server()) require(load(buffer, 0) == 3U * kAdditions, "no addition is lost");
  side.barrier();
}

void inline_data(Device& device, Side& side, const Style& style) {
  constexpr std::uint32_t kInline = 128;
  Buffer buffer(device, 4096);
  // Memory that no key covers: inline data must be taken at the call.
  std::vector<std::uint8_t> local(kInline);
  Connection link(device, side, style);
  const RemoteRange remote = side.exchange(range_of(buffer));
  for (std::uint32_t round = 0; round < 100; ++round) {
    const std::size_t size = round % (kInline + 1);
    if (side.is_server()) {
      buffer.clear();
      link.qp.post_receive(round, {buffer.sge(256, kInline)});
      side.barrier();
      link.cq.expect_success("receive of inline data");
      buffer.verify(round, 256, size, of_size("inline send", size));
      buffer.verify(round, 0, size, of_size("inline write", size));
    } else {
      side.barrier();
      buffer.fill(round, 0, size);
      std::memcpy(local.data(), buffer.data(), size);
      Request request;
      request.flags = IBV_SEND_INLINE;
      const std::size_t half = size / 2;
      const auto address = reinterpret_cast<std::uintptr_t>(local.data());
      request.sges = {{address, static_cast<std::uint32_t>(half), 0},
                      {address + half, static_cast<std::uint32_t>(size - half), 0}};
      request.opcode = IBV_WR_RDMA_WRITE;
      request.remote_address = remote.address;
      request.rkey = remote.rkey;
      link.qp.post(request);
      request.opcode = IBV_WR_SEND;
      request.flags |= IBV_SEND_SIGNALED;
      link.qp.post(request);
      std::fill(local.begin(), local.end(), std::uint8_t{0});
      link.cq.expect_success("inline send");
    }
    side.barrier();
  }
}

/// Many messages in flight: they arrive in the order in which they were posted, and unsignaled
/// requests free their places.
void stream(Device& device, Side& side, const Style& style) {
  constexpr std::size_t kSize = 1500;
  constexpr std::uint32_t kMessages = 1000;
  constexpr std::uint32_t kDepth = 32;
  constexpr std::uint32_t kBatch = 8;
  Buffer buffer(device, kSize * kDepth);
  Connection link(device, side, style);
  if (side.is_server()) {
    for (std::uint32_t i = 0; i < kDepth; ++i)
      link.qp.post_receive(i, {buffer.sge(i * kSize, kSize)});
    side.barrier();
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      const Completed got = link.cq.expect_success("message " + std::to_string(i));
      const std::uint32_t slot = i % kDepth;
      require(got.imm_data == i, "messages arrive in order");
      require(got.wr_id == slot, "receives complete in the order of posting");
      buffer.verify(i, slot * kSize, kSize, "message " + std::to_string(i));
      link.qp.post_receive(slot, {buffer.sge(slot * kSize, kSize)});
    }
  } else {
    side.barrier();
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      const std::size_t at = i % kDepth * kSize;
      buffer.fill(i, at, kSize);
      const bool last = i % kBatch == kBatch - 1;
      Request request;
      request.wr_id = i;
      request.opcode = IBV_WR_SEND_WITH_IMM;
      request.imm_data = i;
      request.sges = {buffer.sge(at, kSize)};
      request.flags = last ? IBV_SEND_SIGNALED : 0;
      link.qp.post(request);
      if (last)
        require(link.cq.expect_success("send").wr_id == i, "only the signaled one completes");
    }
  }
  side.barrier();
}

/// Reads, writes and sends queued at once, with a fence: the write behind the fence carries what
/// the read got.
void fenced(Device& device, Side& side, const Style& style) {
  constexpr std::size_t kSize = 10000;
  Buffer buffer(device, 3 * kSize);
  Connection link(device, side, style);
  const RemoteRange remote = side.exchange(range_of(buffer));
  for (std::uint32_t round = 0; round < 20; ++round) {
    if (side.is_server()) {
      buffer.clear();
      buffer.fill(round, 0, kSize);
      side.barrier();
      side.barrier();
      buffer.verify(round, 2 * kSize, kSize, "a fenced write after a read");
    } else {
      buffer.clear();
      side.barrier();
      Request request;
      request.opcode = IBV_WR_RDMA_READ;
      request.sges = {buffer.sge(kSize, kSize)};
      request.remote_address = remote.address;
      request.rkey = remote.rkey;
      request.flags = 0;
      link.qp.post(request);
      request.opcode = IBV_WR_RDMA_WRITE;
      request.remote_address = remote.address + 2 * kSize;
      request.flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
      link.qp.post(request);
      link.cq.expect_success("the fenced write");
      side.barrier();
    }
    side.barrier();
  }
}

}  // namespace

const std::vector<std::size_t>& message_sizes() {
  static const std::vector<std::size_t> sizes = {
      0, 1, 3, 64, 255, 256, 257, 4095, 4096, 4097, 8192, 65536, 1 << 20, (1 << 20) + 17};
  return sizes;
}

std::vector<Scenario> data_scenarios() {
  return {{"send", send, true},
          {"send_imm", send_imm, true},
          {"send_multi_sge", send_multi_sge, false},
          {"write", write, true},
          {"write_imm", write_imm, true},
          {"read", read, true},
          {"atomics", atomics, true},
          {"inline", inline_data, true},
          {"stream", stream, false},
          {"fenced", fenced, false}};
}

}  // namespace softhca::verbs_check
