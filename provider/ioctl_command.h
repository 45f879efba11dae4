// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace softhca::provider {

/// One RDMA_VERBS_IOCTL with at most `Capacity` attributes, for the methods that libibverbs has no
/// function for (kernel include/uapi/rdma/rdma_user_ioctl_cmds.h).
template <std::size_t Capacity>
class IoctlCommand {
 public:
  IoctlCommand(std::uint16_t object, std::uint16_t method) {
    packet_.header.object_id = object;
    packet_.header.method_id = method;
    packet_.header.driver_id = RDMA_DRIVER_MLX5;
  }

  /// Input value of at most 8 bytes, passed in line.
  template <typename T>
  void in(std::uint16_t id, const T& value) {
    static_assert(sizeof(T) <= 8);
    ib_uverbs_attr& attribute = next(id);
    attribute.len = sizeof(T);
    std::memcpy(&attribute.data, &value, sizeof(T));
  }
  /// Object handle or descriptor given to the kernel.
  void in_object(std::uint16_t id, std::uint32_t handle) { next(id).data = handle; }
  /// Buffer that the kernel fills.
  template <typename T>
  void out(std::uint16_t id, T& value) {
    ib_uverbs_attr& attribute = next(id);
    attribute.len = sizeof(T);
    attribute.data = reinterpret_cast<std::uintptr_t>(&value);
  }
  /// Object handle or descriptor that the kernel makes; read it with value() at the returned
  /// position.
  std::size_t out_object(std::uint16_t id) {
    next(id);
    return packet_.header.num_attrs - 1U;
  }
  std::int64_t value(std::size_t position) const { return packet_.attributes[position].data_s64; }

  /// 0, or the errno of the failure.
  int run(int command_fd) {
    packet_.header.length = static_cast<std::uint16_t>(
        sizeof(ib_uverbs_ioctl_hdr) + packet_.header.num_attrs * sizeof(ib_uverbs_attr));
    return ioctl(command_fd, RDMA_VERBS_IOCTL, &packet_) == 0 ? 0 : errno;
  }

 private:
  struct HeaderBytes {
    std::uint16_t length, object_id, method_id, num_attrs;
    std::uint64_t reserved1;
    std::uint32_t driver_id, reserved2;
  };
  static_assert(sizeof(HeaderBytes) == 24);
  struct Packet {
    HeaderBytes header{};
    ib_uverbs_attr attributes[Capacity]{};
  };

  ib_uverbs_attr& next(std::uint16_t id) {
    ib_uverbs_attr& attribute = packet_.attributes[packet_.header.num_attrs++];
    attribute.attr_id = id;
    attribute.flags = UVERBS_ATTR_F_MANDATORY;
    return attribute;
  }

  Packet packet_;
};

}  // namespace softhca::provider
