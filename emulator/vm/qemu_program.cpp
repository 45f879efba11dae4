// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/qemu_program.h"

#include <cstdlib>

#include "emulator/vm/cache.h"
#include "emulator/vm/debian_archive.h"
#include "emulator/vm/subprocess.h"

namespace softhca::vm {
namespace {

using runtime::Done;
using runtime::Result;

constexpr char kLibraries[] = "/usr/lib/x86_64-linux-gnu";

Bootstrap qemu_packages() {
  Bootstrap bootstrap;
  bootstrap.variant = "extract";
  bootstrap.suite = "trixie";
  bootstrap.with_backports = true;
  bootstrap.packages = {"qemu-system-x86", "seabios", "ipxe-qemu"};
  // Nothing of it is executed at unpacking: no chroot, hence no privilege, is needed.
  bootstrap.arguments = {"--mode=chrootless", "--skip=check/empty"};
  return bootstrap;
}

Result<Done> unpack(const std::string& folder, const std::string& log_file) {
  const std::string tar_file = folder + ".tar";
  if (auto made = make_system(qemu_packages(), tar_file, log_file); !made) return made;
  auto unpacked = run_logged(
      {"tar", "--no-same-owner", "--exclude=./dev/*", "--exclude=./usr/share/doc",
       "--exclude=./usr/share/man", "--exclude=./usr/share/locale", "--exclude=./var/lib/apt",
       "--exclude=./var/lib/dpkg", "-C", folder, "-xf", tar_file},
      log_file);
  if (auto removed = run_logged({"rm", "-f", tar_file}, log_file); !removed) return removed;
  return unpacked;
}

}  // namespace

Result<QemuProgram> qemu_program() {
  if (const char* own = std::getenv("SOFTHCA_QEMU"); own != nullptr && *own != 0) {
    return QemuProgram{{own}, {}};
  }
  const auto folder = cached("qemu", "QEMU from Debian's trixie-backports",
                             recipe_of(qemu_packages()) + "|1", unpack);
  if (!folder) return folder.error();
  const std::string& root = folder.value();
  return QemuProgram{{root + kLibraries + "/ld-linux-x86-64.so.2", "--library-path",
                      root + kLibraries, root + "/usr/bin/qemu-system-x86_64", "-L",
                      root + "/usr/share/qemu", "-L", root + "/usr/share/seabios"},
                     {"QEMU_MODULE_DIR=" + root + kLibraries + "/qemu"}};
}

}  // namespace softhca::vm
