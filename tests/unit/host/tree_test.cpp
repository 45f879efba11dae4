// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/tree/tree.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace softhca::shim {
namespace {

class TreeTest : public ::testing::Test {
 protected:
  TreeTest() {
    char name[] = "/tmp/softhca-tree-XXXXXX";
    root_ = ::mkdtemp(name);
    device_.host = "a";
    device_.board_id = "SFT0000000001";
    device_.fw_version = "16.35.2000";
    device_.major = 231;
    device_.minor = 192;
    device_.port.lid = 3;
    device_.port.state = 4;
    device_.port.phys_state = 5;
    device_.port.node_guid = 0x0002c90300f00d00;
    device_.gids.resize(8);
    device_.gids[0] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 2, 0xc9, 3, 0, 0xf0, 0xd, 1};
    device_.pkeys.assign(128, 0);
    device_.pkeys[0] = 0xffff;
    device_.counters = {{"port_xmit_data", 42}};
  }
  ~TreeTest() override { std::filesystem::remove_all(root_); }

  std::string content(const std::string& path) {
    std::ifstream file(root_ + path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  std::string root_;
  TreeDevice device_;
};

TEST_F(TreeTest, HoldsWhatLibibverbsNeedsToFindADevice) {
  DeviceTree tree(root_);
  ASSERT_TRUE(tree.build(device_));
  EXPECT_EQ(content("/sys/class/infiniband_verbs/abi_version"), "6\n");
  EXPECT_EQ(content("/sys/class/infiniband_verbs/uverbs0/ibdev"), "mlx5_0\n");
  EXPECT_EQ(content("/sys/class/infiniband_verbs/uverbs0/dev"), "231:192\n");
  EXPECT_EQ(content("/sys/class/infiniband_verbs/uverbs0/abi_version"), "1\n");
  EXPECT_EQ(content("/sys/class/infiniband/mlx5_0/node_type"), "1: CA\n");
  EXPECT_EQ(content("/sys/class/infiniband/mlx5_0/node_guid"), "0002:c903:00f0:0d00\n");
  EXPECT_EQ(
      content("/sys/class/infiniband/mlx5_0/device/modalias").rfind("pci:v000015B3d00001019sv", 0),
      0U);
  EXPECT_EQ(content("/sys/class/infiniband/mlx5_0/device/vendor"), "0x15b3\n");
  EXPECT_TRUE(std::filesystem::exists(root_ + "/dev/infiniband/uverbs0"));
}

TEST_F(TreeTest, PortFilesHaveTheKernelsFormats) {
  DeviceTree tree(root_);
  ASSERT_TRUE(tree.build(device_));
  const std::string port = "/sys/class/infiniband/mlx5_0/ports/1/";
  EXPECT_EQ(content(port + "state"), "4: ACTIVE\n");
  EXPECT_EQ(content(port + "phys_state"), "5: LinkUp\n");
  EXPECT_EQ(content(port + "rate"), "100 Gb/sec (4X EDR)\n");
  EXPECT_EQ(content(port + "lid"), "0x3\n");
  EXPECT_EQ(content(port + "gids/0"), "fe80:0000:0000:0000:0002:c903:00f0:0d01\n");
  EXPECT_EQ(content(port + "gid_attrs/types/0"), "IB/RoCE v1\n");
  EXPECT_EQ(content(port + "pkeys/0"), "0xffff\n");
  EXPECT_EQ(content(port + "pkeys/127"), "0x0000\n");
  EXPECT_EQ(content(port + "counters/port_xmit_data"), "42\n");
}

TEST_F(TreeTest, APortEventDoesNotTouchTheDeviceFolder) {
  DeviceTree tree(root_);
  ASSERT_TRUE(tree.build(device_));
  const std::string folder = root_ + "/sys/class/infiniband/mlx5_0";
  struct stat before {};
  ASSERT_EQ(::stat(folder.c_str(), &before), 0);
  device_.port.state = 1;
  ASSERT_TRUE(tree.update_port(device_));
  struct stat after {};
  ASSERT_EQ(::stat(folder.c_str(), &after), 0);
  EXPECT_EQ(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec)
      << "libibverbs takes a device whose folder changed for a new one";
  EXPECT_EQ(content("/sys/class/infiniband/mlx5_0/ports/1/state"), "1: DOWN\n");
}

TEST_F(TreeTest, BuildingReplacesAnOldTreeAndRemoveLeavesNothing) {
  DeviceTree tree(root_);
  std::filesystem::create_directories(root_ + "/sys/class/infiniband/old_0");
  ASSERT_TRUE(tree.build(device_));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/sys/class/infiniband/old_0"));
  tree.remove();
  EXPECT_TRUE(std::filesystem::is_empty(root_));
}

TEST(RateText, FollowsWidthAndSpeed) {
  EXPECT_EQ(rate_text(1, 1), "2.5 Gb/sec (1X SDR)");
  EXPECT_EQ(rate_text(2, 16), "56 Gb/sec (4X FDR)");
  EXPECT_EQ(rate_text(8, 4), "120 Gb/sec (12X QDR)");
}

}  // namespace
}  // namespace softhca::shim
