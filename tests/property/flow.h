// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/property/model.h"
#include "tests/property/scenario.h"
#include "tests/property/sim_host.h"

namespace softhca::property {

/// A rule was broken; the text says which and what was seen.
class Violation : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Receive requests of one RQ or SRQ that were posted and not completed.
struct ReceiveBook {
  struct Entry {
    std::uint16_t index = 0;
    std::vector<Piece> pieces;
  };
  bool shared = false;
  std::vector<Entry> open;  ///< In order of posting.
  std::vector<Entry> lost;  ///< Ended in error: what they hold is not said.
  unsigned left_to_post = 0;
};

/// One side of the network with its oracle.
struct Side {
  SimHost* host = nullptr;
  Model* model = nullptr;
  std::uint16_t lid = 0;
  std::uint64_t counter_va = 0;  ///< Word that all flows to this side count up.
  std::uint64_t counter_start = 0;
  std::vector<std::uint64_t> counter_results;
  unsigned counter_unsure = 0;
};

/// How an operation is wrong on purpose.
enum class Poison : std::uint8_t {
  none,
  bad_key,
  out_of_bounds,
  not_permitted,
  unaligned_atomic,
  too_long,  ///< A SEND beyond the receive buffer.
  bad_local_key,
};

/// One send operation with everything that is known about it.
struct Operation {
  enum class State : std::uint8_t { planned, posted, succeeded, failed };
  SendRequest request;
  std::uint32_t length = 0;
  std::vector<std::uint8_t> data;  ///< What is sent; empty for READ and atomics.
  bool consumes_receive = false;
  bool counts = false;         ///< Fetch-and-add on the shared counter.
  bool undeliverable = false;  ///< UD with a wrong Q_Key.
  Poison poison = Poison::none;
  State state = State::planned;
  std::uint16_t index = 0;
  std::uint8_t syndrome = 0;
};

/// What one QP sends to its peer: plans operations, posts them, and judges every completion at both
/// ends and the memory at the end.
class Flow {
 public:
  Flow(const Scenario& scenario, Random random, Side& from, Side& to, std::string name);

  void set_qps(std::uint32_t from_qpn, std::uint32_t to_qpn) {
    from_qpn_ = from_qpn;
    to_qpn_ = to_qpn;
  }
  void plan(Poison poison);
  unsigned receives_needed() const;

  // The driver's part.
  /// Posts the next operation if the queue has room. True if it did.
  bool post_next();
  bool all_posted() const { return next_post_ == operations_.size(); }
  /// Nothing more will come: every posted operation has ended, and no more can be posted.
  bool done() const;
  bool failed() const { return failed_; }
  Nanoseconds next_send_at = 0;

  // Judging.
  void on_send_completion(const Completion& completion);
  void on_receive_completion(const Completion& completion, ReceiveBook& book);
  /// A completion of this flow must be there before that of the sender.
  unsigned received() const { return received_; }
  void set_reverse(const Flow* reverse) { reverse_ = reverse; }
  /// Brings the models to what memory must be now.
  void finish(ReceiveBook& book);
  std::string progress() const;

 private:
  [[noreturn]] void violate(const std::string& rule) const;
  Operation plan_operation(bool last);
  void plan_local(Operation& operation);
  void plan_remote(Operation& operation);
  void plan_atomic(Operation& operation);
  void apply_poison(Operation& operation, Poison poison);
  std::uint32_t plan_length();
  std::vector<Piece> allocate(Side& side, std::uint32_t length);

  void on_send_error(const Completion& completion, std::size_t at);
  bool allowed_first_error(const Operation& operation, std::uint8_t syndrome) const;
  const Operation& match_received(const Completion& completion,
                                  const std::vector<std::uint8_t>& data);
  bool fits(const Operation& operation, const Completion& completion,
            const std::vector<std::uint8_t>& data) const;
  void apply_reliable();
  void apply_success(const Operation& operation);
  void apply_unsure(const Operation& operation);

  const Scenario& scenario_;
  Random random_;
  Side& from_;
  Side& to_;
  std::string name_;
  const Flow* reverse_ = nullptr;
  std::uint32_t from_qpn_ = 0;
  std::uint32_t to_qpn_ = 0;

  std::uint64_t write_va_ = 0;
  std::uint64_t read_va_ = 0;
  std::uint64_t area_size_ = 0;
  std::uint64_t atomic_va_ = 0;
  std::vector<std::uint64_t> words_;  ///< Atomic words as they will be when the plan has run.
  bool fence_next_ = false;
  unsigned since_signal_ = 0;

  std::vector<Operation> operations_;
  std::vector<std::size_t> consuming_;  ///< Operations that take a receive request.
  std::size_t next_post_ = 0;
  std::size_t next_end_ = 0;  ///< First operation that has not ended.
  unsigned received_ = 0;
  std::size_t last_matched_ = 0;
  bool failed_ = false;
};

}  // namespace softhca::property
