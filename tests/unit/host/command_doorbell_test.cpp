// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/command_doorbell.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "emulator/runtime/unique_fd.h"

namespace softhca::shim {
namespace {

/// A device of which only the doorbells matter.
class Bells final : public PciDevice {
 public:
  explicit Bells(bool with_hints) : wake(::eventfd(0, EFD_NONBLOCK)) {
    if (!with_hints) return;
    file.reset(::memfd_create("hints", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(kDoorbellHintsSize)), 0);
    hints = static_cast<DoorbellHints*>(
        ::mmap(nullptr, kDoorbellHintsSize, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  }
  ~Bells() override {
    if (hints != nullptr) ::munmap(hints, kDoorbellHintsSize);
  }
  int bar_read(std::uint64_t, std::span<std::byte>) override { return 0; }
  int bar_write(std::uint64_t, std::span<const std::byte>, bool) override {
    ++register_writes;
    return 0;
  }
  int dma_map(std::uint64_t, std::uint64_t, int, std::uint64_t, bool) override { return 0; }
  int dma_unmap(std::uint64_t, std::uint64_t) override { return 0; }
  bool is_unsettled() const override { return unsettled; }
  int connect_interrupts(std::uint32_t, std::span<const int>) override { return 0; }
  int disconnect_interrupts() override { return 0; }
  MappableArea bar_area(std::uint64_t, std::uint64_t) override { return {}; }
  MappableArea hints_area() override { return {file.get(), 0, kDoorbellHintsSize}; }
  int wake_fd() override { return wake.get(); }
  int fd() override { return -1; }
  int serve() override { return 0; }

  /// Wake-ups since the last call.
  std::uint64_t wakes() const {
    std::uint64_t count = 0;
    return ::read(wake.get(), &count, sizeof(count)) == sizeof(count) ? count : 0;
  }

  runtime::UniqueFd wake;
  runtime::UniqueFd file;
  DoorbellHints* hints = nullptr;
  bool unsettled = false;
  int register_writes = 0;
};

TEST(CommandDoorbell, AnEngineThatIsAwakeNeedsNoSystemCall) {
  Bells device(true);
  CommandDoorbell doorbell(device);
  EXPECT_TRUE(doorbell.ring(3));
  EXPECT_EQ(device.hints->commands.load(), 8U);
  EXPECT_NE(device.hints->waiting_at.load(), 0U);
  EXPECT_EQ(device.wakes(), 0U);
  EXPECT_EQ(device.register_writes, 0);
  doorbell.waited();
  EXPECT_EQ(device.hints->waiting_at.load(), 0U);
}

TEST(CommandDoorbell, AnEngineThatSleepsIsWokenOnce) {
  Bells device(true);
  CommandDoorbell doorbell(device);
  device.hints->engine_state.store(kEngineSleeping);
  EXPECT_TRUE(doorbell.ring(0));
  EXPECT_TRUE(doorbell.ring(31));
  EXPECT_EQ(device.hints->commands.load(), 0x80000001U);
  EXPECT_EQ(device.wakes(), 1U);
}

TEST(CommandDoorbell, AnEngineThatCannotBeWokenIsToldByTheRegister) {
  Bells device(true);
  CommandDoorbell doorbell(device);
  device.hints->engine_state.store(kEngineSleeping);
  // Applications have the eventfd, too.
  const std::uint64_t full = ~std::uint64_t{1};
  ASSERT_EQ(::write(device.wake.get(), &full, sizeof(full)), 8);
  EXPECT_TRUE(doorbell.ring(0));
  EXPECT_EQ(device.register_writes, 1);
  EXPECT_EQ(device.hints->engine_state.load(), kEngineSleeping);
}

TEST(CommandDoorbell, DoesNotOvertakeAMap) {
  Bells device(true);
  CommandDoorbell doorbell(device);
  device.unsettled = true;
  EXPECT_TRUE(doorbell.ring(0));
  EXPECT_EQ(device.register_writes, 1);
  EXPECT_EQ(device.hints->commands.load(), 0U);
}

TEST(CommandDoorbell, ADeviceWithoutHintsHasARegister) {
  Bells device(false);
  CommandDoorbell doorbell(device);
  EXPECT_TRUE(doorbell.ring(0));
  EXPECT_EQ(device.register_writes, 1);
  doorbell.waited();
}

}  // namespace
}  // namespace softhca::shim
