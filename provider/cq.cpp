// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/cq.h"

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "provider/abi/commands.h"
#include "provider/context.h"
#include "provider/domains.h"

namespace softhca::provider {
namespace {

constexpr std::uint32_t kMaxEntries = 1U << 24;
constexpr std::uint64_t kKnownWcFlags =
    static_cast<std::uint64_t>(IBV_WC_STANDARD_FLAGS) |
    static_cast<std::uint64_t>(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
constexpr std::uint32_t kKnownFlags =
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
constexpr std::uint32_t kKnownMask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;

/// Bytes per CQE: the environment variable is libmlx5's, so that one setting serves both providers.
std::uint32_t wanted_cqe_size() {
  const char* text = std::getenv("MLX5_CQE_SIZE");
  return text != nullptr && std::strcmp(text, "128") == 0 ? prm::kCqeSize128 : prm::kCqeSize64;
}

/// Entries of a ring that holds `cqe` completions and one more; 0 when out of range.
std::uint32_t entry_count(std::uint64_t cqe) {
  if (cqe == 0 || cqe + 1 > kMaxEntries) return 0;
  return static_cast<std::uint32_t>(std::bit_ceil(cqe + 1));
}

/// Checks what the caller asked for; 0 or an errno.
int check(const ibv_cq_init_attr_ex& attr) {
  if ((attr.comp_mask & ~kKnownMask) != 0) return EINVAL;
  if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 && (attr.flags & ~kKnownFlags) != 0)
    return EINVAL;
  if ((attr.wc_flags & ~kKnownWcFlags) != 0) return ENOTSUP;
  if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 &&
      (attr.parent_domain == nullptr ||
       ProtectionDomain::of(attr.parent_domain)->contained == nullptr)) {
    return EINVAL;
  }
  return 0;
}

/// One thread polls this CQ: said by flag, or by a parent domain with a thread domain.
bool single_threaded(const ibv_cq_init_attr_ex& attr) {
  if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0 &&
      (attr.flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0) {
    return true;
  }
  return (attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0 &&
         ProtectionDomain::of(attr.parent_domain)->thread_domain != nullptr;
}

/// Runs the kernel's part; 0 or an errno.
int create_in_kernel(Context& context, CompletionQueue& cq, const ibv_cq_init_attr_ex& attr) {
  abi::CreateCqEx command;
  abi::CreateCqExResponse response;
  command.driver.buf_addr = reinterpret_cast<std::uintptr_t>(cq.entries);
  command.driver.db_addr = reinterpret_cast<std::uintptr_t>(cq.record);
  command.driver.cqe_size = cq.cqe_size;
  command.driver.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
  command.driver.uar_page_index = static_cast<std::uint16_t>(cq.uar->page_id());
  ibv_cq_init_attr_ex kernel_attr = attr;
  kernel_attr.cqe = cq.count - 1;
  const int error = abi::ibv_cmd_create_cq_ex(&context.verbs.context, &kernel_attr, &cq.verbs,
                                              &command, sizeof(command), &response,
                                              sizeof(response), abi::kCreateCqTimestampIgnored);
  cq.cqn = response.driver.cqn;
  return error;
}

CompletionQueue* create(ibv_context* base, const ibv_cq_init_attr_ex& attr) {
  Context& context = *Context::of(base);
  const int invalid = check(attr);
  const std::uint32_t count = entry_count(attr.cqe);
  if (invalid != 0 || count == 0) {
    errno = invalid != 0 ? invalid : EINVAL;
    return nullptr;
  }
  std::unique_ptr<CompletionQueue> cq(new (std::nothrow) CompletionQueue);
  if (cq == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  CustomAllocator allocator;
  if ((attr.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
    cq->parent_domain = attr.parent_domain;
    allocator = ProtectionDomain::of(attr.parent_domain)->allocator;
  }
  cq->cqe_size = wanted_cqe_size();
  cq->uar = context.shared_uar.get();
  cq->hints = &context.hints;
  cq->resources = &context.resources;
  cq->lock.set_needed(!single_threaded(attr));
  if (!cq->pages.allocate(static_cast<std::size_t>(count) * cq->cqe_size, allocator,
                          AllocationType::cq)) {
    return nullptr;
  }
  cq->set_ring(cq->pages.data(), count);
  initialize_entries(cq->entries, count, cq->cqe_size);
  cq->record = context.records.allocate();
  if (cq->record == nullptr) return nullptr;
  if (const int error = create_in_kernel(context, *cq, attr); error != 0) {
    context.records.release(cq->record);
    errno = error;
    return nullptr;
  }
  if (cq->parent_domain != nullptr) {
    ProtectionDomain::of(cq->parent_domain)->users.fetch_add(1, std::memory_order_relaxed);
  }
  return cq.release();
}

}  // namespace

void initialize_entries(std::uint8_t* entries, std::uint32_t count, std::uint32_t cqe_size) {
  constexpr auto kInvalid =
      static_cast<std::uint8_t>(static_cast<unsigned>(prm::CqeOpcode::invalid) << 4);
  for (std::uint32_t i = 0; i < count; ++i)
    CompletionQueue::cqe_at(entries, i, cqe_size)->op_own = kInvalid;
}

ibv_cq* create_cq(ibv_context* context, int cqe, ibv_comp_channel* channel, int comp_vector) {
  if (cqe <= 0) {
    errno = EINVAL;
    return nullptr;
  }
  ibv_cq_init_attr_ex attr{};
  attr.cqe = static_cast<std::uint32_t>(cqe);
  attr.channel = channel;
  attr.comp_vector = static_cast<std::uint32_t>(comp_vector);
  CompletionQueue* cq = create(context, attr);
  return cq == nullptr ? nullptr : &cq->verbs.cq;
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  CompletionQueue* cq = create(context, *attr);
  if (cq == nullptr) return nullptr;
  install_extended_polling(*cq, attr->wc_flags);
  return &cq->verbs.cq_ex;
}

bool copy_resized(CompletionQueue& cq, std::uint8_t* old_entries, std::uint32_t old_count) {
  for (std::uint32_t i = 0; i <= old_count; ++i) {
    const std::uint32_t from = cq.consumer + i;
    const prm::CqeWords* source =
        CompletionQueue::cqe_at(old_entries, from & (old_count - 1), cq.cqe_size);
    const std::uint8_t op_own = source->op_own;
    if (op_own >> 4 == static_cast<unsigned>(prm::CqeOpcode::invalid) ||
        ((op_own & 1) != 0) != ((from & old_count) != 0)) {
      return false;
    }
    if (op_own >> 4 == static_cast<unsigned>(prm::CqeOpcode::resize_cq)) {
      // The resize CQE itself took the index before the ones copied so far.
      ++cq.consumer;
      return true;
    }
    prm::CqeWords* to = cq.cqe(from + 1);
    *to = *source;
    const bool owner = ((from + 1) & cq.count) != 0;
    to->op_own = static_cast<std::uint8_t>((op_own & ~1) | (owner ? 1 : 0));
  }
  return false;
}

int resize_cq(ibv_cq* base, int cqe) {
  CompletionQueue& cq = *CompletionQueue::of(base);
  const std::uint32_t count = cqe <= 0 ? 0 : entry_count(static_cast<std::uint64_t>(cqe));
  if (count == 0) return EINVAL;
  const std::lock_guard guard(cq.lock);
  if (count == cq.count) return 0;
  CustomAllocator allocator;
  if (cq.parent_domain != nullptr) allocator = ProtectionDomain::of(cq.parent_domain)->allocator;
  QueuePages pages;
  if (!pages.allocate(static_cast<std::size_t>(count) * cq.cqe_size, allocator,
                      AllocationType::cq)) {
    return ENOMEM;
  }
  initialize_entries(pages.data(), count, cq.cqe_size);

  abi::ResizeCq command;
  abi::ResizeCqResponse response;
  command.driver.buf_addr = reinterpret_cast<std::uintptr_t>(pages.data());
  command.driver.cqe_size = static_cast<std::uint16_t>(cq.cqe_size);
  if (const int error = abi::ibv_cmd_resize_cq(base, static_cast<int>(count - 1), &command,
                                               sizeof(command), &response, sizeof(response));
      error != 0) {
    return error;
  }
  std::uint8_t* old_entries = cq.entries;
  const std::uint32_t old_count = cq.count;
  cq.set_ring(pages.data(), count);
  const bool moved = copy_resized(cq, old_entries, old_count);
  cq.pages = std::move(pages);
  base->cqe = static_cast<int>(count - 1);
  return moved ? 0 : EIO;
}

int modify_cq(ibv_cq* cq, ibv_modify_cq_attr* attr) {
  abi::ModifyCq command;
  return abi::ibv_cmd_modify_cq(cq, attr, &command, sizeof(command));
}

int destroy_cq(ibv_cq* base) {
  CompletionQueue* cq = CompletionQueue::of(base);
  Context& context = *Context::of(base->context);
  if (const int error = abi::ibv_cmd_destroy_cq(base); error != 0) return error;
  context.records.release(cq->record);
  ibv_pd* const domain = cq->parent_domain;
  delete cq;  // Gives memory back to the domain's allocator, so the domain comes after it.
  if (domain != nullptr)
    ProtectionDomain::of(domain)->users.fetch_sub(1, std::memory_order_release);
  return 0;
}

}  // namespace softhca::provider
