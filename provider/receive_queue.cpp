// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/receive_queue.h"

#include <cerrno>
#include <mutex>

#include "provider/ordering.h"

namespace softhca::provider {
namespace {

/// Scatter list of one work request, ended by the terminating L_Key where it leaves room.
void write_scatter(prm::DataWords* entry, std::uint32_t capacity, const ibv_recv_wr& wr) {
  std::uint32_t used = 0;
  for (int i = 0; i < wr.num_sge; ++i) {
    const ibv_sge& sge = wr.sg_list[i];
    // A zero byte count would mean 2^31 in some positions; an empty entry receives nothing anyway.
    if (sge.length == 0) continue;
    entry[used].byte_count = sge.length;
    entry[used].lkey = sge.lkey;
    entry[used].address = sge.addr;
    ++used;
  }
  if (used < capacity) {
    entry[used].byte_count = 0;
    entry[used].lkey = prm::kInvalidLkey;
    entry[used].address = 0;
  }
}

bool too_many_sges(const ibv_recv_wr& wr, std::uint32_t max_sge) {
  return wr.num_sge < 0 || static_cast<std::uint32_t>(wr.num_sge) > max_sge;
}

}  // namespace

int ReceiveQueue::post(ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const std::lock_guard guard(lock);
  std::uint32_t posted = 0;
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    if (head + posted - tail.load(std::memory_order_acquire) >= count) {
      error = ENOMEM;
    } else if (too_many_sges(*wr, max_sge)) {
      error = EINVAL;
    }
    if (error != 0) {
      *bad = wr;
      break;
    }
    const std::uint32_t index = (head + posted) & (count - 1);
    const std::uint32_t capacity = (1U << stride_shift) / sizeof(prm::DataWords);
    auto* entry = reinterpret_cast<prm::DataWords*>(
        start + (static_cast<std::size_t>(index) << stride_shift));
    write_scatter(entry, capacity, *wr);
    wr_ids[index] = wr->wr_id;
    ++posted;
  }
  if (posted != 0) {
    head += posted;
    fence_before_record();
    store_record(record, head & 0xffff);
  }
  return error;
}

void SharedReceiveRing::initialize() {
  for (std::uint32_t i = 0; i < count; ++i) {
    link(i)->next_wqe_index = static_cast<std::uint16_t>((i + 1) & (count - 1));
  }
  head = 0;
  tail = count - 1;
  counter = 0;
}

bool SharedReceiveRing::complete(std::uint16_t index, std::uint64_t& wr_id) {
  if (index >= count) return false;
  const std::lock_guard guard(lock);
  wr_id = wr_ids[index];
  link(tail)->next_wqe_index = index;
  tail = index;
  return true;
}

int SharedReceiveRing::post(ibv_recv_wr* wr, ibv_recv_wr** bad) {
  const std::lock_guard guard(lock);
  std::uint16_t posted = 0;
  int error = 0;
  for (; wr != nullptr; wr = wr->next) {
    if (too_many_sges(*wr, max_sge)) {
      error = EINVAL;
    } else if (head == tail) {
      error = ENOMEM;
    }
    if (error != 0) {
      *bad = wr;
      break;
    }
    wr_ids[head] = wr->wr_id;
    prm::NextWords* next = link(head);
    const std::uint32_t capacity =
        ((1U << stride_shift) - sizeof(prm::NextWords)) / sizeof(prm::DataWords);
    write_scatter(reinterpret_cast<prm::DataWords*>(next + 1), capacity, *wr);
    head = next->next_wqe_index;
    ++posted;
  }
  if (posted != 0) {
    counter = static_cast<std::uint16_t>(counter + posted);
    fence_before_record();
    store_record(record, counter);
  }
  return error;
}

}  // namespace softhca::provider
