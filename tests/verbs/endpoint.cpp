// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/verbs/endpoint.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "provider/abi/driver.h"

namespace softhca::verbs_check {
namespace {

/// Every byte depends on seed and position, with a period that no packet or page size divides.
std::uint8_t pattern(std::uint32_t seed, std::size_t position) {
  return static_cast<std::uint8_t>(position * 7 + position / 251 + seed * 31 + 1);
}

std::string error_text(int error) {
  return std::strerror(error);
}

}  // namespace

std::string describe(const Style& style) {
  std::string text = style.builder ? "ibv_wr" : "post_send";
  text += style.extended ? ", start_poll" : ", poll_cq";
  text += style.events ? ", events" : ", polling";
  return text + ", MTU " + std::to_string(128U << style.mtu);
}

Device::Device(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  require(list != nullptr && count > 0, "no verbs device");
  ibv_device* chosen = nullptr;
  for (int i = 0; i < count && chosen == nullptr; ++i) {
    if (name.empty() || name == ibv_get_device_name(list[i])) chosen = list[i];
  }
  if (chosen != nullptr) context_.reset(ibv_open_device(chosen));
  ibv_free_device_list(list);
  require(context_ != nullptr, "cannot open the device: " + error_text(errno));
  pd_.reset(ibv_alloc_pd(context()));
  require(pd_ != nullptr, "ibv_alloc_pd: " + error_text(errno));
  require(ibv_query_port(context(), kPort, &port_) == 0, "ibv_query_port failed");
  require(port_.state == IBV_PORT_ACTIVE, "the port is not active");
  require(ibv_query_gid(context(), kPort, 0, &gid_) == 0, "ibv_query_gid failed");
}

ibv_device_attr Device::attributes() const {
  ibv_device_attr attr{};
  require(ibv_query_device(context(), &attr) == 0, "ibv_query_device failed");
  return attr;
}

std::string Device::provider() const {
  const auto* device = reinterpret_cast<const provider::abi::verbs_device*>(context()->device);
  return device->ops->name;
}

Buffer::Buffer(const Device& device, std::size_t size, int access)
    : size_(size), bytes_(new std::uint8_t[size + 2 * kOffset]) {
  clear();
  mr_.reset(ibv_reg_mr(device.pd(), data(), std::max<std::size_t>(size, 1), access));
  require(mr_ != nullptr, "ibv_reg_mr: " + error_text(errno));
}

void Buffer::fill(std::uint32_t seed, std::size_t offset, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i) data()[offset + i] = pattern(seed, i);
}

void Buffer::clear(std::uint8_t value) {
  std::fill_n(data(), size_, value);
}

void Buffer::verify(std::uint32_t seed, std::size_t offset, std::size_t length,
                    const std::string& what) {
  for (std::size_t i = 0; i < length; ++i) {
    if (data()[offset + i] == pattern(seed, i)) continue;
    throw Failure(what + ": byte " + std::to_string(i) + " of " + std::to_string(length) + " is " +
                  std::to_string(data()[offset + i]) + ", sent was " +
                  std::to_string(pattern(seed, i)));
  }
}

void Buffer::verify_blank(std::size_t offset, std::size_t length, const std::string& what) {
  const std::uint8_t* begin = data() + offset;
  const std::uint8_t* end = begin + length;
  const auto* changed = std::find_if(begin, end, [](std::uint8_t byte) { return byte != kBlank; });
  require(changed == end, what + ": byte " + std::to_string(changed - begin) +
                              " changed where nothing was sent to");
}

CompletionQueue::CompletionQueue(const Device& device, int entries, const Style& style)
    : style_(style) {
  channel_.reset(ibv_create_comp_channel(device.context()));
  require(channel_ != nullptr, "ibv_create_comp_channel: " + error_text(errno));
  if (style.extended) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = static_cast<std::uint32_t>(entries);
    attr.channel = channel_.get();
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    extended_ = ibv_create_cq_ex(device.context(), &attr);
    if (extended_ != nullptr) cq_.reset(ibv_cq_ex_to_cq(extended_));
  } else {
    cq_.reset(ibv_create_cq(device.context(), entries, nullptr, channel_.get(), 0));
  }
  require(cq_ != nullptr, "creating a CQ: " + error_text(errno));
}

CompletionQueue::~CompletionQueue() {
  if (unacknowledged_ != 0) ibv_ack_cq_events(cq_.get(), unacknowledged_);
}

bool CompletionQueue::poll_extended(Completed& completed) {
  ibv_poll_cq_attr attr{};
  const int result = ibv_start_poll(extended_, &attr);
  if (result == ENOENT) return false;
  require(result == 0, "ibv_start_poll: " + error_text(result));
  completed.wr_id = extended_->wr_id;
  completed.status = extended_->status;
  completed.qp_num = ibv_wc_read_qp_num(extended_);
  if (completed.status == IBV_WC_SUCCESS) {
    completed.opcode = ibv_wc_read_opcode(extended_);
    completed.byte_len = ibv_wc_read_byte_len(extended_);
    completed.flags = ibv_wc_read_wc_flags(extended_);
    completed.imm_data = be32toh(ibv_wc_read_imm_data(extended_));
    completed.src_qp = ibv_wc_read_src_qp(extended_);
  } else {
    completed.vendor_error = ibv_wc_read_vendor_err(extended_);
  }
  ibv_end_poll(extended_);
  return true;
}

bool CompletionQueue::try_poll(Completed& completed) {
  completed = Completed{};
  if (extended_ != nullptr) return poll_extended(completed);
  ibv_wc wc{};
  const int count = ibv_poll_cq(cq_.get(), 1, &wc);
  require(count >= 0, "ibv_poll_cq failed");
  if (count == 0) return false;
  completed.wr_id = wc.wr_id;
  completed.status = wc.status;
  completed.vendor_error = wc.vendor_err;
  completed.qp_num = wc.qp_num;
  if (wc.status == IBV_WC_SUCCESS) {
    completed.opcode = wc.opcode;
    completed.byte_len = wc.byte_len;
    completed.imm_data = be32toh(wc.imm_data);
    completed.src_qp = wc.src_qp;
    completed.flags = wc.wc_flags;
  }
  return true;
}

void CompletionQueue::arm(bool solicited_only) {
  require(ibv_req_notify_cq(cq_.get(), solicited_only ? 1 : 0) == 0, "ibv_req_notify_cq failed");
}

bool CompletionQueue::event_within(std::chrono::milliseconds timeout) {
  if (!becomes_readable(channel_->fd, timeout)) return false;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  require(ibv_get_cq_event(channel_.get(), &cq, &context) == 0, "ibv_get_cq_event failed");
  require(cq == cq_.get(), "the event names another CQ");
  ++unacknowledged_;
  return true;
}

Completed CompletionQueue::wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  Completed completed;
  while (!try_poll(completed)) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline)
      throw Failure("no completion within " + std::to_string(timeout.count()) + " ms");
    if (!style_.events) continue;
    // Armed, then looked at once more: a completion between the poll and the arm must not be slept
    // over.
    arm(false);
    if (try_poll(completed)) break;
    event_within(std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now));
  }
  return completed;
}

Completed CompletionQueue::expect(ibv_wc_status status, const std::string& what) {
  const Completed completed = wait();
  require(completed.status == status,
          what + ": completed with \"" + ibv_wc_status_str(completed.status) + "\" (vendor error " +
              std::to_string(completed.vendor_error) + "), expected \"" +
              ibv_wc_status_str(status) + "\"");
  return completed;
}

void CompletionQueue::expect_silence(std::chrono::milliseconds span, const std::string& what) {
  const auto end = std::chrono::steady_clock::now() + span;
  Completed completed;
  while (std::chrono::steady_clock::now() < end) {
    require(!try_poll(completed),
            what + ": unexpected completion of " + std::to_string(completed.wr_id));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void post_shared_receive(ibv_srq* srq, std::uint64_t wr_id, std::vector<ibv_sge> sges) {
  ibv_recv_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_srq_recv(srq, &wr, &bad);
  require(error == 0, "ibv_post_srq_recv: " + error_text(error));
}

}  // namespace softhca::verbs_check
