// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/event_router.h"

#include <array>

#include "hw-model/prm/eqe.h"

namespace softhca {
namespace {

using EventData = std::array<std::uint8_t, EventQueue::kDataSize>;

}  // namespace

EventQueue* EventRouter::find(EventType type) const {
  EventQueue* found = nullptr;
  eqs_.for_each([&](EventQueue& eq) {
    if (found == nullptr && (eq.params().event_mask >> static_cast<unsigned>(type) & 1) != 0)
      found = &eq;
  });
  return found;
}

void EventRouter::command_completed(std::uint32_t vector) {
  EventQueue* eq = find(EventType::command_completion);
  if (eq == nullptr) return;
  EventData data{};
  prm::CommandEventData::vector::set(data.data(), vector);
  eq->post(EventType::command_completion, 0, data);
}

void EventRouter::page_request(std::int32_t pages) {
  EventQueue* eq = find(EventType::page_request);
  if (eq == nullptr) return;
  EventData data{};
  prm::PageRequestEventData::num_pages::set(data.data(), static_cast<std::uint32_t>(pages));
  eq->post(EventType::page_request, 0, data);
}

void EventRouter::port_change(std::uint8_t port, ib::PortEvent event) {
  EventQueue* eq = find(EventType::port_change);
  if (eq == nullptr) return;
  EventData data{};
  prm::PortChangeEventData::port_num::set(data.data(), port);
  eq->post(EventType::port_change, static_cast<std::uint8_t>(event), data);
}

void EventRouter::qp_event(EventType type, std::uint32_t qpn) {
  EventQueue* eq = find(type);
  if (eq == nullptr) return;
  EventData data{};
  prm::QpSrqEventData::qp_srq_n::set(data.data(), qpn);
  eq->post(type, 0, data);
}

void EventRouter::srq_event(EventType type, std::uint32_t srqn) {
  EventQueue* eq = find(type);
  if (eq == nullptr) return;
  EventData data{};
  prm::QpSrqEventData::qp_srq_n::set(data.data(), srqn);
  eq->post(type, 0, data);
}

void EventRouter::cq_error(std::uint32_t cqn, std::uint8_t syndrome) {
  EventQueue* eq = find(EventType::cq_error);
  if (eq == nullptr) return;
  EventData data{};
  prm::CqErrorEventData::cqn::set(data.data(), cqn);
  prm::CqErrorEventData::syndrome::set(data.data(), syndrome);
  eq->post(EventType::cq_error, 0, data);
}

}  // namespace softhca
