// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#include "tests/verbs/scenarios.h"

namespace softhca::verbs_check {
namespace {

SrqHandle shared_receive_queue(const Device& device, std::uint32_t wr) {
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = wr;
  attr.attr.max_sge = 2;
  SrqHandle srq(ibv_create_srq(device.pd(), &attr));
  require(srq != nullptr, std::string("ibv_create_srq: ") + std::strerror(errno));
  require(attr.attr.max_wr >= wr && attr.attr.max_sge >= 2, "the SRQ has less than was asked for");
  return srq;
}

/// Two queue pairs share one receive queue; each message names its QP, and every receive is used
/// once.
void shared_receives(Device& device, Side& side, const Style& style) {
  constexpr std::size_t kSize = 700;
  constexpr std::uint32_t kDepth = 16;
  constexpr std::uint32_t kMessages = 200;
  Buffer buffer(device, kSize * kDepth);
  CompletionQueue cq(device, 256, style);
  const SrqHandle srq = side.is_server() ? shared_receive_queue(device, kDepth) : nullptr;
  QpOptions options;
  options.srq = srq.get();
  QueuePair first(device, cq, cq, style, options);
  QueuePair second(device, cq, cq, style, options);
  first.connect(side);
  second.connect(side);
  if (side.is_server()) {
    for (std::uint32_t i = 0; i < kDepth; ++i) {
      post_shared_receive(srq.get(), i,
                          {buffer.sge(i * kSize, 300), buffer.sge(i * kSize + 300, 400)});
    }
  }
  side.barrier();
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    QueuePair& qp = i % 3 == 0 ? second : first;
    if (side.is_server()) {
      const Completed got = cq.expect_success("message through the SRQ");
      require(got.qp_num == qp.number(), "the completion names the QP that received");
      require(got.wr_id < kDepth && got.byte_len == kSize,
              "it is one of the receives, filled whole");
      buffer.verify(i, got.wr_id * kSize, kSize, "message through the SRQ");
      post_shared_receive(
          srq.get(), got.wr_id,
          {buffer.sge(got.wr_id * kSize, 300), buffer.sge(got.wr_id * kSize + 300, 400)});
    } else {
      buffer.fill(i, 0, kSize);
      Request request;
      request.sges = {buffer.sge(0, kSize)};
      qp.post(request);
      cq.expect_success("send to the SRQ");
    }
    side.barrier();
  }
}

/// The limit event comes once, when fewer receives than the limit are left (IBA 10.2.9.5).
void shared_receive_limit(Device& device, Side& side, const Style& style) {
  constexpr std::uint32_t kLimit = 3;
  Buffer buffer(device, 4096);
  CompletionQueue cq(device, 64, style);
  const SrqHandle srq = side.is_server() ? shared_receive_queue(device, 8) : nullptr;
  QpOptions options;
  options.srq = srq.get();
  QueuePair qp(device, cq, cq, style, options);
  qp.connect(side);
  if (side.is_server()) {
    for (std::uint32_t i = 0; i < 5; ++i)
      post_shared_receive(srq.get(), i, {buffer.sge(i * 64, 64)});
    ibv_srq_attr attr{};
    attr.srq_limit = kLimit;
    require(ibv_modify_srq(srq.get(), &attr, IBV_SRQ_LIMIT) == 0, "arming the SRQ limit failed");
    ibv_srq_attr seen{};
    require(ibv_query_srq(srq.get(), &seen) == 0 && seen.srq_limit == kLimit,
            "the limit reads back");
  }
  side.barrier();
  for (int i = 0; i < 3; ++i) {
    if (side.is_server()) {
      cq.expect_success("message through the SRQ");
    } else {
      Request request;
      request.sges = {buffer.sge(0, 64)};
      qp.post(request);
      cq.expect_success("send to the SRQ");
    }
  }
  if (side.is_server()) {
    require(becomes_readable(device.context()->async_fd, std::chrono::seconds(5)),
            "no SRQ limit event");
    ibv_async_event event{};
    require(ibv_get_async_event(device.context(), &event) == 0, "ibv_get_async_event failed");
    const bool right =
        event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq.get();
    ibv_ack_async_event(&event);
    require(right, "the event is the limit of this SRQ");
  }
  side.barrier();
}

/// A solicited arm fires for a solicited message only; a plain arm fires for any, once.
void solicited_events(Device& device, Side& side, const Style& style) {
  using std::chrono::milliseconds;
  Buffer buffer(device, 4096);
  Style polled = style;
  polled.events = false;
  {
    // Its arm may still be on its way when it is gone, and must not be taken for one of another CQ.
    CompletionQueue gone(device, 16, polled);
    gone.arm(false);
  }
  Connection link(device, side, polled);
  const auto send_one = [&](unsigned flags) {
    Request request;
    request.sges = {buffer.sge(0, 16)};
    request.flags |= flags;
    link.qp.post(request);
    link.cq.expect_success("send");
  };
  if (side.is_server()) {
    for (std::uint32_t i = 0; i < 4; ++i) link.qp.post_receive(i, {buffer.sge(0, 64)});
    link.cq.arm(true);
    side.barrier();
    side.barrier();
    require(!link.cq.event_within(milliseconds(100)),
            "an unsolicited message must not fire a solicited arm");
    side.barrier();
    require(link.cq.event_within(milliseconds(5000)),
            "a solicited message must fire a solicited arm");
    link.cq.expect_success("receive");
    link.cq.expect_success("receive");
    link.cq.arm(false);
    side.barrier();
    require(link.cq.event_within(milliseconds(5000)), "any message must fire a plain arm");
    side.barrier();
    require(!link.cq.event_within(milliseconds(100)), "an arm fires once");
    link.cq.expect_success("receive");
    link.cq.expect_success("receive");
  } else {
    side.barrier();
    send_one(0);
    side.barrier();
    side.barrier();
    send_one(IBV_SEND_SOLICITED);
    side.barrier();
    send_one(0);
    side.barrier();
    send_one(0);
  }
  side.barrier();
  // An arm with a completion already waiting fires at once.
  if (side.is_server()) {
    link.qp.post_receive(9, {buffer.sge(0, 64)});
    side.barrier();
    side.barrier();
    link.cq.arm(false);
    require(link.cq.event_within(milliseconds(5000)),
            "an arm behind an unread completion must fire at once");
    link.cq.expect_success("receive");
  } else {
    side.barrier();
    send_one(0);
    side.barrier();
  }
  side.barrier();
}

/// Growing and shrinking a CQ keeps what was not read yet.
void resize(Device& device, Side& side, const Style& style) {
  Buffer buffer(device, 4096);
  Connection link(device, side, style);
  std::uint32_t next = 0;
  for (const int entries : {1023, 31, 511}) {
    if (side.is_server()) {
      for (std::uint32_t i = 0; i < 10; ++i) link.qp.post_receive(i, {buffer.sge(0, 64)});
      side.barrier();
      side.barrier();  // five messages are here
      const int error = ibv_resize_cq(link.cq.get(), entries);
      require(error == 0, std::string("ibv_resize_cq: ") + std::strerror(error));
      require(link.cq.get()->cqe >= entries, "the CQ is at least as large as asked for");
      side.barrier();
      for (std::uint32_t i = 0; i < 10; ++i) {
        require(link.cq.expect_success("receive around a resize").imm_data == next++,
                "completions keep their order");
      }
    } else {
      side.barrier();
      for (int i = 0; i < 10; ++i) {
        if (i == 5) {
          side.barrier();
          side.barrier();
        }
        Request request;
        request.opcode = IBV_WR_SEND_WITH_IMM;
        request.imm_data = next++;
        request.sges = {buffer.sge(0, 64)};
        link.qp.post(request);
        link.cq.expect_success("send");
      }
    }
    side.barrier();
  }
}

/// A QP that was reset starts again from nothing.
void reset_and_reuse(Device& device, Side& side, const Style& style) {
  Buffer buffer(device, 4096);
  CompletionQueue cq(device, 64, style);
  for (std::uint32_t round = 0; round < 3; ++round) {
    QueuePair qp(device, cq, cq, style, {});
    qp.connect(side);
    if (side.is_server()) {
      buffer.clear();
      qp.post_receive(1, {buffer.sge(0, 64)});
      qp.post_receive(2, {buffer.sge(64, 64)});
      side.barrier();
      cq.expect_success("receive");
      buffer.verify(round, 0, 64, "message");
    } else {
      buffer.fill(round, 0, 64);
      side.barrier();
      Request request;
      request.sges = {buffer.sge(0, 64)};
      qp.post(request);
      cq.expect_success("send");
    }
    side.barrier();
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    require(ibv_modify_qp(qp.get(), &attr, IBV_QP_STATE) == 0, "modify QP to RESET failed");
    cq.expect_silence(std::chrono::milliseconds(20), "a reset QP");
    side.barrier();
  }
}

/// Many queue pairs on one CQ, all busy at once.
void many_queue_pairs(Device& device, Side& side, const Style& style) {
  constexpr std::uint32_t kQps = 32;
  constexpr std::size_t kSize = 5000;
  Buffer buffer(device, kQps * kSize);
  CompletionQueue cq(device, 512, style);
  std::vector<std::unique_ptr<QueuePair>> qps;
  std::map<std::uint32_t, std::uint32_t> index_of;
  for (std::uint32_t i = 0; i < kQps; ++i) {
    qps.push_back(std::make_unique<QueuePair>(device, cq, cq, style, QpOptions{}));
    qps.back()->connect(side);
    index_of[qps.back()->number()] = i;
  }
  if (side.is_server()) buffer.clear();
  for (std::uint32_t i = 0; i < kQps; ++i) {
    if (side.is_server()) {
      qps[i]->post_receive(i, {buffer.sge(i * kSize, kSize)});
    } else {
      buffer.fill(i, i * kSize, kSize);
    }
  }
  side.barrier();
  for (std::uint32_t i = 0; i < kQps && !side.is_server(); ++i) {
    Request request;
    request.wr_id = i;
    request.sges = {buffer.sge(i * kSize, kSize)};
    qps[i]->post(request);
  }
  for (std::uint32_t i = 0; i < kQps; ++i) {
    const Completed done = cq.expect_success("one of many");
    require(index_of.at(done.qp_num) == done.wr_id, "each completion names its own QP");
  }
  for (std::uint32_t i = 0; i < kQps && side.is_server(); ++i) {
    buffer.verify(i, i * kSize, kSize, "message of QP " + std::to_string(i));
  }
  side.barrier();
}

}  // namespace

std::vector<Scenario> queue_scenarios() {
  return {{"srq", shared_receives, true},         {"srq_limit", shared_receive_limit, false},
          {"solicited", solicited_events, false}, {"resize_cq", resize, false},
          {"reset", reset_and_reuse, false},      {"many_qps", many_queue_pairs, false}};
}

}  // namespace softhca::verbs_check
