// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Creation and destruction of queue pairs.
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>

#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/qp_context.h"
#include "kernel-shim/host/uverbs/method.h"
#include "kernel-shim/host/uverbs/qp_transition.h"

namespace softhca::shim {
namespace {

constexpr std::uint32_t kDefaultUserIndex = 0xffffff;
constexpr std::uint32_t kNoBfreg = 0xffffffff;  // MLX5_IB_INVALID_BFREG.
constexpr std::uint32_t kPathMigrated = 3;
constexpr unsigned kWqeBlockShift = 6;
constexpr std::uint8_t kScatter32 = 0x1;  // MLX5_RES_SCAT_DATA32_CQE and MLX5_REQ_SCAT_DATA32_CQE.
constexpr std::uint8_t kScatter64Response = 0x2;
constexpr std::uint8_t kScatter32Request = 0x11;
constexpr std::uint8_t kScatter64Request = 0x22;

/// Creation arguments, whichever way they came.
struct QpRequest {
  std::uint32_t type = 0;
  std::uint64_t user_handle = 0;
  ib_uverbs_qp_cap cap{};
  std::uint32_t flags = 0;  ///< ib_uverbs_qp_create_flags.
  Pd* pd = nullptr;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;
  std::shared_ptr<Xrcd> xrcd;
  std::shared_ptr<EventChannel> async;
};

std::optional<prm::QpServiceType> service_type(std::uint32_t type) {
  switch (type) {
    case IB_UVERBS_QPT_RC:
      return prm::QpServiceType::rc;
    case IB_UVERBS_QPT_UC:
      return prm::QpServiceType::uc;
    case IB_UVERBS_QPT_UD:
      return prm::QpServiceType::ud;
    case IB_UVERBS_QPT_XRC_INI:
    case IB_UVERBS_QPT_XRC_TGT:
      return prm::QpServiceType::xrc;
    default:
      return std::nullopt;
  }
}

/// process_vendor_flags: what is not known or not offered is EINVAL, scatter to CQE is only a wish.
int check_driver_flags(const Hca& hca, std::uint32_t& flags) {
  constexpr std::uint32_t known =
      MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE | MLX5_QP_FLAG_UAR_PAGE_INDEX;
  std::uint32_t allowed = known;
  if (hca.cap<prm::HcaCap::wq_signature>() != 0) allowed |= MLX5_QP_FLAG_SIGNATURE;
  if (hca.cap<prm::HcaCap::qp_packet_based>() != 0) {
    allowed |= MLX5_QP_FLAG_PACKET_BASED_CREDIT_MODE;
  }
  if ((flags & ~allowed) != 0) return EINVAL;
  if (hca.cap<prm::HcaCap::sctr_data_cqe>() == 0) {
    flags &= ~std::uint32_t{MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE};
  }
  return 0;
}

/// Sizes that the library chose for its buffer (set_rq_size, set_user_buf_size).
int check_sizes(const Hca& hca, const QpRequest& request, bool has_rq,
                const mlx5_ib_create_qp& driver) {
  const std::uint32_t most = 1U << hca.cap<prm::HcaCap::log_max_qp_sz>();
  if (request.cap.max_recv_wr > most || driver.sq_wqe_count > most || driver.rq_wqe_count > most) {
    return EINVAL;
  }
  if (driver.sq_wqe_count != 0 && !std::has_single_bit(driver.sq_wqe_count)) return EINVAL;
  if (!has_rq) return driver.rq_wqe_count == 0 && driver.rq_wqe_shift == 0 ? 0 : EINVAL;
  if (driver.rq_wqe_count == 0) return 0;
  if (!std::has_single_bit(driver.rq_wqe_count)) return EINVAL;
  return driver.rq_wqe_shift >= 4 && driver.rq_wqe_shift <= 11 ? 0 : EINVAL;
}

int user_index(const Context& context, const Call& call, const mlx5_ib_create_qp& driver,
               std::uint32_t& index) {
  index = kDefaultUserIndex;
  const bool given = call.udata.size() >= offsetof(mlx5_ib_create_qp, uidx) + sizeof(driver.uidx);
  if (context.cqe_version == 0) return 0;
  if (!given || driver.uidx >= kDefaultUserIndex) return EINVAL;
  index = driver.uidx;
  return 0;
}

void set_scatter(std::uint8_t* qpc, const QpRequest& request, std::uint32_t flags) {
  if ((flags & MLX5_QP_FLAG_SCATTER_CQE) == 0) return;
  if (request.recv_cq != nullptr &&
      (request.type == IB_UVERBS_QPT_RC || request.type == IB_UVERBS_QPT_UC)) {
    prm::QpContext::cs_res::set(qpc,
                                request.recv_cq->cqe_size == 128 ? kScatter64Response : kScatter32);
  }
  const bool allowed = (request.flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL) != 0 ||
                       (flags & MLX5_QP_FLAG_ALLOW_SCATTER_CQE) != 0;
  if (request.send_cq != nullptr && request.type == IB_UVERBS_QPT_RC && allowed) {
    prm::QpContext::cs_req::set(
        qpc, request.send_cq->cqe_size == 128 ? kScatter64Request : kScatter32Request);
  }
}

prm::QpReceiveQueueType receive_type(const QpRequest& request, bool has_rq) {
  if (request.srq != nullptr || request.type == IB_UVERBS_QPT_XRC_TGT) {
    return prm::QpReceiveQueueType::srq_rmp_xrc_srq;
  }
  return has_rq ? prm::QpReceiveQueueType::regular : prm::QpReceiveQueueType::none;
}

/// create_user_qp: everything of the context that both XRC target and ordinary QPs have.
void set_context(Context& context, const QpRequest& request, bool has_rq, std::uint8_t* qpc) {
  using Qpc = prm::QpContext;
  const Hca& hca = context.hca();
  Qpc::st::set(qpc, static_cast<std::uint64_t>(*service_type(request.type)));
  Qpc::pm_state::set(qpc, kPathMigrated);
  if (request.pd != nullptr) Qpc::pd::set(qpc, request.pd->pdn);
  Qpc::block_lb_mc::set(
      qpc, (request.flags & IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK) != 0 ? 1 : 0);
  Qpc::end_padding_mode::set(
      qpc, (request.flags & IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING) != 0 ? 1 : 0);
  Qpc::rq_type::set(qpc, static_cast<std::uint64_t>(receive_type(request, has_rq)));
  const Cq* const send = request.send_cq;
  const Cq* const recv = request.recv_cq != nullptr ? request.recv_cq : send;
  if (send != nullptr) Qpc::cqn_snd::set(qpc, send->cqn);
  if (recv != nullptr) Qpc::cqn_rcv::set(qpc, recv->cqn);
  if (request.srq != nullptr) Qpc::srqn_rmpn_xrqn::set(qpc, request.srq->srqn);
  if (request.xrcd != nullptr) {
    Qpc::xrcd::set(qpc, request.xrcd->xrcdn);
  } else {
    Qpc::xrcd::set(qpc, request.srq != nullptr ? hca.xrcd0() : hca.xrcd1());
  }
}

int execute_create(Context& context, CommandInputBuffer& in, RealQp& real) {
  std::uint8_t out[prm::CreateQpOutput::size] = {};
  const CommandResult result = context.commands().execute(in, out);
  if (result) real.qpn = static_cast<std::uint32_t>(prm::CreateQpOutput::qpn::get(out));
  return result.error;
}

int create_target(Context& context, const QpRequest& request, RealQp& real) {
  int error = 0;
  const TargetObjects* const objects = context.hca().target_objects(error);
  if (objects == nullptr) return error;
  CommandInputBuffer in(prm::CommandOpcode::create_qp, prm::CreateQpInput::size);
  std::uint8_t* const qpc = in.at(prm::CreateQpInput::qpc::offset);
  set_context(context, request, false, qpc);
  prm::QpContext::pd::set(qpc, objects->pdn());
  prm::QpContext::cqn_snd::set(qpc, objects->cqn());
  prm::QpContext::cqn_rcv::set(qpc, objects->cqn());
  prm::QpContext::no_sq::set(qpc, 1);
  prm::QpContext::user_index::set(qpc, kDefaultUserIndex);
  return execute_create(context, in, real);
}

int create_ordinary(Context& context, Call& call, const QpRequest& request, Qp& qp, RealQp& real) {
  mlx5_ib_create_qp driver{};
  call.read_udata(driver);
  if (const int error = check_driver_flags(context.hca(), driver.flags)) return error;
  const bool has_rq = request.type != IB_UVERBS_QPT_XRC_INI && request.srq == nullptr &&
                      request.cap.max_recv_wr != 0;
  if (const int error = check_sizes(context.hca(), request, has_rq, driver)) return error;
  std::uint32_t index = 0;
  if (const int error = user_index(context, call, driver, index)) return error;
  if ((driver.flags & MLX5_QP_FLAG_UAR_PAGE_INDEX) == 0 || !context.owns_uar(driver.bfreg_index)) {
    return EINVAL;
  }
  const std::uint64_t bytes = (std::uint64_t{driver.rq_wqe_count} << driver.rq_wqe_shift) +
                              (std::uint64_t{driver.sq_wqe_count} << kWqeBlockShift);
  if (driver.db_addr == 0) return EFAULT;
  if (const int error =
          context.map_queue(call, driver.buf_addr, bytes, driver.db_addr, real.memory)) {
    return error;
  }

  using Qpc = prm::QpContext;
  const QueueMemory& memory = real.memory;
  CommandInputBuffer in(prm::CommandOpcode::create_qp,
                        prm::CreateQpInput::size + memory.pages.size() * 8);
  std::uint8_t* const qpc = in.at(prm::CreateQpInput::qpc::offset);
  set_context(context, request, has_rq, qpc);
  set_scatter(qpc, request, driver.flags);
  Qpc::wq_signature::set(qpc, (driver.flags & MLX5_QP_FLAG_SIGNATURE) != 0 ? 1 : 0);
  Qpc::log_page_size::set(qpc, memory.log_page_size);
  Qpc::page_offset::set(qpc, memory.page_offset);
  Qpc::uar_page::set(qpc, driver.bfreg_index);
  Qpc::user_index::set(qpc, index);
  Qpc::dbr_addr::set(qpc, memory.doorbell_iova);
  if (driver.rq_wqe_count != 0) {
    Qpc::log_rq_stride::set(qpc, driver.rq_wqe_shift - 4);
    Qpc::log_rq_size::set(qpc, static_cast<std::uint64_t>(std::countr_zero(driver.rq_wqe_count)));
  }
  if (driver.sq_wqe_count != 0) {
    Qpc::log_sq_size::set(qpc, static_cast<std::uint64_t>(std::countr_zero(driver.sq_wqe_count)));
  } else {
    Qpc::no_sq::set(qpc, 1);
  }
  for (std::size_t i = 0; i < memory.pages.size(); ++i) {
    prm::Field<0, 64>::set(in.at(prm::CreateQpInput::pas_offset + i * 8), memory.pages[i]);
  }
  if (const int error = execute_create(context, in, real)) return error;
  qp.rq_entries = driver.rq_wqe_count;
  qp.rq_max_sge = driver.rq_wqe_count != 0 ? (1U << driver.rq_wqe_shift) / 16 : 0;
  mlx5_ib_create_qp_resp response{};
  response.bfreg_index = kNoBfreg;
  call.write_udata(response);
  return 0;
}

/// Kinds of QP that the device has (check_qp_type), and what each needs.
int check_request(Context& context, const QpRequest& request) {
  const Hca& hca = context.hca();
  switch (request.type) {
    case IB_UVERBS_QPT_XRC_TGT:
    case IB_UVERBS_QPT_XRC_INI:
      if (!context.device().offers().xrc || hca.cap<prm::HcaCap::xrc>() == 0) return EOPNOTSUPP;
      break;
    case IB_UVERBS_QPT_RC:
    case IB_UVERBS_QPT_UC:
    case IB_UVERBS_QPT_UD:
      break;
    case IB_UVERBS_QPT_RAW_PACKET:
      return EPERM;  // No CAP_NET_RAW on this device.
    case IB_UVERBS_QPT_DRIVER:
      return EOPNOTSUPP;
    default:
      return EINVAL;
  }
  constexpr std::uint32_t known =
      IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | IB_UVERBS_QP_CREATE_SCATTER_FCS |
      IB_UVERBS_QP_CREATE_CVLAN_STRIPPING | IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING |
      IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
  if ((request.flags & ~known) != 0) return EINVAL;
  if ((request.flags & (IB_UVERBS_QP_CREATE_SCATTER_FCS | IB_UVERBS_QP_CREATE_CVLAN_STRIPPING)) !=
      0) {
    return EOPNOTSUPP;
  }
  if ((request.flags & IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING) != 0 &&
      hca.cap<prm::HcaCap::end_pad>() == 0) {
    return EOPNOTSUPP;
  }
  return context.qps.full() ? ENOMEM : 0;
}

int create(Context& context, Call& call, QpRequest& request, Qp*& made) {
  if (const int error = check_request(context, request)) return error;
  auto qp = std::make_unique<Qp>();
  auto real = std::make_shared<RealQp>();
  const int error = request.type == IB_UVERBS_QPT_XRC_TGT
                        ? create_target(context, request, *real)
                        : create_ordinary(context, call, request, *qp, *real);
  if (error != 0) return error;
  real->type = static_cast<std::uint8_t>(request.type);
  real->pdn = request.pd != nullptr ? request.pd->pdn : 0;
  real->cqn_snd = request.send_cq != nullptr ? request.send_cq->cqn : 0;
  real->cqn_rcv = request.recv_cq != nullptr ? request.recv_cq->cqn : real->cqn_snd;
  qp->real = std::move(real);
  qp->user_handle = request.user_handle;
  qp->pd = request.pd;
  qp->send_cq = request.send_cq;
  qp->recv_cq = request.recv_cq;
  qp->srq = request.srq;
  qp->xrcd = request.xrcd;
  qp->async = request.async;
  qp->cap = request.cap;
  qp->signal_all = (request.flags & IB_UVERBS_QP_CREATE_SQ_SIG_ALL) != 0;
  if (request.type == IB_UVERBS_QPT_XRC_INI || request.type == IB_UVERBS_QPT_XRC_TGT) {
    qp->cap.max_recv_wr = 0;
    qp->cap.max_recv_sge = 0;
  }
  if (qp->pd != nullptr) ++qp->pd->uses;
  if (qp->send_cq != nullptr) ++qp->send_cq->uses;
  if (qp->recv_cq != nullptr) ++qp->recv_cq->uses;
  if (qp->srq != nullptr) ++qp->srq->uses;
  made = &context.qps.insert(context.qps.new_handle(), std::move(qp));
  context.device().add(*made);
  return 0;
}

/// Object named by an optional handle attribute; ENOENT if there is no such object.
template <typename T>
int take_object(const Call& call, std::uint16_t id, const ObjectTable<T>& table, T*& object) {
  const IoctlAttribute* const attribute = call.find(id);
  if (attribute == nullptr) return 0;
  object = table.find(attribute->data);
  return object == nullptr ? ENOENT : 0;
}

int take_objects(Context& context, const Call& call, QpRequest& request) {
  XrcdHandle* xrcd = nullptr;
  if (const int error =
          take_object(call, UVERBS_ATTR_CREATE_QP_PD_HANDLE, context.pds, request.pd)) {
    return error;
  }
  if (const int error =
          take_object(call, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, context.cqs, request.send_cq)) {
    return error;
  }
  if (const int error =
          take_object(call, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, context.cqs, request.recv_cq)) {
    return error;
  }
  if (const int error =
          take_object(call, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, context.srqs, request.srq)) {
    return error;
  }
  if (const int error = take_object(call, UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, context.xrcds, xrcd)) {
    return error;
  }
  if (xrcd != nullptr) request.xrcd = xrcd->xrcd;
  return 0;
}

/// Which objects go with which type (UVERBS_METHOD_QP_CREATE, create_qp).
int check_objects(const QpRequest& request) {
  const bool srq_is_xrc = request.srq != nullptr && request.srq->kind == SrqKind::xrc;
  if (request.type == IB_UVERBS_QPT_XRC_TGT) {
    if (request.pd != nullptr || request.send_cq != nullptr || request.recv_cq != nullptr) {
      return EINVAL;
    }
    if (request.srq != nullptr && !srq_is_xrc) return EINVAL;
    return request.xrcd != nullptr ? 0 : EINVAL;
  }
  if (request.xrcd != nullptr || srq_is_xrc) return EINVAL;
  if (request.pd == nullptr || request.send_cq == nullptr) return EINVAL;
  if (request.type == IB_UVERBS_QPT_XRC_INI) return request.srq == nullptr ? 0 : EINVAL;
  return request.recv_cq != nullptr ? 0 : EINVAL;
}

int create_qp_method(Context& context, Call& call) {
  QpRequest request;
  std::uint64_t type = 0;
  std::uint64_t flags = 0;
  if (call.find(UVERBS_ATTR_CREATE_QP_CAP) != nullptr) {
    if (const int error = call.read(UVERBS_ATTR_CREATE_QP_CAP, request.cap)) return error;
  }
  if (const int error = call.read(UVERBS_ATTR_CREATE_QP_USER_HANDLE, request.user_handle)) {
    return error;
  }
  if (const int error = call.read(UVERBS_ATTR_CREATE_QP_TYPE, type)) return error;
  if (const int error = call.read_flags(UVERBS_ATTR_CREATE_QP_FLAGS, 0xffffffff, flags))
    return error;
  if (call.find(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE) != nullptr ||
      call.find(UVERBS_ATTR_CREATE_QP_SOURCE_QPN) != nullptr) {
    return EOPNOTSUPP;
  }
  request.type = static_cast<std::uint32_t>(std::min<std::uint64_t>(type, 0xffffffff));
  request.flags = static_cast<std::uint32_t>(flags);
  if (const int error = take_objects(context, call, request)) return error;
  if (const int error = check_objects(request)) return error;
  if (const int error = context.async_file(call, UVERBS_ATTR_CREATE_QP_EVENT_FD, request.async)) {
    return error;
  }
  Qp* qp = nullptr;
  if (const int error = create(context, call, request, qp)) return error;
  call.write_handle(UVERBS_ATTR_CREATE_QP_HANDLE, qp->handle);
  call.write_attribute_padded(UVERBS_ATTR_CREATE_QP_RESP_CAP, qp->cap);
  call.write_attribute(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, qp->real->qpn);
  return 0;
}

/// Legacy and extended write form share this head; XRC domains come in pd_handle (create_qp,
/// uverbs_cmd.c).
template <typename Core>
int request_from_core(Context& context, const Core& core, QpRequest& request) {
  request.type = core.qp_type;
  request.user_handle = core.user_handle;
  request.cap = {core.max_send_wr, core.max_recv_wr, core.max_send_sge, core.max_recv_sge,
                 core.max_inline_data};
  if (core.sq_sig_all != 0) request.flags |= IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
  request.async = context.default_async();
  if (request.type == IB_UVERBS_QPT_XRC_TGT) {
    const XrcdHandle* const xrcd = context.xrcds.find(core.pd_handle);
    if (xrcd == nullptr) return EINVAL;
    request.xrcd = xrcd->xrcd;
    return 0;
  }
  request.pd = context.pds.find(core.pd_handle);
  request.send_cq = context.cqs.find(core.send_cq_handle);
  if (request.pd == nullptr || request.send_cq == nullptr) return EINVAL;
  if (request.type == IB_UVERBS_QPT_XRC_INI) {
    request.cap.max_recv_wr = 0;
    request.cap.max_recv_sge = 0;
    return 0;
  }
  if (core.is_srq != 0) {
    request.srq = context.srqs.find(core.srq_handle);
    if (request.srq == nullptr) return EINVAL;
  }
  request.recv_cq = context.cqs.find(core.recv_cq_handle);
  return request.recv_cq == nullptr ? EINVAL : 0;
}

ib_uverbs_create_qp_resp core_response(const Qp& qp) {
  ib_uverbs_create_qp_resp response{};
  response.qp_handle = qp.handle;
  response.qpn = qp.real->qpn;
  response.max_send_wr = qp.cap.max_send_wr;
  response.max_recv_wr = qp.cap.max_recv_wr;
  response.max_send_sge = qp.cap.max_send_sge;
  response.max_recv_sge = qp.cap.max_recv_sge;
  response.max_inline_data = qp.cap.max_inline_data;
  return response;
}

int create_qp_command(Context& context, Call& call) {
  ib_uverbs_create_qp core{};
  if (const int error = call.read_core(core)) return error;
  QpRequest request;
  if (const int error = request_from_core(context, core, request)) return error;
  if (const int error = check_objects(request)) return error;
  Qp* qp = nullptr;
  if (const int error = create(context, call, request, qp)) return error;
  call.write_core(core_response(*qp));
  return 0;
}

int create_qp_extended(Context& context, Call& call) {
  ib_uverbs_ex_create_qp core{};
  if (const int error = call.read_core(core)) return error;
  if ((core.comp_mask & ~std::uint32_t{IB_UVERBS_CREATE_QP_SUP_COMP_MASK}) != 0) return EINVAL;
  if (core.comp_mask != 0 || core.source_qpn != 0) return EOPNOTSUPP;
  QpRequest request;
  request.flags = core.create_flags;
  if (const int error = request_from_core(context, core, request)) return error;
  if (const int error = check_objects(request)) return error;
  Qp* qp = nullptr;
  if (const int error = create(context, call, request, qp)) return error;
  ib_uverbs_ex_create_qp_resp response{};
  response.base = core_response(*qp);
  response.response_length =
      static_cast<std::uint32_t>(std::min(call.core_out.length, sizeof(response)));
  call.write_core(response);
  return 0;
}

/// Opens an XRC target QP of the same domain by its number.
int open_qp(Context& context, Call& call) {
  ib_uverbs_open_qp core{};
  if (const int error = call.read_core(core)) return error;
  const XrcdHandle* const xrcd = context.xrcds.find(core.pd_handle);
  if (xrcd == nullptr || core.qp_type != IB_UVERBS_QPT_XRC_TGT) return EINVAL;
  const Qp* const known = context.device().find_qp(core.qpn);
  if (known == nullptr || known->xrcd != xrcd->xrcd) return EINVAL;
  if (context.qps.full()) return ENOMEM;
  auto qp = std::make_unique<Qp>();
  qp->real = known->real;
  qp->xrcd = known->xrcd;
  qp->user_handle = core.user_handle;
  qp->async = context.default_async();
  Qp& made = context.qps.insert(context.qps.new_handle(), std::move(qp));
  context.device().add(made);
  ib_uverbs_create_qp_resp response{};
  response.qp_handle = made.handle;
  response.qpn = made.real->qpn;
  call.write_core(response);
  return 0;
}

int destroy_qp(Context& context, std::uint64_t handle, std::uint32_t& events) {
  Qp* const qp = context.qps.find(handle);
  if (qp == nullptr) return ENOENT;
  if (!qp->multicast.empty()) return EBUSY;
  if (const int error = context.release(*qp)) return error;
  events = qp->events_reported;
  context.qps.erase(qp->handle);
  return 0;
}

int destroy_qp_method(Context& context, Call& call) {
  ib_uverbs_destroy_qp_resp response{};
  if (const int error = destroy_qp(context, call.find(UVERBS_ATTR_DESTROY_QP_HANDLE)->data,
                                   response.events_reported)) {
    return error;
  }
  call.write_attribute(UVERBS_ATTR_DESTROY_QP_RESP, response);
  return 0;
}

int destroy_qp_command(Context& context, Call& call) {
  ib_uverbs_destroy_qp core{};
  if (const int error = call.read_core(core)) return error;
  ib_uverbs_destroy_qp_resp response{};
  if (const int error = destroy_qp(context, core.qp_handle, response.events_reported)) return error;
  call.write_core(response);
  return 0;
}

const AttrSpec kQpCreateAttributes[] = {
    attr_new_handle(UVERBS_ATTR_CREATE_QP_HANDLE),
    attr_handle(UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, kOptional),
    attr_handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE, kOptional),
    attr_handle(UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, kOptional),
    attr_handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, kOptional),
    attr_handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, kOptional),
    attr_handle(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, kOptional),
    attr_in<std::uint64_t>(UVERBS_ATTR_CREATE_QP_USER_HANDLE, kMandatory),
    attr_in_struct<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_CAP, kOptional),
    attr_const(UVERBS_ATTR_CREATE_QP_TYPE, kMandatory),
    attr_flags(UVERBS_ATTR_CREATE_QP_FLAGS),
    attr_in<std::uint32_t>(UVERBS_ATTR_CREATE_QP_SOURCE_QPN, kOptional),
    attr_fd(UVERBS_ATTR_CREATE_QP_EVENT_FD, kOptional),
    attr_out_struct<ib_uverbs_qp_cap>(UVERBS_ATTR_CREATE_QP_RESP_CAP, kMandatory),
    attr_out<std::uint32_t>(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, kMandatory),
};
const AttrSpec kQpDestroyAttributes[] = {
    attr_handle(UVERBS_ATTR_DESTROY_QP_HANDLE, kMandatory),
    attr_out<ib_uverbs_destroy_qp_resp>(UVERBS_ATTR_DESTROY_QP_RESP, kMandatory),
};

const Method kQpMethodTable[] = {
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, kQpCreateAttributes, true, Needs::context,
     create_qp_method},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, kQpDestroyAttributes, false, Needs::context,
     destroy_qp_method},
};

const WriteCommand kQpCommandTable[] = {
    {IB_USER_VERBS_CMD_CREATE_QP, sizeof(ib_uverbs_create_qp), sizeof(ib_uverbs_create_qp_resp),
     true, Needs::context, create_qp_command},
    {extended(IB_USER_VERBS_EX_CMD_CREATE_QP), offsetof(ib_uverbs_ex_create_qp, comp_mask) + 4,
     offsetof(ib_uverbs_ex_create_qp_resp, response_length) + 4, true, Needs::context,
     create_qp_extended},
    {IB_USER_VERBS_CMD_OPEN_QP, sizeof(ib_uverbs_open_qp), sizeof(ib_uverbs_create_qp_resp), true,
     Needs::context, open_qp},
    {IB_USER_VERBS_CMD_DESTROY_QP, sizeof(ib_uverbs_destroy_qp), sizeof(ib_uverbs_destroy_qp_resp),
     false, Needs::context, destroy_qp_command},
};

int destroy_real(CommandInterface& commands, RealQp& real) {
  if (real.state != static_cast<std::uint8_t>(IbQpState::reset)) {
    CommandInputBuffer reset(prm::CommandOpcode::to_rst_qp, prm::ModifyQpInput::size);
    prm::ModifyQpInput::qpn::set(reset.data(), real.qpn);
    execute_plain(commands, reset);
  }
  CommandInputBuffer in(prm::CommandOpcode::destroy_qp, prm::DestroyQpInput::size);
  prm::DestroyQpInput::qpn::set(in.data(), real.qpn);
  return execute_plain(commands, in).error;
}

}  // namespace

int Context::release(Qp& qp) {
  leave_multicast_groups(*this, qp);
  if (qp.real.use_count() == 1) {
    if (const int error = unless_gone(destroy_real(commands(), *qp.real))) return error;
  }
  device_.remove(qp);
  if (qp.async != nullptr) qp.async->retire(&qp.events_reported);
  if (qp.srq != nullptr) --qp.srq->uses;
  if (qp.recv_cq != nullptr) --qp.recv_cq->uses;
  if (qp.send_cq != nullptr) --qp.send_cq->uses;
  if (qp.pd != nullptr) --qp.pd->uses;
  return 0;
}

const std::span<const Method> kQpMethods = kQpMethodTable;
const std::span<const WriteCommand> kQpCommands = kQpCommandTable;

}  // namespace softhca::shim
