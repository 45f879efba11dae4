// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/fabric/mad_outbox.h"

#include <cstring>
#include <utility>

#include "hw-model/ib/psn.h"

namespace softhca::fabric {
namespace {

constexpr std::uint8_t kManagementVl = 15;

}  // namespace

void MadOutbox::send(const MadAddress& to, std::uint16_t slid, ib::MadIn mad) {
  push(to, slid, 0, mad);
}

void MadOutbox::send_by_port(std::uint8_t port, ib::MadIn smp) {
  MadAddress next_hop;
  next_hop.lid = ib::kPermissiveLid;
  push(next_hop, ib::kPermissiveLid, port, smp);
}

void MadOutbox::push(const MadAddress& to, std::uint16_t slid, std::uint8_t port, ib::MadIn mad) {
  if (waiting_.size() >= kLimit) return;
  const bool smp = to.qp == ib::kQp0;
  auto packet = std::make_unique<ib::Packet>();
  packet->path.slid = slid;
  packet->path.dlid = to.lid;
  packet->path.sl = to.sl;
  packet->path.has_grh = to.has_grh;
  packet->path.grh = to.grh;
  packet->vl = smp ? kManagementVl : 0;
  packet->bth.opcode = ib::make_opcode(ib::Service::ud, ib::Operation::send_only);
  packet->bth.pkey = to.pkey;
  packet->bth.dest_qp = to.qp;
  packet->bth.psn = psn_ = ib::psn_add(psn_, 1);
  packet->deth.qkey = smp ? 0 : ib::kQp1Qkey;
  packet->deth.src_qp = smp ? ib::kQp0 : ib::kQp1;
  packet->payload.resize(mad.size());
  std::memcpy(packet->payload.bytes(), mad.data(), mad.size());
  waiting_.push_back({std::move(packet), port});
}

}  // namespace softhca::fabric
