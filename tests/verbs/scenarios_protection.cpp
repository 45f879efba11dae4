// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "tests/verbs/scenarios.h"

/// Protection domains and local access rights: memory that is registered, and yet not for this use.
namespace softhca::verbs_check {
namespace {

constexpr std::size_t kSize = 4096;

/// Memory that is registered in a protection domain of its own.
struct ForeignMemory {
  explicit ForeignMemory(const Device& device)
      : pd(ibv_alloc_pd(device.context())), bytes(kSize, Buffer::kBlank) {
    require(pd != nullptr, std::string("ibv_alloc_pd: ") + std::strerror(errno));
    mr.reset(ibv_reg_mr(pd.get(), bytes.data(), kSize, Buffer::kAllAccess));
    require(mr != nullptr, std::string("ibv_reg_mr: ") + std::strerror(errno));
  }
  std::uint64_t address() { return reinterpret_cast<std::uintptr_t>(bytes.data()); }
  void verify_blank(const std::string& what) const {
    for (const std::uint8_t byte : bytes) require(byte == Buffer::kBlank, what + " changed");
  }

  PdHandle pd;
  std::vector<std::uint8_t> bytes;
  MrHandle mr;
};

Request rdma(ibv_wr_opcode opcode, const ibv_sge& sge, const RemoteRange& remote) {
  Request request;
  request.opcode = opcode;
  request.sges = {sge};
  request.remote_address = remote.address;
  request.rkey = remote.rkey;
  return request;
}

/// The other end's memory is of another protection domain than its QP (IBA 10.6.3.5).
void foreign_rkey(Device& device, Side& side, const Style& style) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    Buffer buffer(device, kSize);
    ForeignMemory foreign(device);
    Connection link(device, side, style);
    const RemoteRange remote = side.exchange(RemoteRange{foreign.address(), foreign.mr->rkey});
    if (!side.is_server()) {
      link.qp.post(rdma(opcode, buffer.sge(0, 8), remote));
      link.cq.expect(IBV_WC_REM_ACCESS_ERR, "an R_Key of another protection domain");
      require(link.qp.state() == IBV_QPS_ERR, "the QP is in error");
    }
    side.barrier();
    foreign.verify_blank("memory of another protection domain");
  }
}

void foreign_lkey(Device& device, Side& side, const Style& style) {
  Buffer target(device, kSize);
  ForeignMemory foreign(device);
  Connection link(device, side, style);
  const RemoteRange remote = side.exchange(range_of(target));
  if (!side.is_server()) {
    link.qp.post(rdma(IBV_WR_RDMA_WRITE, {foreign.address(), 64, foreign.mr->lkey}, remote));
    link.cq.expect(IBV_WC_LOC_PROT_ERR, "an L_Key of another protection domain");
  }
  side.barrier();
  target.verify_blank(0, kSize, "the target of a write with a foreign L_Key");
}

/// What is read or fetched must go to memory that may be written (IBA 10.6.3.1).
void read_into_read_only(Device& device, Side& side, const Style& style) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    Buffer source(device, kSize);
    Buffer read_only(device, kSize, 0);
    Connection link(device, side, style);
    const RemoteRange remote = side.exchange(range_of(source));
    if (!side.is_server()) {
      link.qp.post(rdma(opcode, read_only.sge(0, 8), remote));
      link.cq.expect(IBV_WC_LOC_PROT_ERR, "a READ or atomic into read-only memory");
    }
    side.barrier();
    read_only.verify_blank(0, kSize, "read-only memory");
  }
}

/// The receiver's own mistake: it is told which, the sender that the other end failed (IBA 9.9.3).
void bad_receive(Device& device, Side& side, const Style& style) {
  for (const int mistake : {0, 1, 2}) {
    Buffer buffer(device, kSize);
    Buffer read_only(device, kSize, 0);
    Connection link(device, side, style);
    if (side.is_server()) {
      ibv_sge sge = buffer.sge(0, 64);
      if (mistake == 0) sge.lkey ^= 0x5500;
      if (mistake == 1) sge.addr += kSize - 63;
      if (mistake == 2) sge = read_only.sge(0, 64);
      link.qp.post_receive(1, {sge});
      link.qp.post_receive(2, {buffer.sge(0, 64)});
    }
    side.barrier();
    if (side.is_server()) {
      require(link.cq.expect(IBV_WC_LOC_PROT_ERR, "a receive into the wrong memory").wr_id == 1,
              "it is that receive");
      link.cq.expect(IBV_WC_WR_FLUSH_ERR, "the receive behind");
      read_only.verify_blank(0, kSize, "read-only memory");
    } else {
      Request request;
      request.sges = {buffer.sge(0, 64)};
      link.qp.post(request);
      link.cq.expect(IBV_WC_REM_OP_ERR, "a send whose receiver cannot take it");
    }
    side.barrier();
  }
}

/// More than the queue or the entry holds is refused at once and posts nothing.
void too_many(Device& device, Side& side, const Style& style) {
  Buffer buffer(device, kSize);
  Connection link(device, side, style);
  if (!side.is_server()) {
    Request request;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.sges.assign(64, buffer.sge(0, 8));
    require(link.qp.try_post(request) != 0, "more gather entries than the QP has are refused");
    request.sges = {buffer.sge(0, kSize)};
    request.flags |= IBV_SEND_INLINE;
    require(link.qp.try_post(request) != 0, "more inline data than the QP takes is refused");
    link.cq.expect_silence(std::chrono::milliseconds(20), "refused requests");
  }
  side.barrier();
}

}  // namespace

std::vector<Scenario> protection_scenarios() {
  return {{"foreign_rkey", foreign_rkey, false},
          {"foreign_lkey", foreign_lkey, false},
          {"read_into_read_only", read_into_read_only, false},
          {"bad_receive", bad_receive, false},
          {"too_many", too_many, false}};
}

}  // namespace softhca::verbs_check
