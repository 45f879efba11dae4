// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "emulator/runtime/result.h"
#include "hw-model/prm/hca_cap.h"
#include "kernel-shim/host/device/command_queue.h"
#include "kernel-shim/host/device/event_queue.h"
#include "kernel-shim/host/device/firmware_pages.h"
#include "kernel-shim/host/device/target_objects.h"
#include "kernel-shim/host/loop/event_loop.h"

namespace softhca::shim {

/// Number of MSI-X vectors that serve completions: what applications see as num_comp_vectors.
inline constexpr std::uint32_t kCompletionVectors = 4;

/// Who handles the events of the device's objects.
class HcaEvents {
 public:
  virtual ~HcaEvents() = default;
  virtual void completion(std::uint32_t cqn) = 0;
  /// `eqe`: prm::Eqe of any other type but page requests.
  virtual void async_event(const std::uint8_t* eqe) = 0;
};

/// The HCA after its bring-up, as mlx5_core leaves it to the drivers above.
class Hca {
 public:
  /// ENABLE_HCA to event queues and driver's own resources. Events are handled in `loop` after
  /// start_events().
  static runtime::Result<std::unique_ptr<Hca>> bring_up(std::unique_ptr<PciDevice> device,
                                                        EventLoop& loop);
  /// Destroys what bring_up() made, TEARDOWN_HCA, takes every page back, DISABLE_HCA; errors are
  /// logged only.
  ~Hca();
  Hca(const Hca&) = delete;
  Hca& operator=(const Hca&) = delete;

  /// Arms the event queues and serves the device in the loop. `lost` is called once when the device
  /// is gone.
  void start_events(HcaEvents& events, std::function<void()> lost);

  CommandInterface& commands() { return *commands_; }
  PciDevice& device() { return *device_; }
  IovaAllocator& iovas() { return iovas_; }
  EventLoop& loop() { return loop_; }
  bool alive() const { return alive_ && commands_->alive(); }

  /// Current value of a general capability: cap<prm::HcaCap::log_max_qp>().
  template <typename Field>
  std::uint32_t cap() const {
    return static_cast<std::uint32_t>(Field::get(general_caps_.data()));
  }
  template <typename Field>
  std::uint32_t atomic_cap() const {
    return static_cast<std::uint32_t>(Field::get(atomic_caps_.data()));
  }
  std::uint8_t completion_eqn(std::uint32_t vector) const {
    return completion_eqs_[vector]->number();
  }
  std::uint32_t fw_major() const { return fw_major_; }
  std::uint32_t fw_minor() const { return fw_minor_; }
  std::uint32_t fw_subminor() const { return fw_subminor_; }
  std::uint32_t vendor_id() const { return vendor_id_; }
  const std::string& board_id() const { return board_id_; }
  std::size_t firmware_pages() const { return pages_->given(); }

  /// Objects that QPs without SRQ or XRC domain name (mlx5_ib's devr); 0 if not made.
  std::uint32_t xrcd0() const { return xrcd0_; }
  std::uint32_t xrcd1() const { return xrcd1_; }
  /// What XRC target QPs name; made when first asked for. Null, and `error` an errno: it cannot be.
  const TargetObjects* target_objects(int& error);
  /// Counter set that every QP counts in; 0 if the device has none.
  std::uint32_t q_counter_set() const { return q_counter_set_; }

 private:
  Hca(std::unique_ptr<PciDevice> device, EventLoop& loop);
  runtime::Result<runtime::Done> start();
  runtime::Result<runtime::Done> identify();
  runtime::Result<runtime::Done> negotiate_issi();
  runtime::Result<runtime::Done> set_capabilities();
  runtime::Result<runtime::Done> query_capabilities(prm::HcaCapType type, bool current,
                                                    std::vector<std::uint8_t>& area);
  runtime::Result<runtime::Done> query_adapter();
  runtime::Result<runtime::Done> create_event_queues();
  void allocate_counters();
  int simple(prm::CommandOpcode opcode);
  void handle_async(const std::uint8_t* eqe);
  void serve();
  void lose();
  void tear_down();

  std::unique_ptr<PciDevice> device_;
  EventLoop& loop_;
  IovaAllocator iovas_;
  std::unique_ptr<DmaArena> arena_;
  std::unique_ptr<CommandQueue> commands_;
  std::unique_ptr<FirmwarePages> pages_;
  std::unique_ptr<EventQueue> async_eq_;
  std::vector<std::unique_ptr<EventQueue>> completion_eqs_;
  std::unique_ptr<TargetObjects> target_objects_;
  std::vector<std::uint8_t> general_caps_;
  std::vector<std::uint8_t> atomic_caps_;
  HcaEvents* events_ = nullptr;
  std::function<void()> lost_;
  std::string board_id_;
  std::uint32_t vendor_id_ = 0x02c9;
  std::uint32_t fw_major_ = 0;
  std::uint32_t fw_minor_ = 0;
  std::uint32_t fw_subminor_ = 0;
  std::uint32_t uar_ = 0;
  std::uint32_t xrcd0_ = 0;
  std::uint32_t xrcd1_ = 0;
  std::uint32_t q_counter_set_ = 0;
  bool enabled_ = false;
  bool initialized_ = false;
  bool alive_ = true;
};

}  // namespace softhca::shim
