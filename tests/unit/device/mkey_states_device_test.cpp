// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Keys that a driver revokes, and makes usable again, by their state records.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>

#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/mkey_context.h"
#include "hw-model/runtime/doorbell_hints.h"
#include "hw-model/runtime/mkey_state.h"
#include "kernel-shim/protocol/mkey_state_change.h"
#include "tests/support/two_hosts.h"

namespace softhca::test {
namespace {

using prm::CommandOpcode;
using prm::WqeOpcode;
using shim::MkeyStateChanger;

constexpr std::uint32_t kStatesPsn = 7;
constexpr std::uint64_t kStatesSize = 64 << 10;

/// A connection on which `a` requests; the memory of both has keys with records.
class MkeyStatesDevice : public ::testing::Test {
 protected:
  struct End {
    explicit End(TwoHosts::Host& host_in) : host(host_in), driver(host.driver) {
      host.function.attach_doorbell_hints(hints.get());
      page = driver.memory().allocate(4096);
      changer = MkeyStateChanger(driver.memory().as<MkeyStatePage>(page), hints.get());
      memory = driver.memory().allocate(kStatesSize);
      mr = driver.register_memory(memory, kStatesSize, kAllAccess, page + record_offset);
      cq = driver.create_cq(8);
      qp = driver.create_qp(cq, cq);
    }
    ~End() { host.function.attach_doorbell_hints(nullptr); }
    std::uint8_t* data() const { return driver.memory().bytes(memory); }
    MkeyStatePage& states() const { return *driver.memory().as<MkeyStatePage>(page); }
    static constexpr std::uint64_t record_offset = offsetof(MkeyStatePage, records);

    TwoHosts::Host& host;
    MiniDriver& driver;
    std::unique_ptr<DoorbellHints> hints = std::make_unique<DoorbellHints>();
    MkeyStateChanger changer;
    std::uint64_t page = 0;
    std::uint64_t memory = 0;
    DriverMr mr;
    DriverCq cq;
    DriverQp qp;
  };

  MkeyStatesDevice() { connect(); }

  void connect() {
    QpTimers timers;
    for (End* end : {&a, &b}) {
      End& peer = end == &a ? b : a;
      EXPECT_TRUE(end->driver.to_init(end->qp).ok());
      EXPECT_TRUE(
          end->driver.to_rtr(end->qp, peer.qp.qpn, peer.host.lid(), kStatesPsn, 5, {}, timers)
              .ok());
      EXPECT_TRUE(end->driver.to_rts(end->qp, kStatesPsn, timers).ok());
    }
  }
  void post_write(std::uint32_t lkey, std::uint32_t rkey, std::uint32_t length) {
    SendRequest write;
    write.opcode = WqeOpcode::rdma_write;
    write.sges = {{a.memory, length, lkey}};
    write.remote_address = b.memory;
    write.rkey = rkey;
    a.driver.post_send(a.qp, write);
  }
  std::optional<Completion> wait() {
    std::optional<Completion> completion;
    world.run_until([&] { return (completion = a.driver.poll_cq(a.cq)).has_value(); });
    return completion;
  }
  bool writes(std::uint32_t lkey, std::uint32_t rkey, std::uint32_t length = 4096) {
    post_write(lkey, rkey, length);
    const auto completion = wait();
    return completion.has_value() && !completion->error();
  }
  /// As an engine's pass begins.
  static void follow(End& end) { end.host.function.follow_mkey_states(); }
  static std::uint32_t renamed(std::uint32_t key, std::uint8_t variant) {
    return (key & ~0xffU) | variant;
  }

  TwoHosts world;
  End a{*world.a};
  End b{*world.b};
};

TEST_F(MkeyStatesDevice, a_revoked_key_is_a_remote_access_error_although_it_was_in_use) {
  ASSERT_TRUE(writes(a.mr.key, b.mr.key)) << "now every kept pointer is there";
  EXPECT_FALSE(b.changer.change(1, kMkeyRevoked, 0)) << "nobody has looked";
  follow(b);
  EXPECT_TRUE(b.changer.is_honoured(1));
  std::memset(b.data(), 1, kStatesSize);
  std::memset(a.data(), 2, kStatesSize);
  post_write(a.mr.key, b.mr.key, 4096);
  const auto completion = wait();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(completion->syndrome, static_cast<std::uint8_t>(prm::CqeSyndrome::remote_access));
  EXPECT_EQ(b.data()[0], 1);
}

TEST_F(MkeyStatesDevice, a_revoked_local_key_is_a_protection_error) {
  ASSERT_TRUE(writes(a.mr.key, b.mr.key));
  a.changer.change(1, kMkeyRevoked, 0);
  follow(a);
  post_write(a.mr.key, b.mr.key, 4096);
  const auto completion = wait();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(completion->syndrome, static_cast<std::uint8_t>(prm::CqeSyndrome::local_protection));
}

TEST_F(MkeyStatesDevice, a_key_works_under_its_new_name) {
  ASSERT_TRUE(writes(a.mr.key, b.mr.key));
  std::uint8_t variant = static_cast<std::uint8_t>(b.mr.key);
  for (int round = 0; round < 20; ++round) {
    b.changer.change(1, kMkeyRevoked, 0);
    if (round % 2 == 0) follow(b);
    ++variant;
    b.changer.change(1, kMkeyUsable | variant, 0);
    follow(b);
    std::memset(a.data(), round, kStatesSize);
    ASSERT_TRUE(writes(a.mr.key, renamed(b.mr.key, variant), 16384));
    EXPECT_EQ(b.data()[16383], round);
  }
  EXPECT_FALSE(writes(a.mr.key, renamed(b.mr.key, static_cast<std::uint8_t>(variant - 1))));
}

TEST_F(MkeyStatesDevice, packets_on_their_way_keep_what_they_were_sent_with) {
  world.fabric.configure_link("a", {.delay = 100'000});
  std::memset(a.data(), 0x11, kStatesSize);
  post_write(a.mr.key, b.mr.key, 16384);
  a.host.function.step({});
  // Their payload lies in the memory still, so that the device cannot be at rest.
  a.host.function.begin_rest();
  EXPECT_EQ(a.states().at_rest, 0U);
  a.host.function.end_rest();
  a.changer.change(1, kMkeyRevoked, 0);
  follow(a);
  EXPECT_TRUE(a.changer.is_honoured(1));
  std::memset(a.data(), 0x22, kStatesSize);
  ASSERT_TRUE(wait().has_value());
  for (std::size_t i = 0; i < 16384; ++i) ASSERT_EQ(b.data()[i], 0x11) << i;
  a.host.function.begin_rest();
  EXPECT_NE(a.states().at_rest, 0U) << "nothing is under way";
  a.host.function.end_rest();
}

TEST_F(MkeyStatesDevice, at_rest_changes_count_at_once_and_are_made_before_anything_else) {
  ASSERT_TRUE(writes(a.mr.key, b.mr.key));
  b.host.function.begin_rest();
  ASSERT_TRUE(b.changer.change(1, kMkeyRevoked, 0));
  b.host.function.end_rest();
  EXPECT_FALSE(writes(a.mr.key, b.mr.key));
}

// At rest the device stores nothing in `seen`, which then may say what is wanted from before.
TEST_F(MkeyStatesDevice, the_same_state_as_before_the_rest_is_another_change) {
  b.changer.change(1, kMkeyRevoked, 0);
  follow(b);
  ASSERT_TRUE(b.changer.is_honoured(1));
  b.host.function.begin_rest();
  ASSERT_TRUE(b.changer.change(1, kMkeyUsable | 0x42, 0));
  // It wakes and has read the record, but has not stored that.
  b.states().at_rest = 0;
  EXPECT_FALSE(b.changer.change(1, kMkeyRevoked, 0));
  b.host.function.end_rest();
  EXPECT_TRUE(b.changer.is_honoured(1));
  EXPECT_FALSE(writes(a.mr.key, renamed(b.mr.key, 0x42)));
}

TEST_F(MkeyStatesDevice, a_mark_that_somebody_has_cleared_makes_nobody_believe_anything) {
  b.changer.change(1, kMkeyRevoked, 0);
  b.hints->mkey_states = 0;
  follow(b);
  EXPECT_FALSE(b.changer.is_honoured(1));
  b.host.function.begin_rest();
  ASSERT_TRUE(b.changer.change(1, kMkeyRevoked, 0));
  b.hints->mkey_states = 0;
  b.host.function.end_rest();
  EXPECT_FALSE(writes(a.mr.key, b.mr.key));
}

TEST_F(MkeyStatesDevice, a_destroyed_key_and_a_reset_forget_the_record) {
  CommandBuffer destroy(CommandOpcode::destroy_mkey, prm::DestroyMkeyInput::size);
  b.driver.must(destroy.set<prm::DestroyMkeyInput::mkey_index>(b.mr.key >> 8));
  b.changer.change(1, kMkeyUsable | 1, 0);
  follow(b);
  EXPECT_EQ(b.states().records[0].seen, 0U);
  a.host.function.reset();
  a.changer.change(1, kMkeyRevoked, 0);
  follow(a);
  EXPECT_EQ(a.states().records[0].seen, 0U);
  a.host.function.begin_rest();
  EXPECT_EQ(a.states().at_rest, 0U);
}

TEST_F(MkeyStatesDevice, records_outside_of_their_pages_and_of_free_keys_are_refused) {
  EXPECT_THROW(b.driver.register_memory(b.memory, kStatesSize, kAllAccess, b.page), DriverError);
  EXPECT_THROW(b.driver.register_memory(b.memory, kStatesSize, kAllAccess, b.page + 12),
               DriverError);
  EXPECT_THROW(b.driver.register_memory(b.memory, kStatesSize, kAllAccess, b.page + 4088),
               DriverError);
  CommandBuffer create(CommandOpcode::create_mkey, prm::CreateMkeyInput::size);
  std::uint8_t* context = create.at<prm::CreateMkeyInput::memory_key_mkey_entry>();
  prm::MkeyContext::free::set(context, 1);
  prm::MkeyContext::umr_en::set(context, 1);
  prm::MkeyContext::access_mode_1_0::set(context, static_cast<unsigned>(prm::MkeyAccessMode::pa));
  prm::MkeyContext::qpn::set(context, prm::kMkeyAnyQp);
  create.set<prm::CreateMkeyInput::state_record>(b.page + 8);
  EXPECT_FALSE(b.driver.run(create).ok());
}

}  // namespace
}  // namespace softhca::test
