// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/send_queue.h"

#include <algorithm>

#include "provider/ordering.h"

namespace softhca::provider {
namespace {

struct UmrCtrlBytes {
  std::uint8_t bytes[prm::UmrCtrlSegment::size];
};
struct UmrMkeyBytes {
  std::uint8_t bytes[prm::UmrMkeySegment::size];
};
/// Inline translations of a UMR WQE come in whole basic blocks.
struct UmrInlineBlock {
  std::uint8_t bytes[prm::kWqeBasicBlock];
};

constexpr std::uint32_t kAnyQp = 0xffffff;

void copy_blocks(const SendQueue& queue, std::uint8_t* reg, const prm::CtrlWords* ctrl,
                 std::uint32_t blocks) {
  const auto* from = reinterpret_cast<const std::uint8_t*>(ctrl);
  for (std::uint32_t i = 0; i < blocks; ++i) {
    store_blue_flame_block(reg, from);
    reg += prm::kWqeBasicBlock;
    from += prm::kWqeBasicBlock;
    if (from == queue.end) from = queue.start;
  }
}

}  // namespace

void SendQueue::ring(std::uint32_t count, const prm::CtrlWords* ctrl, std::uint32_t units,
                     bool copy) {
  if (count == 0) return;
  head += count;
  fence_before_record();
  store_record(record, producer & 0xffff);
  if (hints->active()) {
    hints->send_rung(qpn);  // Nobody looks at the page.
  } else {
    ring_register(ctrl, units, copy && count == 1);
  }
  open_plain_path();
}

void SendQueue::open_plain_path() {
  if (raw_write == 0) {
    raw_write = raw_first(qpn, prm::WqeOpcode::rdma_write, kWriteUnits);
    raw_signalling = static_cast<std::uint32_t>(signal_all) << 24;
    hint_map = hints->map();
    if (hint_map != nullptr) hint = hint_map->sq.place_of(qpn);
  }
  const bool open = plain_type && next_fence == 0 && max_sge != 0;
  plain_until = open ? tail.load(std::memory_order_acquire) + max_post : head;
}

void SendQueue::ring_register(const prm::CtrlWords* ctrl, std::uint32_t units, bool copy) {
  const bool blue_flame =
      copy && units > 1 && uar->blue_flame() && units * prm::kWqeUnit <= uar->half();
  uar->lock.lock();
  fence_before_doorbell();
  if (blue_flame) {
    const auto blocks = (units * prm::kWqeUnit + prm::kWqeBasicBlock - 1) / prm::kWqeBasicBlock;
    copy_blocks(*this, uar->send_register(), ctrl, static_cast<std::uint32_t>(blocks));
  } else {
    std::uint64_t first = 0;
    std::memcpy(&first, ctrl, sizeof(first));
    store_doorbell(uar->send_register(), first);
  }
  flush_doorbell();
  uar->flip();
  uar->lock.unlock();
}

void write_bind(WqeWriter& writer, ibv_mw_type type, std::uint32_t new_rkey,
                const ibv_mw_bind_info& info, std::uint32_t qpn) {
  using Ctrl = prm::UmrCtrlSegment;
  using Mkey = prm::UmrMkeySegment;
  using Mask = prm::UmrMask;
  const bool bind = info.length != 0;

  std::uint8_t* ctrl = writer.segment<UmrCtrlBytes>()->bytes;
  std::fill_n(ctrl, Ctrl::size, std::uint8_t{0});
  Ctrl::inline_translations::set(ctrl, 1);
  Ctrl::translation_offset_enable::set(ctrl, 1);
  std::uint64_t mask = Mask::free | Mask::key;
  if (type == IBV_MW_TYPE_2) mask |= Mask::qpn;
  if (bind) {
    // One KLM, counted in a multiple of four 16-byte units.
    Ctrl::translation_units::set(ctrl, 4);
    if (type == IBV_MW_TYPE_2) Ctrl::check_free::set(ctrl, 1);
    mask |= Mask::length | Mask::start_address | Mask::local_write | Mask::remote_read |
            Mask::remote_write | Mask::atomic;
  } else if (type == IBV_MW_TYPE_2) {
    Ctrl::check_qpn::set(ctrl, 1);
  }
  Ctrl::mkey_mask::set(ctrl, mask);

  std::uint8_t* mkey = writer.segment<UmrMkeyBytes>()->bytes;
  std::fill_n(mkey, Mkey::size, std::uint8_t{0});
  Mkey::key::set(mkey, new_rkey & 0xff);
  Mkey::qpn::set(mkey, type == IBV_MW_TYPE_2 && bind ? qpn : kAnyQp);
  if (!bind) {
    Mkey::free::set(mkey, 1);
    return;
  }
  const unsigned access = info.mw_access_flags;
  Mkey::local_write::set(mkey, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
  Mkey::remote_write::set(mkey, (access & IBV_ACCESS_REMOTE_WRITE) != 0);
  Mkey::remote_read::set(mkey, (access & IBV_ACCESS_REMOTE_READ) != 0);
  Mkey::atomic::set(mkey, (access & IBV_ACCESS_REMOTE_ATOMIC) != 0);
  Mkey::start_address::set(mkey, (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : info.addr);
  Mkey::length::set(mkey, info.length);

  std::uint8_t* klm = writer.segment<UmrInlineBlock>()->bytes;
  std::fill_n(klm, sizeof(UmrInlineBlock), std::uint8_t{0});
  prm::KlmEntry::byte_count::set(klm, info.length);
  prm::KlmEntry::key::set(klm, info.mr->lkey);
  prm::KlmEntry::address::set(klm, info.addr);
}

}  // namespace softhca::provider
