// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <string>
#include <vector>

#include "emulator/runtime/result.h"

namespace softhca::vm {

/// Debian systems that guests can run, by the name of `softhca vm --kernel`.
///   trixie     Debian 13 and its kernel
///   backports  Debian 13 with the kernel of trixie-backports
///   bookworm   Debian 12 and its kernel
std::vector<std::string> guest_systems();

/// A system to boot, as QEMU takes it.
struct GuestImage {
  std::string disk;  ///< Raw ext4; never written to (snapshot).
  std::string kernel;
  std::string initrd;
};

/// The image of system `name` (one of guest_systems()), built in the cache if it is not there. It
/// holds Debian packages and one script of ours that unpacks the second drive (see seed.h).
runtime::Result<GuestImage> guest_image(const std::string& name);

}  // namespace softhca::vm
