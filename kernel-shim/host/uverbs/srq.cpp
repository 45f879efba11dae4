// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Shared receive queues: basic ones as RMP or SRQ (by ISSI), XRC ones.
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>

#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/srq_context.h"
#include "kernel-shim/host/uverbs/method.h"

namespace softhca::shim {
namespace {

constexpr std::uint32_t kNextSegment = 16;
constexpr std::uint32_t kReceiveDataSegment = 16;
constexpr std::uint32_t kMinStride = 32;
constexpr std::uint32_t kSrqDefaultUserIndex = 0xffffff;
constexpr std::uint16_t kArmSrq = 1;
// enum ib_srq_attr_mask.
constexpr std::uint32_t kMaxWr = 1;
constexpr std::uint32_t kLimit = 2;

struct SrqRequest {
  std::uint32_t type = IB_UVERBS_SRQT_BASIC;
  std::uint64_t user_handle = 0;
  std::uint32_t max_wr = 0;
  std::uint32_t max_sge = 0;
  std::uint32_t limit = 0;
  Pd* pd = nullptr;
  Cq* cq = nullptr;
  std::shared_ptr<Xrcd> xrcd;
  std::shared_ptr<EventChannel> async;
};

/// Shape of the queue, as mlx5_ib_create_srq derives it.
struct Shape {
  unsigned log_size = 0;
  unsigned log_stride = 0;
};

int shape_of(const Hca& hca, const SrqRequest& request, Shape& shape) {
  const std::uint32_t most = 1U << hca.cap<prm::HcaCap::log_max_srq_sz>();
  const std::uint32_t most_sges = hca.cap<prm::HcaCap::max_wqe_sz_rq>() / kReceiveDataSegment;
  if (request.max_wr >= most || request.max_sge > most_sges) return EINVAL;
  const std::uint32_t entries = std::bit_ceil(request.max_wr + 1);
  const std::uint32_t stride =
      std::max(kMinStride, std::bit_ceil(kNextSegment + request.max_sge * kReceiveDataSegment));
  shape.log_size = static_cast<unsigned>(std::countr_zero(entries));
  shape.log_stride = static_cast<unsigned>(std::countr_zero(stride));
  return 0;
}

void set_srq_pages(std::uint8_t* list, const QueueMemory& memory) {
  for (std::size_t i = 0; i < memory.pages.size(); ++i) {
    prm::Field<0, 64>::set(list + i * 8, memory.pages[i]);
  }
}

int create_rmp(Context& context, const SrqRequest& request, const Shape& shape, Srq& srq) {
  using Wq = prm::WqContext;
  CommandInputBuffer in(prm::CommandOpcode::create_rmp,
                        prm::CreateRmpInput::size + srq.memory.pages.size() * 8);
  std::uint8_t* const rmp = in.at(prm::CreateRmpInput::ctx::offset);
  prm::RmpContext::state::set(rmp, static_cast<std::uint64_t>(prm::RmpState::ready));
  std::uint8_t* const wq = prm::RmpContext::wq::at(rmp);
  Wq::wq_type::set(wq, static_cast<std::uint64_t>(prm::WqType::linked_list));
  Wq::log_wq_pg_sz::set(wq, srq.memory.log_page_size);
  Wq::page_offset::set(wq, srq.memory.page_offset);
  Wq::log_wq_stride::set(wq, shape.log_stride);
  Wq::log_wq_sz::set(wq, shape.log_size);
  Wq::lwm::set(wq, 0);
  Wq::pd::set(wq, request.pd->pdn);
  Wq::dbr_addr::set(wq, srq.memory.doorbell_iova);
  set_srq_pages(in.at(prm::CreateRmpInput::ctx::offset + prm::RmpContext::pas_offset), srq.memory);
  std::uint8_t out[prm::CreateRmpOutput::size] = {};
  const CommandResult result = context.commands().execute(in, out);
  if (result) srq.srqn = static_cast<std::uint32_t>(prm::CreateRmpOutput::rmpn::get(out));
  return result.error;
}

int create_xrc(Context& context, const SrqRequest& request, const Shape& shape,
               std::uint32_t user_index, Srq& srq) {
  using Xrc = prm::XrcSrqContext;
  CommandInputBuffer in(prm::CommandOpcode::create_xrc_srq,
                        prm::CreateXrcSrqInput::size + srq.memory.pages.size() * 8);
  std::uint8_t* const srqc = in.at(prm::CreateXrcSrqInput::xrc_srq_context_entry::offset);
  Xrc::log_xrc_srq_size::set(srqc, shape.log_size);
  Xrc::log_rq_stride::set(srqc, shape.log_stride - 4);
  Xrc::log_page_size::set(srqc, srq.memory.log_page_size);
  Xrc::page_offset::set(srqc, srq.memory.page_offset);
  Xrc::pd::set(srqc, request.pd->pdn);
  Xrc::xrcd::set(srqc, request.xrcd->xrcdn);
  Xrc::cqn::set(srqc, request.cq->cqn);
  Xrc::user_index::set(srqc, user_index);
  Xrc::dbr_addr::set(srqc, srq.memory.doorbell_iova);
  set_srq_pages(in.at(prm::CreateXrcSrqInput::pas_offset), srq.memory);
  std::uint8_t out[prm::CreateXrcSrqOutput::size] = {};
  const CommandResult result = context.commands().execute(in, out);
  if (result) srq.srqn = static_cast<std::uint32_t>(prm::CreateXrcSrqOutput::xrc_srqn::get(out));
  return result.error;
}

/// Limit event when fewer than `limit` receives are left; 0 disarms.
int arm(Context& context, const Srq& srq, std::uint32_t limit) {
  if (srq.kind == SrqKind::xrc) {
    CommandInputBuffer in(prm::CommandOpcode::arm_xrc_srq, prm::ArmXrcSrqInput::size, kArmSrq);
    prm::ArmXrcSrqInput::xrc_srqn::set(in.data(), srq.srqn);
    prm::ArmXrcSrqInput::lwm::set(in.data(), limit);
    return execute_plain(context.commands(), in).error;
  }
  CommandInputBuffer in(prm::CommandOpcode::modify_rmp, prm::ModifyRmpInput::size);
  prm::ModifyRmpInput::rmp_state::set(in.data(), static_cast<std::uint64_t>(prm::RmpState::ready));
  prm::ModifyRmpInput::rmpn::set(in.data(), srq.srqn);
  prm::Field<32, 32>::set(in.at(prm::ModifyRmpInput::bitmask::offset), prm::kRmpBitmaskLwm);
  std::uint8_t* const rmp = in.at(prm::ModifyRmpInput::ctx::offset);
  prm::RmpContext::state::set(rmp, static_cast<std::uint64_t>(prm::RmpState::ready));
  prm::WqContext::lwm::set(prm::RmpContext::wq::at(rmp), limit);
  return execute_plain(context.commands(), in).error;
}

/// get_srq_user_index.
int user_index(const Context& context, const Call& call, const mlx5_ib_create_srq& driver,
               std::uint32_t& index) {
  index = kSrqDefaultUserIndex;
  if (context.cqe_version == 0) return 0;
  const bool given = call.udata.size() >= offsetof(mlx5_ib_create_srq, uidx) + sizeof(driver.uidx);
  if (!given || driver.uidx >= kSrqDefaultUserIndex) return EINVAL;
  index = driver.uidx;
  return 0;
}

int create(Context& context, Call& call, const SrqRequest& request, Srq*& made) {
  const bool xrc = request.type == IB_UVERBS_SRQT_XRC;
  if (request.type == IB_UVERBS_SRQT_TM) return EOPNOTSUPP;
  if (request.type != IB_UVERBS_SRQT_BASIC && !xrc) return EINVAL;
  if (request.pd == nullptr) return EINVAL;
  if (xrc && (request.xrcd == nullptr || request.cq == nullptr)) return EINVAL;
  Shape shape;
  if (const int error = shape_of(context.hca(), request, shape)) return error;
  mlx5_ib_create_srq driver{};
  call.read_udata(driver);
  if (driver.reserved0 != 0 || driver.reserved1 != 0 || !call.udata_cleared(sizeof(driver))) {
    return EINVAL;
  }
  if ((driver.flags & MLX5_SRQ_FLAG_SIGNATURE) != 0) return EINVAL;
  std::uint32_t index = 0;
  if (const int error = xrc ? user_index(context, call, driver, index) : 0) return error;
  if (context.srqs.full()) return ENOMEM;
  auto srq = std::make_unique<Srq>();
  if (driver.db_addr == 0) return EFAULT;
  if (const int error =
          context.map_queue(call, driver.buf_addr, 1ULL << (shape.log_size + shape.log_stride),
                            driver.db_addr, srq->memory)) {
    return error;
  }
  srq->kind = xrc ? SrqKind::xrc : SrqKind::rmp;
  if (const int error = xrc ? create_xrc(context, request, shape, index, *srq)
                            : create_rmp(context, request, shape, *srq)) {
    return error;
  }
  srq->pd = request.pd;
  srq->cq = xrc ? request.cq : nullptr;
  srq->xrcd = request.xrcd;
  srq->user_handle = request.user_handle;
  srq->async = request.async;
  srq->max_wr = (1U << shape.log_size) - 1;
  srq->max_sge = ((1U << shape.log_stride) - kNextSegment) / kReceiveDataSegment;
  ++srq->pd->uses;
  if (srq->cq != nullptr) ++srq->cq->uses;
  made = &context.srqs.insert(context.srqs.new_handle(), std::move(srq));
  context.device().add(*made);
  mlx5_ib_create_srq_resp response{};
  response.srqn = made->srqn;
  call.write_udata(response);
  return 0;
}

int create_srq_method(Context& context, Call& call) {
  SrqRequest request;
  std::uint64_t type = 0;
  if (const int error = call.read(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, request.max_sge)) return error;
  if (const int error = call.read(UVERBS_ATTR_CREATE_SRQ_MAX_WR, request.max_wr)) return error;
  if (const int error = call.read(UVERBS_ATTR_CREATE_SRQ_LIMIT, request.limit)) return error;
  if (const int error = call.read(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, request.user_handle)) {
    return error;
  }
  if (const int error = call.read(UVERBS_ATTR_CREATE_SRQ_TYPE, type)) return error;
  request.type = static_cast<std::uint32_t>(std::min<std::uint64_t>(type, 0xffffffff));
  request.pd = context.pds.find(call.find(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE)->data);
  if (request.pd == nullptr) return ENOENT;
  if (request.type == IB_UVERBS_SRQT_XRC) {
    const IoctlAttribute* const cq = call.find(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE);
    const IoctlAttribute* const xrcd = call.find(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE);
    if (cq == nullptr || xrcd == nullptr) return ENOENT;
    request.cq = context.cqs.find(cq->data);
    const XrcdHandle* const domain = context.xrcds.find(xrcd->data);
    if (request.cq == nullptr || domain == nullptr) return ENOENT;
    request.xrcd = domain->xrcd;
  }
  if (const int error = context.async_file(call, UVERBS_ATTR_CREATE_SRQ_EVENT_FD, request.async)) {
    return error;
  }
  Srq* srq = nullptr;
  if (const int error = create(context, call, request, srq)) return error;
  call.write_handle(UVERBS_ATTR_CREATE_SRQ_HANDLE, srq->handle);
  call.write_attribute(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, srq->max_wr);
  call.write_attribute(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, request.max_sge);
  if (srq->kind == SrqKind::xrc) {
    call.write_attribute(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, srq->srqn);
  }
  return 0;
}

void respond(Call& call, const Srq& srq, std::uint32_t max_sge) {
  ib_uverbs_create_srq_resp response{};
  response.srq_handle = srq.handle;
  response.max_wr = srq.max_wr;
  response.max_sge = max_sge;
  if (srq.kind == SrqKind::xrc) response.srqn = srq.srqn;
  call.write_core(response);
}

int create_srq_command(Context& context, Call& call) {
  ib_uverbs_create_srq core{};
  if (const int error = call.read_core(core)) return error;
  SrqRequest request;
  request.user_handle = core.user_handle;
  request.max_wr = core.max_wr;
  request.max_sge = core.max_sge;
  request.limit = core.srq_limit;
  request.pd = context.pds.find(core.pd_handle);
  request.async = context.default_async();
  if (request.pd == nullptr) return ENOENT;
  Srq* srq = nullptr;
  if (const int error = create(context, call, request, srq)) return error;
  respond(call, *srq, request.max_sge);
  return 0;
}

int create_xsrq_command(Context& context, Call& call) {
  ib_uverbs_create_xsrq core{};
  if (const int error = call.read_core(core)) return error;
  SrqRequest request;
  request.type = core.srq_type;
  request.user_handle = core.user_handle;
  request.max_wr = core.max_wr;
  request.max_sge = core.max_sge;
  request.limit = core.srq_limit;
  request.pd = context.pds.find(core.pd_handle);
  request.async = context.default_async();
  if (request.pd == nullptr) return ENOENT;
  if (core.srq_type == IB_UVERBS_SRQT_XRC) {
    const XrcdHandle* const domain = context.xrcds.find(core.xrcd_handle);
    if (domain == nullptr) return EINVAL;
    request.xrcd = domain->xrcd;
    request.cq = context.cqs.find(core.cq_handle);
    if (request.cq == nullptr) return ENOENT;
  }
  Srq* srq = nullptr;
  if (const int error = create(context, call, request, srq)) return error;
  respond(call, *srq, request.max_sge);
  return 0;
}

int modify_srq(Context& context, Call& call) {
  ib_uverbs_modify_srq core{};
  if (const int error = call.read_core(core)) return error;
  const Srq* const srq = context.srqs.find(core.srq_handle);
  if (srq == nullptr) return ENOENT;
  if ((core.attr_mask & kMaxWr) != 0) return EINVAL;
  if ((core.attr_mask & kLimit) == 0) return 0;
  if (core.srq_limit > srq->max_wr) return EINVAL;
  return arm(context, *srq, core.srq_limit);
}

int query_limit(Context& context, const Srq& srq, std::uint32_t& limit) {
  if (srq.kind == SrqKind::xrc) {
    CommandInputBuffer in(prm::CommandOpcode::query_xrc_srq, prm::QueryXrcSrqInput::size);
    prm::QueryXrcSrqInput::xrc_srqn::set(in.data(), srq.srqn);
    std::uint8_t out[prm::QueryXrcSrqOutput::size] = {};
    const CommandResult result = context.commands().execute(in, out);
    limit = static_cast<std::uint32_t>(
        prm::XrcSrqContext::lwm::get(out + prm::QueryXrcSrqOutput::xrc_srq_context_entry::offset));
    return result.error;
  }
  CommandInputBuffer in(prm::CommandOpcode::query_rmp, prm::QueryRmpInput::size);
  prm::QueryRmpInput::rmpn::set(in.data(), srq.srqn);
  std::uint8_t out[prm::QueryRmpOutput::size] = {};
  const CommandResult result = context.commands().execute(in, out);
  limit = static_cast<std::uint32_t>(prm::WqContext::lwm::get(
      out + prm::QueryRmpOutput::rmp_context::offset + prm::RmpContext::wq::offset));
  return result.error;
}

int query_srq(Context& context, Call& call) {
  ib_uverbs_query_srq core{};
  if (const int error = call.read_core(core)) return error;
  const Srq* const srq = context.srqs.find(core.srq_handle);
  if (srq == nullptr) return ENOENT;
  ib_uverbs_query_srq_resp response{};
  if (const int error = query_limit(context, *srq, response.srq_limit)) return error;
  response.max_wr = srq->max_wr;
  response.max_sge = srq->max_sge;
  call.write_core(response);
  return 0;
}

int destroy_srq(Context& context, std::uint64_t handle, std::uint32_t& events) {
  Srq* const srq = context.srqs.find(handle);
  if (srq == nullptr) return ENOENT;
  if (srq->uses != 0) return EBUSY;
  if (const int error = context.release(*srq)) return error;
  events = srq->events_reported;
  context.srqs.erase(srq->handle);
  return 0;
}

int destroy_srq_method(Context& context, Call& call) {
  ib_uverbs_destroy_srq_resp response{};
  if (const int error = destroy_srq(context, call.find(UVERBS_ATTR_DESTROY_SRQ_HANDLE)->data,
                                    response.events_reported)) {
    return error;
  }
  call.write_attribute(UVERBS_ATTR_DESTROY_SRQ_RESP, response);
  return 0;
}

int destroy_srq_command(Context& context, Call& call) {
  ib_uverbs_destroy_srq core{};
  if (const int error = call.read_core(core)) return error;
  ib_uverbs_destroy_srq_resp response{};
  if (const int error = destroy_srq(context, core.srq_handle, response.events_reported))
    return error;
  call.write_core(response);
  return 0;
}

const AttrSpec kSrqCreateAttributes[] = {
    attr_new_handle(UVERBS_ATTR_CREATE_SRQ_HANDLE),
    attr_handle(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, kMandatory),
    attr_handle(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, kOptional),
    attr_handle(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, kOptional),
    attr_in<std::uint64_t>(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, kMandatory),
    attr_in<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_WR, kMandatory),
    attr_in<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, kMandatory),
    attr_in<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_LIMIT, kMandatory),
    attr_in<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_NUM_TAGS, kOptional),
    attr_const(UVERBS_ATTR_CREATE_SRQ_TYPE, kMandatory),
    attr_fd(UVERBS_ATTR_CREATE_SRQ_EVENT_FD, kOptional),
    attr_out<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, kMandatory),
    attr_out<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, kMandatory),
    attr_out<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, kOptional),
};
const AttrSpec kSrqDestroyAttributes[] = {
    attr_handle(UVERBS_ATTR_DESTROY_SRQ_HANDLE, kMandatory),
    attr_out<ib_uverbs_destroy_srq_resp>(UVERBS_ATTR_DESTROY_SRQ_RESP, kMandatory),
};

const Method kSrqMethodTable[] = {
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, kSrqCreateAttributes, true, Needs::context,
     create_srq_method},
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, kSrqDestroyAttributes, false, Needs::context,
     destroy_srq_method},
};

const WriteCommand kSrqCommandTable[] = {
    {IB_USER_VERBS_CMD_CREATE_SRQ, sizeof(ib_uverbs_create_srq), sizeof(ib_uverbs_create_srq_resp),
     true, Needs::context, create_srq_command},
    {IB_USER_VERBS_CMD_CREATE_XSRQ, sizeof(ib_uverbs_create_xsrq),
     sizeof(ib_uverbs_create_srq_resp), true, Needs::context, create_xsrq_command},
    {IB_USER_VERBS_CMD_MODIFY_SRQ, sizeof(ib_uverbs_modify_srq), 0, true, Needs::context,
     modify_srq},
    {IB_USER_VERBS_CMD_QUERY_SRQ, sizeof(ib_uverbs_query_srq), sizeof(ib_uverbs_query_srq_resp),
     false, Needs::context, query_srq},
    {IB_USER_VERBS_CMD_DESTROY_SRQ, sizeof(ib_uverbs_destroy_srq),
     sizeof(ib_uverbs_destroy_srq_resp), false, Needs::context, destroy_srq_command},
};

}  // namespace

int Context::release(Srq& srq) {
  const bool xrc = srq.kind == SrqKind::xrc;
  CommandInputBuffer in(xrc ? prm::CommandOpcode::destroy_xrc_srq : prm::CommandOpcode::destroy_rmp,
                        prm::DestroyRmpInput::size);
  // NOLINTNEXTLINE(misc-redundant-expression): that they are the same is what is asserted.
  static_assert(prm::DestroyRmpInput::rmpn::bit_offset ==
                prm::DestroyXrcSrqInput::xrc_srqn::bit_offset);
  prm::DestroyRmpInput::rmpn::set(in.data(), srq.srqn);
  if (const int error = unless_gone(execute_plain(commands(), in).error)) return error;
  device_.remove(srq);
  if (srq.async != nullptr) srq.async->retire(&srq.events_reported);
  if (srq.cq != nullptr) --srq.cq->uses;
  --srq.pd->uses;
  srq.memory = QueueMemory();
  return 0;
}

const std::span<const Method> kSrqMethods = kSrqMethodTable;
const std::span<const WriteCommand> kSrqCommands = kSrqCommandTable;

}  // namespace softhca::shim
