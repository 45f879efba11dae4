// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>
#include <bit>
#include <cerrno>

#include "provider/context.h"
#include "provider/qp.h"

namespace softhca::provider {
namespace {

constexpr std::uint32_t align_up(std::uint32_t value, std::uint32_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Bytes of a send WQE before its data: the largest of the operations, and the transport's part.
std::uint32_t overhead(ibv_qp_type type, std::uint64_t operations) {
  constexpr std::uint32_t kCtrl = prm::CtrlSegment::size;
  constexpr std::uint32_t kRdma = kCtrl + prm::RemoteAddressSegment::size;
  constexpr std::uint32_t kAtomic = kRdma + prm::AtomicSegment::size;
  constexpr std::uint32_t kBind =
      kCtrl + prm::UmrCtrlSegment::size + prm::UmrMkeySegment::size + prm::kWqeBasicBlock;
  std::uint32_t bytes = kCtrl;
  if ((operations & (IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                     IBV_QP_EX_WITH_RDMA_READ)) != 0) {
    bytes = kRdma;
  }
  if ((operations & (IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)) !=
      0) {
    bytes = kAtomic;
  }
  if ((operations & (IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV)) != 0) bytes = kBind;
  if (type == IBV_QPT_UD) bytes += prm::AddressVector::size;
  if (type == IBV_QPT_XRC_SEND) bytes += prm::XrcSegment::size;
  return bytes;
}

int compute_send(const DeviceLimits& limits, const ibv_qp_init_attr_ex& attr,
                 std::uint64_t operations, QueueSizes& sizes) {
  const ibv_qp_cap& cap = attr.cap;
  if (cap.max_send_wr == 0) return 0;
  // The ds field counts to 63, whatever the device says of its descriptors.
  const std::uint32_t limit =
      std::min<std::uint32_t>(limits.max_sq_descriptor, prm::kWqeMaxSendBytes);
  const std::uint32_t before_data = overhead(attr.qp_type, operations);
  if (before_data > limit) return EINVAL;
  if (cap.max_send_sge > (limit - before_data) / prm::DataSegment::size ||
      cap.max_inline_data > limit) {
    return EINVAL;
  }
  const auto gather =
      static_cast<std::uint32_t>(before_data + cap.max_send_sge * prm::DataSegment::size);
  std::uint32_t inlined = 0;
  if (cap.max_inline_data != 0) {
    inlined = before_data + static_cast<std::uint32_t>(
                                prm::InlineSegment::units(cap.max_inline_data) * prm::kWqeUnit);
  }
  const std::uint32_t wqe = align_up(std::max(gather, inlined), prm::kWqeBasicBlock);
  if (wqe > limit) return EINVAL;

  const std::uint64_t bytes = static_cast<std::uint64_t>(cap.max_send_wr) * wqe;
  if (bytes > static_cast<std::uint64_t>(limits.max_send_blocks) * prm::kWqeBasicBlock)
    return EINVAL;
  const std::uint64_t ring = std::bit_ceil(bytes);
  sizes.send_blocks = static_cast<std::uint32_t>(ring / prm::kWqeBasicBlock);
  if (sizes.send_blocks > limits.max_send_blocks) return EINVAL;
  sizes.max_post = static_cast<std::uint32_t>(ring / wqe);
  // All that the rounding leaves over may be used, within what 63 units hold.
  const std::uint32_t usable =
      std::min<std::uint32_t>(wqe, prm::kWqeMaxUnits * static_cast<std::uint32_t>(prm::kWqeUnit));
  sizes.max_inline =
      usable - before_data - static_cast<std::uint32_t>(prm::InlineSegment::header_size);
  if (before_data + prm::InlineSegment::header_size >= usable) sizes.max_inline = 0;
  return cap.max_inline_data > sizes.max_inline ? EINVAL : 0;
}

int compute_receive(const DeviceLimits& limits, const ibv_qp_init_attr_ex& attr,
                    QueueSizes& sizes) {
  const ibv_qp_cap& cap = attr.cap;
  if (cap.max_recv_wr == 0 || attr.srq != nullptr || attr.qp_type == IBV_QPT_XRC_SEND ||
      attr.qp_type == IBV_QPT_XRC_RECV) {
    return 0;
  }
  if (cap.max_recv_wr > limits.max_recv_wr ||
      cap.max_recv_sge > limits.max_rq_descriptor / prm::DataSegment::size) {
    return EINVAL;
  }
  const std::uint32_t stride = std::bit_ceil(std::max<std::uint32_t>(cap.max_recv_sge, 1) *
                                             static_cast<std::uint32_t>(prm::DataSegment::size));
  if (stride > limits.max_rq_descriptor) return EINVAL;
  // The SQ begins after the RQ and must begin on a basic block.
  const auto bytes = std::max<std::uint64_t>(
      static_cast<std::uint64_t>(std::bit_ceil(cap.max_recv_wr)) * stride, prm::kWqeBasicBlock);
  sizes.recv_count = static_cast<std::uint32_t>(bytes / stride);
  sizes.recv_stride_shift = static_cast<std::uint32_t>(std::countr_zero(stride));
  sizes.recv_max_sge = stride / static_cast<std::uint32_t>(prm::DataSegment::size);
  return 0;
}

}  // namespace

std::uint64_t operations_of(ibv_qp_type type) {
  constexpr std::uint64_t kSends =
      static_cast<std::uint64_t>(IBV_QP_EX_WITH_SEND) | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr std::uint64_t kWrites =
      static_cast<std::uint64_t>(IBV_QP_EX_WITH_RDMA_WRITE) | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
      IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV;
  constexpr std::uint64_t kReads = static_cast<std::uint64_t>(IBV_QP_EX_WITH_RDMA_READ) |
                                   IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  switch (type) {
    case IBV_QPT_RC:
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
      return kSends | kWrites | kReads;
    case IBV_QPT_UC:
      return kSends | kWrites;
    case IBV_QPT_UD:
      return kSends;
    default:
      return 0;
  }
}

int compute_sizes(const DeviceLimits& limits, const ibv_qp_init_attr_ex& attr,
                  std::uint64_t operations, QueueSizes& sizes) {
  sizes = QueueSizes{};
  if (attr.qp_type == IBV_QPT_XRC_RECV) return 0;
  if (const int error = compute_send(limits, attr, operations, sizes); error != 0) return error;
  return compute_receive(limits, attr, sizes);
}

}  // namespace softhca::provider
