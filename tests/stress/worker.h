// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/stress/remote_hca.h"

namespace softhca::test {

/// A program's thread: in rounds, it posts writes on some of its queue pairs after a gap of random
/// length, and waits for their completions, polling or asleep. Whatever it waits for in vain was
/// lost: QPs never retry, and all threads wait for each other after each round, so that nothing
/// else wakes the engine.
class Worker {
 public:
  static constexpr unsigned kCqs = 8;
  static constexpr unsigned kQpsPerCq = 16;
  static constexpr std::chrono::seconds kPatience{60};

  /// Makes its queues, on `uars` in turn and with events on interrupt `vector`. Not for several
  /// threads at once.
  Worker(RemoteHca& hca, std::span<const std::uint32_t> uars, std::uint16_t vector,
         std::uint64_t seed);

  /// Rounds until `posts` are done, the time is `end`, or one of the threads that share `failed`
  /// has failed.
  void run(std::uint64_t posts, std::chrono::steady_clock::time_point end, std::barrier<>& round,
           std::atomic<bool>& failed);

  const std::string& failure() const { return failure_; }  ///< Empty: all went well.
  std::uint64_t posts() const { return posts_; }
  std::uint64_t rounds() const { return rounds_; }
  std::uint64_t sleeps() const { return sleeps_; }

 private:
  struct Cq {
    DriverCq queue;
    bool armed = false;    ///< An event is to come.
    unsigned pending = 0;  ///< QPs that wait for their last completion.
  };
  struct Qp {
    DriverQp queue;
    unsigned cq = 0;
    std::uint64_t target = 0;  ///< Where it writes `value`.
    std::uint64_t value = 0;
    std::uint16_t last = 0;  ///< WQE whose completion ends the round.
    bool pending = false;
  };

  unsigned number(unsigned first, unsigned last);
  void round();
  void idle();
  void post(Qp& qp, unsigned count);
  void arm(bool all);
  void collect(Cq& cq);
  void collect_all();
  void complete(Qp& qp);
  void poll_for_completions();
  void sleep_for_completions(bool look_again);
  void wait_for_interrupt();
  bool completes_soon();
  std::string cure();
  [[noreturn]] void lost();

  MiniDriver& driver_;
  std::mt19937_64 random_;
  int interrupt_;
  DriverEq eq_;
  DriverMr memory_;
  std::vector<Cq> cqs_;
  std::vector<Qp> qps_;
  unsigned favourite_ = 0;  ///< QP that small rounds post to ...
  unsigned favoured_ = 0;   ///< ... for so many more.
  unsigned pending_ = 0;
  std::uint64_t posts_ = 0;
  std::uint64_t rounds_ = 0;
  std::uint64_t sleeps_ = 0;
  std::string failure_;
};

}  // namespace softhca::test
