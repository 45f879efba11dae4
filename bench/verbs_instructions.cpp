// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Instructions that a program executes to post one signalled 8-byte RDMA WRITE and to poll its
// completion, in the median over many. Run it under `softhca run`.
//   verbs_instructions write|inline|builder|awake
//     write    ibv_post_send(), the data gathered from registered memory
//     inline   ibv_post_send() with IBV_SEND_INLINE
//     builder  ibv_wr_start() to ibv_wr_complete(), gathered
//     awake    nothing is counted: writes until it is ended, so that the engine does not fall
//     asleep
//              while it waits for somebody who is stepped. On another host of the fabric: programs
//              of one host share its doorbell hints, and who finds a hint of somebody else there
//              takes a longer way. Says so when it has begun.
// Last line: post + poll, and the same without Softhca's preload library, whose wrappers are around
// libmlx5. Counted is a device that is awake, and a poll that finds its completion: waking it is a
// system call, and polling in vain takes as long as one likes.
#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "bench/single_step.h"
#include "bench/verbs_pair.h"

namespace softhca::bench {
namespace {

constexpr std::size_t kSize = 8;
constexpr int kSamples = 41;
constexpr int kMostTries = 50 * kSamples;
constexpr ibv_qp_cap kCap = {128, 16, 1, 1, 32};

/// Steps of one call, or of several in a row.
struct Count {
  unsigned total = 0;
  unsigned without_preload = 0;
  bool system_call = false;

  static Count of(const volatile Steps& steps) {
    return {steps.total, steps.total - steps.in_preload, steps.system_calls != 0};
  }
};

unsigned median(std::vector<unsigned> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void take_completion(Pair& pair) {
  ibv_wc completion{};
  int count = 0;
  while ((count = ibv_poll_cq(pair.cq, 1, &completion)) == 0) {
  }
  if (count < 0 || completion.status != IBV_WC_SUCCESS) fail("completion");
}

[[noreturn]] void write_forever() {
  Pair pair(kSize);
  ibv_send_wr request = pair.request(IBV_WR_RDMA_WRITE);
  std::printf("awake\n");
  std::fflush(stdout);
  for (;;) {
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(pair.a, &request, &bad) != 0) fail("ibv_post_send");
    take_completion(pair);
  }
}

class Measurement {
 public:
  Measurement(const volatile Steps& steps, const std::string& mode)
      : steps_(steps),
        builder_(mode == "builder"),
        pair_(kSize, {kCap, builder_, true}),
        request_(pair_.request(IBV_WR_RDMA_WRITE)),
        extended_(builder_ ? ibv_qp_to_qp_ex(pair_.a) : nullptr) {
    if (mode == "inline") request_.send_flags |= IBV_SEND_INLINE;
  }

  int run() {
    for (int i = 0; i < 8; ++i) {  // First calls find addresses of functions.
      post(false);
      take_completion(pair_);
    }
    for (int tries = 0; static_cast<int>(posts_.size()) < kSamples; ++tries) {
      if (tries == kMostTries) {
        std::fprintf(stderr, "the engine is always asleep: have 'awake' run on another host\n");
        return 1;
      }
      sample();
    }
    const unsigned post = median(posts_);
    const unsigned poll = median(polls_);
    std::printf("post %u poll %u; without the preload library: post %u poll %u\n", post, poll,
                median(bare_posts_), median(bare_polls_));
    std::printf("%u %u\n", post + poll, median(bare_posts_) + median(bare_polls_));
    return 0;
  }

 private:
  Count post(bool counted) {
    ibv_send_wr* bad = nullptr;
    int error = 0;
    if (counted) mark();
    if (builder_) {
      ibv_wr_start(extended_);
      extended_->wr_id = 1;
      extended_->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_rdma_write(extended_, pair_.mr->rkey, pair_.remote);
      ibv_wr_set_sge(extended_, pair_.sge.lkey, pair_.sge.addr, pair_.sge.length);
      error = ibv_wr_complete(extended_);
    } else {
      error = ibv_post_send(pair_.a, &request_, &bad);
    }
    if (counted) mark();
    if (error != 0) fail("post");
    return Count::of(steps_);
  }

  /// Sleeps until there is a completion to poll for.
  void wait_for_event() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    if (ibv_get_cq_event(pair_.channel, &cq, &context) != 0) fail("ibv_get_cq_event");
    ibv_ack_cq_events(cq, 1);
  }

  void sample() {
    if (ibv_req_notify_cq(pair_.cq, 0) != 0) fail("ibv_req_notify_cq");
    const Count posted = post(true);
    wait_for_event();
    ibv_wc completion{};
    mark();
    const int found = ibv_poll_cq(pair_.cq, 1, &completion);
    mark();
    const Count polled = Count::of(steps_);
    if (found != 1 || completion.status != IBV_WC_SUCCESS) fail("completion");
    if (posted.system_call || polled.system_call) return;
    posts_.push_back(posted.total);
    polls_.push_back(polled.total);
    bare_posts_.push_back(posted.without_preload);
    bare_polls_.push_back(polled.without_preload);
  }

  const volatile Steps& steps_;
  bool builder_;
  Pair pair_;
  ibv_send_wr request_;
  ibv_qp_ex* extended_;
  std::vector<unsigned> posts_;
  std::vector<unsigned> polls_;
  std::vector<unsigned> bare_posts_;
  std::vector<unsigned> bare_polls_;
};

}  // namespace
}  // namespace softhca::bench

int main(int argc, char** argv) {
  using namespace softhca::bench;
  const std::string mode = argc == 2 ? argv[1] : "";
  if (mode == "awake") write_forever();
  if (mode != "write" && mode != "inline" && mode != "builder") {
    std::fprintf(stderr, "usage: verbs_instructions write|inline|builder|awake\n");
    return 2;
  }
  return run_stepped([&](const volatile Steps& steps) { return Measurement(steps, mode).run(); });
}
