// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>

#include "hw-model/ib/port.h"
#include "hw-model/queues/event_queue.h"
#include "hw-model/queues/object_table.h"
#include "hw-model/queues/queue_events.h"

namespace softhca {

/// Brings each asynchronous event to the event queue that asked for its type in CREATE_EQ; events
/// that nobody asked for are dropped, as on hardware.
class EventRouter final : public AsyncEvents {
 public:
  explicit EventRouter(ObjectTable<EventQueue>& eqs) : eqs_(eqs) {}

  /// True if an event queue takes events of this type.
  bool wanted(EventType type) const { return find(type) != nullptr; }

  void command_completed(std::uint32_t vector);
  /// Positive: give pages, negative: take pages back.
  void page_request(std::int32_t pages);
  void port_change(std::uint8_t port, ib::PortEvent event);

  // AsyncEvents
  void qp_event(EventType type, std::uint32_t qpn) override;
  void srq_event(EventType type, std::uint32_t srqn) override;
  void cq_error(std::uint32_t cqn, std::uint8_t syndrome) override;

 private:
  EventQueue* find(EventType type) const;

  ObjectTable<EventQueue>& eqs_;
};

}  // namespace softhca
