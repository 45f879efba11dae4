// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/hca.h"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "hw-model/prm/access_registers.h"
#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/eqe.h"
#include "hw-model/prm/iseg.h"
#include "kernel-shim/host/device/number_commands.h"

namespace softhca::shim {
namespace {

using prm::CommandOpcode;
using prm::EventType;
using runtime::Done;

constexpr std::uint64_t event_bit(EventType type) {
  return 1ULL << static_cast<unsigned>(type);
}

/// What the asynchronous event queue takes: everything but completions and command completions.
constexpr std::uint64_t kAsyncEvents =
    event_bit(EventType::path_migrated) | event_bit(EventType::communication_established) |
    event_bit(EventType::sq_drained) | event_bit(EventType::cq_error) |
    event_bit(EventType::wq_catastrophic) | event_bit(EventType::path_migration_failed) |
    event_bit(EventType::internal_error) | event_bit(EventType::port_change) |
    event_bit(EventType::page_request) | event_bit(EventType::wq_invalid_request) |
    event_bit(EventType::wq_access_error) | event_bit(EventType::srq_catastrophic) |
    event_bit(EventType::srq_last_wqe) | event_bit(EventType::srq_limit);

runtime::Error failed(const char* what, int error) {
  return runtime::system_error(error, what);
}

}  // namespace

Hca::Hca(std::unique_ptr<PciDevice> device, EventLoop& loop)
    : device_(std::move(device)), loop_(loop) {
  iovas_.set_end(device_->iova_end());
}

runtime::Result<std::unique_ptr<Hca>> Hca::bring_up(std::unique_ptr<PciDevice> device,
                                                    EventLoop& loop) {
  std::unique_ptr<Hca> hca(new Hca(std::move(device), loop));
  if (auto started = hca->start(); !started) return started.error();
  return hca;
}

Hca::~Hca() {
  tear_down();
}

int Hca::simple(CommandOpcode opcode) {
  return execute_plain(*commands_, CommandInputBuffer(opcode, 16)).error;
}

/// The order is mlx5_core's (main.c: mlx5_function_setup, mlx5_load).
runtime::Result<Done> Hca::start() {
  arena_ = std::make_unique<DmaArena>(*device_, iovas_);
  auto commands = CommandQueue::open(*device_, *arena_);
  if (!commands) return commands.error();
  commands_ = std::move(*commands);
  pages_ = std::make_unique<FirmwarePages>(*commands_, *arena_);
  if (auto done = identify(); !done) return done;

  if (const int error = simple(CommandOpcode::enable_hca)) return failed("ENABLE_HCA", error);
  enabled_ = true;
  if (auto done = negotiate_issi(); !done) return done;
  if (const int error = pages_->satisfy(prm::QueryPagesOp::boot))
    return failed("boot pages", error);
  if (auto done = set_capabilities(); !done) return done;
  if (const int error = pages_->satisfy(prm::QueryPagesOp::init))
    return failed("init pages", error);
  const CommandInputBuffer init(CommandOpcode::init_hca, prm::InitHcaInput::size);
  if (const CommandResult result = execute_plain(*commands_, init); !result) {
    return failed("INIT_HCA", result.error);
  }
  initialized_ = true;
  if (auto done = query_capabilities(prm::HcaCapType::general_device, true, general_caps_); !done) {
    return done;
  }
  if (cap<prm::HcaCap::atomic>() != 0) {
    if (auto done = query_capabilities(prm::HcaCapType::atomic, true, atomic_caps_); !done) {
      return done;
    }
  } else {
    atomic_caps_.assign(prm::kHcaCapAreaSize, 0);
  }
  if (auto done = query_adapter(); !done) return done;
  if (const int error = allocate_number(*commands_, kUarResource, uar_)) {
    return failed("ALLOC_UAR", error);
  }
  if (auto done = create_event_queues(); !done) return done;
  if (cap<prm::HcaCap::xrc>() != 0) {
    if (const int error = allocate_number(*commands_, kXrcdResource, xrcd0_)) {
      return failed("ALLOC_XRCD", error);
    }
    if (const int error = allocate_number(*commands_, kXrcdResource, xrcd1_)) {
      return failed("ALLOC_XRCD", error);
    }
  }
  allocate_counters();
  return Done{};
}

/// One set for all QPs; nothing depends on it.
void Hca::allocate_counters() {
  if (cap<prm::HcaCap::max_qp_cnt>() == 0) return;
  const CommandInputBuffer in(CommandOpcode::alloc_q_counter, 16);
  std::uint8_t out[prm::AllocQCounterOutput::size] = {};
  if (!commands_->execute(in, out)) return;
  q_counter_set_ = static_cast<std::uint32_t>(prm::AllocQCounterOutput::counter_set_id::get(out));
}

const TargetObjects* Hca::target_objects(int& error) {
  error = 0;
  if (target_objects_ == nullptr) {
    auto made = TargetObjects::create(*commands_, *arena_, uar_, completion_eqn(0));
    if (!made) {
      error = made.error().code;
      return nullptr;
    }
    target_objects_ = std::move(*made);
  }
  return target_objects_.get();
}

runtime::Result<Done> Hca::identify() {
  std::uint8_t head[8] = {};
  if (const int error = device_->bar_read(0, std::as_writable_bytes(std::span(head)))) {
    return failed("reading the firmware revision", error);
  }
  using Iseg = prm::InitializationSegment;
  fw_major_ = static_cast<std::uint32_t>(Iseg::fw_rev_major::get(head));
  fw_minor_ = static_cast<std::uint32_t>(Iseg::fw_rev_minor::get(head));
  fw_subminor_ = static_cast<std::uint32_t>(Iseg::fw_rev_subminor::get(head));
  return Done{};
}

/// ISSI 1 gives RMP-based receive queues; a device without it stays at 0.
runtime::Result<Done> Hca::negotiate_issi() {
  const CommandInputBuffer query(CommandOpcode::query_issi, 16);
  std::uint8_t out[prm::QueryIssiOutput::size] = {};
  if (!commands_->execute(query, out)) return Done{};
  if ((prm::QueryIssiOutput::supported_issi_dw0::get(out) & 2) == 0) return Done{};
  CommandInputBuffer set(CommandOpcode::set_issi, prm::SetIssiInput::size);
  prm::SetIssiInput::current_issi::set(set.data(), 1);
  if (const CommandResult result = execute_plain(*commands_, set); !result) {
    return failed("SET_ISSI", result.error);
  }
  return Done{};
}

runtime::Result<Done> Hca::query_capabilities(prm::HcaCapType type, bool current,
                                              std::vector<std::uint8_t>& area) {
  const auto op_mod =
      static_cast<std::uint16_t>(static_cast<std::uint16_t>(type) << 1 | (current ? 1 : 0));
  const CommandInputBuffer in(CommandOpcode::query_hca_cap, prm::QueryHcaCapInput::size, op_mod);
  std::vector<std::uint8_t> out(prm::QueryHcaCapOutput::size);
  if (const CommandResult result = commands_->execute(in, out); !result) {
    return failed("QUERY_HCA_CAP", result.error);
  }
  area.assign(out.begin() + prm::QueryHcaCapOutput::capability::offset, out.end());
  return Done{};
}

/// mlx5_core's handle_hca_cap and handle_hca_cap_atomic: no command signatures, 4 KiB UAR pages,
/// atomics in host order where the device offers it.
runtime::Result<Done> Hca::set_capabilities() {
  const auto set = [this](prm::HcaCapType type, const std::vector<std::uint8_t>& area) {
    CommandInputBuffer in(CommandOpcode::set_hca_cap, prm::SetHcaCapInput::size,
                          static_cast<std::uint16_t>(static_cast<std::uint16_t>(type) << 1));
    std::copy(area.begin(), area.end(), in.at(prm::SetHcaCapInput::capability::offset));
    return execute_plain(*commands_, in).error;
  };
  std::vector<std::uint8_t> area;
  if (auto done = query_capabilities(prm::HcaCapType::general_device, true, area); !done)
    return done;
  const bool atomic = prm::HcaCap::atomic::get(area.data()) != 0;
  prm::HcaCap::cmdif_checksum::set(area.data(), 0);
  prm::HcaCap::log_uar_page_sz::set(area.data(), 0);
  prm::HcaCap::pkey_table_size::set(area.data(), 0);
  if (const int error = set(prm::HcaCapType::general_device, area)) {
    return failed("SET_HCA_CAP", error);
  }
  if (!atomic) return Done{};
  if (auto done = query_capabilities(prm::HcaCapType::atomic, true, area); !done) return done;
  if (prm::AtomicCaps::supported_atomic_req_8B_endianness_mode_1::get(area.data()) == 0) {
    return Done{};
  }
  std::vector<std::uint8_t> wanted(prm::kHcaCapAreaSize);
  prm::AtomicCaps::atomic_req_8B_endianness_mode::set(wanted.data(), 1);
  if (const int error = set(prm::HcaCapType::atomic, wanted)) {
    return failed("SET_HCA_CAP (atomic)", error);
  }
  return Done{};
}

runtime::Result<Done> Hca::query_adapter() {
  const CommandInputBuffer in(CommandOpcode::query_adapter, 16);
  std::uint8_t out[prm::QueryAdapterOutput::size] = {};
  if (const CommandResult result = commands_->execute(in, out); !result) {
    return failed("QUERY_ADAPTER", result.error);
  }
  const std::uint8_t* const adapter = out + prm::QueryAdapterOutput::query_adapter_struct::offset;
  if (const std::uint64_t vendor = prm::AdapterParameters::ieee_vendor_id::get(adapter)) {
    vendor_id_ = static_cast<std::uint32_t>(vendor);
  }
  const std::uint8_t* const psid = adapter + prm::AdapterParameters::vsd_contd_psid::offset;
  const std::uint8_t* const end = psid + prm::AdapterParameters::vsd_contd_psid::size;
  board_id_.assign(psid, std::find(psid, end, 0));
  std::erase_if(board_id_, [](char c) { return c < ' ' || c > '~'; });
  return Done{};
}

runtime::Result<Done> Hca::create_event_queues() {
  EventQueue::Options options;
  options.uar = uar_;
  options.log_size = 10;
  options.event_mask = kAsyncEvents;
  auto async = EventQueue::create(*device_, *commands_, *arena_, options);
  if (!async) return async.error();
  async_eq_ = std::move(*async);
  options.event_mask = 0;  // CQs name their queue themselves.
  options.log_size = 12;
  for (std::uint32_t i = 0; i < kCompletionVectors; ++i) {
    options.vector = static_cast<std::uint16_t>(1 + i);
    auto completion = EventQueue::create(*device_, *commands_, *arena_, options);
    if (!completion) return completion.error();
    completion_eqs_.push_back(std::move(*completion));
  }
  // While a command waits, the firmware may want pages first.
  commands_->set_waiting_hook(
      [this] { async_eq_->poll([this](const std::uint8_t* eqe) { handle_async(eqe); }); });
  return Done{};
}

void Hca::start_events(HcaEvents& events, std::function<void()> lost) {
  events_ = &events;
  lost_ = std::move(lost);
  loop_.watch(async_eq_->interrupt_fd(), EPOLLIN, [this](std::uint32_t) {
    async_eq_->process([this](const std::uint8_t* eqe) { handle_async(eqe); });
  });
  async_eq_->arm();
  for (const std::unique_ptr<EventQueue>& queue : completion_eqs_) {
    loop_.watch(queue->interrupt_fd(), EPOLLIN, [this, &queue = *queue](std::uint32_t) {
      queue.process([this](const std::uint8_t* eqe) {
        if (prm::Eqe::event_type::get(eqe) != static_cast<unsigned>(EventType::completion)) return;
        const std::uint8_t* const data = prm::Eqe::event_data::at(eqe);
        events_->completion(static_cast<std::uint32_t>(prm::CompletionEventData::cqn::get(data)));
      });
    });
    queue->arm();
  }
  loop_.watch(device_->fd(), EPOLLIN, [this](std::uint32_t) { serve(); });
}

void Hca::handle_async(const std::uint8_t* eqe) {
  if (prm::Eqe::event_type::get(eqe) == static_cast<unsigned>(EventType::page_request)) {
    const std::uint8_t* const data = prm::Eqe::event_data::at(eqe);
    const auto pages = static_cast<std::int32_t>(prm::PageRequestEventData::num_pages::get(data));
    if (const int error = pages_->request(pages)) {
      spdlog::error("page request of {} pages failed: errno {}", pages, error);
    }
    return;
  }
  if (events_ != nullptr) events_->async_event(eqe);
}

void Hca::serve() {
  if (device_->serve() != 0) lose();
}

void Hca::lose() {
  if (!alive_) return;
  alive_ = false;
  loop_.remove(device_->fd());
  spdlog::error("the device is gone: its emulator ended, or the kernel wants it back");
  if (lost_) lost_();
}

void Hca::tear_down() {
  if (events_ != nullptr) {
    loop_.remove(device_->fd());
    loop_.remove(async_eq_->interrupt_fd());
    for (const auto& queue : completion_eqs_) loop_.remove(queue->interrupt_fd());
  }
  if (commands_ != nullptr) commands_->set_waiting_hook(nullptr);
  if (q_counter_set_ != 0) {
    CommandInputBuffer in(CommandOpcode::dealloc_q_counter, prm::DeallocQCounterInput::size);
    prm::DeallocQCounterInput::counter_set_id::set(in.data(), q_counter_set_);
    execute_plain(*commands_, in);
  }
  target_objects_.reset();
  if (xrcd1_ != 0) release_number(*commands_, kXrcdResource, xrcd1_);
  if (xrcd0_ != 0) release_number(*commands_, kXrcdResource, xrcd0_);
  completion_eqs_.clear();
  async_eq_.reset();
  if (uar_ != 0) release_number(*commands_, kUarResource, uar_);
  if (initialized_) {
    const CommandInputBuffer in(CommandOpcode::teardown_hca, prm::TeardownHcaInput::size);
    execute_plain(*commands_, in);
  }
  if (pages_ != nullptr) {
    if (const int error = pages_->reclaim_all(); error != 0 && alive()) {
      spdlog::warn("{} firmware pages were not returned: errno {}", pages_->given(), error);
    }
  }
  if (enabled_) simple(CommandOpcode::disable_hca);
  pages_.reset();
  commands_.reset();
  arena_.reset();
}

}  // namespace softhca::shim
