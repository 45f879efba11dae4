// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/qp.h"

#include <cerrno>
#include <memory>
#include <mutex>
#include <new>

#include "hw-model/prm/uar.h"
#include "provider/abi/commands.h"
#include "provider/abi/version.h"
#include "provider/context.h"
#include "provider/cq.h"
#include "provider/domains.h"
#include "provider/ordering.h"

namespace softhca::provider {
namespace {

constexpr std::uint32_t kKnownMask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
                                     IBV_QP_INIT_ATTR_SEND_OPS_FLAGS |
                                     IBV_QP_INIT_ATTR_CREATE_FLAGS;
/// "No user index": the kernel's value for QPs whose completions never name them.
constexpr std::uint32_t kNoUserIndex = 0xffffff;

ProtectionDomain* domain_of(const ibv_qp_init_attr_ex& attr) {
  return (attr.comp_mask & IBV_QP_INIT_ATTR_PD) != 0 && attr.pd != nullptr
             ? ProtectionDomain::of(attr.pd)
             : nullptr;
}

/// The operations that the application will post, or an errno when it asks for one of no use on
/// this type.
int wanted_operations(const ibv_qp_init_attr_ex& attr, std::uint64_t& operations) {
  const std::uint64_t possible = operations_of(attr.qp_type);
  if (possible == 0) return EOPNOTSUPP;
  operations = possible;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
    if ((attr.send_ops_flags & ~possible) != 0) return EOPNOTSUPP;
    operations = attr.send_ops_flags;
  }
  return 0;
}

/// Lays rings over fresh pages and sets up what the queues need of the context. False with errno.
bool prepare_queues(Context& context, QueuePair& qp, const ibv_qp_init_attr_ex& attr,
                    const QueueSizes& sizes) {
  ProtectionDomain* domain = domain_of(attr);
  const std::size_t bytes = sizes.recv_bytes() + sizes.send_bytes();
  const CustomAllocator allocator = domain != nullptr ? domain->allocator : CustomAllocator{};
  if (bytes != 0 && !qp.pages.allocate(bytes, allocator, AllocationType::qp)) return false;
  qp.record = context.records.allocate();
  if (qp.record == nullptr) return false;

  const bool locked = domain == nullptr || domain->thread_domain == nullptr;
  qp.rq.start = qp.pages.data();
  qp.rq.count = sizes.recv_count;
  qp.rq.stride_shift = sizes.recv_stride_shift;
  qp.rq.max_sge = sizes.recv_max_sge;
  qp.rq.record = &qp.record[prm::QpDoorbellRecord::receive_word];
  qp.rq.lock.set_needed(locked);
  qp.sq.start = qp.pages.data() + sizes.recv_bytes();
  qp.sq.end = qp.sq.start + sizes.send_bytes();
  qp.sq.block_count = sizes.send_blocks;
  qp.sq.block_mask = sizes.send_blocks - 1;
  qp.sq.max_post = sizes.max_post;
  qp.sq.max_inline = sizes.max_inline;
  qp.sq.max_sge = attr.cap.max_send_sge;
  qp.sq.signal_all = attr.sq_sig_all != 0 ? prm::CtrlWords::kCqUpdate : 0;
  qp.sq.record = &qp.record[prm::QpDoorbellRecord::send_word];
  qp.sq.plain_type = attr.qp_type == IBV_QPT_RC || attr.qp_type == IBV_QPT_UC;
  qp.sq.hints = &context.hints;
  qp.sq.lock.set_needed(locked);
  if (sizes.send_blocks != 0) qp.sq.slots.reset(new (std::nothrow) SendSlot[sizes.send_blocks]);
  if (sizes.recv_count != 0) qp.rq.wr_ids.reset(new (std::nothrow) std::uint64_t[sizes.recv_count]);
  if ((sizes.send_blocks != 0 && qp.sq.slots == nullptr) ||
      (sizes.recv_count != 0 && qp.rq.wr_ids == nullptr)) {
    errno = ENOMEM;
    return false;
  }
  qp.sq.uar = locked ? context.acquire_uar() : domain->thread_domain->uar.get();
  return true;
}

/// Undoes prepare_queues() and the resource table; for failures and for destruction.
void release_queues(Context& context, QueuePair& qp, bool own_uar) {
  if (qp.has_resource) context.resources.erase(qp.resource.user_index);
  qp.has_resource = false;
  if (own_uar) context.release_uar(qp.sq.uar);
  qp.sq.uar = nullptr;
  context.records.release(qp.record);
  qp.record = nullptr;
}

/// Fills a create command and runs it; 0 or an errno.
template <typename Command, typename Response, typename Run>
int create_in_kernel(const QueuePair& qp, const QueueSizes& sizes, Run run) {
  Command command;
  Response response;
  mlx5_ib_create_qp& driver = command.driver;
  driver.buf_addr = reinterpret_cast<std::uintptr_t>(qp.pages.data());
  driver.db_addr = reinterpret_cast<std::uintptr_t>(qp.record);
  driver.sq_wqe_count = sizes.send_blocks;
  driver.rq_wqe_count = sizes.recv_count;
  driver.rq_wqe_shift = sizes.recv_stride_shift;
  driver.uidx = qp.has_resource ? qp.resource.user_index : kNoUserIndex;
  driver.flags = MLX5_QP_FLAG_UAR_PAGE_INDEX;
  driver.bfreg_index = qp.sq.uar->page_id();
  return run(&command, sizeof(command), &response, sizeof(response));
}

int create_in_kernel(Context& context, QueuePair& qp, ibv_qp_init_attr_ex& attr,
                     const QueueSizes& sizes) {
  ibv_context* base = &context.verbs.context;
  if ((attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0) {
    return create_in_kernel<abi::CreateQpEx, abi::CreateQpExResponse>(
        qp, sizes, [&](void* cmd, std::size_t cmd_size, void* resp, std::size_t resp_size) {
          return abi::ibv_cmd_create_qp_ex2(base, &qp.verbs, &attr, cmd, cmd_size, resp, resp_size);
        });
  }
  return create_in_kernel<abi::CreateQp, abi::CreateQpResponse>(
      qp, sizes, [&](void* cmd, std::size_t cmd_size, void* resp, std::size_t resp_size) {
        return abi::ibv_cmd_create_qp_ex(base, &qp.verbs, &attr, cmd, cmd_size, resp, resp_size);
      });
}

void report_caps(const QueuePair& qp, ibv_qp_cap& cap) {
  cap.max_send_wr = qp.sq.max_post;
  cap.max_inline_data = qp.sq.max_inline;
  cap.max_recv_wr = qp.rq.count;
  cap.max_recv_sge = qp.rq.max_sge;
}

void note_state(QueuePair& qp, ibv_qp_state state) {
  switch (state) {
    case IBV_QPS_RESET:
      qp.can_send = qp.can_receive = false;
      break;
    case IBV_QPS_INIT:
    case IBV_QPS_RTR:
      qp.can_send = false;
      qp.can_receive = true;
      break;
    case IBV_QPS_RTS:
    case IBV_QPS_ERR:
      qp.can_send = qp.can_receive = true;
      break;
    default:
      break;
  }
  if (qp.can_send) return;
  const std::lock_guard guard(qp.sq.lock);
  qp.sq.close_plain_path();
}

/// Takes the QP's CQEs out of both CQs.
void clean_cqs(ibv_qp* base, const QueuePair& qp) {
  if (!qp.has_resource) return;
  const std::uint32_t index = qp.resource.user_index;
  if (base->recv_cq != nullptr) clean(*CompletionQueue::of(base->recv_cq), index, qp.srq);
  if (base->send_cq != nullptr && base->send_cq != base->recv_cq) {
    clean(*CompletionQueue::of(base->send_cq), index, nullptr);
  }
}

bool owns_uar(const QueuePair& qp) {
  const ProtectionDomain* domain =
      qp.verbs.qp.pd != nullptr ? ProtectionDomain::of(qp.verbs.qp.pd) : nullptr;
  return domain == nullptr || domain->thread_domain == nullptr;
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* base, ibv_qp_init_attr_ex* attr) {
  Context& context = *Context::of(base);
  std::uint64_t operations = 0;
  QueueSizes sizes;
  int error =
      (attr->comp_mask & ~kKnownMask) != 0 ? EOPNOTSUPP : wanted_operations(*attr, operations);
  if (error == 0) error = compute_sizes(context.limits, *attr, operations, sizes);
  if (error != 0) {
    errno = error;
    return nullptr;
  }
  std::unique_ptr<QueuePair> qp(new (std::nothrow) QueuePair);
  if (qp == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  ProtectionDomain* domain = domain_of(*attr);
  const bool own_uar = domain == nullptr || domain->thread_domain == nullptr;
  if (!prepare_queues(context, *qp, *attr, sizes)) {
    const int saved = errno;
    release_queues(context, *qp, false);
    errno = saved;
    return nullptr;
  }
  if (attr->srq != nullptr) qp->srq = SharedReceiveQueue::of(attr->srq);
  qp->resource.kind = Resource::Kind::queue_pair;
  // The kernel's side of an XRC target has no queues; its completions name the SRQ.
  if (attr->qp_type != IBV_QPT_XRC_RECV) {
    qp->has_resource = context.resources.insert(&qp->resource).has_value();
    if (!qp->has_resource) error = ENOMEM;
  }
  if (error == 0) error = create_in_kernel(context, *qp, *attr, sizes);
  if (error != 0) {
    release_queues(context, *qp, own_uar);
    errno = error;
    return nullptr;
  }
  qp->sq.qpn = qp->verbs.qp.qp_num;
  report_caps(*qp, attr->cap);
  if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) {
    install_builder(*qp);
    abi::add_qp_comp_mask(qp->verbs, abi::kVerbsQpEx);
  }
  if (domain != nullptr) domain->users.fetch_add(1, std::memory_order_relaxed);
  return &qp.release()->verbs.qp;
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attr) {
  ibv_qp_init_attr_ex extended{};
  extended.qp_context = attr->qp_context;
  extended.send_cq = attr->send_cq;
  extended.recv_cq = attr->recv_cq;
  extended.srq = attr->srq;
  extended.cap = attr->cap;
  extended.qp_type = attr->qp_type;
  extended.sq_sig_all = attr->sq_sig_all;
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd;
  ibv_qp* qp = create_qp_ex(pd->context, &extended);
  if (qp != nullptr) attr->cap = extended.cap;
  return qp;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attr) {
  std::unique_ptr<QueuePair> qp(new (std::nothrow) QueuePair);
  if (qp == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  abi::OpenQp command;
  abi::OpenQpResponse response;
  if (const int error = abi::ibv_cmd_open_qp(context, &qp->verbs, sizeof(qp->verbs), attr, &command,
                                             sizeof(command), &response, sizeof(response));
      error != 0) {
    errno = error;
    return nullptr;
  }
  return &qp.release()->verbs.qp;
}

int modify_qp(ibv_qp* base, ibv_qp_attr* attr, int mask) {
  QueuePair& qp = *QueuePair::of(base);
  abi::ModifyQp command;
  if (const int error = abi::ibv_cmd_modify_qp(base, attr, mask, &command, sizeof(command));
      error != 0) {
    return error;
  }
  if ((mask & IBV_QP_STATE) == 0) return 0;
  if (attr->qp_state == IBV_QPS_RESET && qp.record != nullptr) {
    clean_cqs(base, qp);
    qp.sq.reset();
    qp.rq.reset();
    store_record(&qp.record[prm::QpDoorbellRecord::receive_word], 0);
    store_record(&qp.record[prm::QpDoorbellRecord::send_word], 0);
  }
  note_state(qp, attr->qp_state);
  return 0;
}

int query_qp(ibv_qp* base, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init_attr) {
  const QueuePair& qp = *QueuePair::of(base);
  abi::QueryQp command;
  if (const int error =
          abi::ibv_cmd_query_qp(base, attr, mask, init_attr, &command, sizeof(command));
      error != 0) {
    return error;
  }
  if (qp.record != nullptr) {
    init_attr->cap.max_send_wr = qp.sq.max_post;
    init_attr->cap.max_send_sge = qp.sq.max_sge;
    init_attr->cap.max_inline_data = qp.sq.max_inline;
  }
  attr->cap = init_attr->cap;
  return 0;
}

int destroy_qp(ibv_qp* base) {
  QueuePair* qp = QueuePair::of(base);
  Context& context = *Context::of(base->context);
  const bool own_uar = owns_uar(*qp);
  ProtectionDomain* domain = base->pd != nullptr ? ProtectionDomain::of(base->pd) : nullptr;
  const bool opened = qp->record == nullptr;  // ibv_open_qp: no queues of its own
  if (const int error = abi::ibv_cmd_destroy_qp(base); error != 0) return error;
  if (!opened) {
    clean_cqs(base, *qp);
    release_queues(context, *qp, own_uar);
  }
  delete qp;  // Gives memory back to the domain's allocator, so the domain comes after it.
  if (!opened && domain != nullptr) domain->users.fetch_sub(1, std::memory_order_release);
  return 0;
}

int post_recv(ibv_qp* base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  QueuePair& qp = *QueuePair::of(base);
  if (!qp.can_receive || qp.rq.count == 0) {
    *bad = wr;
    return EINVAL;
  }
  return qp.rq.post(wr, bad);
}

}  // namespace softhca::provider
