// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/memory_regions.h"

#include <cerrno>
#include <new>

#include "provider/abi/commands.h"

namespace softhca::provider {
namespace {

/// Hands `mr` over when `error` is 0, else frees it and sets errno.
ibv_mr* finish(abi::verbs_mr* mr, int error, int access) {
  if (error != 0) {
    delete mr;
    errno = error;
    return nullptr;
  }
  mr->access = access;
  return &mr->mr;
}

abi::verbs_mr* new_mr() {
  auto* mr = new (std::nothrow) abi::verbs_mr{};
  if (mr == nullptr) errno = ENOMEM;
  return mr;
}

}  // namespace

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, std::uint64_t hca_va, int access) {
  abi::verbs_mr* mr = new_mr();
  if (mr == nullptr) return nullptr;
  abi::RegMr command;
  abi::RegMrResponse response;
  const int error = abi::ibv_cmd_reg_mr(pd, address, length, hca_va, access, mr, &command,
                                        sizeof(command), &response, sizeof(response));
  return finish(mr, error, access);
}

ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                      int fd, int access) {
  abi::verbs_mr* mr = new_mr();
  if (mr == nullptr) return nullptr;
  return finish(mr, abi::ibv_cmd_reg_dmabuf_mr(pd, offset, length, iova, fd, access, mr, nullptr),
                access);
}

int rereg_mr(abi::verbs_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length,
             int access) {
  abi::ReregMr command;
  abi::ReregMrResponse response;
  return abi::ibv_cmd_rereg_mr(mr, static_cast<std::uint32_t>(flags), address, length,
                               reinterpret_cast<std::uintptr_t>(address), access, pd, &command,
                               sizeof(command), &response, sizeof(response));
}

int dereg_mr(abi::verbs_mr* mr) {
  if (const int error = abi::ibv_cmd_dereg_mr(mr); error != 0) return error;
  delete mr;
  return 0;
}

ibv_mr* import_mr(ibv_pd* pd, std::uint32_t handle) {
  abi::verbs_mr* mr = new_mr();
  if (mr == nullptr) return nullptr;
  return finish(mr, abi::ibv_cmd_query_mr(pd, mr, handle), 0);
}

void unimport_mr(ibv_mr* mr) {
  delete reinterpret_cast<abi::verbs_mr*>(mr);
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count) {
  return abi::ibv_cmd_advise_mr(pd, advice, flags, list, count);
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  auto* mw = new (std::nothrow) ibv_mw{};
  if (mw == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  abi::AllocMw command;
  abi::AllocMwResponse response;
  if (const int error = abi::ibv_cmd_alloc_mw(pd, type, mw, &command, sizeof(command), &response,
                                              sizeof(response));
      error != 0) {
    delete mw;
    errno = error;
    return nullptr;
  }
  return mw;
}

int dealloc_mw(ibv_mw* mw) {
  if (const int error = abi::ibv_cmd_dealloc_mw(mw); error != 0) return error;
  delete mw;
  return 0;
}

}  // namespace softhca::provider
