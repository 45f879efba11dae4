// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/verbs/side.h"

namespace softhca::verbs_check {

/// Frees a verbs object; a refusal is a failed check, but not out of a destructor.
template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    static_cast<void>(Free(object));
  }
};
template <typename T, auto Free>
using Handle = std::unique_ptr<T, Freer<Free>>;

using ContextHandle = Handle<ibv_context, ibv_close_device>;
using PdHandle = Handle<ibv_pd, ibv_dealloc_pd>;
using ChannelHandle = Handle<ibv_comp_channel, ibv_destroy_comp_channel>;
using CqHandle = Handle<ibv_cq, ibv_destroy_cq>;
using QpHandle = Handle<ibv_qp, ibv_destroy_qp>;
using SrqHandle = Handle<ibv_srq, ibv_destroy_srq>;
using MrHandle = Handle<ibv_mr, ibv_dereg_mr>;
using AhHandle = Handle<ibv_ah, ibv_destroy_ah>;

/// How the checks use the library.
struct Style {
  bool builder = false;   ///< ibv_wr_* instead of ibv_post_send.
  bool extended = false;  ///< ibv_start_poll instead of ibv_poll_cq.
  bool events = false;    ///< Sleep on the completion channel instead of polling.
  ibv_mtu mtu = IBV_MTU_4096;
};
std::string describe(const Style& style);

/// The device, opened.
class Device {
 public:
  /// `name` empty: the first device.
  explicit Device(const std::string& name);

  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  const ibv_port_attr& port() const { return port_; }
  ibv_gid gid() const { return gid_; }
  ibv_device_attr attributes() const;
  /// Name that the provider registered under: "softhca", "mlx5" and so on.
  std::string provider() const;

  static constexpr std::uint8_t kPort = 1;

 private:
  ContextHandle context_;
  PdHandle pd_;
  ibv_port_attr port_{};
  ibv_gid gid_{};
};

/// Registered memory.
class Buffer {
 public:
  static constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

  Buffer(const Device& device, std::size_t size, int access = kAllAccess);

  std::uint8_t* data() { return bytes_.get() + kOffset; }
  std::size_t size() const { return size_; }
  std::uint64_t address() { return reinterpret_cast<std::uintptr_t>(data()); }
  std::uint32_t lkey() const { return mr_->lkey; }
  std::uint32_t rkey() const { return mr_->rkey; }
  ibv_mr* mr() const { return mr_.get(); }
  ibv_sge sge(std::size_t offset, std::size_t length) {
    return {address() + offset, static_cast<std::uint32_t>(length), lkey()};
  }
  /// A byte sequence that depends on `seed` and position.
  void fill(std::uint32_t seed, std::size_t offset, std::size_t length);
  void clear(std::uint8_t value = kBlank);
  /// Fails unless the range holds the sequence of `seed`.
  void verify(std::uint32_t seed, std::size_t offset, std::size_t length, const std::string& what);
  /// Fails unless the range is as clear() left it.
  void verify_blank(std::size_t offset, std::size_t length, const std::string& what);

  static constexpr std::uint8_t kBlank = 0xa5;
  /// Not page aligned, so that registration has to cope.
  static constexpr std::size_t kOffset = 64;

 private:
  std::size_t size_;
  std::unique_ptr<std::uint8_t[]> bytes_;
  MrHandle mr_;
};

/// A completion, whatever way it was polled.
struct Completed {
  std::uint64_t wr_id = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  ibv_wc_opcode opcode = IBV_WC_SEND;
  std::uint32_t vendor_error = 0;
  std::uint32_t byte_len = 0;
  std::uint32_t imm_data = 0;  ///< Host order.
  std::uint32_t qp_num = 0;
  std::uint32_t src_qp = 0;
  unsigned flags = 0;
};

class CompletionQueue {
 public:
  CompletionQueue(const Device& device, int entries, const Style& style);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  /// Next completion; fails after `timeout`.
  Completed wait(std::chrono::milliseconds timeout = kPatience);
  /// Next completion, which must have this status.
  Completed expect(ibv_wc_status status, const std::string& what);
  Completed expect_success(const std::string& what) { return expect(IBV_WC_SUCCESS, what); }
  bool try_poll(Completed& completed);
  /// Fails if anything completes within `span`.
  void expect_silence(std::chrono::milliseconds span, const std::string& what);
  /// Arms the queue; then event_within() tells whether its event came.
  void arm(bool solicited_only);
  bool event_within(std::chrono::milliseconds timeout);
  ibv_cq* get() const { return cq_.get(); }

  static constexpr std::chrono::milliseconds kPatience{20'000};

 private:
  bool poll_extended(Completed& completed);

  Style style_;
  ChannelHandle channel_;
  CqHandle cq_;
  ibv_cq_ex* extended_ = nullptr;
  unsigned unacknowledged_ = 0;
};

/// A send work request.
struct Request {
  std::uint64_t wr_id = 0;
  ibv_wr_opcode opcode = IBV_WR_SEND;
  std::vector<ibv_sge> sges;
  std::uint64_t remote_address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t imm_data = 0;  ///< Host order.
  std::uint64_t compare_add = 0;
  std::uint64_t swap = 0;
  unsigned flags = IBV_SEND_SIGNALED;
  ibv_ah* ah = nullptr;
  std::uint32_t remote_qpn = 0;
};

struct QpOptions {
  ibv_qp_type type = IBV_QPT_RC;
  std::uint32_t send_wr = 64;
  std::uint32_t recv_wr = 64;
  std::uint32_t sge = 4;
  std::uint32_t inline_data = 128;
  ibv_srq* srq = nullptr;
  bool signal_all = false;
  std::uint8_t timeout = 14;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t min_rnr_timer = 1;
};

class QueuePair {
 public:
  QueuePair(const Device& device, CompletionQueue& send_cq, CompletionQueue& recv_cq,
            const Style& style, const QpOptions& options);

  /// To RTS: RC and UC with the other side's next queue pair, UD alone.
  void connect(Side& side);
  int try_post(const Request& request);
  void post(const Request& request);
  void post_receive(std::uint64_t wr_id, std::vector<ibv_sge> sges);
  void modify_to_error();
  ibv_qp_state state() const;
  ibv_qp* get() const { return qp_.get(); }
  std::uint32_t number() const { return qp_->qp_num; }
  /// Of the other side, after connect().
  std::uint32_t remote_number() const { return remote_.number; }
  std::uint16_t remote_lid() const { return remote_.lid; }
  ibv_gid remote_gid() const { return remote_.gid; }

  static constexpr std::uint32_t kQkey = 0x11111111;

 private:
  struct Address {
    std::uint32_t number;
    std::uint32_t psn;
    std::uint16_t lid;
    ibv_gid gid;
  };
  int post_built(const Request& request);
  void to_init();
  void to_ready_to_receive();
  void to_ready_to_send();

  const Device* device_;
  Style style_;
  QpOptions options_;
  QpHandle qp_;
  Address local_{};
  Address remote_{};
};

void post_shared_receive(ibv_srq* srq, std::uint64_t wr_id, std::vector<ibv_sge> sges);

}  // namespace softhca::verbs_check
