// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/property/sim_host.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

namespace softhca::property {

using prm::Be16;
using prm::Be32;
using prm::Be64;

namespace {

constexpr std::size_t kReceiveStride = 64;
constexpr std::size_t kSrqStride = 128;

MkeyAttributes key_attributes(std::uint64_t size, std::uint32_t pd, MemoryAccess access) {
  MkeyAttributes attributes;
  attributes.variant = 0x5a;
  attributes.pd = pd;
  attributes.access = access;
  attributes.start = HostMemory::kVa;
  attributes.length = size;
  attributes.mode = TranslationMode::mtt;
  attributes.log_page_size = 12;
  return attributes;
}

void append(std::vector<std::uint8_t>& wqe, const void* from, std::size_t length) {
  const auto* bytes = static_cast<const std::uint8_t*>(from);
  wqe.insert(wqe.end(), bytes, bytes + length);
}

}  // namespace

std::string describe(const Completion& completion) {
  return "qpn " + std::to_string(completion.qpn) + " opcode " +
         std::to_string(static_cast<unsigned>(completion.opcode)) + " wqe " +
         std::to_string(completion.wqe_counter) + " bytes " +
         std::to_string(completion.byte_count) + " syndrome " + std::to_string(completion.syndrome);
}

SimHost::SimHost(const HostConfig& config, ib::Port& port, const Clock& clock, Random random)
    : config_(config),
      clock_(clock),
      random_(random),
      memory_(config.data_pages, Random(random.next())),
      queue_storage_(kQueueSize),
      mkeys_(dma_),
      transport_(dma_, mkeys_, port, clock, *this) {
  DmaSpace::Range data;
  data.iova = HostMemory::kIova;
  data.size = memory_.size();
  DmaSpace::Range queues;
  queues.iova = kQueueIova;
  queues.size = kQueueSize;
  if (config.slow_data_per_mille != 0) {
    slow_data_ = std::make_shared<SlowMemory>(memory_.storage(), memory_.size(),
                                              Random(random_.next()), config.slow_data_per_mille);
    data.backing = slow_data_;
  } else {
    data.base = memory_.storage();
  }
  if (config.slow_queue_per_mille != 0) {
    slow_queue_ = std::make_shared<SlowMemory>(queue_storage_.data(), queue_storage_.size(),
                                               Random(random_.next()), config.slow_queue_per_mille);
    queues.backing = slow_queue_;
  } else {
    queues.base = queue_storage_.data();
  }
  dma_.map(data);
  dma_.map(queues);

  const auto all = MemoryAccess::local_read | MemoryAccess::local_write |
                   MemoryAccess::remote_read | MemoryAccess::remote_write |
                   MemoryAccess::remote_atomic;
  const auto pages = memory_.pages();
  const auto make_key = [&](MemoryAccess access) {
    const auto attributes = key_attributes(memory_.size(), kPd, access);
    return mkeys_.create(attributes, pages).value() << 8 | attributes.variant;
  };
  key_ = make_key(all);
  read_only_key_ = make_key(MemoryAccess::local_read | MemoryAccess::remote_read);
  cqs_ = {create_cq(), create_cq()};
  create_srq();
}

SimHost::~SimHost() {
  transport_.clear();
}

std::uint64_t SimHost::allocate_queue(std::uint64_t bytes, std::uint64_t alignment) {
  queue_used_ = (queue_used_ + alignment - 1) / alignment * alignment;
  const std::uint64_t iova = kQueueIova + queue_used_;
  queue_used_ += bytes;
  if (queue_used_ > kQueueSize) throw std::runtime_error("simulated queue memory is used up");
  return iova;
}

QueueBuffer SimHost::queue_buffer(std::uint64_t iova, std::uint64_t bytes) {
  std::vector<std::uint64_t> pages;
  for (std::uint64_t at = 0; at < bytes; at += HostMemory::kPage) pages.push_back(iova + at);
  return {dma_, pages, 12, 0};
}

SimHost::Cq SimHost::create_cq() {
  const std::uint64_t entry = config_.cqe128 ? 128 : 64;
  const std::uint64_t bytes = entry << kLogCqSize;
  Cq cq;
  cq.buffer = allocate_queue(bytes, HostMemory::kPage);
  cq.record = allocate_queue(64, 64);
  for (std::uint64_t i = 0; i < 1U << kLogCqSize; ++i) {
    queue_as<prm::CqeWords>(cq.buffer + i * entry + entry - 64).op_own = 0xf1;
  }
  CqParams params;
  params.buffer = queue_buffer(cq.buffer, bytes);
  params.log_size = kLogCqSize;
  params.cqe128 = config_.cqe128;
  params.doorbell_record = cq.record;
  CompletionQueue* made = transport_.create_cq(std::move(params));
  if (made == nullptr) throw std::runtime_error("create_cq refused");
  cq.number = made->number();
  return cq;
}

void SimHost::create_srq() {
  const std::uint64_t bytes = kSrqStride << kLogSrqSize;
  srq_.buffer = allocate_queue(bytes, HostMemory::kPage);
  srq_.record = allocate_queue(64, 64);
  const std::uint16_t entries = 1U << kLogSrqSize;
  for (std::uint16_t i = 0; i < entries; ++i) {
    queue_as<prm::NextWords>(srq_.buffer + i * kSrqStride).next_wqe_index =
        static_cast<std::uint16_t>((i + 1) % entries);
  }
  srq_.tail = entries - 1;
  SrqParams params;
  params.buffer = queue_buffer(srq_.buffer, bytes);
  params.ring.log_size = kLogSrqSize;
  params.ring.stride = kSrqStride;
  params.ring.doorbell_record = srq_.record;
  params.pd = kPd;
  SharedReceiveQueue* made = transport_.create_srq(std::move(params));
  if (made == nullptr) throw std::runtime_error("create_srq refused");
  srq_.number = made->number();
}

std::uint32_t SimHost::create_qp(const QpConfig& config) {
  Qp qp;
  qp.config = config;
  const std::uint64_t rq_bytes = config.use_srq ? 0 : kReceiveStride << config.log_rq_size;
  const std::uint64_t sq_bytes = prm::kWqeBasicBlock << config.log_sq_size;
  qp.rq = allocate_queue(rq_bytes + sq_bytes, HostMemory::kPage);
  qp.sq = qp.rq + rq_bytes;
  qp.record = allocate_queue(64, 64);
  QpParams params;
  params.type = config.type;
  params.pd = kPd;
  params.buffer = queue_buffer(qp.rq, rq_bytes + sq_bytes);
  params.has_rq = !config.use_srq;
  params.rq.log_size = config.log_rq_size;
  params.rq.stride = kReceiveStride;
  params.rq.doorbell_record = qp.record;
  params.sq.start = rq_bytes;
  params.sq.log_size = config.log_sq_size;
  params.sq.doorbell_record = qp.record + 4;
  params.send_cq = transport_.cqs().ref(cqs_[0].number);
  params.recv_cq = transport_.cqs().ref(cqs_[1].number);
  if (config.use_srq) params.srq = transport_.srqs().ref(srq_.number);
  params.cs_req = config.cs_req;
  params.cs_res = config.cs_res;
  const auto qpn = transport_.create_qp(std::move(params));
  if (!qpn) throw std::runtime_error("create_qp refused");
  qps_[*qpn] = qp;
  return *qpn;
}

std::vector<std::uint8_t> SimHost::build_send(const Qp& qp, std::uint32_t qpn,
                                              const SendRequest& request,
                                              std::uint16_t index) const {
  std::vector<std::uint8_t> wqe;
  prm::CtrlWords ctrl{};
  ctrl.opmod_index_opcode =
      static_cast<std::uint32_t>(index) << 8 | static_cast<std::uint32_t>(request.opcode);
  ctrl.fm_ce_se = static_cast<std::uint8_t>(
      (request.fence ? static_cast<unsigned>(prm::FenceMode::fence) << 5 : 0U) |
      (request.signalled ? prm::CtrlWords::kCqUpdate : 0U) |
      (request.solicited ? prm::CtrlWords::kSolicited : 0U));
  ctrl.immediate = request.immediate;
  append(wqe, &ctrl, sizeof ctrl);
  if (qp.config.type == prm::QpServiceType::ud) {
    prm::AddressVectorWords address{};
    address.qkey = request.qkey;
    address.extended_dqpn = prm::AddressVectorWords::kExtended | request.remote_qpn;
    address.destination_lid = request.dlid;
    append(wqe, &address, sizeof address);
  }
  const bool atomic = request.opcode == prm::WqeOpcode::atomic_cmp_swap ||
                      request.opcode == prm::WqeOpcode::atomic_fetch_add;
  if (request.opcode == prm::WqeOpcode::rdma_write ||
      request.opcode == prm::WqeOpcode::rdma_write_imm ||
      request.opcode == prm::WqeOpcode::rdma_read || atomic) {
    prm::RemoteAddressWords remote{};
    remote.virtual_address = request.remote_va;
    remote.rkey = request.rkey;
    append(wqe, &remote, sizeof remote);
  }
  if (atomic) {
    prm::AtomicWords operands{};
    operands.swap_add = request.swap_add;
    operands.compare = request.compare;
    append(wqe, &operands, sizeof operands);
  }
  if (request.use_inline) {
    const auto header = Be32::of(prm::InlineSegment::kInlineFlag |
                                 static_cast<std::uint32_t>(request.inline_data.size()));
    append(wqe, &header, sizeof header);
    append(wqe, request.inline_data.data(), request.inline_data.size());
    wqe.resize((wqe.size() + 15) / 16 * 16);
  } else {
    for (const Piece& piece : request.pieces) {
      prm::DataWords data{};
      data.byte_count = piece.length;
      data.lkey = request.lkey != 0 ? request.lkey : key_;
      data.address = piece.va;
      append(wqe, &data, sizeof data);
    }
  }
  const auto units = static_cast<std::uint32_t>(wqe.size() / prm::kWqeUnit);
  const auto qpn_ds = Be32::of(qpn << 8 | units);
  std::memcpy(wqe.data() + 4, &qpn_ds, 4);
  return wqe;
}

bool SimHost::post_send(std::uint32_t qpn, const SendRequest& request, std::uint16_t& index) {
  Qp& qp = qps_.at(qpn);
  const std::uint32_t ring_blocks = 1U << qp.config.log_sq_size;
  const auto wqe = build_send(qp, qpn, request, qp.sq_head);
  const auto blocks =
      static_cast<std::uint16_t>((wqe.size() + prm::kWqeBasicBlock - 1) / prm::kWqeBasicBlock);
  if (static_cast<std::uint16_t>(qp.sq_head - qp.sq_tail) + blocks > ring_blocks) return false;
  const std::uint64_t ring_bytes = ring_blocks * prm::kWqeBasicBlock;
  for (std::size_t at = 0; at < wqe.size(); at += 16) {
    const std::uint64_t position =
        ((qp.sq_head % ring_blocks) * prm::kWqeBasicBlock + at) % ring_bytes;
    std::memcpy(queue_at(qp.sq + position), wqe.data() + at, 16);
  }
  index = qp.sq_head;
  qp.sq_head = static_cast<std::uint16_t>(qp.sq_head + blocks);
  qp.sent.emplace_back(index, qp.sq_head);
  queue_as<Be32>(qp.record + 4) = static_cast<std::uint32_t>(qp.sq_head);
  transport_.doorbell(qpn);
  return true;
}

void SimHost::release_send(std::uint32_t qpn, std::uint16_t index) {
  Qp& qp = qps_.at(qpn);
  while (!qp.sent.empty()) {
    const auto [first, end] = qp.sent.front();
    qp.sent.pop_front();
    qp.sq_tail = end;
    if (first == index) return;
  }
}

void SimHost::write_scatter(std::uint64_t iova, std::size_t capacity,
                            const std::vector<Piece>& pieces) {
  for (std::size_t i = 0; i < capacity; ++i) {
    prm::DataWords data{};
    if (i < pieces.size()) {
      data.byte_count = pieces[i].length;
      data.lkey = key_;
      data.address = pieces[i].va;
    } else {
      data.lkey = prm::kInvalidLkey;
    }
    std::memcpy(queue_at(iova + i * sizeof data), &data, sizeof data);
  }
}

bool SimHost::has_receive_room(std::uint32_t qpn) const {
  const Qp& qp = qps_.at(qpn);
  return static_cast<std::uint16_t>(qp.rq_head - qp.rq_tail) < 1U << qp.config.log_rq_size;
}

bool SimHost::post_receive(std::uint32_t qpn, const std::vector<Piece>& pieces,
                           std::uint16_t& index) {
  Qp& qp = qps_.at(qpn);
  const std::uint32_t size = 1U << qp.config.log_rq_size;
  if (!has_receive_room(qpn)) return false;
  index = qp.rq_head++;
  write_scatter(qp.rq + (index % size) * kReceiveStride, kReceiveStride / 16, pieces);
  queue_as<Be32>(qp.record) = static_cast<std::uint32_t>(qp.rq_head);
  return true;
}

void SimHost::release_receive(std::uint32_t qpn) {
  ++qps_.at(qpn).rq_tail;
}

bool SimHost::post_srq_receive(const std::vector<Piece>& pieces, std::uint16_t& index) {
  if (!has_srq_room()) return false;
  index = srq_.head;
  const std::uint64_t entry = srq_.buffer + index * kSrqStride;
  write_scatter(entry + prm::NextSegment::size, kSrqStride / 16 - 1, pieces);
  srq_.head = queue_as<prm::NextWords>(entry).next_wqe_index;
  ++srq_.counter;
  queue_as<Be32>(srq_.record) = static_cast<std::uint32_t>(srq_.counter);
  return true;
}

void SimHost::release_srq_receive(std::uint16_t index) {
  queue_as<prm::NextWords>(srq_.buffer + srq_.tail * kSrqStride).next_wqe_index = index;
  srq_.tail = index;
}

std::optional<Completion> SimHost::poll() {
  // Receives first: what a sender is told of must already be visible at the receiver.
  for (const std::size_t i : {1U, 0U}) {
    if (auto completion = poll(cqs_[i])) return completion;
  }
  return std::nullopt;
}

std::optional<Completion> SimHost::poll(Cq& cq) {
  const std::uint64_t entry = config_.cqe128 ? 128 : 64;
  const std::uint32_t mask = (1U << kLogCqSize) - 1;
  const std::uint64_t at = cq.buffer + (cq.consumer & mask) * entry + entry - 64;
  const auto& cqe = queue_as<prm::CqeWords>(at);
  const bool owner = (cq.consumer >> kLogCqSize & 1) != 0;
  if ((cqe.op_own & 1) != (owner ? 1 : 0) || cqe.op_own >> 4 == 0xf) return std::nullopt;
  Completion completion;
  completion.opcode = static_cast<prm::CqeOpcode>(cqe.op_own >> 4);
  completion.qpn = cqe.sop_qpn & 0xffffffU;
  completion.send_opcode = static_cast<std::uint8_t>(cqe.sop_qpn >> 24);
  completion.wqe_counter = cqe.wqe_counter;
  completion.byte_count = cqe.byte_count;
  completion.immediate = cqe.immediate;
  if (completion.is_error()) completion.syndrome = cqe.syndrome();
  const auto format = static_cast<prm::CqeFormat>(cqe.op_own >> 2 & 3);
  if (!completion.is_error() && format != prm::CqeFormat::no_inline) {
    const bool whole = format == prm::CqeFormat::inline_64;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(queue_at(whole ? at - 64 : at));
    completion.inline_data.assign(
        bytes, bytes + std::min<std::uint32_t>(completion.byte_count, whole ? 64 : 32));
  }
  ++cq.consumer;
  queue_as<Be32>(cq.record) = cq.consumer & 0xffffffU;
  return completion;
}

bool SimHost::step(const TransportBudget& budget) {
  if (memory_arrives_ <= clock_.now()) {
    memory_arrives_ = kNever;
    transport_.memory_arrived();
  }
  const bool more = transport_.step(budget);
  bool waiting = false;
  if (slow_data_) waiting |= slow_data_->take_waiting();
  if (slow_queue_) waiting |= slow_queue_->take_waiting();
  if (waiting && memory_arrives_ == kNever) {
    memory_arrives_ = clock_.now() + random_.below(20'000);
  }
  return more;
}

Nanoseconds SimHost::next_deadline() const {
  return std::min(memory_arrives_, transport_.next_deadline());
}

void SimHost::stop_being_slow() {
  if (slow_data_) slow_data_->set_pending(0);
  if (slow_queue_) slow_queue_->set_pending(0);
}

void SimHost::qp_event(EventType type, std::uint32_t qpn) {
  events_.push_back("QP event " + std::to_string(static_cast<unsigned>(type)) + " of " +
                    std::to_string(qpn));
}

void SimHost::srq_event(EventType type, std::uint32_t srqn) {
  events_.push_back("SRQ event " + std::to_string(static_cast<unsigned>(type)) + " of " +
                    std::to_string(srqn));
}

void SimHost::cq_error(std::uint32_t cqn, std::uint8_t syndrome) {
  events_.push_back("CQ error " + std::to_string(syndrome) + " of " + std::to_string(cqn));
}

}  // namespace softhca::property
