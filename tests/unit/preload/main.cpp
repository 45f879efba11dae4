// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// Runs the tests inside a process that has the library preloaded: makes a host folder with a
/// device tree and a fake daemon, then executes itself again.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "fake_daemon.h"
#include "fake_device.h"

namespace {

namespace fs = std::filesystem;

void put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

/// Longer than a socket address has room for.
std::string make_host_folder() {
  std::string base = fs::temp_directory_path() / "softhca-preload-XXXXXX";
  if (::mkdtemp(base.data()) == nullptr) std::abort();
  const fs::path folder = fs::path(base) / std::string(60, 'a') / std::string(60, 'b');
  const fs::path classes = folder / "sys/class";
  put(classes / "infiniband_verbs/abi_version", "6\n");
  put(classes / "infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
  put(classes / "infiniband_verbs/uverbs0/dev", "231:192\n");
  put(folder / "sys/devices/softhca0/vendor", "0x15b3\n");
  put(classes / "infiniband/mlx5_0/node_type", "1: CA\n");
  fs::create_symlink("../../../devices/softhca0", classes / "infiniband/mlx5_0/device");
  put(folder / "dev/infiniband/uverbs0", "");
  put(folder.string() + softhca::shim::test::kCounterPath, "");
  return folder;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--use-inherited") {
    return softhca::shim::test::echoes(std::atoi(argv[2])) ? 0 : 1;
  }
  if (std::getenv("SOFTHCA_HOST_DIR") == nullptr) {
    const std::string folder = make_host_folder();
    ::setenv("SOFTHCA_HOST_DIR", folder.c_str(), 1);
    softhca::shim::test::start_fake_daemon(folder);
    ::setenv("LD_PRELOAD", SOFTHCA_PRELOAD, 1);
    ::setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1);
    ::execv("/proc/self/exe", argv);
    std::perror("exec");
    return 1;
  }
  ::testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  const fs::path folder = std::getenv("SOFTHCA_HOST_DIR");
  fs::remove_all(folder.parent_path().parent_path());
  return result;
}
