// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/memory/call_memory.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "kernel-shim/host/memory/shared_pages.h"

namespace softhca::shim {
namespace {

constexpr std::uint64_t kPieceMask = 4095;

/// Whole pages that lie in a file of `size` bytes.
bool is_sensible(const SharedPiece& piece, std::uint64_t size) {
  const bool whole = ((piece.address | piece.length | piece.offset) & kPieceMask) == 0;
  return whole && piece.length != 0 && piece.address <= ~0ULL - piece.length &&
         piece.length <= size && piece.offset <= size - piece.length;
}

}  // namespace

int CallMemory::open(SharedFiles& files, int fd, const std::shared_ptr<const ProcessMap>& map,
                     std::vector<SharedPiece> pieces) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return EINVAL;
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const bool sensible = std::all_of(pieces.begin(), pieces.end(),
                                    [size](const auto& piece) { return is_sensible(piece, size); });
  if (!sensible) return EINVAL;
  if (const int error = files.open(fd, map, file_)) return error;
  pieces_ = std::move(pieces);
  file_->appear(pieces_);
  return 0;
}

bool CallMemory::find(std::uint64_t address, std::uint64_t length, int fallback,
                      std::vector<DmaPiece>& pages, Pins& pins) const {
  const ShareRange range = pages_of(address, length);
  const std::uint64_t end = range.address + range.length;
  for (std::uint64_t at = range.address; at < end;) {
    const auto piece = std::find_if(pieces_.begin(), pieces_.end(), [at](const auto& each) {
      return each.address <= at && at - each.address < each.length;
    });
    if (piece == pieces_.end()) {
      if (fallback < 0) return false;
      std::uint64_t next = end;
      for (const SharedPiece& each : pieces_) {
        if (each.address > at) next = std::min(next, each.address);
      }
      pages.push_back({fallback, at, next - at});
      at = next;
      continue;
    }
    const std::uint64_t inside = at - piece->address;
    const SharedPiece part{at, std::min(piece->length - inside, end - at), piece->offset + inside};
    pages.push_back({file_->fd(), part.offset, part.length});
    pins.emplace_back(file_, part);
    at += part.length;
  }
  return true;
}

}  // namespace softhca::shim
