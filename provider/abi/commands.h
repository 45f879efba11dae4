// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cstddef>
#include <cstdint>

#include "provider/abi/driver.h"

/// Command functions of libibverbs.so.1, symbol version IBVERBS_PRIVATE_34. Each takes the buffer
/// of a legacy write(2) command: header, the kernel's core structure, the driver's part; and a
/// response of the same kind. The library fills header and core; the driver fills its own part.
namespace softhca::provider::abi {

/// An empty driver part.
struct NoPayload {};

/// Buffer of a legacy command. `Core` is the kernel's request structure, kept as bytes because the
/// kernel ends it in a flexible array.
template <typename Core, typename Driver>
struct Command {
  std::uint32_t command = 0;
  std::uint16_t in_words = 0;
  std::uint16_t out_words = 0;
  alignas(4) unsigned char core[sizeof(Core)] = {};
  [[no_unique_address]] Driver driver{};
};

/// Buffer of an extended command: 24 bytes of header.
template <typename Core, typename Driver>
struct ExtendedCommand {
  std::uint64_t header[3] = {};
  alignas(8) unsigned char core[sizeof(Core)] = {};
  [[no_unique_address]] Driver driver{};
};

template <typename Core, typename Driver>
struct Response {
  alignas(8) unsigned char core[sizeof(Core)] = {};
  [[no_unique_address]] Driver driver{};
};

using GetContext = Command<ib_uverbs_get_context, mlx5_ib_alloc_ucontext_req_v2>;
using GetContextResponse = Response<ib_uverbs_get_context_resp, mlx5_ib_alloc_ucontext_resp>;
using AllocPd = Command<ib_uverbs_alloc_pd, NoPayload>;
using AllocPdResponse = Response<ib_uverbs_alloc_pd_resp, mlx5_ib_alloc_pd_resp>;
using RegMr = Command<ib_uverbs_reg_mr, NoPayload>;
using RegMrResponse = Response<ib_uverbs_reg_mr_resp, NoPayload>;
using ReregMr = Command<ib_uverbs_rereg_mr, NoPayload>;
using ReregMrResponse = Response<ib_uverbs_rereg_mr_resp, NoPayload>;
using AllocMw = Command<ib_uverbs_alloc_mw, NoPayload>;
using AllocMwResponse = Response<ib_uverbs_alloc_mw_resp, NoPayload>;
using CreateCqEx = ExtendedCommand<ib_uverbs_ex_create_cq, mlx5_ib_create_cq>;
using CreateCqExResponse = Response<ib_uverbs_ex_create_cq_resp, mlx5_ib_create_cq_resp>;
using ResizeCq = Command<ib_uverbs_resize_cq, mlx5_ib_resize_cq>;
using ResizeCqResponse = Response<ib_uverbs_resize_cq_resp, NoPayload>;
using ModifyCq = ExtendedCommand<ib_uverbs_ex_modify_cq, NoPayload>;
using CreateQp = Command<ib_uverbs_create_qp, mlx5_ib_create_qp>;
using CreateQpResponse = Response<ib_uverbs_create_qp_resp, mlx5_ib_create_qp_resp>;
using CreateQpEx = ExtendedCommand<ib_uverbs_ex_create_qp, mlx5_ib_create_qp>;
using CreateQpExResponse = Response<ib_uverbs_ex_create_qp_resp, mlx5_ib_create_qp_resp>;
using OpenQp = Command<ib_uverbs_open_qp, NoPayload>;
using OpenQpResponse = Response<ib_uverbs_create_qp_resp, NoPayload>;
using ModifyQp = Command<ib_uverbs_modify_qp, NoPayload>;
using QueryQp = Command<ib_uverbs_query_qp, NoPayload>;
using CreateSrq = Command<ib_uverbs_create_srq, mlx5_ib_create_srq>;
using CreateXsrq = Command<ib_uverbs_create_xsrq, mlx5_ib_create_srq>;
using CreateSrqResponse = Response<ib_uverbs_create_srq_resp, mlx5_ib_create_srq_resp>;
using ModifySrq = Command<ib_uverbs_modify_srq, NoPayload>;
using QuerySrq = Command<ib_uverbs_query_srq, NoPayload>;
using OpenXrcd = Command<ib_uverbs_open_xrcd, NoPayload>;
using OpenXrcdResponse = Response<ib_uverbs_open_xrcd_resp, NoPayload>;
using QueryPort = Command<ib_uverbs_query_port, NoPayload>;

static_assert(offsetof(GetContext, driver) == 8 + sizeof(ib_uverbs_get_context));
static_assert(offsetof(CreateCqEx, driver) == 24 + sizeof(ib_uverbs_ex_create_cq));
static_assert(offsetof(CreateQp, driver) == 8 + sizeof(ib_uverbs_create_qp));
static_assert(offsetof(CreateQpEx, driver) == 24 + sizeof(ib_uverbs_ex_create_qp));
static_assert(offsetof(CreateSrq, driver) == 8 + sizeof(ib_uverbs_create_srq));
static_assert(offsetof(CreateXsrq, driver) == 8 + sizeof(ib_uverbs_create_xsrq));
static_assert(offsetof(ResizeCq, driver) == 8 + sizeof(ib_uverbs_resize_cq));
static_assert(sizeof(AllocPdResponse) == sizeof(ib_uverbs_alloc_pd_resp) + 4);

extern "C" {
void* _verbs_init_and_alloc_context(ibv_device* device, int cmd_fd, std::size_t alloc_size,
                                    verbs_context* context_offset, std::uint32_t driver_id);
void verbs_uninit_context(verbs_context* context);
void verbs_set_ops(verbs_context* context, const verbs_context_ops* ops);

int ibv_cmd_get_context(verbs_context*, void* cmd, std::size_t, void* resp, std::size_t);
int ibv_cmd_query_device_any(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex*,
                             std::size_t attr_size, void* resp, std::size_t* resp_size);
int ibv_cmd_query_port(ibv_context*, std::uint8_t port, ibv_port_attr*, void* cmd, std::size_t);
int ibv_cmd_alloc_pd(ibv_context*, ibv_pd*, void* cmd, std::size_t, void* resp, std::size_t);
int ibv_cmd_dealloc_pd(ibv_pd*);
int ibv_cmd_open_xrcd(ibv_context*, verbs_xrcd*, int size, ibv_xrcd_init_attr*, void* cmd,
                      std::size_t, void* resp, std::size_t);
int ibv_cmd_close_xrcd(verbs_xrcd*);
int ibv_cmd_reg_mr(ibv_pd*, void* address, std::size_t length, std::uint64_t hca_va, int access,
                   verbs_mr*, void* cmd, std::size_t, void* resp, std::size_t);
int ibv_cmd_rereg_mr(verbs_mr*, std::uint32_t flags, void* address, std::size_t length,
                     std::uint64_t hca_va, int access, ibv_pd*, void* cmd, std::size_t, void* resp,
                     std::size_t);
int ibv_cmd_dereg_mr(verbs_mr*);
int ibv_cmd_query_mr(ibv_pd*, verbs_mr*, std::uint32_t handle);
int ibv_cmd_advise_mr(ibv_pd*, ibv_advise_mr_advice, std::uint32_t flags, ibv_sge*, std::uint32_t);
/// rdma-core 56 takes one argument more (a command buffer, null here); 44 does not look at it.
int ibv_cmd_reg_dmabuf_mr(ibv_pd*, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                          int fd, int access, verbs_mr*, void* driver);
int ibv_cmd_alloc_mw(ibv_pd*, ibv_mw_type, ibv_mw*, void* cmd, std::size_t, void* resp,
                     std::size_t);
int ibv_cmd_dealloc_mw(ibv_mw*);
int ibv_cmd_create_cq_ex(ibv_context*, const ibv_cq_init_attr_ex*, verbs_cq*, void* cmd,
                         std::size_t, void* resp, std::size_t, std::uint32_t cmd_flags);
int ibv_cmd_resize_cq(ibv_cq*, int cqe, void* cmd, std::size_t, void* resp, std::size_t);
int ibv_cmd_modify_cq(ibv_cq*, ibv_modify_cq_attr*, void* cmd, std::size_t);
int ibv_cmd_destroy_cq(ibv_cq*);
int ibv_cmd_create_srq(ibv_pd*, ibv_srq*, ibv_srq_init_attr*, void* cmd, std::size_t, void* resp,
                       std::size_t);
int ibv_cmd_create_srq_ex(ibv_context*, verbs_srq*, ibv_srq_init_attr_ex*, void* cmd, std::size_t,
                          void* resp, std::size_t);
int ibv_cmd_modify_srq(ibv_srq*, ibv_srq_attr*, int mask, void* cmd, std::size_t);
int ibv_cmd_query_srq(ibv_srq*, ibv_srq_attr*, void* cmd, std::size_t);
int ibv_cmd_destroy_srq(ibv_srq*);
int ibv_cmd_create_qp_ex(ibv_context*, verbs_qp*, ibv_qp_init_attr_ex*, void* cmd, std::size_t,
                         void* resp, std::size_t);
int ibv_cmd_create_qp_ex2(ibv_context*, verbs_qp*, ibv_qp_init_attr_ex*, void* cmd, std::size_t,
                          void* resp, std::size_t);
int ibv_cmd_open_qp(ibv_context*, verbs_qp*, int size, ibv_qp_open_attr*, void* cmd, std::size_t,
                    void* resp, std::size_t);
int ibv_cmd_query_qp(ibv_qp*, ibv_qp_attr*, int mask, ibv_qp_init_attr*, void* cmd, std::size_t);
int ibv_cmd_modify_qp(ibv_qp*, ibv_qp_attr*, int mask, void* cmd, std::size_t);
int ibv_cmd_destroy_qp(ibv_qp*);
int ibv_cmd_attach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t lid);
int ibv_cmd_detach_mcast(ibv_qp*, const ibv_gid*, std::uint16_t lid);
int ibv_dontfork_range(void* base, std::size_t size);
int ibv_dofork_range(void* base, std::size_t size);
}

}  // namespace softhca::provider::abi
