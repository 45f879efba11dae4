// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "emulator/vfio-user/protocol.h"

namespace softhca::vfio_user {

/// What one side of a connection announces in its version message. The defaults are those of a peer
/// that names nothing.
struct Capabilities {
  std::uint32_t max_message_fds = kDefaultMaxMessageFds;
  std::uint64_t max_data_transfer = kDefaultMaxDataTransfer;
  std::uint32_t max_dma_maps = kDefaultMaxDmaMaps;
  std::uint64_t page_sizes = kDefaultPageSizes;
  bool write_multiple = false;
};

/// Body of a version message: VersionBody and NUL-terminated JSON.
std::string encode_version(const Capabilities& capabilities);

/// Reads the body of a version message. Unknown names are skipped. False: shorter than VersionBody,
/// JSON that is not NUL-terminated or not an object, or a capability of the wrong type or range.
/// `version` is set whenever the body holds one.
bool decode_version(std::span<const std::byte> body, VersionBody& version,
                    Capabilities& capabilities);

}  // namespace softhca::vfio_user
