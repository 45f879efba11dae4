// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "fake_daemon.h"

namespace softhca::shim::test {
namespace {

constexpr char kIbdev[] = "/sys/class/infiniband_verbs/uverbs0/ibdev";

std::string read_file(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  char text[64] = {};
  const ssize_t length = fd >= 0 ? ::read(fd, text, sizeof(text)) : 0;
  if (fd >= 0) ::close(fd);
  return {text, static_cast<std::size_t>(length)};
}

TEST(Paths, OpenAndFopenReadTheHostsSysfs) {
  EXPECT_EQ(read_file(kIbdev), "mlx5_0\n");
  std::string line;
  std::ifstream stream(kIbdev);
  std::getline(stream, line);
  EXPECT_EQ(line, "mlx5_0");
  FILE* file = std::fopen(kIbdev, "re");
  ASSERT_NE(file, nullptr);
  std::fclose(file);
}

TEST(Paths, RepeatedSlashesAndDotsNameTheSameFile) {
  EXPECT_EQ(read_file("//sys///class/./infiniband_verbs//uverbs0/ibdev"), "mlx5_0\n");
  EXPECT_EQ(read_file("/sys/class/infiniband/mlx5_0/../mlx5_0/node_type"), "1: CA\n");
}

TEST(Paths, OpenatIgnoresTheFolderOfAnAbsolutePathAndFollowsTheTreeFromARelativeOne) {
  const int folder = ::open("/sys/class/infiniband_verbs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(folder, 0);
  const int relative = ::openat(folder, "uverbs0/dev", O_RDONLY | O_CLOEXEC);
  const int absolute = ::openat(folder, kIbdev, O_RDONLY | O_CLOEXEC);
  EXPECT_GE(relative, 0);
  EXPECT_GE(absolute, 0);
  ::close(relative);
  ::close(absolute);
  ::close(folder);
}

TEST(Paths, FoldersAreListed) {
  DIR* folder = ::opendir("/sys/class/infiniband");
  ASSERT_NE(folder, nullptr);
  std::set<std::string> names;
  while (const dirent* entry = ::readdir(folder)) names.insert(entry->d_name);
  ::closedir(folder);
  EXPECT_EQ(names.count("mlx5_0"), 1U);

  dirent** list = nullptr;
  const int count = ::scandir("/sys/class/infiniband", &list, nullptr, ::alphasort);
  EXPECT_EQ(count, 3);
  for (int i = 0; i < count; ++i) std::free(list[i]);
  std::free(list);
}

TEST(Paths, BelowSysTheMachinesOwnFilesComeFirst) {
  EXPECT_EQ(read_file("/sys/devices/softhca0/vendor"), "0x15b3\n");
  struct stat status {};
  EXPECT_EQ(::stat("/sys/kernel", &status), 0);
  EXPECT_EQ(::access("/sys/no/such/file", F_OK), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(Paths, RealpathAndReadlinkShowTheNamesOfARealMachine) {
  char resolved[4096];
  ASSERT_NE(::realpath("/sys/class/infiniband/mlx5_0/device", resolved), nullptr);
  EXPECT_STREQ(resolved, "/sys/devices/softhca0");
  char target[256] = {};
  EXPECT_GT(::readlink("/sys/class/infiniband/mlx5_0/device", target, sizeof(target) - 1), 0);
  EXPECT_STREQ(target, "../../../devices/softhca0");
}

TEST(Paths, ChangingIntoTheTreeMakesRelativePathsWork) {
  char before[4096];
  ASSERT_NE(::getcwd(before, sizeof(before)), nullptr);
  ASSERT_EQ(::chdir("/sys/class/infiniband/mlx5_0"), 0);
  EXPECT_EQ(read_file("node_type"), "1: CA\n");
  ASSERT_EQ(::chdir(before), 0);
}

TEST(Paths, DeviceFilesLookLikeCharacterDevices) {
  struct stat status {};
  ASSERT_EQ(::stat("/dev/infiniband/uverbs0", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_EQ(status.st_rdev, makedev(kRdevMajor, kRdevMinor));
  struct statx extended {};
  ASSERT_EQ(::statx(AT_FDCWD, "/dev/infiniband/uverbs0", 0, STATX_BASIC_STATS, &extended), 0);
  EXPECT_TRUE(S_ISCHR(extended.stx_mode));
  EXPECT_EQ(extended.stx_rdev_minor, kRdevMinor);
  ASSERT_EQ(::stat("/dev/infiniband", &status), 0);
  EXPECT_TRUE(S_ISDIR(status.st_mode));
  EXPECT_EQ(::access("/dev/infiniband/uverbs0", R_OK | W_OK), 0);
  EXPECT_EQ(::access("/dev/infiniband/uverbs1", F_OK), -1);
}

TEST(Paths, CountersAreBroughtUpToDateWhenTheyAreOpened) {
  EXPECT_EQ(read_file(kCounterPath), "1");
  std::string text;
  std::ifstream stream(kCounterPath);
  stream >> text;
  EXPECT_EQ(text, "11");
}

TEST(Paths, BadPointersAreRefusedAsByTheKernel) {
  EXPECT_EQ(::open(reinterpret_cast<const char*>(16), O_RDONLY), -1);
  EXPECT_EQ(errno, EFAULT);
}

}  // namespace
}  // namespace softhca::shim::test
