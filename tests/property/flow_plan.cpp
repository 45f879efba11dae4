// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What a flow will do: random operations on memory that no other flow touches.
#include <algorithm>
#include <cstring>

#include "hw-model/ib/opcodes.h"
#include "tests/property/flow.h"

namespace softhca::property {

using prm::WqeOpcode;

namespace {

constexpr unsigned kWords = 8;
constexpr std::uint32_t kMaxInline = 64;

bool is_atomic(WqeOpcode opcode) {
  return opcode == WqeOpcode::atomic_cmp_swap || opcode == WqeOpcode::atomic_fetch_add;
}
bool is_write(WqeOpcode opcode) {
  return opcode == WqeOpcode::rdma_write || opcode == WqeOpcode::rdma_write_imm;
}

WqeOpcode pick_opcode(Random& random, prm::QpServiceType type) {
  const auto dice = random.below(100);
  if (type == prm::QpServiceType::ud) return dice < 60 ? WqeOpcode::send : WqeOpcode::send_imm;
  if (type == prm::QpServiceType::uc) {
    if (dice < 30) return WqeOpcode::send;
    if (dice < 50) return WqeOpcode::send_imm;
    return dice < 80 ? WqeOpcode::rdma_write : WqeOpcode::rdma_write_imm;
  }
  if (dice < 20) return WqeOpcode::send;
  if (dice < 30) return WqeOpcode::send_imm;
  if (dice < 50) return WqeOpcode::rdma_write;
  if (dice < 60) return WqeOpcode::rdma_write_imm;
  if (dice < 80) return WqeOpcode::rdma_read;
  return dice < 87 ? WqeOpcode::atomic_cmp_swap : WqeOpcode::atomic_fetch_add;
}

std::uint64_t word_of(const std::vector<std::uint8_t>& bytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes.data(), 8);
  return word;
}

}  // namespace

Flow::Flow(const Scenario& scenario, Random random, Side& from, Side& to, std::string name)
    : scenario_(scenario), random_(random), from_(from), to_(to), name_(std::move(name)) {}

unsigned Flow::receives_needed() const {
  return static_cast<unsigned>(consuming_.size());
}

void Flow::plan(Poison poison) {
  area_size_ = scenario_.max_message + 64;
  write_va_ = to_.host->memory().allocate("target of WRITEs", area_size_);
  read_va_ = to_.host->memory().allocate("source of READs", area_size_);
  atomic_va_ = to_.host->memory().allocate("target of atomics", kWords * 8, 8);
  if (atomic_va_ == 0) throw Violation("the test's own memory is used up");
  for (unsigned i = 0; i < kWords; ++i) {
    words_.push_back(word_of(to_.host->memory().bytes(atomic_va_ + i * 8, 8)));
  }
  const auto count = random_.between(1, scenario_.operations);
  const auto poisoned = poison == Poison::none ? count : random_.below(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    Operation operation = plan_operation(i + 1 == count);
    if (i == poisoned) apply_poison(operation, poison);
    if (operation.consumes_receive) consuming_.push_back(operations_.size());
    operations_.push_back(std::move(operation));
  }
}

std::uint32_t Flow::plan_length() {
  const std::uint32_t mtu = ib::mtu_bytes(scenario_.mtu);
  const auto dice = random_.below(100);
  std::uint64_t length = 0;
  if (dice < 10) return 0;
  if (dice < 40) {
    length = random_.between(1, 64);
  } else if (dice < 70) {
    length = random_.between(1, 4) * mtu + random_.below(3) - 1;
  } else {
    length = random_.between(1, scenario_.max_message);
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(length, scenario_.max_message));
}

std::vector<Piece> Flow::allocate(Side& side, std::uint32_t length) {
  std::vector<Piece> pieces;
  const auto count = random_.between(1, SimHost::kMaxPieces);
  for (std::uint64_t i = 0; i < count && length != 0; ++i) {
    const auto part =
        i + 1 == count ? length : static_cast<std::uint32_t>(random_.between(1, length));
    const std::uint64_t va = side.host->memory().allocate("local buffer of a send or READ", part,
                                                          random_.percent(30) ? 64 : 1);
    if (va == 0) throw Violation("the test's own memory is used up");
    pieces.push_back({va, part});
    length -= part;
  }
  return pieces;
}

Operation Flow::plan_operation(bool last) {
  Operation operation;
  SendRequest& request = operation.request;
  request.opcode = pick_opcode(random_, scenario_.type);
  request.immediate = static_cast<std::uint32_t>(random_.next());
  request.solicited = random_.percent(20);
  request.fence = fence_next_ || (scenario_.is_rc() && random_.percent(5));
  fence_next_ = false;
  const unsigned longest_silence = (1U << scenario_.log_sq_size) / 4;
  request.signalled = last || since_signal_ + 1 >= longest_silence || random_.percent(70);
  since_signal_ = request.signalled ? 0 : since_signal_ + 1;
  operation.consumes_receive = request.opcode == WqeOpcode::send ||
                               request.opcode == WqeOpcode::send_imm ||
                               request.opcode == WqeOpcode::rdma_write_imm;
  if (is_atomic(request.opcode)) {
    plan_atomic(operation);
    return operation;
  }
  operation.length = plan_length();
  plan_local(operation);
  plan_remote(operation);
  return operation;
}

void Flow::plan_local(Operation& operation) {
  SendRequest& request = operation.request;
  const bool read = request.opcode == WqeOpcode::rdma_read;
  if (!read && operation.length <= kMaxInline && random_.percent(30)) {
    request.use_inline = true;
    for (std::uint32_t i = 0; i < operation.length; ++i) {
      request.inline_data.push_back(static_cast<std::uint8_t>(random_.next()));
    }
    operation.data = request.inline_data;
    return;
  }
  request.pieces = allocate(from_, operation.length);
  if (read) return;
  for (const Piece& piece : request.pieces) {
    const auto bytes = from_.host->memory().bytes(piece.va, piece.length);
    operation.data.insert(operation.data.end(), bytes.begin(), bytes.end());
  }
}

void Flow::plan_remote(Operation& operation) {
  SendRequest& request = operation.request;
  if (scenario_.type == prm::QpServiceType::ud) {
    request.remote_qpn = to_qpn_;
    request.dlid = to_.lid;
    request.qkey = 0x1234;
    if (random_.percent(5)) {
      request.qkey = 0x4321;
      operation.undeliverable = true;
    }
    return;
  }
  const std::uint64_t offset = random_.below(area_size_ - operation.length + 1);
  request.rkey = to_.host->key();
  if (is_write(request.opcode)) request.remote_va = write_va_ + offset;
  if (request.opcode == WqeOpcode::rdma_read) {
    // A READ that is repeated reads again: what it reads must not be written before it ends.
    const bool written = random_.percent(20);
    request.remote_va = (written ? write_va_ : read_va_) + offset;
    fence_next_ = written;
  }
}

void Flow::plan_atomic(Operation& operation) {
  SendRequest& request = operation.request;
  const auto word = random_.below(kWords);
  request.rkey = to_.host->key();
  request.remote_va = atomic_va_ + word * 8;
  operation.length = 8;
  const std::uint64_t va = from_.host->memory().allocate("result of an atomic", 8, 8);
  if (va == 0) throw Violation("the test's own memory is used up");
  request.pieces = {{va, 8}};
  if (request.opcode == WqeOpcode::atomic_fetch_add) {
    operation.counts = random_.percent(30);
    request.swap_add = operation.counts ? 1 : random_.next();
    if (operation.counts) {
      request.remote_va = to_.counter_va;
    } else {
      words_[word] += request.swap_add;
    }
    return;
  }
  request.swap_add = random_.next();
  request.compare = random_.percent(60) ? words_[word] : random_.next();
  if (request.compare == words_[word]) words_[word] = request.swap_add;
}

void Flow::apply_poison(Operation& operation, Poison poison) {
  // The operation becomes one that can be wrong in this way.
  SendRequest& request = operation.request;
  Operation wrong;
  wrong.poison = poison;
  wrong.request.signalled = request.signalled;
  wrong.request.rkey = to_.host->key();
  wrong.request.opcode = WqeOpcode::rdma_write;
  wrong.request.remote_va = write_va_;
  wrong.length = static_cast<std::uint32_t>(random_.between(1, scenario_.max_message));
  switch (poison) {
    case Poison::bad_key:
      wrong.request.rkey ^= 0x11;
      if (random_.percent(50)) wrong.request.opcode = WqeOpcode::rdma_read;
      break;
    case Poison::out_of_bounds:
      wrong.request.remote_va = HostMemory::kVa + to_.host->memory().size() - wrong.length + 1;
      if (random_.percent(50)) wrong.request.opcode = WqeOpcode::rdma_read;
      break;
    case Poison::not_permitted:
      wrong.request.rkey = to_.host->read_only_key();
      break;
    case Poison::unaligned_atomic:
      wrong.request.opcode = WqeOpcode::atomic_fetch_add;
      wrong.request.remote_va = atomic_va_ + random_.between(1, 7);
      wrong.length = 8;
      break;
    case Poison::too_long:
      wrong.request.opcode = WqeOpcode::send;
      wrong.consumes_receive = true;
      wrong.length = scenario_.max_message + static_cast<std::uint32_t>(random_.between(1, 3000));
      break;
    case Poison::bad_local_key:
      wrong.request.lkey = from_.host->key() ^ 0x22;
      break;
    case Poison::none:
      break;
  }
  if (poison == Poison::unaligned_atomic) {
    wrong.request.pieces = {{from_.host->memory().allocate("result of an atomic", 8, 8), 8}};
  } else {
    plan_local(wrong);
    // An inline message has no local key to be wrong.
    if (poison == Poison::bad_local_key && wrong.request.use_inline) {
      wrong.request.use_inline = false;
      wrong.request.pieces = allocate(from_, wrong.length);
    }
  }
  operation = std::move(wrong);
}

}  // namespace softhca::property
