// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/abi/commands.h"
#include "provider/address_handle.h"
#include "provider/context.h"
#include "provider/cq.h"
#include "provider/domains.h"
#include "provider/memory_regions.h"
#include "provider/qp.h"
#include "provider/queries.h"
#include "provider/srq.h"
#include "provider/xrc_domain.h"

namespace softhca::provider {
namespace {

int attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return abi::ibv_cmd_attach_mcast(qp, gid, lid);
}
int detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  return abi::ibv_cmd_detach_mcast(qp, gid, lid);
}

abi::verbs_context_ops make_ops() {
  abi::verbs_context_ops ops{};
  ops.advise_mr = advise_mr;
  ops.alloc_mw = alloc_mw;
  ops.alloc_parent_domain = alloc_parent_domain;
  ops.alloc_pd = alloc_pd;
  ops.alloc_td = alloc_td;
  ops.attach_mcast = attach_mcast;
  ops.bind_mw = bind_mw;
  ops.close_xrcd = close_xrcd;
  ops.cq_event = cq_event;
  ops.create_ah = create_ah;
  ops.create_cq = create_cq;
  ops.create_cq_ex = create_cq_ex;
  ops.create_qp = create_qp;
  ops.create_qp_ex = create_qp_ex;
  ops.create_srq = create_srq;
  ops.create_srq_ex = create_srq_ex;
  ops.dealloc_mw = dealloc_mw;
  ops.dealloc_pd = dealloc_pd;
  ops.dealloc_td = dealloc_td;
  ops.dereg_mr = dereg_mr;
  ops.destroy_ah = destroy_ah;
  ops.destroy_cq = destroy_cq;
  ops.destroy_qp = destroy_qp;
  ops.destroy_srq = destroy_srq;
  ops.detach_mcast = detach_mcast;
  ops.free_context = free_context;
  ops.get_srq_num = get_srq_num;
  ops.import_mr = import_mr;
  ops.import_pd = import_pd;
  ops.modify_cq = modify_cq;
  ops.modify_qp = modify_qp;
  ops.modify_srq = modify_srq;
  ops.open_qp = open_qp;
  ops.open_xrcd = open_xrcd;
  ops.poll_cq = poll_cq;
  ops.post_recv = post_recv;
  ops.post_send = post_send;
  ops.post_srq_recv = post_srq_recv;
  ops.query_device_ex = query_device_ex;
  ops.query_port = query_port;
  ops.query_qp = query_qp;
  ops.query_rt_values = query_rt_values;
  ops.query_srq = query_srq;
  ops.reg_dmabuf_mr = reg_dmabuf_mr;
  ops.reg_mr = reg_mr;
  ops.req_notify_cq = req_notify_cq;
  ops.rereg_mr = rereg_mr;
  ops.resize_cq = resize_cq;
  ops.unimport_mr = unimport_mr;
  ops.unimport_pd = unimport_pd;
  return ops;
}

}  // namespace

const abi::verbs_context_ops kContextOps = make_ops();

}  // namespace softhca::provider
