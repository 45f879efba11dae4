// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/link_trap.h"

#include <array>

#include "hw-model/ib/mad.h"

namespace softhca::fabric {

std::size_t LinkTrap::step(Nanoseconds now, const ib::PortAttributes& own, MadOutbox& outbox) {
  using Header = ib::MadHeader;
  using ib::Notice;
  if (now < next_) return 0;
  next_ = --tries_left_ == 0 ? kNever : now + kInterval;

  std::array<std::uint8_t, ib::kMadSize> trap{};
  Header::base_version::set(trap.data(), 1);
  Header::mgmt_class::set(trap.data(), static_cast<std::uint8_t>(ib::MgmtClass::subn_lid_routed));
  Header::class_version::set(trap.data(), 1);
  Header::method::set(trap.data(), static_cast<std::uint8_t>(ib::MadMethod::trap));
  Header::transaction_id::set(trap.data(), transaction_);
  Header::attribute_id::set(trap.data(), static_cast<std::uint16_t>(ib::SmpAttribute::notice));
  std::uint8_t* notice = ib::Smp::data::at(trap.data());
  Notice::is_generic::set(notice, 1);
  Notice::type::set(notice, static_cast<std::uint8_t>(ib::NoticeType::urgent));
  Notice::producer_type::set(notice, ib::kProducerSwitch);
  Notice::trap_number::set(notice, static_cast<std::uint16_t>(ib::TrapNumber::link_state_change));
  Notice::issuer_lid::set(notice, own.lid);
  // The switch whose link it is: its LID.
  Notice::details::at(notice)[0] = static_cast<std::uint8_t>(own.lid >> 8);
  Notice::details::at(notice)[1] = static_cast<std::uint8_t>(own.lid);

  MadAddress manager;
  manager.lid = own.sm_lid;
  manager.sl = own.sm_sl;
  outbox.send(manager, own.lid, trap);
  return 1;
}

}  // namespace softhca::fabric
