// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/guest_image.h"

#include <cerrno>
#include <filesystem>

#include <unistd.h>

#include "emulator/vm/cache.h"
#include "emulator/vm/debian_archive.h"
#include "emulator/vm/subprocess.h"

namespace softhca::vm {
namespace {

namespace fs = std::filesystem;
using runtime::Done;
using runtime::Error;
using runtime::Result;

/// The root disk is a virtio disk with ext4, which devtmpfs names: udev, slow to start under
/// emulation, is not needed to mount it.
constexpr char kInitramfsHook[] = R"(#!/bin/sh
[ "$1" = prereqs ] && exit 0
. /usr/share/initramfs-tools/hook-functions
force_load virtio_pci
force_load virtio_blk
manual_add_modules crc32c crc32c_generic
force_load ext4
rm -f "$DESTDIR/scripts/init-top/udev" "$DESTDIR/scripts/init-bottom/udev"
)";

/// What belongs to a run of `softhca vm`, not to the image, comes by the second drive.
constexpr char kInit[] = R"(#!/bin/sh
mount -t devtmpfs devtmpfs /dev
mkdir -p /softhca
mount -t tmpfs softhca /softhca
tar -C / -xf /dev/vdb
exec /softhca/init
)";

/// A shell command that writes `text` to `path` of the new system.
std::string write_file_hook(const std::string& path, const std::string& mode,
                            const std::string& text) {
  return "mkdir -p \"$(dirname \"$1" + path + "\")\" && printf %s " + shell_quoted(text) +
         " > \"$1" + path + "\" && chmod " + mode + " \"$1" + path + "\"";
}

Bootstrap system_of(const std::string& name) {
  Bootstrap bootstrap;
  bootstrap.variant = "apt";
  bootstrap.suite = name == "bookworm" ? "bookworm" : "trixie";
  bootstrap.with_backports = name == "backports";
  bootstrap.packages = {"linux-image-amd64", "initramfs-tools", "zstd",
                        // Base.
                        "kmod", "udev", "procps", "pciutils", "iproute2", "iputils-ping", "ethtool",
                        "netbase", "python3",
                        // RDMA.
                        "rdma-core", "ibverbs-utils", "ibverbs-providers", "perftest",
                        "infiniband-diags", "rdmacm-utils", "opensm", "python3-pyverbs",
                        // What runs over it.
                        "iperf3", "fio", "nvme-cli", "nfs-common", "nfs-kernel-server"};
  // Later systems have it by a dependency.
  if (bootstrap.suite == "bookworm") bootstrap.packages.emplace_back("mount");
  if (bootstrap.with_backports) {
    // Only the kernel: the rest stays that of trixie.
    bootstrap.packages[0] += "/trixie-backports";
  }
  for (const char* folder : {"doc", "man", "locale", "info"}) {
    bootstrap.arguments.push_back(std::string("--dpkgopt=path-exclude=/usr/share/") + folder +
                                  "/*");
  }
  bootstrap.arguments.push_back(
      "--setup-hook=" +
      write_file_hook("/etc/initramfs-tools/hooks/softhca", "755", kInitramfsHook));
  bootstrap.arguments.push_back("--setup-hook=" +
                                write_file_hook("/etc/initramfs-tools/conf.d/softhca", "644",
                                                "MODULES=list\nCOMPRESS=zstd\nRESUME=none\n"));
  bootstrap.arguments.push_back("--customize-hook=" +
                                write_file_hook("/sbin/softhca-init", "755", kInit));
  return bootstrap;
}

/// The script that turns root.tar into the three files; its arguments: folder, label of the disk.
/// Run by root, or under fakeroot, which remembers owners for mke2fs.
constexpr char kMakeDisk[] = R"(set -e
cd "$1"
mkdir root
tar --numeric-owner -C root -xpf root.tar
rm root.tar
mv root/boot/vmlinuz-* kernel
mv root/boot/initrd.img-* initrd
rm -rf root/boot/* root/initrd.img* root/vmlinuz* root/var/lib/apt/lists root/var/cache/apt
mkdir -p root/var/lib/apt/lists root/var/cache/apt
truncate -s 2G disk
mke2fs -q -F -t ext4 -O ^has_journal,^metadata_csum -L "$2" -d root disk
chmod -R u+rwX root
rm -rf root
)";

Result<Done> make_disk(const std::string& folder, const std::string& name,
                       const std::string& log_file) {
  if (!find_program("mke2fs")) {
    return Error{ENOENT, "mke2fs is missing; install it: apt-get install e2fsprogs"};
  }
  std::vector<std::string> command = {
      "sh",        "-c",   std::string("PATH=$PATH:/usr/sbin:/sbin\n") + kMakeDisk,
      "make-disk", folder, name};
  if (::geteuid() != 0) {
    if (!find_program("fakeroot")) {
      return Error{ENOENT, "fakeroot is missing; install it: apt-get install fakeroot"};
    }
    command.insert(command.begin(), {"fakeroot", "--"});
  }
  if (auto made = run_logged(command, log_file); !made) {
    return Error{EIO, "making the disk of " + name + " failed; see " + log_file};
  }
  return Done{};
}

}  // namespace

std::vector<std::string> guest_systems() {
  return {"trixie", "backports", "bookworm"};
}

Result<GuestImage> guest_image(const std::string& name) {
  const Bootstrap system = system_of(name);
  const auto folder =
      cached("guest-" + name, "the guest system " + name, recipe_of(system) + kMakeDisk,
             [&](const std::string& into, const std::string& log_file) -> Result<Done> {
               if (auto made = make_system(system, into + "/root.tar", log_file); !made)
                 return made;
               return make_disk(into, name, log_file);
             });
  if (!folder) return folder.error();
  const std::string& in = folder.value();
  return GuestImage{in + "/disk", in + "/kernel", in + "/initrd"};
}

}  // namespace softhca::vm
