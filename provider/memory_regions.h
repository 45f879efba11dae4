// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "provider/abi/driver.h"

namespace softhca::provider {

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t hca_va, int access);
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                      int fd, int access);
int rereg_mr(abi::verbs_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length,
             int access);
int dereg_mr(abi::verbs_mr* mr);
ibv_mr* import_mr(ibv_pd* pd, std::uint32_t handle);
void unimport_mr(ibv_mr* mr);
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count);
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);

}  // namespace softhca::provider
