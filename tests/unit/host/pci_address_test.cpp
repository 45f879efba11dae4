// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/vfio/pci_address.h"

#include <gtest/gtest.h>

#include "emulator/runtime/paths.h"
#include "kernel-shim/host/device/vfio/vfio_group.h"

namespace softhca::shim {
namespace {

TEST(PciAddress, IsWrittenAsSysfsHasIt) {
  EXPECT_TRUE(is_pci_address("0000:01:00.0"));
  EXPECT_TRUE(is_pci_address("abcd:ef:1f.7"));
  for (const char* bad :
       {"", "01:00.0", "0000:01:00", "0000:01:00.8", "0000:01:00.0 ", "0000:0g:00.0",
        "0000-01-00.0", "0000:01:00,0", "../0:01:00.0", "ABCD:01:00.0"}) {
    EXPECT_FALSE(is_pci_address(bad)) << bad;
  }
}

TEST(PciAddress, GivesAHostName) {
  EXPECT_EQ(host_of_device("0000:01:00.0"), "pci-0000-01-00.0");
  EXPECT_TRUE(runtime::is_valid_name(host_of_device("0000:01:00.0")));
}

TEST(VfioGroup, SaysThatThereIsNoSuchDevice) {
  auto opened = open_vfio("ffff:ff:1f.7");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ENODEV);
  EXPECT_NE(opened.error().message.find("no PCI device ffff:ff:1f.7"), std::string::npos);
}

}  // namespace
}  // namespace softhca::shim
