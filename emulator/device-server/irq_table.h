// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <system_error>
#include <vector>

#include "emulator/vfio-user/file_descriptor.h"
#include "emulator/vfio-user/server.h"
#include "hw-model/runtime/interrupts.h"

namespace softhca::emulator {

/// Interrupts of one function as eventfds of its client. A vector that is raised while nothing is
/// attached, or while it is masked, stays pending and is signalled as soon as that ends: clients
/// attach and detach vectors while the device runs.
class IrqTable final : public InterruptSink {
 public:
  explicit IrqTable(std::uint32_t msix_vectors);

  std::vector<vfio_user::ServerIrq> info() const;
  /// EINVAL: a descriptor is not an eventfd; nothing was changed then.
  std::errc set(vfio_user::SetIrqsRequest request);

  /// An MSI-X vector; ones that do not exist are ignored.
  void raise(std::uint16_t vector) override;
  /// From now on raised vectors wait for deliver(), once each however often they were raised: what
  /// a driver finds when it wakes is then a finished piece of work, not its first completion.
  void hold() { held_.emplace(vectors(), false); }
  /// True if there were any.
  bool deliver();
  bool pending(std::uint16_t vector) const;
  std::size_t vectors() const { return indexes_[vfio_user::kIrqMsix].size(); }

  /// Device reset: nothing is pending any more. Eventfds stay.
  void clear_pending();
  /// The client is gone.
  void drop();

 private:
  struct Line {
    vfio_user::FileDescriptor eventfd;
    bool pending = false;
    bool masked = false;
  };
  static void signal(Line& line);
  static void raise(Line& line);
  std::errc attach(std::vector<Line>& lines, std::uint32_t start,
                   std::vector<vfio_user::FileDescriptor> eventfds);

  std::array<std::vector<Line>, vfio_user::kPciNumIrqs> indexes_;
  std::optional<std::vector<bool>> held_;  ///< By vector; none: delivered at once.
  bool any_held_ = false;
};

}  // namespace softhca::emulator
