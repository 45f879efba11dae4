// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/domains.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>

#include <cerrno>
#include <new>

#include "provider/abi/commands.h"
#include "provider/context.h"
#include "provider/ioctl_command.h"

namespace softhca::provider {

ibv_pd* alloc_pd(ibv_context* context) {
  std::unique_ptr<ProtectionDomain> domain(new (std::nothrow) ProtectionDomain);
  if (domain == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  abi::AllocPd command;
  abi::AllocPdResponse response;
  if (const int error = abi::ibv_cmd_alloc_pd(context, &domain->pd, &command, sizeof(command),
                                              &response, sizeof(response));
      error != 0) {
    errno = error;
    return nullptr;
  }
  domain->pdn = response.driver.pdn;
  return &domain.release()->pd;
}

int dealloc_pd(ibv_pd* pd) {
  ProtectionDomain* domain = ProtectionDomain::of(pd);
  if (domain->users.load(std::memory_order_acquire) != 0) return EBUSY;
  if (domain->contained != nullptr) {
    domain->contained->users.fetch_sub(1, std::memory_order_release);
    if (domain->thread_domain != nullptr) {
      domain->thread_domain->users.fetch_sub(1, std::memory_order_release);
    }
  } else if (const int error = abi::ibv_cmd_dealloc_pd(pd); error != 0) {
    return error;
  }
  delete domain;
  return 0;
}

ibv_pd* import_pd(ibv_context* context, std::uint32_t handle) {
  auto* domain = new (std::nothrow) ProtectionDomain;
  if (domain == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  IoctlCommand<2> command(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY);
  command.in_object(MLX5_IB_ATTR_QUERY_PD_HANDLE, handle);
  command.out(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, domain->pdn);
  if (const int error = command.run(context->cmd_fd); error != 0) {
    delete domain;
    errno = error;
    return nullptr;
  }
  domain->pd.context = context;
  domain->pd.handle = handle;
  return &domain->pd;
}

void unimport_pd(ibv_pd* pd) {
  delete ProtectionDomain::of(pd);
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) {
    errno = EINVAL;
    return nullptr;
  }
  Context* const owner = Context::of(context);
  std::unique_ptr<ThreadDomain> domain(new (std::nothrow) ThreadDomain);
  if (domain == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  const std::uint32_t half = owner->limits.blue_flame_half;
  domain->uar = Uar::create(owner->command_fd(),
                            half != 0 ? Uar::Kind::write_combining : Uar::Kind::uncached, half);
  if (domain->uar == nullptr) return nullptr;
  domain->uar->lock.set_needed(false);
  domain->td.context = context;
  return &domain.release()->td;
}

int dealloc_td(ibv_td* td) {
  ThreadDomain* domain = ThreadDomain::of(td);
  if (domain->users.load(std::memory_order_acquire) != 0) return EBUSY;
  delete domain;
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  constexpr std::uint32_t kKnown =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (attr->pd == nullptr || (attr->comp_mask & ~kKnown) != 0) {
    errno = EINVAL;
    return nullptr;
  }
  auto* domain = new (std::nothrow) ProtectionDomain;
  if (domain == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  ProtectionDomain* contained = ProtectionDomain::of(attr->pd);
  if (contained->contained != nullptr) contained = contained->contained;
  domain->contained = contained;
  domain->pdn = contained->pdn;
  domain->pd.context = context;
  domain->pd.handle = contained->pd.handle;
  contained->users.fetch_add(1, std::memory_order_relaxed);
  if (attr->td != nullptr) {
    domain->thread_domain = ThreadDomain::of(attr->td);
    domain->thread_domain->users.fetch_add(1, std::memory_order_relaxed);
  }
  if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0) {
    domain->allocator.domain = &domain->pd;
    domain->allocator.allocate = attr->alloc;
    domain->allocator.release = attr->free;
  }
  if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0) {
    domain->allocator.context = attr->pd_context;
  }
  return &domain->pd;
}

}  // namespace softhca::provider
