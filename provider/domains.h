// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "provider/pages.h"
#include "provider/uar.h"

namespace softhca::provider {

/// Thread domain: the application uses everything in it from one thread at a time. Has a doorbell
/// page of its own, so that no lock is needed on the send path.
struct ThreadDomain {
  ibv_td td{};
  std::atomic<unsigned> users{0};
  std::unique_ptr<Uar> uar;

  static ThreadDomain* of(ibv_td* td) { return reinterpret_cast<ThreadDomain*>(td); }
};

/// Protection domain, or a parent domain around one.
struct ProtectionDomain {
  ibv_pd pd{};
  std::atomic<unsigned> users{0};
  std::uint32_t pdn = 0;
  ProtectionDomain* contained = nullptr;  ///< Parent domain: the protection domain; else null.
  ThreadDomain* thread_domain = nullptr;  ///< Of a parent domain, or null.
  CustomAllocator allocator;

  static ProtectionDomain* of(ibv_pd* pd) { return reinterpret_cast<ProtectionDomain*>(pd); }
};

ibv_pd* alloc_pd(ibv_context* context);
int dealloc_pd(ibv_pd* pd);
/// A domain of an imported context, by its handle; unimport_pd() leaves the kernel's object alone.
ibv_pd* import_pd(ibv_context* context, std::uint32_t handle);
void unimport_pd(ibv_pd* pd);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr);
int dealloc_td(ibv_td* td);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr);

}  // namespace softhca::provider
