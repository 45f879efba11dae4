// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <span>

#include "hw-model/memory/mkey_update.h"
#include "hw-model/prm/mkey_context.h"
#include "hw-model/transport/queue_pair.h"
#include "hw-model/transport/requester.h"

// Changes of memory keys by work requests: UMR and local invalidate (IBA 10.6.4, 10.6.5; PRM
// "UMR").
namespace softhca {
namespace {

using Control = prm::UmrCtrlSegment;

constexpr std::size_t kHeader = Control::size + prm::MkeyContext::size;

/// Local invalidate under its own opcode: the key becomes free.
MkeyUpdate invalidation() {
  MkeyUpdate update;
  update.fields = prm::UmrMask::free;
  update.to.free = true;
  return update;
}

/// What the segments of a UMR ask for, but for the list. False: a signature (BSF), which the device
/// does not have.
bool read_update(const std::uint8_t* control, MkeyUpdate& update) {
  switch (Control::check_free::get(control)) {
    case 1:
      update.expect = MkeyUpdate::Expect::free;
      break;
    case 2:
      update.expect = MkeyUpdate::Expect::valid;
      break;
    default:
      break;
  }
  update.check_qpn = Control::check_qpn::get(control) != 0;
  update.fields = Control::mkey_mask::get(control);
  const std::uint64_t low = Control::translation_offset::get(control);
  if (Control::translation_offset_enable::get(control) != 0) {
    update.list_offset = Control::translation_offset_47_16::get(control) << 16 | low;
  } else if (low != 0) {
    return false;
  }
  // The mode of a key is fixed; the one in the context is not looked at.
  read_mkey_attributes(control + Control::size, update.to);
  return true;
}

}  // namespace

Requester::Step Requester::execute_umr(SendWqe& wqe, Quantum& quantum) {
  Core& core = qp_.core();
  MkeyUpdate update;
  if (wqe.opcode == prm::WqeOpcode::local_invalidate) {
    update = invalidation();
  } else {
    const auto* segments = reinterpret_cast<const std::uint8_t*>(wqe.inline_bytes.data());
    if (!read_update(segments, update)) {
      fail_wqe(wqe, kMemoryWindowBind);
      return Step::sent;
    }
    const std::size_t size = Control::translation_units::get(segments) * prm::kWqeUnit;
    if (Control::inline_translations::get(segments) != 0) {
      update.list = {segments + kHeader, size};
    } else if (size != 0) {
      core.umr_list.resize(size);
      const MemoryStatus status = gather(wqe, 0, core.umr_list.data(), size, size);
      if (status == MemoryStatus::pending) return Step::pending;
      if (status != MemoryStatus::ok) {
        fail_wqe(wqe, kLocalProtection);
        return Step::sent;
      }
      update.list = {reinterpret_cast<const std::uint8_t*>(core.umr_list.data()), size};
    }
  }
  const MemoryStatus status = core.mkeys.update(wqe.immediate, qp_.memory_context(), update);
  quantum.charge_packet(core.mkeys.update_cost());
  if (status != MemoryStatus::ok) fail_wqe(wqe, kMemoryWindowBind);
  return Step::sent;
}

}  // namespace softhca
