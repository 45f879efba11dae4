// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>

#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/eqe.h"
#include "hw-model/prm/uar.h"
#include "kernel-shim/host/device/hca.h"
#include "kernel-shim/host/device/port_query.h"
#include "tests/unit/host/fake_device.h"

namespace softhca::shim {
namespace {

using prm::CommandOpcode;
using test::FakeDevice;

class BringUp : public ::testing::Test {
 protected:
  BringUp() : owned_(std::make_unique<FakeDevice>()), device_(*owned_) {}

  runtime::Result<std::unique_ptr<Hca>> bring_up() {
    return Hca::bring_up(std::move(owned_), loop_);
  }

  EventLoop loop_;
  std::unique_ptr<FakeDevice> owned_;
  FakeDevice& device_;
};

TEST_F(BringUp, GivesBootAndInitPagesBeforeInitHca) {
  auto hca = bring_up();
  ASSERT_TRUE(hca) << hca.error().message;
  EXPECT_EQ((*hca)->firmware_pages(), 8U);
  EXPECT_EQ(device_.pages(), 8U);
  EXPECT_EQ(device_.count(CommandOpcode::enable_hca), 1U);
  EXPECT_EQ(device_.count(CommandOpcode::init_hca), 1U);
  EXPECT_EQ((*hca)->cap<prm::HcaCap::log_max_qp>(), 18U);
  EXPECT_EQ((*hca)->fw_major(), 16U);
}

TEST_F(BringUp, SetsIssiOneWhereOffered) {
  auto hca = bring_up();
  ASSERT_TRUE(hca);
  ASSERT_EQ(device_.count(CommandOpcode::set_issi), 1U);
  EXPECT_EQ(prm::SetIssiInput::current_issi::get(device_.seen(CommandOpcode::set_issi)[0].data()),
            1U);
}

TEST_F(BringUp, FailsWithTheCommandsNameWhenTheFirmwareRefuses) {
  device_.fail_with[CommandOpcode::init_hca] =
      static_cast<std::uint8_t>(prm::CommandStatus::internal_error);
  const auto hca = bring_up();
  ASSERT_FALSE(hca);
  EXPECT_THAT(hca.error().message, ::testing::HasSubstr("INIT_HCA"));
}

TEST(CommandQueueTimeout, AnUnansweredCommandIsReportedAndEndsTheDevice) {
  FakeDevice device;
  IovaAllocator iovas;
  DmaArena arena(device, iovas);
  auto queue = CommandQueue::open(device, arena);
  ASSERT_TRUE(queue);
  (*queue)->set_timeout(std::chrono::milliseconds(20));
  device.unanswered.insert(CommandOpcode::nop);
  EXPECT_EQ(execute_plain(**queue, CommandInputBuffer(CommandOpcode::nop, 16)).error, ETIMEDOUT);
  EXPECT_FALSE((*queue)->alive());
  EXPECT_EQ(execute_plain(**queue, CommandInputBuffer(CommandOpcode::alloc_pd, 16)).error, ENODEV)
      << "no further command may be tried on a device that was given up";
}

TEST(CommandQueueMailboxes, LongInputsAndOutputsCrossBlocksWhole) {
  FakeDevice device;
  IovaAllocator iovas;
  DmaArena arena(device, iovas);
  auto queue = CommandQueue::open(device, arena);
  ASSERT_TRUE(queue);
  CommandInputBuffer in(CommandOpcode::create_mkey, prm::CreateMkeyInput::size + 4096);
  for (std::size_t i = 16; i < prm::CreateMkeyInput::size + 4096; ++i) {
    *in.at(i) = static_cast<std::uint8_t>(i * 7);
  }
  ASSERT_EQ(execute_plain(**queue, in).error, 0);
  const std::span<const std::uint8_t> sent = in;
  EXPECT_TRUE(
      std::equal(sent.begin(), sent.end(), device.seen(CommandOpcode::create_mkey)[0].begin()));
}

TEST_F(BringUp, TearDownReturnsEveryPageAndEveryMap) {
  // The device outlives the driver part here, to be looked at afterwards.
  class Borrowed final : public PciDevice {
   public:
    explicit Borrowed(FakeDevice& device) : device_(device) {}
    int bar_read(std::uint64_t offset, std::span<std::byte> to) override {
      return device_.bar_read(offset, to);
    }
    int bar_write(std::uint64_t offset, std::span<const std::byte> from, bool posted) override {
      return device_.bar_write(offset, from, posted);
    }
    int dma_map(std::uint64_t iova, std::uint64_t size, int fd, std::uint64_t offset,
                bool writable) override {
      return device_.dma_map(iova, size, fd, offset, writable);
    }
    int dma_unmap(std::uint64_t iova, std::uint64_t size) override {
      return device_.dma_unmap(iova, size);
    }
    int connect_interrupts(std::uint32_t start, std::span<const int> eventfds) override {
      return device_.connect_interrupts(start, eventfds);
    }
    int disconnect_interrupts() override { return 0; }
    MappableArea bar_area(std::uint64_t, std::uint64_t) override { return {}; }
    MappableArea hints_area() override { return {}; }
    int wake_fd() override { return -1; }
    int fd() override { return device_.fd(); }
    int serve() override { return device_.serve(); }

   private:
    FakeDevice& device_;
  };
  auto hca = Hca::bring_up(std::make_unique<Borrowed>(device_), loop_);
  ASSERT_TRUE(hca);
  hca->reset();
  EXPECT_EQ(device_.pages(), 0U) << "every page given must be taken back";
  EXPECT_EQ(device_.maps(), 0U) << "every DMA map must be undone";
  EXPECT_EQ(device_.live(CommandOpcode::alloc_uar), 0U);
  EXPECT_EQ(device_.live(CommandOpcode::alloc_xrcd), 0U);
  EXPECT_EQ(device_.count(CommandOpcode::teardown_hca), 1U);
  EXPECT_EQ(device_.count(CommandOpcode::disable_hca), 1U);
}

class NoEvents final : public HcaEvents {
 public:
  void completion(std::uint32_t) override {}
  void async_event(const std::uint8_t*) override {}
};

TEST_F(BringUp, PageRequestsAreServedAtRunTime) {
  auto hca = bring_up();
  ASSERT_TRUE(hca);
  NoEvents events;
  (*hca)->start_events(events, [] {});
  const auto request = [this](std::int32_t pages) {
    device_.post_event(device_.async_eqn(), static_cast<std::uint8_t>(prm::EventType::page_request),
                       0, [pages](std::uint8_t* data) {
                         prm::PageRequestEventData::num_pages::set(
                             data, static_cast<std::uint32_t>(pages));
                       });
    loop_.run_once(std::chrono::milliseconds(1000));
  };
  request(700);
  EXPECT_EQ((*hca)->firmware_pages(), 708U);
  request(-650);
  EXPECT_EQ((*hca)->firmware_pages(), 58U);
}

TEST_F(BringUp, TheEventQueueIsArmedAgainWithItsConsumerIndex) {
  auto hca = bring_up();
  ASSERT_TRUE(hca);
  NoEvents events;
  (*hca)->start_events(events, [] {});
  device_.registers.clear();
  device_.post_event(device_.async_eqn(), static_cast<std::uint8_t>(prm::EventType::port_change), 4,
                     [](std::uint8_t*) {});
  loop_.run_once(std::chrono::milliseconds(1000));
  bool armed = false;
  for (const auto& [offset, value] : device_.registers) {
    armed =
        armed || ((offset & 0xfff) == prm::Uar::eq_arm && value == (device_.async_eqn() << 24 | 1));
  }
  EXPECT_TRUE(armed) << "after one event the arm register must hold EQN and consumer index 1";
}

TEST_F(BringUp, TheLossOfTheDeviceIsToldOnce) {
  auto hca = bring_up();
  ASSERT_TRUE(hca);
  NoEvents events;
  int lost = 0;
  (*hca)->start_events(events, [&lost] { ++lost; });
  device_.gone = true;
  EXPECT_EQ(execute_plain((*hca)->commands(), CommandInputBuffer(CommandOpcode::nop, 16)).error,
            ETIMEDOUT);
  EXPECT_FALSE((*hca)->alive());
}

TEST_F(BringUp, PortStateComesFromVportContextAndRegisters) {
  auto hca = bring_up();
  ASSERT_TRUE(hca);
  PortState state;
  ASSERT_EQ(query_port_state((*hca)->commands(), 1, state), 0);
  EXPECT_EQ(state.lid, 7);
  EXPECT_EQ(state.state, 4);
  EXPECT_EQ(state.active_width, 2) << "PTYS 4X is width code 2";
  EXPECT_EQ(state.active_speed, 32);
  EXPECT_EQ(state.max_mtu, 5);
  EXPECT_EQ(state.active_mtu, 4);
  EXPECT_EQ(state.max_vls, 3) << "four data VLs are VLCap code 3";
}

}  // namespace
}  // namespace softhca::shim
