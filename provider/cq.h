// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "hw-model/prm/cqe.h"
#include "hw-model/prm/uar.h"
#include "provider/abi/driver.h"
#include "provider/hints.h"
#include "provider/ordering.h"
#include "provider/pages.h"
#include "provider/queue_lock.h"
#include "provider/resource_table.h"
#include "provider/uar.h"

namespace softhca::provider {

struct QueuePair;
struct SharedReceiveQueue;

/// What a poll found out about one CQE.
struct Completion {
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint64_t wr_id = 0;
  std::uint32_t wc_opcode = 0;  ///< Requester: ibv_wc_opcode of operations that share a WQE opcode.
  QueuePair* qp = nullptr;      ///< Null for a CQE of an XRC SRQ.
};

/// A completion queue. `verbs` must stay first.
struct CompletionQueue {
  abi::verbs_cq verbs{};
  std::uint8_t* entries = nullptr;
  std::uint8_t* first = nullptr;  ///< CQE of entry 0.
  std::uint32_t count = 0;        ///< Power of two.
  std::uint32_t mask = 0;         ///< count - 1.
  std::uint32_t cqe_size = prm::kCqeSize64;
  std::uint32_t consumer = 0;
  std::uint32_t arm_sn = 1;
  std::uint32_t cqn = 0;
  prm::Be32* record = nullptr;
  Uar* uar = nullptr;
  Hints* hints = nullptr;
  const ResourceTable* resources = nullptr;
  QueueLock lock;
  /// Empty polls in a row after which a poller on a virtual host asks whether to offer its
  /// processor.
  static constexpr std::uint32_t kEmptyPolls = 8;
  std::atomic<std::uint32_t> patience{kEmptyPolls};  ///< Empty polls before poll_politely().
  std::uint32_t empty_polls = 0;
  std::uint32_t empty_at = 0;  ///< `consumer` when they were counted.

  /// The queue pair whose sends completed last, and its user_index as CQEs have it: saves looking
  /// it up. The index names nothing when there is none.
  std::uint32_t raw_last_sender = kNoSender;
  QueuePair* last_sender = nullptr;
  static constexpr std::uint32_t kNoSender = 0xffffffff;

  /// Extended polling: the CQE last taken, and what came of it.
  const prm::CqeWords* current = nullptr;
  Completion completion;

  QueuePages pages;
  ibv_pd* parent_domain = nullptr;

  static CompletionQueue* of(ibv_cq* cq) { return reinterpret_cast<CompletionQueue*>(cq); }
  static CompletionQueue* of(ibv_cq_ex* cq) { return reinterpret_cast<CompletionQueue*>(cq); }

  static prm::CqeWords* cqe_at(std::uint8_t* entries, std::uint32_t index, std::uint32_t size) {
    return reinterpret_cast<prm::CqeWords*>(entries + static_cast<std::size_t>(index) * size +
                                            size - prm::kCqeSize64);
  }
  /// Lays the ring over other memory.
  void set_ring(std::uint8_t* memory, std::uint32_t entry_count) {
    entries = memory;
    first = reinterpret_cast<std::uint8_t*>(cqe_at(memory, 0, cqe_size));
    count = entry_count;
    mask = entry_count - 1;
  }
  prm::CqeWords* cqe(std::uint32_t counter) const {
    return reinterpret_cast<prm::CqeWords*>(first + (counter & mask) * cqe_size);
  }
  /// The CQE at `counter` if the device has written it, else null.
  prm::CqeWords* ready(std::uint32_t counter) const;
  /// Takes the next CQE, or null.
  prm::CqeWords* take();
  /// Publishes the consumer index.
  void release() { release(consumer); }
  /// Moves the consumer index and publishes it.
  void release(std::uint32_t next) {
    consumer = next;
    // CQEs must be read before the device may reuse them; loads are not reordered with later stores
    // on x86, and elsewhere the fence that follows the last load does it.
    std::atomic_thread_fence(std::memory_order_release);
    store_record(&record[prm::CqDoorbellRecord::consumer_word], next & 0xffffff);
  }
  /// Counts an empty poll, under the lock. True if poll_politely() is to follow.
  bool poll_was_empty();
};

/// What poll_was_empty() asks for; without the lock.
void poll_politely(CompletionQueue& cq);
/// Works out what `cqe` completes and takes it off its work queue. False: it names no object of
/// this context.
bool complete(CompletionQueue& cq, const prm::CqeWords& cqe, Completion& completion);
/// Status of an error CQE.
ibv_wc_status status_of(prm::CqeSyndrome syndrome);
/// Opcode and flags of a successful CQE.
ibv_wc_opcode opcode_of(const prm::CqeWords& cqe, std::uint32_t wc_opcode);
unsigned flags_of(const prm::CqeWords& cqe);

int poll_cq(ibv_cq* cq, int entries, ibv_wc* wc);
/// poll_cq() of who holds the CQ's lock, which is given back.
int poll_held(CompletionQueue& cq, int entries, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);
void cq_event(ibv_cq* cq);

ibv_cq* create_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr);
int resize_cq(ibv_cq* cq, int cqe);
int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr);
int destroy_cq(ibv_cq* cq);

/// Presets every entry as invalid and owned by the device.
void initialize_entries(std::uint8_t* entries, std::uint32_t count, std::uint32_t cqe_size);
/// Moves unread CQEs of `old_entries` to the CQ's present buffer, shifted by one for the resize
/// CQE. False when the old buffer holds no resize CQE.
bool copy_resized(CompletionQueue& cq, std::uint8_t* old_entries, std::uint32_t old_count);
/// Drops the CQEs of an object that is gone; SRQ entries that they hold return to `srq`. Takes the
/// CQ's lock.
void clean(CompletionQueue& cq, std::uint32_t user_index, SharedReceiveQueue* srq);
/// Installs the ibv_start_poll family.
void install_extended_polling(CompletionQueue& cq, std::uint64_t wc_flags);

}  // namespace softhca::provider
