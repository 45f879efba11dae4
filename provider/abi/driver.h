// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

/// rdma-core's private provider ABI ("IBVERBS_PRIVATE_34"), declared by ourselves because
/// distributions do not package its header. Layouts were measured on rdma-core 44 and 56 (x86-64);
/// the static_asserts hold the measured sizes. The names carry no `softhca::` types, so that they
/// grep the same as in rdma-core.
///
/// The two known versions share the symbol suffix and differ in one structure: the public ibv_qp_ex
/// grew a member (wr_flush), so what follows it in verbs_qp lies eight bytes later in 56. See
/// Layout in version.h.
namespace softhca::provider::abi {

struct verbs_mr {
  ibv_mr mr;
  std::uint32_t mr_type;  ///< 0: ordinary. 1: null. 2: imported. 3: dma-buf.
  int access;
};
static_assert(sizeof(verbs_mr) == 56);

struct verbs_xrcd {
  ibv_xrcd xrcd;
  std::uint32_t comp_mask;
  std::uint32_t handle;
};

struct verbs_srq {
  ibv_srq srq;
  ibv_srq_type srq_type;
  verbs_xrcd* xrcd;
  ibv_cq* cq;
  std::uint32_t srq_num;
};
static_assert(sizeof(verbs_srq) == 160);

struct verbs_cq {
  union {
    ibv_cq cq;
    ibv_cq_ex cq_ex;
  };
};
static_assert(sizeof(verbs_cq) == 288);

/// ibv_qp_ex without wr_flush, and the size that verbs_qp has in the largest known version.
inline constexpr std::size_t kQpExSizeWithoutFlush = 352;
inline constexpr std::size_t kVerbsQpSize = 376;

/// A verbs_qp of any known version: comp_mask and xrcd follow ibv_qp_ex at a place that depends on
/// the library in use.
struct verbs_qp {
  union {
    ibv_qp qp;
    ibv_qp_ex qp_ex;
    unsigned char storage[kVerbsQpSize];
  };
};
static_assert(sizeof(verbs_qp) == kVerbsQpSize);
static_assert(sizeof(ibv_qp_ex) == kQpExSizeWithoutFlush ||
              sizeof(ibv_qp_ex) == kQpExSizeWithoutFlush + sizeof(void*));

inline constexpr std::uint32_t kVerbsQpXrcd = 1U << 0;  ///< verbs_qp.comp_mask: xrcd is valid.
inline constexpr std::uint32_t kVerbsQpEx = 1U << 1;    ///< verbs_qp.comp_mask: ibv_qp_ex is valid.
inline constexpr std::uint32_t kCreateCqTimestampIgnored =
    1U << 0;  ///< ibv_cmd_create_cq_ex, cmd_flags.

inline constexpr std::uint8_t kMatchEnd = 0;
inline constexpr std::uint8_t kMatchPci = 1;
inline constexpr std::uint8_t kMatchModalias = 2;
inline constexpr std::uint8_t kMatchDriverId = 3;

struct verbs_match_ent {
  void* driver_data;
  union {
    const char* modalias;
    std::uint64_t driver_id;
  } u;
  std::uint16_t vendor;
  std::uint16_t device;
  std::uint8_t kind;
};
static_assert(sizeof(verbs_match_ent) == 24);

struct verbs_sysfs_dev;  ///< Not touched by this provider.

struct list_node {
  list_node* next;
  list_node* prev;
};

struct verbs_device;

struct verbs_device_ops {
  const char* name;
  std::uint32_t match_min_abi_version;
  std::uint32_t match_max_abi_version;
  const verbs_match_ent* match_table;
  const verbs_device_ops** static_providers;
  bool (*match_device)(verbs_sysfs_dev* sysfs_dev);
  verbs_context* (*alloc_context)(ibv_device* device, int cmd_fd, void* private_data);
  verbs_context* (*import_context)(ibv_device* device, int cmd_fd);
  verbs_device* (*alloc_device)(verbs_sysfs_dev* sysfs_dev);
  void (*uninit_device)(verbs_device* device);
};
static_assert(sizeof(verbs_device_ops) == 72);

struct verbs_device {
  ibv_device device;
  const verbs_device_ops* ops;
  std::atomic<int> refcount;
  list_node entry;
  verbs_sysfs_dev* sysfs;
  std::uint64_t core_support;
};
static_assert(sizeof(verbs_device) == 712 && offsetof(verbs_device, ops) == 664);

static_assert(sizeof(verbs_context) == 648 && offsetof(verbs_context, context) == 320 &&
              offsetof(verbs_context, priv) == 208 && sizeof(ibv_context) == 328);

/// Everything a provider may implement; a null member leaves the library's "not supported" in
/// place. In the library's order, which is alphabetical.
struct verbs_context_ops {
  int (*advise_mr)(ibv_pd*, ibv_advise_mr_advice, std::uint32_t flags, ibv_sge*,
                   std::uint32_t count);
  ibv_dm* (*alloc_dm)(ibv_context*, ibv_alloc_dm_attr*);
  ibv_mw* (*alloc_mw)(ibv_pd*, ibv_mw_type);
  ibv_mr* (*alloc_null_mr)(ibv_pd*);
  ibv_pd* (*alloc_parent_domain)(ibv_context*, ibv_parent_domain_init_attr*);
  ibv_pd* (*alloc_pd)(ibv_context*);
  ibv_td* (*alloc_td)(ibv_context*, ibv_td_init_attr*);
  void (*async_event)(ibv_context*, ibv_async_event*);
  int (*attach_counters_point_flow)(ibv_counters*, ibv_counter_attach_attr*, ibv_flow*);
  int (*attach_mcast)(ibv_qp*, const ibv_gid*, std::uint16_t lid);
  int (*bind_mw)(ibv_qp*, ibv_mw*, ibv_mw_bind*);
  int (*close_xrcd)(ibv_xrcd*);
  void (*cq_event)(ibv_cq*);
  ibv_ah* (*create_ah)(ibv_pd*, ibv_ah_attr*);
  ibv_counters* (*create_counters)(ibv_context*, ibv_counters_init_attr*);
  ibv_cq* (*create_cq)(ibv_context*, int cqe, ibv_comp_channel*, int comp_vector);
  ibv_cq_ex* (*create_cq_ex)(ibv_context*, ibv_cq_init_attr_ex*);
  ibv_flow* (*create_flow)(ibv_qp*, ibv_flow_attr*);
  ibv_flow_action* (*create_flow_action_esp)(ibv_context*, ibv_flow_action_esp_attr*);
  ibv_qp* (*create_qp)(ibv_pd*, ibv_qp_init_attr*);
  ibv_qp* (*create_qp_ex)(ibv_context*, ibv_qp_init_attr_ex*);
  ibv_rwq_ind_table* (*create_rwq_ind_table)(ibv_context*, ibv_rwq_ind_table_init_attr*);
  ibv_srq* (*create_srq)(ibv_pd*, ibv_srq_init_attr*);
  ibv_srq* (*create_srq_ex)(ibv_context*, ibv_srq_init_attr_ex*);
  ibv_wq* (*create_wq)(ibv_context*, ibv_wq_init_attr*);
  int (*dealloc_mw)(ibv_mw*);
  int (*dealloc_pd)(ibv_pd*);
  int (*dealloc_td)(ibv_td*);
  int (*dereg_mr)(verbs_mr*);
  int (*destroy_ah)(ibv_ah*);
  int (*destroy_counters)(ibv_counters*);
  int (*destroy_cq)(ibv_cq*);
  int (*destroy_flow)(ibv_flow*);
  int (*destroy_flow_action)(ibv_flow_action*);
  int (*destroy_qp)(ibv_qp*);
  int (*destroy_rwq_ind_table)(ibv_rwq_ind_table*);
  int (*destroy_srq)(ibv_srq*);
  int (*destroy_wq)(ibv_wq*);
  int (*detach_mcast)(ibv_qp*, const ibv_gid*, std::uint16_t lid);
  void (*free_context)(ibv_context*);
  int (*free_dm)(ibv_dm*);
  int (*get_srq_num)(ibv_srq*, std::uint32_t* number);
  ibv_dm* (*import_dm)(ibv_context*, std::uint32_t handle);
  ibv_mr* (*import_mr)(ibv_pd*, std::uint32_t handle);
  ibv_pd* (*import_pd)(ibv_context*, std::uint32_t handle);
  int (*modify_cq)(ibv_cq*, ibv_modify_cq_attr*);
  int (*modify_flow_action_esp)(ibv_flow_action*, ibv_flow_action_esp_attr*);
  int (*modify_qp)(ibv_qp*, ibv_qp_attr*, int mask);
  int (*modify_qp_rate_limit)(ibv_qp*, ibv_qp_rate_limit_attr*);
  int (*modify_srq)(ibv_srq*, ibv_srq_attr*, int mask);
  int (*modify_wq)(ibv_wq*, ibv_wq_attr*);
  ibv_qp* (*open_qp)(ibv_context*, ibv_qp_open_attr*);
  ibv_xrcd* (*open_xrcd)(ibv_context*, ibv_xrcd_init_attr*);
  int (*poll_cq)(ibv_cq*, int entries, ibv_wc*);
  int (*post_recv)(ibv_qp*, ibv_recv_wr*, ibv_recv_wr** bad);
  int (*post_send)(ibv_qp*, ibv_send_wr*, ibv_send_wr** bad);
  int (*post_srq_ops)(ibv_srq*, ibv_ops_wr*, ibv_ops_wr** bad);
  int (*post_srq_recv)(ibv_srq*, ibv_recv_wr*, ibv_recv_wr** bad);
  int (*query_device_ex)(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex*,
                         std::size_t size);
  int (*query_ece)(ibv_qp*, ibv_ece*);
  int (*query_port)(ibv_context*, std::uint8_t port, ibv_port_attr*);
  int (*query_qp)(ibv_qp*, ibv_qp_attr*, int mask, ibv_qp_init_attr*);
  int (*query_qp_data_in_order)(ibv_qp*, ibv_wr_opcode, std::uint32_t flags);
  int (*query_rt_values)(ibv_context*, ibv_values_ex*);
  int (*query_srq)(ibv_srq*, ibv_srq_attr*);
  int (*read_counters)(ibv_counters*, std::uint64_t* values, std::uint32_t count,
                       std::uint32_t flags);
  ibv_mr* (*reg_dm_mr)(ibv_pd*, ibv_dm*, std::uint64_t offset, std::size_t length, unsigned access);
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd*, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                           int fd, int access);
  ibv_mr* (*reg_mr)(ibv_pd*, void* address, std::size_t length, std::uint64_t hca_va, int access);
  int (*req_notify_cq)(ibv_cq*, int solicited_only);
  int (*rereg_mr)(verbs_mr*, int flags, ibv_pd*, void* address, std::size_t length, int access);
  int (*resize_cq)(ibv_cq*, int cqe);
  int (*set_ece)(ibv_qp*, ibv_ece*);
  void (*unimport_dm)(ibv_dm*);
  void (*unimport_mr)(ibv_mr*);
  void (*unimport_pd)(ibv_pd*);
};
static_assert(sizeof(verbs_context_ops) == 608);

}  // namespace softhca::provider::abi
