// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// Makes contexts of stock libmlx5 faster. Nothing here is needed for correctness: what cannot be
/// wrapped is found by the engine when it looks at doorbell records by itself.
///
/// * After each post and arm, the engine gets a hint and is woken.
/// * A thread that polls in vain gives up the processor, to the engine if there are few.
///
/// ibv_post_send() and its like are inline functions that call through pointers in ibv_context,
/// ibv_qp_ex and ibv_cq_ex; those are replaced when libibverbs hands the structures out.

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernel-shim/preload/doorbells.h"
#include "kernel-shim/preload/errno_guard.h"
#include "kernel-shim/preload/function_wrappers.h"
#include "kernel-shim/preload/host_tree.h"
#include "kernel-shim/preload/interpose.h"
#include "kernel-shim/preload/verbs_symbol.h"
#include "kernel-shim/protocol/polite_poller.h"

namespace softhca::shim::preload {
namespace {

/// With fewer processors than this, application, peer and engine share some of them.
constexpr int kFewProcessors = 4;
constexpr unsigned kEmptyPollsIfFew = 8;
constexpr unsigned kEmptyPollsIfMany = 1000;

unsigned count_tolerated_empty_polls() {
  cpu_set_t processors;
  const bool known = ::sched_getaffinity(0, sizeof(processors), &processors) == 0;
  return known && CPU_COUNT(&processors) >= kFewProcessors ? kEmptyPollsIfMany : kEmptyPollsIfFew;
}

thread_local unsigned empty_polls;
thread_local bool shares_processor;

void note_poll(const ibv_context* context, bool empty) {
  if (!empty) {
    empty_polls = 0;
    return;
  }
  static std::atomic<unsigned> tolerated;
  unsigned limit = tolerated.load(std::memory_order_relaxed);
  if (limit == 0) {
    const ErrnoGuard guard;
    limit = count_tolerated_empty_polls();
    tolerated.store(limit, std::memory_order_relaxed);
  }
  if (++empty_polls < limit && !shares_processor) return;
  empty_polls = 0;
  const ErrnoGuard guard;
  static const Nanoseconds call_cost = PolitePoller::measure_call();
  thread_local PolitePoller poller(call_cost);
  shares_processor = poller.yield_if_due(engine_processor(context));
}

using PostSend = decltype(ibv_context_ops::post_send);
using PollCq = decltype(ibv_context_ops::poll_cq);
using RequestNotify = decltype(ibv_context_ops::req_notify_cq);
using Complete = decltype(ibv_qp_ex::wr_complete);
using StartPoll = decltype(ibv_cq_ex::start_poll);
using CreateCq = decltype(verbs_context::create_cq_ex);

template <unsigned I>
struct PostSendStub {
  static int call(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
};
using PostSends = FunctionWrappers<PostSendStub, PostSend, 4>;
template <unsigned I>
int PostSendStub<I>::call(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  const int result = PostSends::original<I>()(qp, wr, bad_wr);
  ring_send(qp->context, qp->qp_num);
  return result;
}

template <unsigned I>
struct PollCqStub {
  static int call(ibv_cq* cq, int count, ibv_wc* completions);
};
using PollCqs = FunctionWrappers<PollCqStub, PollCq, 16>;
template <unsigned I>
int PollCqStub<I>::call(ibv_cq* cq, int count, ibv_wc* completions) {
  const int result = PollCqs::original<I>()(cq, count, completions);
  note_poll(cq->context, result == 0);
  return result;
}

template <unsigned I>
struct RequestNotifyStub {
  static int call(ibv_cq* cq, int solicited_only);
};
using RequestNotifies = FunctionWrappers<RequestNotifyStub, RequestNotify, 4>;
template <unsigned I>
int RequestNotifyStub<I>::call(ibv_cq* cq, int solicited_only) {
  const int result = RequestNotifies::original<I>()(cq, solicited_only);
  ring_arm(cq->context, cq->handle);  // The daemon gives out CQNs as handles.
  return result;
}

template <unsigned I>
struct CompleteStub {
  static int call(ibv_qp_ex* qp);
};
using Completes = FunctionWrappers<CompleteStub, Complete, 8>;
template <unsigned I>
int CompleteStub<I>::call(ibv_qp_ex* qp) {
  const int result = Completes::original<I>()(qp);
  ring_send(qp->qp_base.context, qp->qp_base.qp_num);
  return result;
}

template <unsigned I>
struct StartPollStub {
  static int call(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes);
};
using StartPolls = FunctionWrappers<StartPollStub, StartPoll, 32>;
template <unsigned I>
int StartPollStub<I>::call(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
  const int result = StartPolls::original<I>()(cq, attributes);
  note_poll(cq->context, result == ENOENT);
  return result;
}

template <unsigned I>
struct CreateCqStub {
  static ibv_cq_ex* call(ibv_context* context, ibv_cq_init_attr_ex* attributes);
};
using CreateCqs = FunctionWrappers<CreateCqStub, CreateCq, 4>;
template <unsigned I>
ibv_cq_ex* CreateCqStub<I>::call(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  ibv_cq_ex* cq = CreateCqs::original<I>()(context, attributes);
  if (cq != nullptr) cq->start_poll = StartPolls::wrap(cq->start_poll);
  return cq;
}

/// Our own provider rings hints itself; other devices have none.
bool is_stock_mlx5(const ibv_context* context) {
  Dl_info object;
  const auto* function = reinterpret_cast<const void*>(context->ops.poll_cq);
  if (function == nullptr || ::dladdr(function, &object) == 0 || object.dli_fname == nullptr) {
    return false;
  }
  const char* slash = std::strrchr(object.dli_fname, '/');
  const char* file = slash == nullptr ? object.dli_fname : slash + 1;
  return std::strncmp(file, "libmlx5", 7) == 0;
}

/// One line for tests that must know which provider is bound; ours prints its own.
void trace_provider(const ibv_context* context) {
  const char* wanted = std::getenv("SOFTHCA_PROVIDER_TRACE");
  if (wanted == nullptr || *wanted == 0 || *wanted == '0') return;
  const ErrnoGuard guard;
  char line[128];
  const int length =
      std::snprintf(line, sizeof(line), "stock mlx5 provider bound to %s\n", context->device->name);
  ::syscall(SYS_write, STDERR_FILENO, line, length);
}

void wrap_context(ibv_context* context) {
  if (!attach_doorbells(context)) return;
  context->ops.post_send = PostSends::wrap(context->ops.post_send);
  context->ops.poll_cq = PollCqs::wrap(context->ops.poll_cq);
  context->ops.req_notify_cq = RequestNotifies::wrap(context->ops.req_notify_cq);
  verbs_context* extended = verbs_get_ctx_op(context, create_cq_ex);
  if (extended != nullptr) extended->create_cq_ex = CreateCqs::wrap(extended->create_cq_ex);
}

/// A context that libibverbs has just made, or null.
ibv_context* take_over(ibv_context* context) {
  if (context != nullptr && host_folder() != nullptr && is_stock_mlx5(context)) {
    trace_provider(context);
    wrap_context(context);
  }
  return context;
}

bool is_wrapped(const ibv_context* context) {
  return PostSends::wrap(context->ops.post_send) == context->ops.post_send;
}

void wrap_completion(ibv_qp_ex* qp) {
  if (qp == nullptr || !is_wrapped(qp->qp_base.context)) return;
  qp->wr_complete = Completes::wrap(qp->wr_complete);
}

constexpr char kVersion[] = "IBVERBS_1.1";

using QpToQpEx = ibv_qp_ex* (*)(ibv_qp*);
QpToQpEx qp_to_qp_ex() {
  static std::atomic<QpToQpEx> cache;
  QpToQpEx function = cache.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = verbs_symbol<QpToQpEx>("ibv_qp_to_qp_ex", "IBVERBS_1.6");
    cache.store(function, std::memory_order_release);
  }
  return function;
}

}  // namespace

SOFTHCA_INTERPOSE(ibv_context*, ibv_open_device, ibv_device* device) {
  const auto original = verbs_symbol<ibv_context* (*)(ibv_device*)>("ibv_open_device", kVersion);
  return take_over(original != nullptr ? original(device) : nullptr);
}

SOFTHCA_INTERPOSE(ibv_context*, ibv_import_device, int command_fd) {
  const auto original = verbs_symbol<ibv_context* (*)(int)>("ibv_import_device", "IBVERBS_1.10");
  return take_over(original != nullptr ? original(command_fd) : nullptr);
}

SOFTHCA_INTERPOSE(int, ibv_close_device, ibv_context* context) {
  const auto original = verbs_symbol<int (*)(ibv_context*)>("ibv_close_device", kVersion);
  detach_doorbells(context);
  return original != nullptr ? original(context) : fail(ENOSYS);
}

SOFTHCA_INTERPOSE(ibv_qp_ex*, ibv_qp_to_qp_ex, ibv_qp* qp) {
  const QpToQpEx original = qp_to_qp_ex();
  ibv_qp_ex* extended = original != nullptr ? original(qp) : nullptr;
  wrap_completion(extended);
  return extended;
}

SOFTHCA_INTERPOSE(int, ibv_modify_qp, ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  static std::atomic<int (*)(ibv_qp*, ibv_qp_attr*, int)> cache;
  auto original = cache.load(std::memory_order_acquire);
  if (original == nullptr) {
    original = verbs_symbol<int (*)(ibv_qp*, ibv_qp_attr*, int)>("ibv_modify_qp", kVersion);
    if (original == nullptr) return ENOSYS;
    cache.store(original, std::memory_order_release);
  }
  const int result = original(qp, attributes, mask);
  // libmlx5 sets wr_complete anew on the way to RESET and RTS.
  const QpToQpEx to_extended = qp_to_qp_ex();
  if (to_extended != nullptr && is_wrapped(qp->context)) wrap_completion(to_extended(qp));
  return result;
}

}  // namespace softhca::shim::preload
