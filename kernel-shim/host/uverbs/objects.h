// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <rdma/ib_user_ioctl_verbs.h>

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "kernel-shim/host/events/event_channel.h"
#include "kernel-shim/host/memory/dma_region.h"
#include "kernel-shim/host/memory/queue_memory.h"

namespace softhca::shim {

/// What every object of a context has. `uses` counts the objects that refer to it: destroy is EBUSY
/// while it is not 0.
struct ObjectBase {
  std::uint32_t handle = 0;
  std::uint64_t user_handle = 0;
  std::uint32_t uses = 0;
};

struct Pd : ObjectBase {
  std::uint32_t pdn = 0;
};

struct Mr : ObjectBase {
  Pd* pd = nullptr;
  std::uint32_t key = 0;           ///< L_Key and R_Key as created: index << 8 | variant.
  std::uint32_t state_record = 0;  ///< By which the process gives it other names; 0: none.
  std::uint64_t start = 0;
  std::uint64_t length = 0;
  std::uint64_t iova = 0;  ///< Address that work requests use (hca_va).
  std::uint32_t access = 0;
  Pins pins;
  DmaRegion region;
  std::shared_ptr<SharedFile> file;  ///< Null unless `region` may wait there for its next use.
  IdleRegions::Key idle_key;
};

struct Mw : ObjectBase {
  Pd* pd = nullptr;
  std::uint32_t rkey = 0;
};

struct Xrcd;

struct Cq : ObjectBase {
  std::uint32_t cqn = 0;  ///< Also the handle: the preload rings by it.
  std::uint32_t cqe = 0;  ///< Entries - 1.
  std::uint32_t cqe_size = 64;
  std::shared_ptr<EventChannel> channel;
  std::shared_ptr<EventChannel> async;
  std::uint32_t comp_events_reported = 0;
  std::uint32_t async_events_reported = 0;
  QueueMemory memory;
};

enum class SrqKind : std::uint8_t { srq, xrc, rmp };

struct Srq : ObjectBase {
  Pd* pd = nullptr;
  std::shared_ptr<Xrcd> xrcd;
  Cq* cq = nullptr;  ///< XRC only.
  SrqKind kind = SrqKind::rmp;
  std::uint32_t srqn = 0;
  std::uint32_t max_wr = 0;  ///< Entries - 1.
  std::uint32_t max_sge = 0;
  std::shared_ptr<EventChannel> async;
  std::uint32_t events_reported = 0;
  QueueMemory memory;
};

/// One QP of the device; an XRC target QP may be opened by several contexts.
struct RealQp {
  std::uint32_t qpn = 0;
  std::uint8_t type = 0;   ///< ib_uverbs_qp_type.
  std::uint8_t state = 0;  ///< enum ib_qp_state, as the last command left it.
  std::uint8_t port = 0;
  std::uint8_t max_dest_rd_atomic = 0;
  std::uint32_t access_flags = 0;
  std::uint32_t pdn = 0;
  std::uint32_t cqn_snd = 0;
  std::uint32_t cqn_rcv = 0;
  QueueMemory memory;
};

struct Qp : ObjectBase {
  std::shared_ptr<RealQp> real;
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
  std::shared_ptr<Xrcd> xrcd;
  ib_uverbs_qp_cap cap{};
  bool signal_all = false;
  std::uint32_t rq_entries = 0;
  std::uint32_t rq_max_sge = 0;
  std::set<std::pair<std::vector<std::uint8_t>, std::uint16_t>> multicast;  ///< GID, MLID.
  std::shared_ptr<EventChannel> async;
  std::uint32_t events_reported = 0;
};

struct Uar : ObjectBase {
  std::uint32_t index = 0;     ///< Page of BAR0.
  std::uint64_t mmap_key = 0;  ///< Page offset for mmap().
};

/// XRC domain; contexts that open the same inode share it (`device` 0, `inode` 0: private).
struct Xrcd {
  std::uint32_t xrcdn = 0;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
};
struct XrcdHandle : ObjectBase {
  std::shared_ptr<Xrcd> xrcd;
};

struct Ah : ObjectBase {
  Pd* pd = nullptr;
};

}  // namespace softhca::shim
