// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/event_subscriptions.h"

#include <algorithm>

#include "hw-model/ib/sa.h"

namespace softhca::fabric {
namespace {

using ib::InformInfo;

constexpr std::uint16_t kAny = 0xffff;
constexpr std::size_t kDetailsGid = 6;  // of traps 64 to 67

std::array<std::uint8_t, ib::kMadSize> make_report(ib::TrapNumber trap, const ib::Gid& about,
                                                   const EndPort& issuer) {
  using Header = ib::MadHeader;
  using ib::Notice;
  std::array<std::uint8_t, ib::kMadSize> mad{};
  Header::base_version::set(mad.data(), 1);
  Header::mgmt_class::set(mad.data(), static_cast<std::uint8_t>(ib::MgmtClass::subn_adm));
  Header::class_version::set(mad.data(), ib::SaMad::class_version);
  Header::method::set(mad.data(), static_cast<std::uint8_t>(ib::MadMethod::report));
  Header::attribute_id::set(mad.data(), static_cast<std::uint16_t>(ib::SaAttribute::notice));
  std::uint8_t* notice = ib::SaMad::data::at(mad.data());
  Notice::is_generic::set(notice, 1);
  Notice::type::set(notice, static_cast<std::uint8_t>(ib::NoticeType::subnet_management));
  Notice::producer_type::set(notice, ib::kProducerClassManager);
  Notice::trap_number::set(notice, static_cast<std::uint16_t>(trap));
  Notice::issuer_lid::set(notice, issuer.attributes->lid);
  std::copy(about.begin(), about.end(), Notice::details::at(notice) + kDetailsGid);
  std::copy(issuer.gid.begin(), issuer.gid.end(), Notice::issuer_gid::at(notice));
  return mad;
}

}  // namespace

std::uint16_t EventSubscriptions::set(const MadAddress& from, const EndPort& port,
                                      const std::uint8_t* data) {
  const std::uint64_t guid = port.attributes->port_guid;
  if (InformInfo::is_generic::get(data) != 1) return ib::kSaRequestInvalid;
  const auto type = static_cast<std::uint16_t>(InformInfo::type::get(data));
  const auto trap = static_cast<std::uint16_t>(InformInfo::trap_number::get(data));
  const auto same = [&](const Subscription& one) {
    return one.port_guid == guid && one.to.qp == from.qp && one.type == type && one.trap == trap;
  };
  const auto old = std::find_if(subscriptions_.begin(), subscriptions_.end(), same);
  switch (InformInfo::subscribe::get(data)) {
    case 0:
      if (old == subscriptions_.end()) return ib::kSaRequestInvalid;
      subscriptions_.erase(old);
      return ib::kMadOk;
    case 1:
      break;
    default:
      return ib::kSaRequestInvalid;
  }
  if (old != subscriptions_.end()) {
    old->to = from;
    return ib::kMadOk;
  }
  const auto held = std::count_if(subscriptions_.begin(), subscriptions_.end(),
                                  [&](const Subscription& one) { return one.port_guid == guid; });
  if (subscriptions_.size() >= kMaxSubscriptions || static_cast<std::size_t>(held) >= kMaxPerPort) {
    return ib::kSaNoResources;
  }
  subscriptions_.push_back({guid, from, type, trap});
  return ib::kMadOk;
}

void EventSubscriptions::report(ib::TrapNumber trap, const ib::Gid& about, const EndPort& issuer,
                                Nanoseconds now) {
  constexpr auto kType = static_cast<std::uint16_t>(ib::NoticeType::subnet_management);
  for (const Subscription& one : subscriptions_) {
    const bool wanted = (one.type == kAny || one.type == kType) &&
                        (one.trap == kAny || one.trap == static_cast<std::uint16_t>(trap));
    if (!wanted || reports_.size() >= kMaxReports) continue;
    Report& report = reports_.emplace_back();
    report = {one.port_guid,          one.to, ++transaction_, make_report(trap, about, issuer),
              issuer.attributes->lid, now,    kTries};
    ib::MadHeader::transaction_id::set(report.mad.data(), report.transaction);
  }
}

void EventSubscriptions::response(const MadAddress& from, std::uint64_t transaction) {
  std::erase_if(reports_, [&](const Report& report) {
    return report.transaction == transaction && report.to.lid == from.lid;
  });
}

void EventSubscriptions::forget(std::uint64_t port_guid) {
  std::erase_if(subscriptions_,
                [&](const Subscription& one) { return one.port_guid == port_guid; });
  std::erase_if(reports_, [&](const Report& report) { return report.port_guid == port_guid; });
}

void EventSubscriptions::clear() {
  subscriptions_.clear();
  reports_.clear();
}

std::size_t EventSubscriptions::step(Nanoseconds now) {
  std::size_t sent = 0;
  for (Report& report : reports_) {
    if (report.next > now) continue;
    ++sent;
    report.next = report.tries_left == 0 ? kNever : now + kInterval;
    if (report.tries_left == 0) continue;
    --report.tries_left;
    outbox_.send(report.to, report.slid, report.mad);
  }
  // Waited for once more after the last try, in vain.
  if (sent != 0) std::erase_if(reports_, [](const Report& one) { return one.next == kNever; });
  return sent;
}

Nanoseconds EventSubscriptions::next_deadline() const {
  Nanoseconds earliest = kNever;
  for (const Report& report : reports_) earliest = std::min(earliest, report.next);
  return earliest;
}

}  // namespace softhca::fabric
