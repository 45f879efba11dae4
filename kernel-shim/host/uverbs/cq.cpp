// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Completion queues.
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>

#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/cq_context.h"
#include "kernel-shim/host/uverbs/method.h"

namespace softhca::shim {
namespace {

constexpr std::uint16_t kOpModResize = 1;
constexpr std::uint32_t kMaxCqPeriod = 0xfff;

/// Creation arguments, whichever way they came.
struct CqRequest {
  std::uint32_t cqe = 0;
  std::uint32_t vector = 0;
  std::uint32_t flags = 0;
  std::uint64_t user_handle = 0;
  std::shared_ptr<EventChannel> channel;
  std::shared_ptr<EventChannel> async;
};

void set_buffer(std::uint8_t* context, const QueueMemory& memory) {
  prm::CqContext::log_page_size::set(context, memory.log_page_size);
  prm::CqContext::page_offset::set(context, memory.page_offset);
}

void set_cq_pages(std::uint8_t* list, const QueueMemory& memory) {
  for (std::size_t i = 0; i < memory.pages.size(); ++i) {
    prm::Field<0, 64>::set(list + i * 8, memory.pages[i]);
  }
}

/// Number of entries for `cqe`, or 0 if the device has no such queue (mlx5_ib_create_cq).
std::uint32_t entries_for(const Hca& hca, std::uint32_t cqe) {
  const std::uint32_t most = 1U << hca.cap<prm::HcaCap::log_max_cq_sz>();
  if (cqe > most) return 0;
  const std::uint32_t entries = std::bit_ceil(cqe + 1);
  return entries > most ? 0 : entries;
}

int check_driver_part(const Context& context, const Hca& hca, const mlx5_ib_create_cq& driver) {
  constexpr std::uint32_t known = MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD |
                                  MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX |
                                  MLX5_IB_CREATE_CQ_FLAGS_REAL_TIME_TS;
  if ((driver.flags & ~known) != 0) return EINVAL;
  if ((driver.cqe_size != 64 && driver.cqe_size != 128) || driver.reserved0 != 0 ||
      driver.reserved1 != 0) {
    return EINVAL;
  }
  if ((driver.flags & MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX) == 0) return EINVAL;
  if (!context.owns_uar(driver.uar_page_index)) return EINVAL;
  if (driver.cqe_comp_en == 1 && hca.cap<prm::HcaCap::cqe_compression>() == 0) return EOPNOTSUPP;
  if ((driver.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD) != 0 &&
      (driver.cqe_size != 128 || hca.cap<prm::HcaCap::cqe_128_always>() == 0)) {
    return EOPNOTSUPP;
  }
  return 0;
}

int create(Context& context, Call& call, const CqRequest& request, Cq*& made) {
  Hca& hca = context.hca();
  if (request.vector >= kCompletionVectors) return EINVAL;
  if ((request.flags & ~std::uint32_t{IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION |
                                      IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN}) != 0) {
    return EOPNOTSUPP;
  }
  const std::uint32_t entries = entries_for(hca, request.cqe);
  if (entries == 0) return EINVAL;
  if (call.udata.size() < offsetof(mlx5_ib_create_cq, flags)) return EINVAL;
  mlx5_ib_create_cq driver{};
  call.read_udata(driver);
  if (const int error = check_driver_part(context, hca, driver)) return error;
  if (context.cqs.full()) return ENOMEM;

  auto cq = std::make_unique<Cq>();
  if (driver.db_addr == 0) return EFAULT;
  if (const int error =
          context.map_queue(call, driver.buf_addr, std::uint64_t{entries} * driver.cqe_size,
                            driver.db_addr, cq->memory)) {
    return error;
  }
  CommandInputBuffer in(prm::CommandOpcode::create_cq,
                        prm::CreateCqInput::size + cq->memory.pages.size() * 8);
  std::uint8_t* const cqc = in.at(prm::CreateCqInput::cq_context::offset);
  set_buffer(cqc, cq->memory);
  prm::CqContext::cqe_sz::set(cqc, driver.cqe_size == 128 ? 1 : 0);
  prm::CqContext::log_cq_size::set(cqc, static_cast<std::uint64_t>(std::countr_zero(entries)));
  prm::CqContext::uar_page::set(cqc, driver.uar_page_index);
  prm::CqContext::c_eqn_or_apu_element::set(cqc, hca.completion_eqn(request.vector));
  prm::CqContext::dbr_addr::set(cqc, cq->memory.doorbell_iova);
  prm::CqContext::oi::set(cqc, (request.flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0);
  set_cq_pages(in.at(prm::CreateCqInput::pas_offset), cq->memory);
  std::uint8_t out[prm::CreateCqOutput::size] = {};
  if (const CommandResult result = context.commands().execute(in, out); !result)
    return result.error;

  cq->cqn = static_cast<std::uint32_t>(prm::CreateCqOutput::cqn::get(out));
  cq->user_handle = request.user_handle;
  cq->cqe = entries - 1;
  cq->cqe_size = driver.cqe_size;
  cq->channel = request.channel;
  cq->async = request.async;
  const std::uint32_t cqn = cq->cqn;
  made = &context.cqs.insert(cqn, std::move(cq));
  context.device().add(*made);
  mlx5_ib_create_cq_resp response{};
  response.cqn = cqn;
  call.write_udata(response);
  return 0;
}

int create_cq_method(Context& context, Call& call) {
  CqRequest request;
  std::uint64_t flags = 0;
  if (const int error = call.read(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, request.vector)) return error;
  if (const int error = call.read(UVERBS_ATTR_CREATE_CQ_CQE, request.cqe)) return error;
  if (const int error = call.read(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, request.user_handle)) {
    return error;
  }
  if (const int error = call.read_flags(
          UVERBS_ATTR_CREATE_CQ_FLAGS,
          IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN, flags)) {
    return error;
  }
  request.flags = static_cast<std::uint32_t>(flags);
  if (const IoctlAttribute* const channel = call.find(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)) {
    request.channel = Context::find_channel(context.completion_channels, channel->fd);
    if (request.channel == nullptr) return EINVAL;
  }
  if (const int error = context.async_file(call, UVERBS_ATTR_CREATE_CQ_EVENT_FD, request.async)) {
    return error;
  }
  Cq* cq = nullptr;
  if (const int error = create(context, call, request, cq)) return error;
  call.write_handle(UVERBS_ATTR_CREATE_CQ_HANDLE, cq->handle);
  call.write_attribute(UVERBS_ATTR_CREATE_CQ_RESP_CQE, cq->cqe);
  return 0;
}

int find_core_channel(Context& context, const Call& call, std::int32_t number,
                      std::shared_ptr<EventChannel>& channel) {
  if (number < 0) return 0;
  channel = Context::find_channel(context.completion_channels, call.core_fd);
  return channel == nullptr ? EINVAL : 0;
}

int create_cq_command(Context& context, Call& call) {
  ib_uverbs_create_cq core{};
  if (const int error = call.read_core(core)) return error;
  CqRequest request;
  request.cqe = core.cqe;
  request.vector = core.comp_vector;
  request.user_handle = core.user_handle;
  request.async = context.default_async();
  if (const int error = find_core_channel(context, call, core.comp_channel, request.channel)) {
    return error;
  }
  Cq* cq = nullptr;
  if (const int error = create(context, call, request, cq)) return error;
  ib_uverbs_create_cq_resp response{};
  response.cq_handle = cq->handle;
  response.cqe = cq->cqe;
  call.write_core(response);
  return 0;
}

int create_cq_extended(Context& context, Call& call) {
  ib_uverbs_ex_create_cq core{};
  if (const int error = call.read_core(core)) return error;
  if (core.comp_mask != 0 || core.reserved != 0) return EINVAL;
  CqRequest request;
  request.cqe = core.cqe;
  request.vector = core.comp_vector;
  request.user_handle = core.user_handle;
  request.flags = core.flags;
  request.async = context.default_async();
  if (const int error = find_core_channel(context, call, core.comp_channel, request.channel)) {
    return error;
  }
  Cq* cq = nullptr;
  if (const int error = create(context, call, request, cq)) return error;
  ib_uverbs_ex_create_cq_resp response{};
  response.base.cq_handle = cq->handle;
  response.base.cqe = cq->cqe;
  response.response_length =
      static_cast<std::uint32_t>(std::min(call.core_out.length, sizeof(response)));
  call.write_core(response);
  return 0;
}

/// MODIFY_CQ, resize: the device marks the place in the old buffer and goes on in the new one.
int resize_cq(Context& context, Call& call) {
  ib_uverbs_resize_cq core{};
  if (const int error = call.read_core(core)) return error;
  Cq* const cq = context.cqs.find(core.cq_handle);
  if (cq == nullptr) return ENOENT;
  if (context.hca().cap<prm::HcaCap::cq_resize>() == 0) return ENOSYS;
  if (core.cqe < 1) return EINVAL;
  const std::uint32_t entries = entries_for(context.hca(), core.cqe);
  if (entries == 0) return EINVAL;
  mlx5_ib_resize_cq driver{};
  if (call.udata.size() < sizeof(driver)) return EINVAL;
  call.read_udata(driver);
  if (driver.reserved0 != 0 || driver.reserved1 != 0) return EINVAL;
  if (driver.cqe_size != 64 && driver.cqe_size != 128) return EINVAL;
  if (entries != cq->cqe + 1) {
    QueueMemory memory;
    if (const int error = context.map_queue(call, driver.buf_addr,
                                            std::uint64_t{entries} * driver.cqe_size, 0, memory)) {
      return error;
    }
    CommandInputBuffer in(prm::CommandOpcode::modify_cq,
                          prm::ModifyCqInput::size + memory.pages.size() * 8, kOpModResize);
    prm::ModifyCqInput::cqn::set(in.data(), cq->cqn);
    prm::Field<0, 32>::set(
        in.at(prm::ModifyCqInput::modify_field_select_resize_field_select::offset),
        prm::kCqResizeLogSize | prm::kCqResizePageOffset | prm::kCqResizeLogPageSize);
    std::uint8_t* const cqc = in.at(prm::ModifyCqInput::cq_context::offset);
    set_buffer(cqc, memory);
    prm::CqContext::cqe_sz::set(cqc, driver.cqe_size == 128 ? 1 : 0);
    prm::CqContext::log_cq_size::set(cqc, static_cast<std::uint64_t>(std::countr_zero(entries)));
    set_cq_pages(in.at(prm::ModifyCqInput::pas_offset), memory);
    if (const CommandResult result = execute_plain(context.commands(), in); !result) {
      return result.error;
    }
    memory.doorbell_page = cq->memory.doorbell_page;
    memory.doorbell_iova = cq->memory.doorbell_iova;
    cq->memory = std::move(memory);
    cq->cqe = entries - 1;
    cq->cqe_size = driver.cqe_size;
  }
  ib_uverbs_resize_cq_resp response{};
  response.cqe = cq->cqe;
  call.write_core(response);
  return 0;
}

/// Event moderation (ib_uverbs_ex_modify_cq).
int modify_cq(Context& context, Call& call) {
  constexpr std::uint32_t moderate = 1;  // IB_CQ_MODERATE.
  ib_uverbs_ex_modify_cq core{};
  if (const int error = call.read_core(core)) return error;
  if (core.attr_mask == 0 || core.reserved != 0) return EINVAL;
  if ((core.attr_mask & ~moderate) != 0) return EOPNOTSUPP;
  const Cq* const cq = context.cqs.find(core.cq_handle);
  if (cq == nullptr) return ENOENT;
  if (context.hca().cap<prm::HcaCap::cq_moderation>() == 0) return EOPNOTSUPP;
  if (core.attr.cq_period > kMaxCqPeriod) return EINVAL;
  CommandInputBuffer in(prm::CommandOpcode::modify_cq, prm::ModifyCqInput::size);
  prm::ModifyCqInput::cqn::set(in.data(), cq->cqn);
  prm::Field<0, 32>::set(in.at(prm::ModifyCqInput::modify_field_select_resize_field_select::offset),
                         prm::kCqModifyPeriod | prm::kCqModifyMaxCount);
  std::uint8_t* const cqc = in.at(prm::ModifyCqInput::cq_context::offset);
  prm::CqContext::cq_period::set(cqc, core.attr.cq_period);
  prm::CqContext::cq_max_count::set(cqc, core.attr.cq_count);
  return execute_plain(context.commands(), in).error;
}

int destroy_cq(Context& context, std::uint64_t handle, ib_uverbs_destroy_cq_resp& response) {
  Cq* const cq = context.cqs.find(handle);
  if (cq == nullptr) return ENOENT;
  if (cq->uses != 0) return EBUSY;
  if (const int error = context.release(*cq)) return error;
  response.comp_events_reported = cq->comp_events_reported;
  response.async_events_reported = cq->async_events_reported;
  context.cqs.erase(cq->handle);
  return 0;
}

int destroy_cq_method(Context& context, Call& call) {
  ib_uverbs_destroy_cq_resp response{};
  if (const int error =
          destroy_cq(context, call.find(UVERBS_ATTR_DESTROY_CQ_HANDLE)->data, response)) {
    return error;
  }
  call.write_attribute(UVERBS_ATTR_DESTROY_CQ_RESP, response);
  return 0;
}

int destroy_cq_command(Context& context, Call& call) {
  ib_uverbs_destroy_cq core{};
  if (const int error = call.read_core(core)) return error;
  ib_uverbs_destroy_cq_resp response{};
  if (const int error = destroy_cq(context, core.cq_handle, response)) return error;
  call.write_core(response);
  return 0;
}

const AttrSpec kCqCreateAttributes[] = {
    attr_new_handle(UVERBS_ATTR_CREATE_CQ_HANDLE),
    attr_in<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_CQE, kMandatory),
    attr_in<std::uint64_t>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, kMandatory),
    attr_fd(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, kOptional),
    attr_in<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, kMandatory),
    attr_flags(UVERBS_ATTR_CREATE_CQ_FLAGS),
    attr_out<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_RESP_CQE, kMandatory),
    attr_fd(UVERBS_ATTR_CREATE_CQ_EVENT_FD, kOptional),
};
const AttrSpec kCqDestroyAttributes[] = {
    attr_handle(UVERBS_ATTR_DESTROY_CQ_HANDLE, kMandatory),
    attr_out<ib_uverbs_destroy_cq_resp>(UVERBS_ATTR_DESTROY_CQ_RESP, kMandatory),
};

const Method kCqMethodTable[] = {
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, kCqCreateAttributes, true, Needs::context,
     create_cq_method},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, kCqDestroyAttributes, false, Needs::context,
     destroy_cq_method},
};

const WriteCommand kCqCommandTable[] = {
    {IB_USER_VERBS_CMD_CREATE_CQ, sizeof(ib_uverbs_create_cq), sizeof(ib_uverbs_create_cq_resp),
     true, Needs::context, create_cq_command},
    {extended(IB_USER_VERBS_EX_CMD_CREATE_CQ), sizeof(ib_uverbs_ex_create_cq),
     sizeof(ib_uverbs_ex_create_cq_resp), true, Needs::context, create_cq_extended},
    {IB_USER_VERBS_CMD_RESIZE_CQ, sizeof(ib_uverbs_resize_cq), sizeof(ib_uverbs_resize_cq_resp),
     true, Needs::context, resize_cq},
    {extended(IB_USER_VERBS_EX_CMD_MODIFY_CQ), sizeof(ib_uverbs_ex_modify_cq), 0, false,
     Needs::context, modify_cq},
    {IB_USER_VERBS_CMD_DESTROY_CQ, sizeof(ib_uverbs_destroy_cq), sizeof(ib_uverbs_destroy_cq_resp),
     false, Needs::context, destroy_cq_command},
};

}  // namespace

int Context::release(Cq& cq) {
  CommandInputBuffer in(prm::CommandOpcode::destroy_cq, prm::DestroyCqInput::size);
  prm::DestroyCqInput::cqn::set(in.data(), cq.cqn);
  if (const int error = unless_gone(execute_plain(commands(), in).error)) return error;
  device_.remove(cq);
  if (cq.channel != nullptr) cq.channel->retire(&cq.comp_events_reported);
  if (cq.async != nullptr) cq.async->retire(&cq.async_events_reported);
  cq.memory = QueueMemory();
  return 0;
}

const std::span<const Method> kCqMethods = kCqMethodTable;
const std::span<const WriteCommand> kCqCommands = kCqCommandTable;

}  // namespace softhca::shim
