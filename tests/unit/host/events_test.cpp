// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <unistd.h>

#include "hw-model/prm/eqe.h"
#include "kernel-shim/host/uverbs/event_types.h"
#include "tests/unit/host/verbs_host.h"

namespace softhca::shim::test {
namespace {

class Events : public VerbsHost {
 protected:
  runtime::UniqueFd channel() {
    Done done = write<ib_uverbs_create_comp_channel, ib_uverbs_create_comp_channel_resp>(
        *context_, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, ib_uverbs_create_comp_channel{});
    EXPECT_EQ(done.error, 0);
    ::fcntl(done.fds.front().get(), F_SETFL, O_NONBLOCK);
    return std::move(done.fds.front());
  }
  void complete(std::uint32_t cqn) {
    fake_->post_event(fake_->completion_eqn(), 0, 0,
                      [cqn](std::uint8_t* data) { prm::CompletionEventData::cqn::set(data, cqn); });
    loop_.run_once(std::chrono::milliseconds(1000));
  }
  std::uint64_t next_record(int fd) {
    std::uint64_t value = 0;
    return ::read(fd, &value, sizeof(value)) == sizeof(value) ? value : 0;
  }
};

TEST_F(Events, ACompletionReachesItsChannelWithTheUsersHandle) {
  const runtime::UniqueFd fd = channel();
  const Done cq = make_cq(*context_, 10, fd.get(), 0xabcdef);
  ASSERT_EQ(cq.error, 0);
  complete(cq.driver_as<mlx5_ib_create_cq_resp>().cqn);
  EXPECT_EQ(next_record(fd.get()), 0xabcdefU);
  EXPECT_EQ(next_record(fd.get()), 0U);
}

TEST_F(Events, DestroyReportsTheEventsThatWereRead) {
  const runtime::UniqueFd fd = channel();
  const Done cq = make_cq(*context_, 10, fd.get(), 7);
  const std::uint32_t cqn = cq.driver_as<mlx5_ib_create_cq_resp>().cqn;
  for (int i = 0; i < 5; ++i) complete(cqn);
  EXPECT_EQ(next_record(fd.get()), 7U);
  EXPECT_EQ(next_record(fd.get()), 7U);
  std::vector<std::byte> response;
  ASSERT_EQ(destroy(*context_, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, cqn, 8, &response), 0);
  std::uint32_t reported = 0;
  std::memcpy(&reported, response.data(), sizeof(reported));
  EXPECT_EQ(reported, 2U) << "libibverbs waits for exactly this many acknowledgements";
}

TEST_F(Events, ADescriptorThatIsNoChannelIsRefused) {
  EXPECT_EQ(make_cq(*context_, 10, 0).error, EINVAL);
}

TEST_F(Events, ClosedChannelsAreForgotten) {
  for (int i = 0; i < 10; ++i) {
    channel();
    loop_.run_once(std::chrono::milliseconds(0));
  }
  const runtime::UniqueFd fd = channel();
  EXPECT_EQ(context_->completion_channels.size(), 1U);
}

TEST_F(Events, TheFirstAsyncFileStaysTheDefaultOne) {
  const std::shared_ptr<EventChannel> first = context_->default_async();
  ASSERT_NE(first, nullptr) << "GET_CONTEXT of the legacy form made it";
  loop_.run_once(std::chrono::milliseconds(0));
  ASSERT_FALSE(first->open()) << "its descriptor was closed";
  for (int i = 0; i < 2; ++i) {
    runtime::UniqueFd file;
    ASSERT_EQ(context_->make_async_file(file), 0);
  }
  EXPECT_EQ(context_->default_async(), first);
}

TEST_F(Events, PortEventsAndFatalOnesReachEveryAsyncFile) {
  // GET_CONTEXT of the legacy form made the file.
  auto other = new_context();
  ib_uverbs_get_context core{};
  mlx5_ib_alloc_ucontext_req_v2 driver{};
  driver.total_num_bfregs = 16;
  driver.lib_caps = MLX5_LIB_CAP_DYN_UAR;
  Done opened = write<ib_uverbs_get_context, ib_uverbs_get_context_resp>(
      *other, IB_USER_VERBS_CMD_GET_CONTEXT, core, &driver, sizeof(mlx5_ib_alloc_ucontext_resp));
  ASSERT_EQ(opened.fds.size(), 1U);
  fake_->post_event(fake_->async_eqn(), static_cast<std::uint8_t>(prm::EventType::port_change), 4,
                    [](std::uint8_t* data) { prm::PortChangeEventData::port_num::set(data, 1); });
  loop_.run_once(std::chrono::milliseconds(1000));
  ib_uverbs_async_event_desc record{};
  ASSERT_EQ(::read(opened.fds[0].get(), &record, sizeof(record)), 16);
  EXPECT_EQ(record.event_type, kEventPortActive);
  EXPECT_EQ(record.element, 1U);
  device_->fail();
  ASSERT_EQ(::read(opened.fds[0].get(), &record, sizeof(record)), 16);
  EXPECT_EQ(record.event_type, kEventDeviceFatal);
}

TEST_F(Events, WithoutItsDeviceACompletionChannelEnds) {
  Done channel = write<ib_uverbs_create_comp_channel, ib_uverbs_create_comp_channel_resp>(
      *context_, IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, ib_uverbs_create_comp_channel{});
  ASSERT_EQ(channel.fds.size(), 1U);
  device_->fail();
  std::uint64_t record = 0;
  EXPECT_EQ(::read(channel.fds[0].get(), &record, sizeof(record)), 0) << "nobody sleeps for ever";
}

}  // namespace
}  // namespace softhca::shim::test
