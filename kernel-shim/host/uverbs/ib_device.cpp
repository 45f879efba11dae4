// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/uverbs/ib_device.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "hw-model/ib/port.h"
#include "hw-model/prm/eqe.h"
#include "kernel-shim/host/device/number_commands.h"
#include "kernel-shim/host/uverbs/clock_info.h"
#include "kernel-shim/host/uverbs/context.h"
#include "kernel-shim/host/uverbs/event_types.h"

namespace softhca::shim {
namespace {

void post_async(const std::shared_ptr<EventChannel>& channel, std::uint64_t element,
                std::uint32_t type, std::uint32_t* reported) {
  if (channel == nullptr) return;
  ib_uverbs_async_event_desc record{};
  record.element = element;
  record.event_type = type;
  channel->post(std::as_bytes(std::span(&record, 1)), reported);
}

/// Event type for a QP or RQ event, or 0.
std::uint32_t qp_event_type(prm::EventType type) {
  switch (type) {
    case prm::EventType::path_migrated:
      return kEventPathMigrated;
    case prm::EventType::communication_established:
      return kEventCommunicationEstablished;
    case prm::EventType::sq_drained:
      return kEventSqDrained;
    case prm::EventType::srq_last_wqe:
      return kEventQpLastWqeReached;
    case prm::EventType::path_migration_failed:
      return kEventPathMigrationError;
    case prm::EventType::wq_invalid_request:
      return kEventQpRequestError;
    case prm::EventType::wq_access_error:
      return kEventQpAccessError;
    case prm::EventType::wq_catastrophic:
      return kEventQpFatal;
    default:
      return kNoEvent;
  }
}

}  // namespace

IbDevice::IbDevice(Hca& hca, Offers offers)
    : hca_(hca), offers_(offers), clock_info_(make_clock_info()) {}

int IbDevice::refresh_port() {
  const std::uint32_t gid_count = 8U << hca_.cap<prm::HcaCap::gid_table_size>();
  const std::uint32_t pkey_count = 128U << hca_.cap<prm::HcaCap::pkey_table_size>();
  if (const int error = query_port_state(commands(), kPort, port_)) return error;
  if (const int error = query_gids(commands(), kPort, std::min(gid_count, 256U), gids_))
    return error;
  return query_pkeys(commands(), kPort, std::min(pkey_count, 1024U), pkeys_);
}

void IbDevice::remove(Qp& qp) {
  std::erase_if(qps_, [&qp](const auto& entry) { return entry.second == &qp; });
}

Qp* IbDevice::find_qp(std::uint32_t qpn) {
  const auto found = qps_.find(qpn);
  return found == qps_.end() ? nullptr : found->second;
}

std::shared_ptr<Xrcd> IbDevice::find_xrcd(std::uint64_t device, std::uint64_t inode) {
  const auto found = xrcds_.find({device, inode});
  return found == xrcds_.end() ? nullptr : found->second.lock();
}

int IbDevice::make_xrcd(std::uint64_t device, std::uint64_t inode, std::shared_ptr<Xrcd>& xrcd) {
  std::uint32_t number = 0;
  if (const int error = allocate_number(commands(), kXrcdResource, number)) return error;
  xrcd = std::shared_ptr<Xrcd>(new Xrcd{number, device, inode}, [this](Xrcd* last) {
    release_number(commands(), kXrcdResource, last->xrcdn);
    delete last;
  });
  if (inode != 0) {
    std::erase_if(xrcds_, [](const auto& entry) { return entry.second.expired(); });
    xrcds_[{device, inode}] = xrcd;
  }
  return 0;
}

void IbDevice::completion(std::uint32_t cqn) {
  const auto found = cqs_.find(cqn);
  if (found == cqs_.end()) return;  // Destroyed while its event was on the way.
  Cq& cq = *found->second;
  if (cq.channel == nullptr) return;
  ib_uverbs_comp_event_desc record{};
  record.cq_handle = cq.user_handle;
  cq.channel->post(std::as_bytes(std::span(&record, 1)), &cq.comp_events_reported);
}

void IbDevice::async_event(const std::uint8_t* eqe) {
  const auto type = static_cast<prm::EventType>(prm::Eqe::event_type::get(eqe));
  const std::uint8_t* const data = prm::Eqe::event_data::at(eqe);
  switch (type) {
    case prm::EventType::cq_error: {
      const auto found =
          cqs_.find(static_cast<std::uint32_t>(prm::CqErrorEventData::cqn::get(data)));
      if (found == cqs_.end()) return;
      Cq& cq = *found->second;
      post_async(cq.async, cq.user_handle, kEventCqError, &cq.async_events_reported);
      return;
    }
    case prm::EventType::srq_limit:
    case prm::EventType::srq_catastrophic: {
      const auto found =
          srqs_.find(static_cast<std::uint32_t>(prm::QpSrqEventData::qp_srq_n::get(data)));
      if (found == srqs_.end()) return;
      Srq& srq = *found->second;
      post_async(srq.async, srq.user_handle,
                 type == prm::EventType::srq_limit ? kEventSrqLimitReached : kEventSrqError,
                 &srq.events_reported);
      return;
    }
    case prm::EventType::port_change:
      port_event(static_cast<std::uint8_t>(prm::Eqe::event_sub_type::get(eqe)));
      return;
    case prm::EventType::internal_error:
      fail();
      return;
    default:
      if (const std::uint32_t event = qp_event_type(type); event != kNoEvent) {
        qp_event(static_cast<std::uint32_t>(prm::QpSrqEventData::qp_srq_n::get(data)), event);
      }
  }
}

void IbDevice::qp_event(std::uint32_t qpn, std::uint32_t type) {
  const auto [first, last] = qps_.equal_range(qpn);
  for (auto entry = first; entry != last; ++entry) {
    Qp& qp = *entry->second;
    post_async(qp.async, qp.user_handle, type, &qp.events_reported);
  }
}

void IbDevice::port_event(std::uint8_t subtype) {
  if (const int error = refresh_port()) spdlog::warn("port query failed: errno {}", error);
  if (port_changed_) port_changed_();
  switch (static_cast<ib::PortEvent>(subtype)) {
    case ib::PortEvent::down:
    case ib::PortEvent::initialized:
      device_event(kEventPortError, kPort);
      return;
    case ib::PortEvent::active:
      device_event(kEventPortActive, kPort);
      return;
    case ib::PortEvent::lid_change:
      device_event(kEventLidChange, kPort);
      return;
    case ib::PortEvent::pkey_change:
      device_event(kEventPkeyChange, kPort);
      return;
    case ib::PortEvent::guid_change:
      device_event(kEventGidChange, kPort);
      return;
    case ib::PortEvent::client_reregister:
      device_event(kEventClientReregister, kPort);
      return;
  }
}

void IbDevice::device_event(std::uint32_t type, std::uint64_t element) {
  for (Context* context : contexts_) {
    for (const std::shared_ptr<EventChannel>& file : context->async_files) {
      post_async(file, element, type, nullptr);
    }
  }
}

void IbDevice::fail() {
  device_event(kEventDeviceFatal, 0);
  // Who sleeps for a completion would sleep for ever. No completion is made up: mlx5 makes none for
  // user queues either.
  for (Context* context : contexts_) {
    for (const auto& channel : context->completion_channels) channel->end();
  }
}

}  // namespace softhca::shim
