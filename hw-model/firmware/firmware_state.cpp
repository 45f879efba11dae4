// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/firmware_state.h"

#include <utility>

namespace softhca {
namespace {

/// Context memory of an object, in bytes, about what hardware keeps in its ICM.
constexpr std::uint64_t kQpBytes = 1024;
constexpr std::uint64_t kCqBytes = 128;
constexpr std::uint64_t kSrqBytes = 128;
constexpr std::uint64_t kMkeyBytes = 64;
constexpr std::uint64_t kPageEntryBytes = 8;

}  // namespace

FirmwareState::FirmwareState(FirmwareConfig config_in, DmaSpace& dma_in, ib::Port& port_in,
                             const Clock& clock_in, InterruptSink& interrupts_in)
    : config(std::move(config_in)),
      dma(dma_in),
      port(port_in),
      interrupts(interrupts_in),
      capabilities({.umr = config.umr, .blue_flame = config.blue_flame}),
      pages(config.boot_pages, config.init_pages),
      uars(config.first_uar, config.first_uar + config.uar_count),
      pds(1, 1U << DeviceLimits::kLogMaxPd),
      xrcds(1, 1U << DeviceLimits::kLogMaxXrcd),
      transport_domains(1, 1U << DeviceLimits::kLogMaxTransportDomain),
      user_contexts(1, 1U << DeviceLimits::kLogMaxUctx),
      eqs(1, 1 + DeviceLimits::kMaxEqs),
      events(eqs),
      mkeys(dma, kFirstMkey, 1U << DeviceLimits::kLogMaxMkey),
      transport(dma, mkeys, port, clock_in, events) {
  mkeys.set_reserved_lkey(kReservedLkey);
  mkeys.set_pd_use(&mkey_domains);
  apply_capabilities();
}

bool MkeyDomains::move_key(std::uint32_t mkey_index, std::uint32_t pd) {
  auto domain = state_.pds.ref(pd);
  if (!domain) return false;
  state_.mkey_records[mkey_index].pd = std::move(domain);
  return true;
}

void FirmwareState::destroy_objects() {
  // Users first: every record and queue pair holds references to what comes after it.
  for (const auto& [mgid, members] : multicast_groups) {
    for (std::size_t i = 0; i < members.size(); ++i) port.detach_multicast(mgid);
  }
  multicast_groups.clear();
  qp_records.clear();
  sq_records.clear();
  srq_records.clear();
  transport.clear();
  cq_records.clear();
  mkey_records.clear();
  mkey_states.clear();
  mkeys.clear();
  eq_records.clear();
  eqs.clear();
  user_contexts.clear();
  transport_domains.clear();
  xrcds.clear();
  pds.clear();
  uars.clear();
  pages.set_used(0);
}

void FirmwareState::reset() {
  destroy_objects();
  pages.reset();
  capabilities.reset();
  apply_capabilities();
  phase = HcaPhase::disabled;
  failed = false;
  issi = 0;
  driver_version.clear();
}

void FirmwareState::account_pages() {
  pages.set_used((qp_records.size() + sq_records.size()) * kQpBytes + cq_records.size() * kCqBytes +
                 srq_records.size() * kSrqBytes + mkey_records.size() * kMkeyBytes +
                 mkeys.page_entries() * kPageEntryBytes);
  if (!events.wanted(EventType::page_request)) return;
  if (const std::int32_t request = pages.next_request(); request != 0) events.page_request(request);
}

void FirmwareState::apply_capabilities() {
  transport.config().host_endian_atomics = capabilities.host_endian_atomics();
}

}  // namespace softhca
