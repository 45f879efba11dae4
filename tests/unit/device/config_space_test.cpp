// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// PCI configuration space and BAR0 as an operating system sees them.
#include <gtest/gtest.h>

#include <set>

#include "hw-model/device/config_space.h"
#include "hw-model/prm/uar.h"
#include "tests/support/one_host.h"

namespace softhca::test {
namespace {

class PciTest : public ::testing::Test {
 protected:
  std::uint32_t config(std::uint32_t offset, std::size_t size = 4) {
    std::array<std::byte, 4> bytes{};
    host.function.config_read(offset, std::span(bytes).first(size));
    std::uint32_t value = 0;
    for (std::size_t i = size; i-- > 0;)
      value = value << 8 | std::to_integer<std::uint32_t>(bytes[i]);
    return value;
  }
  void set_config(std::uint32_t offset, std::uint32_t value, std::size_t size = 4) {
    std::array<std::byte, 4> bytes{};
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(value >> 8 * i & 0xff);
    host.function.config_write(offset, std::span(bytes).first(size));
  }
  std::uint32_t capability(std::uint8_t id) {
    for (std::uint32_t at = config(0x34, 1); at != 0; at = config(at + 1, 1)) {
      if (config(at, 1) == id) return at;
    }
    return 0;
  }

  OneHost host;
};

TEST_F(PciTest, identity_is_that_of_a_connectx_5) {
  EXPECT_EQ(config(0), 0x101915b3U);
  EXPECT_EQ(config(8) >> 8, 0x020700U);
}

TEST_F(PciTest, capabilities_are_where_the_hardware_has_them) {
  EXPECT_EQ(capability(0x10), 0x60U) << "PCI Express";
  EXPECT_EQ(capability(0x11), 0x9cU) << "MSI-X";
  EXPECT_NE(capability(0x01), 0U) << "power management";
  EXPECT_EQ(config(0x9c + 2, 2) & 0x7ff, 63U);
  EXPECT_EQ(config(0x9c + 4), Function::kMsixTable);
  EXPECT_EQ(config(0x9c + 8), Function::kMsixPba);
}

class VendorWindow : public PciTest {
 protected:
  std::uint32_t at = 0xc0;
  bool lock() {
    if (config(at + VendorCapability::kSemaphore) != 0) return false;
    const std::uint32_t ticket = config(at + VendorCapability::kCounter);
    set_config(at + VendorCapability::kSemaphore, ticket);
    return config(at + VendorCapability::kSemaphore) == ticket;
  }
};

TEST_F(VendorWindow, is_a_capability_that_one_holds_at_a_time) {
  EXPECT_EQ(capability(0x09), at);
  EXPECT_EQ(config(at + 2, 1), 0x18U);
  const std::uint32_t ticket = config(at + VendorCapability::kCounter);
  EXPECT_TRUE(lock());
  set_config(at + VendorCapability::kSemaphore, ticket + 1);
  EXPECT_EQ(config(at + VendorCapability::kSemaphore), ticket) << "it is held";
  set_config(at + VendorCapability::kSemaphore, 0);
  EXPECT_NE(config(at + VendorCapability::kCounter), ticket);
  EXPECT_TRUE(lock());
}

TEST_F(VendorWindow, scans_registers_to_the_end_that_it_tells) {
  set_config(at + VendorCapability::kControl, VendorCapability::kScanSpace);
  EXPECT_EQ(config(at + VendorCapability::kControl) >> 28, 3U) << "supported, with a size";
  const std::uint32_t size = config(at + VendorCapability::kAddress);
  EXPECT_EQ(size, VendorCapability::kScanSize);
  std::uint32_t read = 0;
  while (read < size) {
    set_config(at + VendorCapability::kAddress, read);
    ASSERT_EQ(config(at + VendorCapability::kAddress) >> 31, 1U) << "done";
    EXPECT_EQ(config(at + VendorCapability::kData), 0U);
    const std::uint32_t next = config(at + VendorCapability::kAddress) & 0x3fffffff;
    ASSERT_GT(next, read);
    read = next;
  }
  set_config(at + VendorCapability::kControl, 0x99);
  EXPECT_EQ(config(at + VendorCapability::kControl) >> 28, 0U) << "there is no such space";
}

TEST_F(VendorWindow, semaphores_are_given_back_by_zero) {
  const auto write = [&](std::uint32_t value) {
    set_config(at + VendorCapability::kData, value);
    set_config(at + VendorCapability::kAddress, 0x80000020);
    EXPECT_EQ(config(at + VendorCapability::kAddress) >> 31, 0U) << "done";
  };
  const auto owner = [&] {
    set_config(at + VendorCapability::kAddress, 0x20);
    return config(at + VendorCapability::kData);
  };
  set_config(at + VendorCapability::kControl, VendorCapability::kSemaphoreSpace);
  EXPECT_EQ(owner(), 0U);
  write(5);
  write(6);
  EXPECT_EQ(owner(), 5U);
  write(0);
  write(6);
  EXPECT_EQ(owner(), 6U);
}

TEST_F(PciTest, bar0_sizes_as_32_mib_of_64_bit_prefetchable_memory) {
  set_config(0x10, 0xffffffff);
  set_config(0x14, 0xffffffff);
  EXPECT_EQ(config(0x10), 0xfe00000cU);
  EXPECT_EQ(config(0x14), 0xffffffffU);
  set_config(0x18, 0xffffffff);
  EXPECT_EQ(config(0x18), 0U);
  set_config(0x30, 0xffffffff);
  EXPECT_EQ(config(0x30), 0U) << "there is no option ROM";
}

TEST_F(PciTest, read_only_registers_stay) {
  set_config(0, 0);
  set_config(0x60, 0xffffffff);
  EXPECT_EQ(config(0), 0x101915b3U);
  EXPECT_EQ(config(0x60, 1), 0x10U);
  set_config(0x04, 0xffff, 2);
  EXPECT_EQ(config(0x04, 2), 0x0546U);
}

TEST_F(PciTest, accesses_beyond_the_end_are_harmless) {
  EXPECT_EQ(config(4094), 0xffff0000U);
  EXPECT_EQ(config(0xfffffffe), 0xffffffffU);
  set_config(0xfffffffe, 0x12345678);
}

TEST_F(PciTest, function_level_reset_forgets_the_driver) {
  host.driver.bring_up();
  set_config(0x68, 0x8000, 2);
  EXPECT_EQ(config(0x68, 2) & 0x8000, 0U);
  host.driver.ring(1);
  EXPECT_NE(host.function.status_json().find("\"hca\":\"disabled\""), std::string::npos);
  host.driver.update_eq(host.driver.command_eq());
  EXPECT_FALSE(host.function.step({}));
}

TEST_F(PciTest, bar_accesses_of_odd_size_or_place_read_ones_and_write_nothing) {
  std::array<std::byte, 8> bytes{};
  host.function.bar_read(2, std::span(bytes).first(4));
  EXPECT_EQ(bytes[0], std::byte{0xff});
  host.function.bar_read(Function::kBar0Size - 4, bytes);
  EXPECT_EQ(bytes[7], std::byte{0xff});
  host.function.bar_read(~0ULL - 7, bytes);
  EXPECT_EQ(bytes[7], std::byte{0xff});
  host.function.bar_read(0, std::span(bytes).first(3));
  EXPECT_EQ(bytes[2], std::byte{0xff});
  host.function.bar_write(~0ULL - 7, bytes);
  host.function.bar_write(Function::kBar0Size - 2, bytes);
}

TEST_F(PciTest, registers_can_be_read_byte_by_byte) {
  const std::uint32_t word = host.driver.read32(4);
  std::uint32_t by_byte = 0;
  for (std::uint64_t i = 0; i < 4; ++i) {
    std::array<std::byte, 1> byte{};
    host.function.bar_read(4 + i, byte);
    by_byte = by_byte << 8 | std::to_integer<std::uint32_t>(byte[0]);
  }
  EXPECT_EQ(by_byte, word);
}

TEST_F(PciTest, doorbells_for_objects_that_do_not_exist_are_ignored) {
  host.driver.bring_up();
  const std::uint64_t uar = host.driver.uar() * prm::kUarPageSize;
  host.driver.write64(uar + prm::Uar::blue_flame, 0, 0xffffff00);
  host.driver.write64(uar + prm::Uar::cq_arm, 0, 0xffffff);
  host.driver.write32(uar + prm::Uar::eq_arm, 0xff000000);
  host.driver.write64((Function::kBar0Size - prm::kUarPageSize) + prm::Uar::blue_flame, 0, 0x100);
  host.function.step({});
}

TEST_F(PciTest, status_is_json_text_about_the_device) {
  host.driver.bring_up();
  const std::string status = host.function.status_json();
  EXPECT_NE(status.find("\"hca\":\"initialized\""), std::string::npos) << status;
  EXPECT_NE(status.find("\"eqs\":3"), std::string::npos) << status;
}

}  // namespace
}  // namespace softhca::test
