// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/transport/core.h"

#include <algorithm>
#include <cstring>

#include "hw-model/transport/queue_pair.h"

namespace softhca {

void Core::schedule(QueuePair& qp) {
  if (qp.queued) return;
  qp.queued = true;
  listed = true;
  ready.push_back(&qp);
}

void Core::owe_ack(QueuePair& qp) {
  if (qp.owing) return;
  qp.owing = true;
  listed = true;
  owing.push_back(&qp);
}

void Core::send_owed() {
  for (QueuePair* qp : owing) {
    qp->owing = false;
    if (!qp->responder.owes()) continue;
    if (port.ready()) qp->responder.acknowledge();
    if (qp->responder.owes()) schedule(*qp);
  }
  owing.clear();
}

void Core::park(QueuePair& qp) {
  if (qp.parked) return;
  qp.parked = true;
  parked.push_back(&qp);
}

void Core::set_timer(QueuePair& qp, Nanoseconds deadline) {
  if (deadline == qp.timer.deadline()) return;
  if (deadline == kNever) {
    timers.stop(qp.timer);
    return;
  }
  timers.start(qp.timer, deadline);
  note_timer(deadline);
}

void Core::forget(QueuePair& qp) {
  lender.recall();
  port.ways_changed();
  ready.erase(&qp);
  stalled.erase(&qp);
  interrupted.erase(&qp);
  std::erase(owing, &qp);
  std::erase(parked, &qp);
  timers.stop(qp.timer);
  if (staging.owner == &qp) staging.owner = nullptr;
}

bool Core::view_payload(const ReadPiece& piece, ib::Payload& payload) {
  const std::byte* direct =
      mkeys.span(piece.key, piece.context, piece.va, piece.length, piece.access);
  if (direct == nullptr) return false;
  payload.view(direct, piece.length);
  return true;
}

MemoryStatus Core::read_payload(const QueuePair& qp, const ReadPiece& piece, std::byte* to) {
  const MemoryContext& context = piece.context;
  MemoryStatus status = MemoryStatus::ok;
  const std::byte* direct =
      mkeys.try_span(piece.key, context, piece.va, piece.length, piece.access, status);
  if (status != MemoryStatus::ok) return status;
  if (direct != nullptr) {
    std::memcpy(to, direct, piece.length);
    return MemoryStatus::ok;
  }
  const bool staged = staging.owner == &qp && staging.stream == piece.stream &&
                      piece.offset >= staging.offset &&
                      piece.offset + piece.length <= staging.offset + staging.bytes.size();
  if (!staged) {
    const std::uint64_t ahead = std::min(piece.available, Staging::kSize);
    if (ahead <= piece.length) {
      return mkeys.read(piece.key, context, piece.va, to, piece.length, piece.access);
    }
    staging.owner = nullptr;
    staging.bytes.resize(ahead);
    status = mkeys.read(piece.key, context, piece.va, staging.bytes.data(), ahead, piece.access);
    if (status == MemoryStatus::pending) return status;
    if (status != MemoryStatus::ok) {
      // What is bad may lie behind what is wanted now.
      return mkeys.read(piece.key, context, piece.va, to, piece.length, piece.access);
    }
    staging.owner = &qp;
    staging.stream = piece.stream;
    staging.offset = piece.offset;
  }
  std::memcpy(to, staging.bytes.data() + (piece.offset - staging.offset), piece.length);
  return MemoryStatus::ok;
}

}  // namespace softhca
