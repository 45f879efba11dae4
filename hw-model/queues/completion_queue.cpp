// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/queues/completion_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "hw-model/prm/uar.h"

namespace softhca {
namespace {

constexpr std::uint8_t kOverrun = 1;
constexpr std::uint8_t kAccessViolation = 2;

/// `a` is past `b`, indexes modulo 2^24.
bool after(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t distance = (a - b) & 0xffffff;
  return distance != 0 && distance < 0x800000;
}

}  // namespace

CompletionQueue::CompletionQueue(std::uint32_t number, DmaSpace& dma, const Clock& clock,
                                 AsyncEvents& events, CqTimers& timers, CqParams params)
    : number_(number),
      dma_(dma),
      clock_(clock),
      events_(events),
      timers_(timers),
      params_(std::move(params)) {}

std::uint32_t CompletionQueue::consumer_index() {
  std::uint32_t word = 0;
  if (consumer_record_.load(dma_, params_.doorbell_record, word) == DmaStatus::ok) {
    consumer_ = word & kIndexMask;
  }
  return consumer_;
}

bool CompletionQueue::has_room() {
  if (params_.overrun_ignore || params_.collapsed) return true;
  const auto waiting = static_cast<std::uint32_t>(waiting_.size());
  const std::uint32_t size = 1U << params_.log_size;
  if (((producer_ - consumer_) & kIndexMask) + waiting < size) return true;
  return ((producer_ - consumer_index()) & kIndexMask) + waiting < size;
}

/// Finds out whether the next entry can be written in place, and how many from there on.
bool CompletionQueue::look_in_place() {
  room_in_place_ = 0;
  const bool plain = !params_.collapsed && !params_.overrun_ignore && !error_ && waiting_.empty();
  if (!plain || !has_room()) return false;
  entries_ = 1U << params_.log_size;
  entry_shift_ = params_.cqe128 ? 7 : 6;
  std::byte* first = params_.buffer.direct(0, std::uint64_t{entries_} << entry_shift_);
  const bool aligned = reinterpret_cast<std::uintptr_t>(first) % alignof(prm::CqeWords) == 0;
  if (first == nullptr || !aligned) return false;
  in_place_ = first + (params_.cqe128 ? prm::kCqeOffsetIn128 : 0);
  in_place_generation_ = dma_.generation();
  room_in_place_ = entries_ - ((producer_ - consumer_) & kIndexMask);
  return true;
}

bool CompletionQueue::post(prm::CqeWords cqe, bool solicited, std::span<const std::byte> scatter) {
  if (error_) return false;
  if (!has_room()) {
    fail(kOverrun);
    return false;
  }
  const auto opcode = static_cast<prm::CqeOpcode>(cqe.op_own >> 4);
  const bool is_error =
      opcode == prm::CqeOpcode::requester_error || opcode == prm::CqeOpcode::responder_error;
  if (!is_error) cqe.timestamp = clock_.now();
  if (solicited) cqe.op_own |= 2U;
  append(cqe, scatter, solicited || is_error);
  return !error_;
}

void CompletionQueue::append(const prm::CqeWords& cqe, std::span<const std::byte> scatter,
                             bool event) {
  DmaStatus status = DmaStatus::pending;
  if (waiting_.empty()) status = write(cqe, scatter);
  if (status == DmaStatus::pending) {
    Waiting waiting{
        cqe, {}, static_cast<std::uint8_t>(std::min<std::size_t>(scatter.size(), 64)), event};
    std::copy_n(scatter.begin(), waiting.scatter_size, waiting.scatter.begin());
    waiting_.push_back(waiting);
    room_in_place_ = 0;
    return;
  }
  if (status == DmaStatus::fault) {
    fail(kAccessViolation);
    return;
  }
  if (room_in_place_ != 0) --room_in_place_;
  advance(event);
}

/// Body first, owner byte last with a release store (DESIGN 4).
DmaStatus CompletionQueue::write(const prm::CqeWords& cqe, std::span<const std::byte> scatter) {
  const std::uint32_t slot = params_.collapsed ? 0 : producer_ & ((1U << params_.log_size) - 1);
  const std::uint64_t entry = std::uint64_t{slot} << (params_.cqe128 ? 7 : 6);
  const std::uint64_t upper = entry + (params_.cqe128 ? prm::kCqeOffsetIn128 : 0);
  const auto op_own =
      static_cast<std::uint8_t>((cqe.op_own & ~1U) | (producer_ >> params_.log_size & 1));
  if (!scatter.empty()) return write_inline(cqe, scatter, entry, upper, op_own);
  return write_body(cqe, upper, op_own);
}

DmaStatus CompletionQueue::write_body(const prm::CqeWords& cqe, std::uint64_t at,
                                      std::uint8_t op_own) {
  if (std::byte* to = params_.buffer.direct(at, sizeof cqe)) {
    std::memcpy(to, &cqe, prm::Cqe::owner_offset);
    auto* owner = reinterpret_cast<std::uint8_t*>(to + prm::Cqe::owner_offset);
    __atomic_store_n(owner, op_own, __ATOMIC_RELEASE);
    return DmaStatus::ok;
  }
  const DmaStatus status = params_.buffer.write(at, &cqe, prm::Cqe::owner_offset);
  if (status != DmaStatus::ok) return status;
  return params_.buffer.store_release(at + prm::Cqe::owner_offset, op_own);
}

/// Payload in the entry: the first half of a CQE, or the half before it.
DmaStatus CompletionQueue::write_inline(const prm::CqeWords& cqe,
                                        std::span<const std::byte> scatter, std::uint64_t entry,
                                        std::uint64_t upper, std::uint8_t op_own) {
  const auto with_format = [op_own](prm::CqeFormat format) {
    return static_cast<std::uint8_t>(op_own | static_cast<unsigned>(format) << 2);
  };
  if (scatter.size() <= 32) {
    prm::CqeWords words = cqe;
    std::memcpy(&words, scatter.data(), scatter.size());
    return write_body(words, upper, with_format(prm::CqeFormat::inline_32));
  }
  const DmaStatus status =
      params_.buffer.write(entry, scatter.data(), std::min<std::size_t>(scatter.size(), 64));
  if (status != DmaStatus::ok) return status;
  return write_body(cqe, upper, with_format(prm::CqeFormat::inline_64));
}

void CompletionQueue::fail(std::uint8_t syndrome) {
  error_ = true;
  room_in_place_ = 0;
  waiting_.clear();
  events_.cq_error(number_, syndrome);
}

void CompletionQueue::arm(std::uint32_t word) {
  seen_word_ = word;
  const auto sn = static_cast<std::uint8_t>(word >> prm::kCqArmSnShift & 3);
  const bool solicited = (word & prm::kCqArmSolicited) != 0;
  if (sn != arm_sn_) {
    arm_sn_ = sn;
    sn_used_ = false;
    arm_ = ArmState::fired;
  }
  if (sn_used_) return;
  arm_index_ = word & kIndexMask;
  // Entries that the driver took between its request and now need no event: programs commonly arm
  // first and poll then.
  const std::uint32_t consumed = consumer_index();
  if (after(consumed, arm_index_)) arm_index_ = consumed;
  // A request for any CQE is not weakened by a later one for solicited CQEs (IBA 11.4.2.2).
  arm_ = solicited && arm_ != ArmState::armed ? ArmState::solicited_armed : ArmState::armed;
  maybe_fire();
}

void CompletionQueue::watch_record() {
  const std::uint64_t arm_word = params_.doorbell_record + 4;
  // A record that cannot be marked now counts as armed when its memory arrives: one event too many
  // is harmless, a lost one is not.
  record_awaited_ = dma_.write(arm_word, &kNeverArmed, sizeof kNeverArmed) == DmaStatus::pending;
}

bool CompletionQueue::arm_from_record() {
  std::uint32_t word = 0;
  const DmaStatus status = dma_.load_be32(params_.doorbell_record + 4, word);
  record_awaited_ = status == DmaStatus::pending;
  if (status != DmaStatus::ok || word == kNeverArmed || word == seen_word_) return false;
  if (word == kNotToBeArmed && seen_word_ == kNeverArmed) return false;
  arm(word);
  return true;
}

bool CompletionQueue::event_due() const {
  if (arm_ == ArmState::fired) return false;
  if (arm_ == ArmState::armed) return after(producer_, arm_index_);
  return any_solicited_ && after(last_solicited_, arm_index_);
}

void CompletionQueue::fire_if_due() {
  if (!event_due()) return;
  const bool moderated = params_.period_us != 0 && params_.max_count > 1;
  const std::uint32_t count = (producer_ - last_notified_) & kIndexMask;
  if (!moderated || count >= params_.max_count) {
    fire();
  } else if (!moderating_) {
    moderating_ = true;
    moderation_deadline_ = clock_.now() + Nanoseconds{params_.period_us} * 1000;
    timers_.start_cq_timer(*this, moderation_deadline_);
  }
}

void CompletionQueue::fire() {
  arm_ = ArmState::fired;
  sn_used_ = true;
  moderating_ = false;
  moderation_deadline_ = kNever;
  last_notified_ = producer_;
  if (params_.eq) params_.eq->post_completion(number_);
}

void CompletionQueue::expire() {
  if (!moderating_ || clock_.now() < moderation_deadline_) return;
  moderating_ = false;
  if (event_due()) fire();
}

void CompletionQueue::memory_arrived() {
  if (record_awaited_) arm_from_record();
  auto waiting = std::exchange(waiting_, {});
  for (const Waiting& entry : waiting) {
    if (error_) return;
    append(entry.cqe, {entry.scatter.data(), entry.scatter_size}, entry.event);
  }
}

bool CompletionQueue::resize(QueueBuffer buffer, std::uint8_t log_size, bool cqe128) {
  if (error_ || !waiting_.empty()) return false;
  const std::uint32_t unread = (producer_ - consumer_index()) & kIndexMask;
  // One more for the resize entry itself, in the old and in the new ring.
  if (unread + 1 > 1U << params_.log_size || unread + 1 > 1U << log_size) return false;
  if (buffer.size() < std::uint64_t{1} << (log_size + (cqe128 ? 7 : 6))) return false;
  prm::CqeWords cqe{};
  cqe.op_own = static_cast<std::uint8_t>(static_cast<unsigned>(prm::CqeOpcode::resize_cq) << 4);
  if (write(cqe, {}) != DmaStatus::ok) return false;
  producer_ = (producer_ + 1) & kIndexMask;
  room_in_place_ = 0;
  params_.buffer = std::move(buffer);
  params_.log_size = log_size;
  params_.cqe128 = cqe128;
  return true;
}

void CompletionQueue::set_moderation(std::uint16_t period_us, std::uint16_t max_count) {
  params_.period_us = period_us;
  params_.max_count = max_count;
  maybe_fire();
}

}  // namespace softhca
