// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/event_queue.h"

#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>

#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/eq_context.h"
#include "hw-model/prm/eqe.h"
#include "hw-model/prm/uar.h"

namespace softhca::shim {

runtime::Result<std::unique_ptr<EventQueue>> EventQueue::create(PciDevice& device,
                                                                CommandInterface& commands,
                                                                DmaArena& arena,
                                                                const Options& options) {
  std::unique_ptr<EventQueue> queue(new EventQueue(device, commands, arena, options));
  const std::size_t entries = std::size_t{1} << options.log_size;
  const auto buffer = arena.allocate(entries * prm::Eqe::size);
  if (!buffer) return runtime::system_error(ENOMEM, "memory of an event queue");
  queue->buffer_ = *buffer;
  // Owner 1 is "not yet written" in the first pass.
  for (std::size_t i = 0; i < entries; ++i) {
    prm::Eqe::owner::set(buffer->data + i * prm::Eqe::size, 1);
  }
  queue->interrupt_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!queue->interrupt_) return runtime::system_error(errno, "eventfd");
  const int eventfd = queue->interrupt_.get();
  if (const int error = device.connect_interrupts(options.vector, {&eventfd, 1}); error != 0) {
    return runtime::system_error(error, "connecting an interrupt vector");
  }

  const std::size_t pages = buffer->size / DmaArena::kPage;
  CommandInputBuffer in(prm::CommandOpcode::create_eq, prm::CreateEqInput::size + pages * 8);
  std::uint8_t* const context = in.at(prm::CreateEqInput::eq_context_entry::offset);
  prm::EqContext::log_eq_size::set(context, options.log_size);
  prm::EqContext::uar_page::set(context, options.uar);
  prm::EqContext::intr::set(context, options.vector);
  prm::EqContext::log_page_size::set(context, 0);
  prm::Field<0, 64>::set(in.at(prm::CreateEqInput::event_bitmask::offset), options.event_mask);
  for (std::size_t i = 0; i < pages; ++i) {
    prm::Field<0, 64>::set(in.at(prm::CreateEqInput::pas_offset + i * 8),
                           buffer->iova + i * DmaArena::kPage);
  }
  std::uint8_t out[prm::CreateEqOutput::size] = {};
  if (const CommandResult result = commands.execute(in, out); !result) {
    return runtime::system_error(result.error, "CREATE_EQ");
  }
  queue->number_ = static_cast<std::uint8_t>(prm::CreateEqOutput::eq_number::get(out));
  queue->created_ = true;
  return queue;
}

EventQueue::~EventQueue() {
  destroy();
  if (buffer_.data != nullptr) arena_.release(buffer_);
}

void EventQueue::destroy() {
  if (!created_) return;
  created_ = false;
  CommandInputBuffer in(prm::CommandOpcode::destroy_eq, prm::DestroyEqInput::size);
  prm::DestroyEqInput::eq_number::set(in.data(), number_);
  execute_plain(commands_, in);
}

const std::uint8_t* EventQueue::next_entry() const {
  const std::uint32_t mask = (1U << options_.log_size) - 1;
  std::uint8_t* const entry = buffer_.data + (consumer_ & mask) * prm::Eqe::size;
  const std::uint8_t owner =
      std::atomic_ref<std::uint8_t>(entry[prm::Eqe::size - 1]).load(std::memory_order_acquire) & 1;
  return owner == (consumer_ >> options_.log_size & 1) ? entry : nullptr;
}

bool EventQueue::poll(const Handler& handler) {
  bool any = false;
  while (created_) {
    const std::uint8_t* const entry = next_entry();
    if (entry == nullptr) break;
    // The handler may run commands, and those may poll this queue again: take the entry first.
    std::uint8_t copy[prm::Eqe::size];
    std::copy_n(entry, prm::Eqe::size, copy);
    ++consumer_;
    any = true;
    if ((consumer_ & 0x3f) == 0) update(prm::Uar::eq_update);
    handler(copy);
  }
  return any;
}

void EventQueue::process(const Handler& handler) {
  std::uint64_t count = 0;
  while (::eventfd_read(interrupt_.get(), &count) == 0) {
  }
  poll(handler);
  arm();
}

void EventQueue::arm() {
  if (created_) update(prm::Uar::eq_arm);
}

void EventQueue::update(std::uint64_t register_offset) {
  std::uint8_t value[4] = {};
  prm::EqDoorbell::eqn::set(value, number_);
  prm::EqDoorbell::consumer_index::set(value, consumer_);
  device_.bar_write(options_.uar * prm::kUarPageSize + register_offset,
                    std::as_bytes(std::span(value)), true);
}

}  // namespace softhca::shim
