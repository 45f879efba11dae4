// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "emulator/vfio-user/message_io.h"
#include "emulator/vfio-user/server.h"

namespace softhca::vfio_user {

/// Answer to one command: an errno, or a body and borrowed descriptors.
struct Reply {
  int error = 0;
  std::vector<std::byte> body;
  std::vector<int> fds;

  void clear() {
    error = 0;
    body.clear();
    fds.clear();
  }
};

/// Checks the commands of a negotiated connection and passes them to the device: one function per
/// command, nothing of the body is believed before it was compared with what the device has.
class RequestHandler {
 public:
  RequestHandler(ServerDevice& device, const ServerLimits& limits, std::uint32_t client_max_fds);

  /// `reply` is cleared first.
  void handle(Message& message, Reply& reply);

 private:
  using Body = std::span<const std::byte>;

  int dma_map(Message& message);
  int dma_unmap(Body body, Reply& reply);
  int device_info(Body body, Reply& reply);
  int region_info(Body body, Reply& reply);
  int region_io_fds(Body body, Reply& reply);
  int irq_info(Body body, Reply& reply);
  int set_irqs(Message& message);
  int region_read(Body body, Reply& reply);
  int region_write(Body body, Reply& reply);
  int region_write_multi(Body body, Reply& reply);
  int device_reset(Body body);
  /// 0 if the device has these bytes and allows the access.
  int check_access(std::uint32_t region, std::uint64_t offset, std::uint64_t count,
                   bool write) const;

  ServerDevice& device_;
  ServerLimits limits_;
  std::uint32_t client_max_fds_;
  std::vector<ServerRegion> regions_;
  std::vector<ServerIrq> irqs_;
};

}  // namespace softhca::vfio_user
