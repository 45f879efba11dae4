// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/device-server/irq_table.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

namespace softhca::emulator {

using vfio_user::FileDescriptor;

IrqTable::IrqTable(std::uint32_t msix_vectors) {
  indexes_[vfio_user::kIrqIntx].resize(1);
  indexes_[vfio_user::kIrqMsix].resize(msix_vectors);
  indexes_[vfio_user::kIrqErr].resize(1);
  indexes_[vfio_user::kIrqReq].resize(1);
}

// MSI-X without kIrqNoResize: QEMU then attaches single vectors instead of tearing all down to add
// one.
std::vector<vfio_user::ServerIrq> IrqTable::info() const {
  std::vector<vfio_user::ServerIrq> irqs(indexes_.size());
  for (std::size_t i = 0; i < indexes_.size(); ++i) {
    irqs[i].count = static_cast<std::uint32_t>(indexes_[i].size());
    if (irqs[i].count != 0) irqs[i].flags = vfio_user::kIrqEventFd;
  }
  irqs[vfio_user::kIrqIntx].flags |= vfio_user::kIrqMaskable | vfio_user::kIrqAutomasked;
  return irqs;
}

// The write must not block the engine: whether the eventfd blocks is the client's to change at any
// time. One whose counter is full already says all there is to say.
void IrqTable::signal(Line& line) {
  line.pending = false;
  pollfd entry{line.eventfd.get(), POLLOUT, 0};
  if (::poll(&entry, 1, 0) != 1 || (entry.revents & POLLOUT) == 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(line.eventfd.get(), &one, sizeof one);
}

void IrqTable::raise(Line& line) {
  if (line.eventfd && !line.masked) {
    signal(line);
  } else {
    line.pending = true;
  }
}

void IrqTable::raise(std::uint16_t vector) {
  auto& lines = indexes_[vfio_user::kIrqMsix];
  if (vector >= lines.size()) return;
  if (held_) {
    (*held_)[vector] = true;
    any_held_ = true;
  } else {
    raise(lines[vector]);
  }
}

bool IrqTable::deliver() {
  if (!any_held_) return false;
  any_held_ = false;
  auto& lines = indexes_[vfio_user::kIrqMsix];
  for (std::size_t vector = 0; vector < lines.size(); ++vector) {
    if (!(*held_)[vector]) continue;
    (*held_)[vector] = false;
    raise(lines[vector]);
  }
  return true;
}

bool IrqTable::pending(std::uint16_t vector) const {
  const auto& lines = indexes_[vfio_user::kIrqMsix];
  return vector < lines.size() && lines[vector].pending;
}

std::errc IrqTable::attach(std::vector<Line>& lines, std::uint32_t start,
                           std::vector<FileDescriptor> eventfds) {
  for (const FileDescriptor& fd : eventfds) {
    // An eventfd has no file type; a pipe, socket or file in its place could block or do anything.
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0 || (status.st_mode & S_IFMT) != 0) {
      return std::errc::invalid_argument;
    }
  }
  for (FileDescriptor& fd : eventfds) {
    Line& line = lines[start++];
    line.eventfd = std::move(fd);
    if (line.pending && !line.masked) signal(line);
  }
  return {};
}

std::errc IrqTable::set(vfio_user::SetIrqsRequest request) {
  if (request.index >= indexes_.size()) return std::errc::invalid_argument;
  auto& lines = indexes_[request.index];
  if (request.start > lines.size() || request.count > lines.size() - request.start) {
    return std::errc::invalid_argument;
  }
  const std::span range(lines.data() + request.start, request.count);
  if (request.data == vfio_user::kIrqSetDataEventFd) {
    // Eventfds that tell about masking are of no use here: INTx is never raised.
    if (request.action != vfio_user::kIrqSetActionTrigger) return {};
    if (!request.eventfds.empty()) {
      if (request.eventfds.size() != range.size()) return std::errc::invalid_argument;
      return attach(lines, request.start, std::move(request.eventfds));
    }
    for (Line& line : range) line.eventfd.reset();
    return {};
  }
  if (request.count == 0) {
    for (Line& line : lines) line.eventfd.reset();
    return {};
  }
  for (std::size_t i = 0; i < range.size(); ++i) {
    Line& line = range[i];
    if (request.data == vfio_user::kIrqSetDataBool && request.flags[i] == 0) continue;
    if (request.action == vfio_user::kIrqSetActionTrigger) {
      raise(line);
    } else {
      line.masked = request.action == vfio_user::kIrqSetActionMask;
      if (!line.masked && line.pending && line.eventfd) signal(line);
    }
  }
  return {};
}

void IrqTable::clear_pending() {
  for (auto& lines : indexes_) {
    for (Line& line : lines) line.pending = false;
  }
  if (held_) held_->assign(held_->size(), false);
  any_held_ = false;
}

void IrqTable::drop() {
  for (auto& lines : indexes_) {
    for (Line& line : lines) line = Line{};
  }
  if (held_) held_->assign(held_->size(), false);
  any_held_ = false;
}

}  // namespace softhca::emulator
