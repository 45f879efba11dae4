// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/support/test_host.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "hw-model/prm/uar.h"
#include "tests/support/umr_request.h"

namespace softhca::transport_test {
namespace {

constexpr std::uint64_t kPage = 4096;

template <typename Field>
void set(std::uint8_t* base, std::uint64_t value) {
  Field::set(base, value);
}

}  // namespace

std::size_t RecordingEvents::count(EventType type) const {
  return static_cast<std::size_t>(std::count_if(
      events.begin(), events.end(), [type](const RecordedEvent& e) { return e.type == type; }));
}

DmaStatus CallMemory::read(std::uint64_t offset, void* to, std::size_t length) {
  if (offset > bytes.size() || length > bytes.size() - offset) return DmaStatus::fault;
  if (pending) return DmaStatus::pending;
  ++reads;
  std::memcpy(to, bytes.data() + offset, length);
  return DmaStatus::ok;
}

DmaStatus CallMemory::write(std::uint64_t offset, const void* from, std::size_t length) {
  if (offset > bytes.size() || length > bytes.size() - offset) return DmaStatus::fault;
  if (pending) return DmaStatus::pending;
  ++writes;
  std::memcpy(bytes.data() + offset, from, length);
  return DmaStatus::ok;
}

TestHost::TestHost(const Clock& host_clock, std::uint16_t lid, std::size_t memory_size)
    : clock(host_clock),
      mkeys(dma),
      transport(dma, mkeys, port, host_clock, events),
      memory_(static_cast<std::byte*>(std::calloc(1, memory_size + kPage)), std::free),
      next_(kMemoryBase) {
  auto* base = memory_.get();
  base += (kPage - reinterpret_cast<std::uintptr_t>(base) % kPage) % kPage;
  dma.map({.iova = kMemoryBase, .size = memory_size, .base = base, .backing = nullptr});
  ib::PortAttributes& attributes = port.change();
  attributes.state = ib::PortState::active;
  attributes.lid = lid;
  attributes.gids.resize(1);
  attributes.gids[0] = {0xfe, 0x80};
  attributes.gids[0][15] = static_cast<std::uint8_t>(lid);
  attributes.pkeys = {0xffff, 0x8001, 0x0002};
}

std::uint64_t TestHost::allocate(std::size_t size, std::size_t alignment) {
  next_ = (next_ + alignment - 1) / alignment * alignment;
  const std::uint64_t iova = next_;
  next_ += size;
  if (dma.try_span(iova, size, DmaAccess::write) == nullptr) {
    throw std::runtime_error("TestHost: memory_size is too small for this test");
  }
  return iova;
}

std::byte* TestHost::at(std::uint64_t iova) {
  return dma.try_span(iova, 1, DmaAccess::write);
}

std::uint32_t TestHost::load_be32(std::uint64_t iova) {
  std::uint32_t value = 0;
  dma.load_be32(iova, value);
  return value;
}

void TestHost::store_be32(std::uint64_t iova, std::uint32_t value) {
  const std::uint32_t word = __builtin_bswap32(value);
  std::memcpy(at(iova), &word, sizeof word);
}

QueueBuffer TestHost::buffer(std::uint64_t iova, std::size_t size) {
  std::vector<std::uint64_t> pages;
  for (std::uint64_t page = iova; page < iova + size; page += kPage) pages.push_back(page);
  return {dma, pages, 12, 0};
}

std::uint32_t TestHost::register_memory(std::uint64_t iova, std::size_t size, MemoryAccess access,
                                        std::uint32_t pd) {
  MkeyAttributes attributes;
  attributes.variant = 0x42;
  attributes.pd = pd;
  attributes.access = access;
  attributes.start = iova;
  attributes.length = size;
  attributes.mode = TranslationMode::mtt;
  attributes.remote_invalidate = true;
  attributes.umr_enabled = true;
  attributes.capacity = static_cast<std::uint32_t>((size / kPage + 2) / 2);
  std::vector<std::uint64_t> pages;
  for (std::uint64_t page = iova & ~(kPage - 1); page < iova + size; page += kPage) {
    pages.push_back(page);
  }
  return *mkeys.create(attributes, pages) << 8 | attributes.variant;
}

std::uint32_t TestHost::free_key(TranslationMode mode, std::uint32_t capacity, std::uint32_t pd) {
  MkeyAttributes attributes;
  attributes.pd = pd;
  attributes.access = MemoryAccess::local_read;
  attributes.mode = mode;
  attributes.free = true;
  attributes.umr_enabled = true;
  attributes.capacity = capacity;
  return *mkeys.create(attributes, {}) << 8;
}

EventQueue* TestHost::create_eq(std::uint16_t vector, std::uint8_t log_size) {
  const std::size_t size = EventQueue::kEntrySize << log_size;
  EqParams params;
  params.buffer = buffer(allocate(size, kPage), size);
  params.log_size = log_size;
  params.vector = vector;
  return eqs.emplace(std::move(params), interrupts);
}

std::vector<std::byte> TestHost::pattern(std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  std::uint32_t state = seed * 2654435761U + 1;
  for (auto& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

void TestHost::fill(std::uint64_t iova, std::span<const std::byte> from) {
  std::copy(from.begin(), from.end(), at(iova));
}

// ---- CQ

TestCq::TestCq(TestHost& host, std::uint8_t log_size, bool cqe128, EventQueue* eq)
    : host_(host), log_size_(log_size), cqe128_(cqe128) {
  const std::size_t size = std::size_t{cqe128 ? 128U : 64U} << log_size;
  ring_ = host.allocate(size, kPage);
  record_ = host.allocate(8);
  for (std::size_t i = 0; i < std::size_t{1} << log_size; ++i) {
    host.at(ring_)[(i << (cqe128 ? 7 : 6)) + (cqe128 ? 64 : 0) + 63] = std::byte{0xf0};
  }
  CqParams params;
  params.buffer = host.buffer(ring_, size);
  params.log_size = log_size;
  params.cqe128 = cqe128;
  params.doorbell_record = record_;
  if (eq != nullptr) params.eq = host.eqs.ref(eq->number());
  cq_ = host.transport.create_cq(std::move(params));
}

std::optional<Completion> TestCq::poll() {
  const std::uint32_t slot = consumer_ & ((1U << log_size_) - 1);
  const std::byte* entry = host_.at(ring_) + (std::size_t{slot} << (cqe128_ ? 7 : 6));
  const auto* cqe = reinterpret_cast<const std::uint8_t*>(entry + (cqe128_ ? 64 : 0));
  const auto opcode = static_cast<prm::CqeOpcode>(prm::Cqe::opcode::get(cqe));
  if (opcode == prm::CqeOpcode::invalid ||
      prm::Cqe::owner::get(cqe) != (consumer_ >> log_size_ & 1)) {
    return std::nullopt;
  }
  Completion c;
  c.opcode = opcode;
  c.solicited = prm::Cqe::solicited::get(cqe) != 0;
  c.format = static_cast<prm::CqeFormat>(prm::Cqe::format::get(cqe));
  c.syndrome = static_cast<prm::CqeSyndrome>(prm::ErrorCqe::syndrome::get(cqe));
  c.vendor = static_cast<std::uint8_t>(prm::ErrorCqe::vendor_syndrome::get(cqe));
  c.user_index = static_cast<std::uint32_t>(prm::Cqe::srqn_user_index::get(cqe));
  c.qpn = static_cast<std::uint32_t>(prm::Cqe::qpn::get(cqe));
  c.send_opcode = static_cast<prm::WqeOpcode>(prm::Cqe::send_opcode::get(cqe));
  c.wqe_counter = static_cast<std::uint16_t>(prm::Cqe::wqe_counter::get(cqe));
  c.byte_count = static_cast<std::uint32_t>(prm::Cqe::byte_count::get(cqe));
  c.immediate = static_cast<std::uint32_t>(prm::Cqe::immediate::get(cqe));
  c.remote_qpn = static_cast<std::uint32_t>(prm::Cqe::remote_qpn::get(cqe));
  c.source_lid = static_cast<std::uint16_t>(prm::Cqe::source_lid::get(cqe));
  c.grh = prm::Cqe::grh::get(cqe) != 0;
  const std::size_t inline_size = c.format == prm::CqeFormat::inline_64 ? 64 : 32;
  std::memcpy(c.inline_data.data(), entry + (cqe128_ && inline_size == 32 ? 64 : 0), inline_size);
  ++consumer_;
  host_.store_be32(record_, consumer_ & 0xffffff);
  return c;
}

std::vector<Completion> TestCq::drain() {
  std::vector<Completion> all;
  while (auto completion = poll()) all.push_back(*completion);
  return all;
}

void TestCq::arm(bool solicited_only, bool ring) {
  const std::uint32_t word =
      arm_sn_ << 28 | (solicited_only ? 1U << 24 : 0U) | (consumer_ & 0xffffff);
  host_.store_be32(record_ + 4, word);
  if (ring) host_.transport.arm_cq(word, number());
}

// ---- SRQ

TestSrq::TestSrq(TestHost& host, std::uint8_t log_size, std::uint16_t limit, std::uint32_t stride,
                 const XrcSrqOptions& xrc)
    : host_(host), stride_(stride) {
  const std::size_t size = std::size_t{stride} << log_size;
  ring_ = host.allocate(size, kPage);
  record_ = host.allocate(8);
  const auto count = static_cast<std::uint16_t>(1U << log_size);
  for (std::uint16_t i = 0; i < count; ++i) link(i, static_cast<std::uint16_t>((i + 1) % count));
  tail_ = static_cast<std::uint16_t>(count - 1);
  SrqParams params;
  params.buffer = host.buffer(ring_, size);
  params.ring.log_size = log_size;
  params.ring.stride = stride;
  params.ring.doorbell_record = record_;
  params.pd = xrc.pd;
  params.xrcd = xrc.xrcd;
  params.user_index = xrc.user_index;
  if (xrc.cq != nullptr) params.cq = host.transport.cqs().ref(xrc.cq->number());
  params.limit = limit;
  srq_ = host.transport.create_srq(std::move(params));
}

void TestSrq::link(std::uint16_t from, std::uint16_t to) {
  auto* wqe = reinterpret_cast<std::uint8_t*>(host_.at(ring_ + std::uint64_t{from} * stride_));
  set<prm::NextSegment::next_wqe_index>(wqe, to);
}

std::uint16_t TestSrq::post(std::span<const Sge> sges) {
  const std::uint16_t index = head_;
  auto* wqe = reinterpret_cast<std::uint8_t*>(host_.at(ring_ + std::uint64_t{index} * stride_));
  head_ = static_cast<std::uint16_t>(prm::NextSegment::next_wqe_index::get(wqe));
  std::uint8_t* segment = wqe + prm::NextSegment::size;
  for (const Sge& sge : sges) {
    set<prm::DataSegment::byte_count>(segment, sge.length);
    set<prm::DataSegment::lkey>(segment, sge.lkey);
    set<prm::DataSegment::address>(segment, sge.address);
    segment += prm::DataSegment::size;
  }
  if (segment < wqe + stride_) {
    std::memset(segment, 0, prm::DataSegment::size);
    set<prm::DataSegment::lkey>(segment, prm::kInvalidLkey);
  }
  host_.store_be32(record_, ++counter_);
  return index;
}

void TestSrq::give_back(std::uint16_t index) {
  link(tail_, index);
  tail_ = index;
}

// ---- QP

TestQp::TestQp(TestHost& host, TestCq& send_cq, TestCq& recv_cq, TestQpOptions options)
    : host_(host), options_(options) {
  static std::uint32_t next_user_index = 0x5000;
  user_index_ = next_user_index++ & 0xffffff;
  const bool has_rq = options.srq == nullptr && options.type != prm::QpServiceType::xrc &&
                      options.type != prm::QpServiceType::reg_umr;
  const std::size_t rq_size = has_rq ? std::size_t{options.rq_stride} << options.log_rq_size : 0;
  const std::size_t sq_size = prm::kWqeBasicBlock << options.log_sq_size;
  rq_ = host.allocate(rq_size + sq_size, kPage);
  sq_ = rq_ + rq_size;
  record_ = host.allocate(8);

  QpParams params;
  params.type = options.type;
  params.pd = options.pd;
  params.user_index = user_index_;
  params.buffer = host.buffer(rq_, rq_size + sq_size);
  params.has_rq = has_rq;
  params.rq.log_size = options.log_rq_size;
  params.rq.stride = options.rq_stride;
  params.rq.doorbell_record = record_;
  params.sq.start = rq_size;
  params.sq.log_size = options.log_sq_size;
  params.sq.doorbell_record = record_ + 4;
  params.send_cq = host.transport.cqs().ref(send_cq.number());
  params.recv_cq = host.transport.cqs().ref(recv_cq.number());
  if (options.srq != nullptr) params.srq = host.transport.srqs().ref(options.srq->number());
  params.cs_req = options.cs_req;
  params.cs_res = options.cs_res;
  params.block_lb_mc = options.block_lb_mc;
  params.fast_registration = options.fast_registration;
  params.xrcd = options.xrcd;
  params.log_ack_req_freq = 8;
  number_ = host.transport.create_qp(std::move(params)).value();

  attributes.remote_read = attributes.remote_write = attributes.remote_atomic = true;
  attributes.mtu = 3;
  attributes.log_rra_max = attributes.log_sra_max = 2;
  attributes.min_rnr_nak = 12;
  attributes.retry_count = 7;
  attributes.rnr_retry = 7;
  attributes.ack_timeout = 14;
  attributes.next_send_psn = attributes.next_rcv_psn = 0;
  attributes.qkey = 0x1234;
}

void TestQp::connect(const TestQp& peer) {
  to_init();
  to_rtr(&peer);
  to_rts();
}

void TestQp::to_init() {
  modify(QpTransition::reset_to_init);
}

void TestQp::to_rtr(const TestQp* peer) {
  if (peer != nullptr) {
    attributes.remote_qpn = peer->number();
    attributes.path.dlid = peer->host().port.attributes().lid;
    attributes.next_rcv_psn = peer->attributes.next_send_psn;
  }
  modify(QpTransition::init_to_rtr);
}

void TestQp::to_rts() {
  modify(QpTransition::rtr_to_rts);
}

std::uint16_t TestQp::write_send(const SendRequest& request) {
  using prm::WqeOpcode;
  std::array<std::uint8_t, prm::kWqeMaxSendBytes> wqe{};
  std::size_t size = prm::CtrlSegment::size;
  const bool datagram =
      options_.type == prm::QpServiceType::ud || options_.type == prm::QpServiceType::qp1;
  if (datagram) {
    std::uint8_t* av = wqe.data() + size;
    set<prm::AddressVector::qkey>(av, request.qkey);
    set<prm::AddressVector::extended>(av, 1);
    set<prm::AddressVector::destination_qpn>(av, request.destination_qpn);
    set<prm::AddressVector::destination_lid>(av, request.destination_lid);
    if (request.destination_gid) {
      set<prm::AddressVector::grh_present>(av, 1);
      set<prm::AddressVector::hop_limit>(av, 64);
      std::copy(request.destination_gid->begin(), request.destination_gid->end(),
                prm::AddressVector::destination_gid::at(av));
    }
    size += prm::AddressVector::size;
  }
  if (options_.type == prm::QpServiceType::xrc && request.opcode != WqeOpcode::nop &&
      request.opcode != WqeOpcode::umr) {
    set<prm::XrcSegment::srqn>(wqe.data() + size, request.xrc_srqn);
    size += prm::XrcSegment::size;
  }
  const bool atomic =
      request.opcode == WqeOpcode::atomic_cmp_swap || request.opcode == WqeOpcode::atomic_fetch_add;
  if (atomic || request.opcode == WqeOpcode::rdma_read || request.opcode == WqeOpcode::rdma_write ||
      request.opcode == WqeOpcode::rdma_write_imm) {
    set<prm::RemoteAddressSegment::virtual_address>(wqe.data() + size, request.remote_address);
    set<prm::RemoteAddressSegment::rkey>(wqe.data() + size, request.rkey);
    size += prm::RemoteAddressSegment::size;
  }
  if (atomic) {
    set<prm::AtomicSegment::swap_add>(wqe.data() + size, request.swap_add);
    set<prm::AtomicSegment::compare>(wqe.data() + size, request.compare);
    size += prm::AtomicSegment::size;
  }
  if (request.opcode == WqeOpcode::umr) {
    const std::vector<std::uint8_t> segments =
        request.umr.empty() ? make_free().bytes : request.umr;
    std::copy(segments.begin(), segments.end(), wqe.data() + size);
    size += segments.size();
  }
  for (const Sge& sge : request.sges) {
    set<prm::DataSegment::byte_count>(wqe.data() + size, sge.length);
    set<prm::DataSegment::lkey>(wqe.data() + size, sge.lkey);
    set<prm::DataSegment::address>(wqe.data() + size, sge.address);
    size += prm::DataSegment::size;
  }
  if (request.use_inline) {
    set<prm::InlineSegment::inline_data>(wqe.data() + size, 1);
    set<prm::InlineSegment::byte_count>(wqe.data() + size, request.inline_data.size());
    std::copy(request.inline_data.begin(), request.inline_data.end(),
              reinterpret_cast<std::byte*>(wqe.data() + size + prm::InlineSegment::header_size));
    size += prm::InlineSegment::units(request.inline_data.size()) * prm::kWqeUnit;
  }
  const std::uint16_t index = sq_counter_;
  set<prm::CtrlSegment::wqe_index>(wqe.data(), index);
  set<prm::CtrlSegment::opcode>(wqe.data(), static_cast<std::uint64_t>(request.opcode));
  set<prm::CtrlSegment::qpn>(wqe.data(), number_);
  set<prm::CtrlSegment::ds_count>(wqe.data(), size / prm::kWqeUnit);
  set<prm::CtrlSegment::completion>(wqe.data(), request.signalled ? 2 : 0);
  set<prm::CtrlSegment::solicited>(wqe.data(), request.solicited ? 1 : 0);
  set<prm::CtrlSegment::fence_mode>(wqe.data(), request.fence ? 4 : 0);
  set<prm::CtrlSegment::immediate>(wqe.data(), request.immediate);
  // Bytes go to the ring one unit at a time, so that a WQE may wrap.
  const std::uint64_t ring_size = prm::kWqeBasicBlock << options_.log_sq_size;
  for (std::size_t at = 0; at < size; at += prm::kWqeUnit) {
    const std::uint64_t position = (std::uint64_t{index} * prm::kWqeBasicBlock + at) % ring_size;
    std::memcpy(host_.at(sq_ + position), wqe.data() + at, prm::kWqeUnit);
  }
  sq_counter_ = static_cast<std::uint16_t>(sq_counter_ +
                                           (size + prm::kWqeBasicBlock - 1) / prm::kWqeBasicBlock);
  return index;
}

std::uint16_t TestQp::post_send(const SendRequest& request) {
  const std::uint16_t index = write_send(request);
  ring();
  return index;
}

void TestQp::set_send_counter(std::uint16_t counter) {
  sq_counter_ = counter;
}

void TestQp::ring() {
  host_.store_be32(record_ + 4, sq_counter_);
  host_.transport.doorbell(number_);
}

void TestQp::post_recv(std::span<const Sge> sges) {
  const std::uint32_t slot = rq_counter_ & ((1U << options_.log_rq_size) - 1);
  auto* wqe =
      reinterpret_cast<std::uint8_t*>(host_.at(rq_ + std::uint64_t{slot} * options_.rq_stride));
  std::memset(wqe, 0, options_.rq_stride);
  std::uint8_t* segment = wqe;
  for (const Sge& sge : sges) {
    set<prm::DataSegment::byte_count>(segment, sge.length);
    set<prm::DataSegment::lkey>(segment, sge.lkey);
    set<prm::DataSegment::address>(segment, sge.address);
    segment += prm::DataSegment::size;
  }
  if (segment < wqe + options_.rq_stride) {
    set<prm::DataSegment::lkey>(segment, prm::kInvalidLkey);
  }
  host_.store_be32(record_, ++rq_counter_);
}

}  // namespace softhca::transport_test
