// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// How a flow is judged.
#include "tests/property/flow.h"

#include <algorithm>
#include <cstring>

namespace softhca::property {

using prm::CqeOpcode;
using prm::CqeSyndrome;
using prm::WqeOpcode;

namespace {

constexpr std::uint32_t kGrhSize = 40;

std::uint8_t code(CqeSyndrome syndrome) {
  return static_cast<std::uint8_t>(syndrome);
}

CqeOpcode responder_opcode(WqeOpcode opcode) {
  switch (opcode) {
    case WqeOpcode::send_imm:
      return CqeOpcode::responder_send_imm;
    case WqeOpcode::rdma_write_imm:
      return CqeOpcode::responder_write_imm;
    default:
      return CqeOpcode::responder_send;
  }
}

/// Bytes [skip, skip + length) of what the pieces hold.
std::vector<std::uint8_t> gather(const HostMemory& memory, const std::vector<Piece>& pieces,
                                 std::uint64_t skip, std::uint64_t length) {
  std::vector<std::uint8_t> all;
  for (const Piece& piece : pieces) {
    const auto bytes = memory.bytes(piece.va, piece.length);
    all.insert(all.end(), bytes.begin(), bytes.end());
    if (all.size() >= skip + length) break;
  }
  all.resize(std::min<std::uint64_t>(all.size(), skip + length));
  all.erase(all.begin(),
            all.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(skip, all.size())));
  return all;
}

/// As a driver does with payload that came in the CQE.
void copy_inline(HostMemory& memory, const std::vector<Piece>& pieces,
                 const std::vector<std::uint8_t>& data) {
  std::span<const std::uint8_t> rest(data);
  for (const Piece& piece : pieces) {
    const std::size_t length = std::min<std::size_t>(piece.length, rest.size());
    memory.write(piece.va, rest.first(length));
    rest = rest.subspan(length);
  }
}

}  // namespace

void Flow::violate(const std::string& rule) const {
  throw Violation(name_ + ": " + rule + " (" + progress() + ")");
}

std::string Flow::progress() const {
  return std::to_string(next_post_) + " of " + std::to_string(operations_.size()) + " posted, " +
         std::to_string(next_end_) + " ended, " + std::to_string(received_) + " of " +
         std::to_string(consuming_.size()) + " received";
}

bool Flow::post_next() {
  if (all_posted() || failed_) return false;
  Operation& operation = operations_[next_post_];
  if (!from_.host->post_send(from_qpn_, operation.request, operation.index)) return false;
  operation.state = Operation::State::posted;
  ++next_post_;
  return true;
}

bool Flow::done() const {
  return next_end_ == next_post_ && (all_posted() || failed_);
}

void Flow::on_send_completion(const Completion& completion) {
  std::size_t at = next_end_;
  while (at < next_post_ && operations_[at].index != completion.wqe_counter) ++at;
  if (at == next_post_) violate("completion of no posted operation: " + describe(completion));
  if (completion.is_error()) {
    on_send_error(completion, at);
    return;
  }
  Operation& operation = operations_[at];
  if (failed_) violate("success after an error: " + describe(completion));
  if (!operation.request.signalled) {
    violate("completion of an unsignalled operation: " + describe(completion));
  }
  for (std::size_t i = next_end_; i < at; ++i) {
    if (operations_[i].request.signalled) {
      violate("completions out of order: " + describe(completion));
    }
  }
  if (completion.send_opcode != static_cast<std::uint8_t>(operation.request.opcode)) {
    violate("completion names another operation: " + describe(completion));
  }
  const bool response = operation.request.opcode == WqeOpcode::rdma_read ||
                        operation.request.opcode == WqeOpcode::atomic_cmp_swap ||
                        operation.request.opcode == WqeOpcode::atomic_fetch_add;
  if (response && completion.byte_count != operation.length) {
    violate("byte count of a response is not its length: " + describe(completion));
  }
  if (operation.poison != Poison::none) {
    violate("a wrong operation succeeded: " + describe(completion));
  }
  if (!completion.inline_data.empty()) {
    copy_inline(from_.host->memory(), operation.request.pieces, completion.inline_data);
  }
  for (; next_end_ <= at; ++next_end_) operations_[next_end_].state = Operation::State::succeeded;
  from_.host->release_send(from_qpn_, completion.wqe_counter);
  // A CQE may wait for its memory while the acknowledge is on its way.
  if (!scenario_.is_rc() || scenario_.slow_queue != 0) return;
  const auto delivered = std::count_if(consuming_.begin(), consuming_.end(),
                                       [&](std::size_t i) { return i < next_end_; });
  if (received_ < static_cast<unsigned>(delivered)) {
    violate("the sender is told of success before the receiver: " + describe(completion));
  }
}

void Flow::on_send_error(const Completion& completion, std::size_t at) {
  Operation& operation = operations_[at];
  if (failed_) {
    if (at != next_end_ || completion.syndrome != code(CqeSyndrome::flushed)) {
      violate("after an error the rest must be flushed in order: " + describe(completion));
    }
  } else {
    for (std::size_t i = next_end_; i < at; ++i) {
      if (operations_[i].request.signalled) {
        violate("an error overtakes a completion: " + describe(completion));
      }
      operations_[i].state = Operation::State::succeeded;
    }
    if (!allowed_first_error(operation, completion.syndrome)) {
      violate("this error has no cause: " + describe(completion));
    }
    failed_ = true;
  }
  operation.state = Operation::State::failed;
  operation.syndrome = completion.syndrome;
  next_end_ = at + 1;
  from_.host->release_send(from_qpn_, completion.wqe_counter);
}

bool Flow::allowed_first_error(const Operation& operation, std::uint8_t syndrome) const {
  const bool wrong_at_responder =
      operation.poison != Poison::none && operation.poison != Poison::bad_local_key;
  if (wrong_at_responder && (!scenario_.faults.clean() || scenario_.calms != 0) &&
      syndrome == code(CqeSyndrome::transport_retry_exceeded)) {
    return true;  // The NAK was lost or overtook a response; the responder answers no more.
  }
  switch (operation.poison) {
    case Poison::bad_key:
    case Poison::out_of_bounds:
    case Poison::not_permitted:
      return syndrome == code(CqeSyndrome::remote_access);
    case Poison::unaligned_atomic:
    case Poison::too_long:
      return syndrome == code(CqeSyndrome::remote_invalid_request);
    case Poison::bad_local_key:
      return syndrome == code(CqeSyndrome::local_protection);
    case Poison::none:
      break;
  }
  const bool flushed = syndrome == code(CqeSyndrome::flushed);
  const bool exhausted = syndrome == code(CqeSyndrome::transport_retry_exceeded);
  const bool rnr = syndrome == code(CqeSyndrome::rnr_retry_exceeded);
  if (exhausted && scenario_.may_exhaust()) return true;
  if (rnr && scenario_.may_exhaust_rnr()) return true;
  // The peer's QP, or this one as responder, may have stopped because of the other direction.
  const bool other_may_fail = scenario_.ending != Ending::complete || scenario_.may_exhaust() ||
                              scenario_.may_exhaust_rnr();
  return other_may_fail && (flushed || exhausted);
}

bool Flow::fits(const Operation& operation, const Completion& completion,
                const std::vector<std::uint8_t>& data) const {
  const bool immediate = operation.request.opcode != WqeOpcode::send;
  const std::uint32_t extra = scenario_.type == prm::QpServiceType::ud ? kGrhSize : 0;
  return !operation.undeliverable && operation.state != Operation::State::planned &&
         completion.opcode == responder_opcode(operation.request.opcode) &&
         (!immediate || completion.immediate == operation.request.immediate) &&
         completion.byte_count == operation.length + extra &&
         (operation.request.opcode == WqeOpcode::rdma_write_imm || data == operation.data);
}

const Operation& Flow::match_received(const Completion& completion,
                                      const std::vector<std::uint8_t>& data) {
  if (scenario_.is_rc()) {
    if (received_ >= consuming_.size()) violate("received more than was sent");
    const Operation& operation = operations_[consuming_[received_]];
    if (!fits(operation, completion, data)) {
      violate("received message " + std::to_string(received_) +
              " is not the one that was sent: " + describe(completion));
    }
    return operation;
  }
  // Unreliable: any message may be missing; copies and another order only if the network made them.
  const bool ordered = scenario_.faults.duplicate == 0 && scenario_.faults.reorder == 0 &&
                       scenario_.faults.stall == 0;
  for (std::size_t i = ordered ? last_matched_ : 0; i < consuming_.size(); ++i) {
    if (!fits(operations_[consuming_[i]], completion, data)) continue;
    last_matched_ = i + 1;
    return operations_[consuming_[i]];
  }
  violate("received a message that was not sent, or not in order: " + describe(completion));
}

void Flow::on_receive_completion(const Completion& completion, ReceiveBook& book) {
  auto entry = book.open.begin();
  if (book.shared) {
    entry = std::find_if(book.open.begin(), book.open.end(), [&](const auto& candidate) {
      return candidate.index == completion.wqe_counter;
    });
  }
  if (entry == book.open.end() || entry->index != completion.wqe_counter) {
    violate("receive completion of a request that is not next: " + describe(completion));
  }
  if (completion.is_error()) {
    const bool broken = scenario_.ending != Ending::complete || scenario_.may_exhaust() ||
                        scenario_.may_exhaust_rnr();
    if (!broken) violate("receive error without a cause: " + describe(completion));
    book.lost.push_back(*entry);
  } else {
    const std::uint32_t skip = scenario_.type == prm::QpServiceType::ud ? kGrhSize : 0;
    HostMemory& memory = to_.host->memory();
    if (!completion.inline_data.empty()) {
      copy_inline(memory, entry->pieces, completion.inline_data);
    }
    const std::uint32_t length = completion.byte_count - std::min(skip, completion.byte_count);
    const auto data = gather(memory, entry->pieces, skip, length);
    const Operation& operation = match_received(completion, data);
    // UC: bytes of a message that was cut off may lie in this request beside the data.
    const bool unreliable = scenario_.type == prm::QpServiceType::uc;
    to_.model->ignore(entry->pieces, unreliable ? ~0U : skip);
    if (operation.request.opcode != WqeOpcode::rdma_write_imm) {
      to_.model->scatter(entry->pieces,
                         gather(memory, entry->pieces, 0, skip + std::uint64_t{length}));
    } else if (!operation.data.empty()) {
      const auto there = memory.bytes(operation.request.remote_va, operation.length);
      // Later operations may have written over it already: only then it may differ.
      const bool last_posted = &operation == &operations_[next_post_ - 1];
      if (scenario_.is_rc() && last_posted && there != operation.data) {
        violate("WRITE with immediate is announced before its data is there");
      }
    }
    ++received_;
  }
  if (!book.shared) to_.host->release_receive(to_qpn_);
  if (book.shared) to_.host->release_srq_receive(entry->index);
  book.open.erase(entry);
}

void Flow::finish(ReceiveBook& book) {
  if (next_end_ != next_post_) violate("posted operations have not ended");
  const bool must_complete = scenario_.ending == Ending::complete && !scenario_.may_exhaust() &&
                             !scenario_.may_exhaust_rnr();
  if (must_complete && failed_) violate("failed without a cause");
  if (scenario_.is_rc()) {
    const auto sent = std::count_if(consuming_.begin(), consuming_.end(), [&](std::size_t i) {
      return operations_[i].state == Operation::State::succeeded;
    });
    if (received_ < static_cast<unsigned>(sent)) violate("a message that was acknowledged is lost");
    apply_reliable();
  } else {
    for (const Operation& operation : operations_) {
      if (operation.state != Operation::State::succeeded) violate("an unreliable send failed");
      if (operation.request.opcode == WqeOpcode::rdma_write ||
          operation.request.opcode == WqeOpcode::rdma_write_imm) {
        to_.model->may_write(operation.request.remote_va, operation.data);
      }
    }
    const bool must_arrive =
        scenario_.faults.clean() && scenario_.receives_first && scenario_.link_dies_at == kNever;
    const auto deliverable =
        std::count_if(consuming_.begin(), consuming_.end(),
                      [&](std::size_t i) { return !operations_[i].undeliverable; });
    if (must_arrive && received_ != static_cast<unsigned>(deliverable)) {
      violate("a message is lost although nothing went wrong");
    }
  }
  // A message that was cut off may have left bytes in the request it had taken.
  const bool cut_off = failed_ || scenario_.type == prm::QpServiceType::uc ||
                       (reverse_ != nullptr && reverse_->failed_);
  if (cut_off) {
    for (const auto& entry : book.open) to_.model->ignore(entry.pieces, ~0U);
  }
  for (const auto& entry : book.lost) to_.model->ignore(entry.pieces, ~0U);
}

void Flow::apply_reliable() {
  for (std::size_t i = 0; i < next_post_; ++i) {
    if (operations_[i].state == Operation::State::succeeded) {
      apply_success(operations_[i]);
    } else {
      apply_unsure(operations_[i]);
    }
  }
}

void Flow::apply_success(const Operation& operation) {
  const SendRequest& request = operation.request;
  switch (request.opcode) {
    case WqeOpcode::rdma_write:
    case WqeOpcode::rdma_write_imm:
      to_.model->write(request.remote_va, operation.data);
      return;
    case WqeOpcode::rdma_read:
      from_.model->scatter(request.pieces, to_.model->bytes(request.remote_va, operation.length));
      return;
    case WqeOpcode::atomic_cmp_swap:
    case WqeOpcode::atomic_fetch_add:
      break;
    default:
      return;
  }
  if (operation.counts) {
    std::uint64_t result = 0;
    std::memcpy(&result, from_.host->memory().bytes(request.pieces[0].va, 8).data(), 8);
    to_.counter_results.push_back(result);
    from_.model->ignore(request.pieces, 8);
    return;
  }
  const auto old_bytes = to_.model->bytes(request.remote_va, 8);
  from_.model->scatter(request.pieces, old_bytes);
  std::uint64_t word = 0;
  std::memcpy(&word, old_bytes.data(), 8);
  if (request.opcode == WqeOpcode::atomic_fetch_add) {
    word += request.swap_add;
  } else if (word == request.compare) {
    word = request.swap_add;
  }
  std::vector<std::uint8_t> new_bytes(8);
  std::memcpy(new_bytes.data(), &word, 8);
  to_.model->write(request.remote_va, new_bytes);
}

// Did not succeed: the responder may have executed it or not.
void Flow::apply_unsure(const Operation& operation) {
  const SendRequest& request = operation.request;
  if (operation.poison != Poison::none) return;  // It must have changed nothing at all.
  switch (request.opcode) {
    case WqeOpcode::rdma_write:
    case WqeOpcode::rdma_write_imm:
      to_.model->may_write(request.remote_va, operation.data);
      return;
    case WqeOpcode::rdma_read:
      from_.model->ignore(request.pieces, operation.length);
      return;
    case WqeOpcode::atomic_cmp_swap:
    case WqeOpcode::atomic_fetch_add:
      from_.model->ignore(request.pieces, 8);
      if (operation.counts) {
        ++to_.counter_unsure;
      } else {
        to_.model->ignore(request.remote_va, 8);
      }
      return;
    default:
      return;
  }
}

}  // namespace softhca::property
