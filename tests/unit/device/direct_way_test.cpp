// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What is handed to the peer without packets must be, to everyone who looks, what packets do. The
// same requests run in two worlds; in one an observer on the links keeps the direct way closed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/two_hosts.h"

namespace softhca::test {
namespace {

using prm::WqeOpcode;

constexpr std::uint32_t kPsn = 0xffffe0;  // Wraps soon.
constexpr std::uint32_t kBytes = 1 << 16;

struct Counting final : fabric::LinkObserver {
  void observe(const fabric::LinkObservation&) override { ++packets; }
  unsigned packets = 0;
};

struct End {
  End(TwoHosts::Host& of, unsigned access)
      : host(of),
        driver(of.driver),
        cq(driver.create_cq(8)),
        qp(driver.create_qp(cq, cq)),
        mr(driver.allocate_mr(kBytes, access)) {
    std::uint8_t* data = driver.memory().bytes(mr.address);
    for (std::uint32_t i = 0; i < kBytes; ++i) {
      data[i] = static_cast<std::uint8_t>(i * 7 + of.lid());
    }
  }
  void connect(const End& peer, std::uint8_t mtu = 3) const {
    const bool ok = driver.to_init(qp).ok() &&
                    driver.to_rtr(qp, peer.qp.qpn, peer.host.lid(), kPsn, mtu).ok() &&
                    driver.to_rts(qp, kPsn).ok();
    if (!ok) throw DriverError("cannot connect");
  }
  TwoHosts::Host& host;
  MiniDriver& driver;
  DriverCq cq;
  DriverQp qp;
  DriverMr mr;
};

/// Two connected hosts and a log of all that their drivers see.
class World {
 public:
  /// How requests are rung for.
  enum class Bell { registers, hints };

  explicit World(unsigned remote_access = kAllAccess, Bell rung_by = Bell::registers)
      : a(*hosts.a, kAllAccess), b(*hosts.b, remote_access), bell(rung_by) {
    a.connect(b);
    b.connect(a);
    if (bell == Bell::hints) hosts.a->function.attach_doorbell_hints(hints.get());
  }
  ~World() { hosts.fabric.remove_observer(observer); }

  void close_the_direct_way() { hosts.fabric.add_observer("", observer); }

  void post(const SendRequest& request, std::uint32_t receive_length) {
    if (receive_length != 0) {
      const std::uint32_t half = receive_length / 2;
      const std::array<Sge, 2> room{Sge{b.mr.address + 100, half, b.mr.key},
                                    Sge{b.mr.address + 32000, receive_length - half, b.mr.key}};
      b.driver.post_receive(b.qp, room);
    }
    if (bell == Bell::hints) {
      a.driver.queue_send(a.qp, request);
      hints->sq.mark(a.qp.qpn);
    } else {
      a.driver.post_send(a.qp, request);
    }
    for (int i = 0; i < 4; ++i) hosts.step();
    drain("a", a);
    drain("b", b);
  }

  /// Everything that was seen, and what the devices, ports and memories are like in the end.
  std::string transcript() {
    for (const End* end : {&a, &b}) {
      const std::uint8_t* data = end->driver.memory().bytes(end->mr.address);
      std::uint64_t hash = 0xcbf29ce484222325;
      for (std::uint32_t i = 0; i < kBytes; ++i) hash = (hash ^ data[i]) * 0x100000001b3;
      log_ << hash << "\n" << end->host.function.status_json() << "\n";
    }
    for (const fabric::LinkStatus& link : hosts.fabric.status()) {
      log_ << link.name << " " << link.counters.xmit_data << " " << link.counters.rcv_data << " "
           << link.counters.xmit_packets() << " " << link.counters.rcv_packets() << "\n";
    }
    return log_.str();
  }

  std::unique_ptr<DoorbellHints> hints = std::make_unique<DoorbellHints>();
  TwoHosts hosts;
  Counting observer;
  End a;
  End b;
  Bell bell;

 private:
  void drain(const char* name, End& end) {
    while (const auto completion = end.driver.poll_cq(end.cq)) {
      log_ << name << " " << static_cast<int>(completion->opcode) << " " << completion->wqe_counter
           << " " << completion->byte_count << " " << completion->immediate << " "
           << completion->solicited << " " << static_cast<int>(completion->syndrome) << " "
           << static_cast<int>(completion->vendor_syndrome) << " " << completion->qpn << "\n";
    }
  }

  std::ostringstream log_;
};

using Script = std::function<void(World&)>;

/// Runs the script in all worlds; returns how many packets the one with packets had.
unsigned compare(const Script& script, unsigned remote_access = kAllAccess) {
  World packets(remote_access);
  packets.close_the_direct_way();
  script(packets);
  const std::string expected = packets.transcript();
  for (const World::Bell bell : {World::Bell::registers, World::Bell::hints}) {
    World direct(remote_access, bell);
    script(direct);
    EXPECT_EQ(direct.transcript(), expected) << "hints: " << (bell == World::Bell::hints);
  }
  return packets.observer.packets;
}

SendRequest request_to(World& world, WqeOpcode opcode, std::uint32_t length) {
  SendRequest request;
  request.opcode = opcode;
  request.sges = {{world.a.mr.address + 40, length, world.a.mr.key}};
  request.remote_address = world.b.mr.address + 24;
  request.rkey = world.b.mr.key;
  request.immediate = 0x11223344;
  return request;
}

bool receives(WqeOpcode opcode) {
  return opcode != WqeOpcode::rdma_write && opcode != WqeOpcode::rdma_read;
}

TEST(DirectWayTest, RandomMessagesLookTheSame) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const unsigned packets = compare([seed](World& world) {
      std::mt19937 random(seed);
      const auto below = [&random](std::uint32_t limit) { return random() % limit; };
      constexpr std::array kOpcodes{WqeOpcode::rdma_write, WqeOpcode::rdma_write_imm,
                                    WqeOpcode::send, WqeOpcode::send_imm, WqeOpcode::rdma_read};
      for (int i = 0; i < 80; ++i) {
        const WqeOpcode opcode = kOpcodes[below(kOpcodes.size())];
        // Of one packet, of some, and of many: the MTU is 1024.
        const std::uint32_t length = below(4) == 0   ? below(3000)
                                     : below(8) == 0 ? below(60000)
                                                     : below(80);
        SendRequest request = request_to(world, opcode, length);
        request.sges[0].address += below(100);
        request.remote_address += below(100);
        request.signaled = below(4) != 0;
        request.solicited = below(2) != 0;
        request.fence = below(8) == 0;
        if (length == 0) request.sges.clear();
        if (length > 1 && below(5) == 0) {
          request.sges[0].length = length / 2;
          request.sges.push_back({world.a.mr.address, length - length / 2, world.a.mr.key});
        }
        if (opcode != WqeOpcode::rdma_read && length != 0 && length < 60 && below(3) == 0) {
          request.sges.clear();
          request.inline_data.assign(length, static_cast<std::uint8_t>(i));
        }
        world.post(request, receives(opcode) ? 62000 : 0);
      }
    });
    EXPECT_GT(packets, 300U);
  }
}

TEST(DirectWayTest, EveryRefusalLooksTheSame) {
  using Damage = void (*)(World&, SendRequest&);
  constexpr Damage kDamages[] = {
      [](World&, SendRequest& request) { request.rkey ^= 1; },
      [](World&, SendRequest& request) { request.rkey += 0x100; },
      [](World&, SendRequest& request) { request.remote_address -= 25; },
      [](World&, SendRequest& request) { request.remote_address += kBytes; },
      [](World&, SendRequest& request) { request.remote_address += kBytes - 2000; },
      [](World&, SendRequest& request) { request.remote_address = ~std::uint64_t{0} - 3; },
      [](World&, SendRequest& request) { request.sges[0].lkey ^= 1; },
      [](World&, SendRequest& request) { request.sges[0].address += kBytes; },
      [](World&, SendRequest& request) { request.opcode = static_cast<WqeOpcode>(0x7f); },
      [](World& world, SendRequest&) { world.b.driver.to_error(world.b.qp); },
      [](World& world, SendRequest&) { world.a.driver.to_error(world.a.qp); },
  };
  for (const std::uint32_t length : {8U, 5000U}) {
    for (const WqeOpcode opcode :
         {WqeOpcode::rdma_write, WqeOpcode::rdma_read, WqeOpcode::send_imm}) {
      for (const Damage damage : kDamages) {
        compare([&](World& world) {
          const std::uint32_t room = receives(opcode) ? 6000 : 0;
          world.post(request_to(world, opcode, length), room);
          SendRequest request = request_to(world, opcode, length);
          damage(world, request);
          world.post(request, room);
          world.post(request_to(world, opcode, length), room);
        });
      }
    }
  }
}

TEST(DirectWayTest, EndsThatDisagreeInThePathMtuLookTheSame) {
  constexpr std::uint8_t kLess = 2;  // 512 bytes; otherwise 1024.
  for (const bool requester_has_less : {false, true}) {
    for (const std::uint32_t length : {8U, 500U, 900U, 1024U, 3000U, 60000U}) {
      for (const WqeOpcode opcode :
           {WqeOpcode::rdma_write, WqeOpcode::rdma_read, WqeOpcode::send_imm}) {
        compare([&](World& world) {
          const End& peer = requester_has_less ? world.b : world.a;
          End& end = requester_has_less ? world.a : world.b;
          ASSERT_TRUE(end.driver.to_reset(end.qp).ok());
          end.connect(peer, kLess);
          world.post(request_to(world, opcode, length), receives(opcode) ? 62000 : 0);
          world.post(request_to(world, opcode, 8), receives(opcode) ? 62000 : 0);
        });
      }
    }
  }
}

TEST(DirectWayTest, RightsOfTheRemoteKeyAreAskedFor) {
  for (const unsigned access : {0U, 7U, 11U, 19U}) {
    for (const WqeOpcode opcode :
         {WqeOpcode::rdma_write, WqeOpcode::rdma_read, WqeOpcode::rdma_write_imm}) {
      compare(
          [&](World& world) {
            world.post(request_to(world, opcode, 8), receives(opcode) ? 64 : 0);
            world.post(request_to(world, opcode, 8), receives(opcode) ? 64 : 0);
          },
          access);
    }
  }
}

TEST(DirectWayTest, AMessageThatIsTooLongForItsReceiveFails) {
  for (const std::uint32_t room : {32U, 3000U}) {
    compare([room](World& world) {
      world.post(request_to(world, WqeOpcode::send, 2 * room), room);
      world.post(request_to(world, WqeOpcode::send, 8), room);
    });
  }
}

/// Keys whose memory is not known yet go the long way.
void warm_up(World& world, End& from, End& to) {
  for (const WqeOpcode opcode : {WqeOpcode::rdma_write, WqeOpcode::rdma_read}) {
    SendRequest request = request_to(world, opcode, 8);
    request.sges = {{from.mr.address, 8, from.mr.key}};
    request.remote_address = to.mr.address;
    request.rkey = to.mr.key;
    from.driver.post_send(from.qp, request);
    ASSERT_TRUE(
        world.hosts.run_until([&] { return from.driver.poll_cq(from.cq).has_value(); }, 10));
  }
}

TEST(DirectWayTest, ItIsTakenWithoutTheFabric) {
  World world;
  warm_up(world, world.a, world.b);
  world.a.driver.post_send(world.a.qp, request_to(world, WqeOpcode::rdma_write, 8));
  world.a.host.function.step({});
  const auto done = world.a.driver.poll_cq(world.a.cq);
  ASSERT_TRUE(done.has_value());
  EXPECT_FALSE(done->error());
}

TEST(DirectWayTest, WhatIsRungForKeepsTheBudgetAndIsNotForgotten) {
  constexpr unsigned kQueues = 3;
  constexpr unsigned kMessages = 20;
  constexpr StepBudget kBudget{.wqes = 8};
  World world(kAllAccess, World::Bell::hints);
  std::vector<std::unique_ptr<End>> from;
  std::vector<std::unique_ptr<End>> to;
  for (unsigned i = 0; i < kQueues; ++i) {
    from.push_back(std::make_unique<End>(*world.hosts.a, kAllAccess));
    to.push_back(std::make_unique<End>(*world.hosts.b, kAllAccess));
    from[i]->connect(*to[i]);
    to[i]->connect(*from[i]);
  }
  for (unsigned i = 0; i < kQueues; ++i) {
    SendRequest request = request_to(world, WqeOpcode::rdma_write, 8);
    request.sges = {{from[i]->mr.address, 8, from[i]->mr.key}};
    request.remote_address = to[i]->mr.address;
    request.rkey = to[i]->mr.key;
    for (unsigned message = 0; message < kMessages; ++message) {
      from[i]->driver.queue_send(from[i]->qp, request);
    }
    world.hints->sq.mark(from[i]->qp.qpn);
  }
  unsigned done = 0;
  unsigned finished_first = kQueues;
  std::array<unsigned, kQueues> of{};
  for (unsigned steps = 0; steps < 100 && done < kQueues * kMessages; ++steps) {
    world.hosts.fabric.step();
    const bool more = world.hosts.a->function.step(kBudget);
    unsigned now = 0;
    for (unsigned i = 0; i < kQueues; ++i) {
      while (const auto completion = from[i]->driver.poll_cq(from[i]->cq)) {
        EXPECT_FALSE(completion->error());
        ++of[i];
        ++now;
      }
      if (of[i] == kMessages && finished_first == kQueues) {
        finished_first = i;
        for (const unsigned others : of) EXPECT_GT(others, 0U) << "everyone has turns";
      }
    }
    EXPECT_LE(now, kBudget.wqes);
    done += now;
    EXPECT_TRUE(more || done == kQueues * kMessages) << "or the runner would sleep";
    world.hosts.b->function.step(kBudget);
  }
  EXPECT_EQ(done, kQueues * kMessages);
}

TEST(DirectWayTest, WithinOneHostItPassesNoLink) {
  World world;
  End one(*world.hosts.a, kAllAccess);
  End other(*world.hosts.a, kAllAccess);
  one.connect(other);
  other.connect(one);
  warm_up(world, one, other);
  const auto before = world.hosts.fabric.status();
  other.driver.post_receive(other.qp, std::array<Sge, 1>{Sge{other.mr.address, 64, other.mr.key}});
  for (const WqeOpcode opcode : {WqeOpcode::rdma_write, WqeOpcode::rdma_read, WqeOpcode::send}) {
    SendRequest request = request_to(world, opcode, 8);
    request.sges = {{one.mr.address, 8, one.mr.key}};
    request.remote_address = other.mr.address + 128;
    request.rkey = other.mr.key;
    one.driver.post_send(one.qp, request);
    world.hosts.a->function.step({});
    const auto done = one.driver.poll_cq(one.cq);
    ASSERT_TRUE(done.has_value());
    EXPECT_FALSE(done->error());
  }
  EXPECT_TRUE(other.driver.poll_cq(other.cq).has_value());
  EXPECT_EQ(std::memcmp(one.driver.memory().bytes(one.mr.address),
                        other.driver.memory().bytes(other.mr.address + 128), 8),
            0);
  EXPECT_EQ(std::memcmp(one.driver.memory().bytes(one.mr.address),
                        other.driver.memory().bytes(other.mr.address), 8),
            0);
  const auto after = world.hosts.fabric.status();
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i].counters.xmit_packets(), before[i].counters.xmit_packets());
    EXPECT_EQ(after[i].counters.rcv_packets(), before[i].counters.rcv_packets());
  }
}

TEST(DirectWayTest, AQueuePairMayBeItsOwnPeer) {
  World world;
  End self(*world.hosts.a, kAllAccess);
  self.connect(self);
  warm_up(world, self, self);
  SendRequest request = request_to(world, WqeOpcode::rdma_write, 8);
  request.sges = {{self.mr.address, 8, self.mr.key}};
  request.remote_address = self.mr.address + 128;
  request.rkey = self.mr.key;
  for (int i = 0; i < 3; ++i) {
    self.driver.post_send(self.qp, request);
    world.hosts.a->function.step({});
    const auto done = self.driver.poll_cq(self.cq);
    ASSERT_TRUE(done.has_value());
    EXPECT_FALSE(done->error());
  }
}

TEST(DirectWayTest, APeerThatIsConnectedToSomeoneElseDoesNotAnswer) {
  World world;
  End other(*world.hosts.b, kAllAccess);
  other.connect(world.a);  // Its peer is a's QP, which has another peer.
  const std::uint32_t qpn = other.qp.qpn;
  End lost(*world.hosts.a, kAllAccess);
  ASSERT_TRUE(lost.driver.to_init(lost.qp).ok());
  ASSERT_TRUE(lost.driver.to_rtr(lost.qp, qpn, world.hosts.b->lid(), kPsn, 3).ok());
  ASSERT_TRUE(lost.driver.to_rts(lost.qp, kPsn).ok());
  lost.driver.post_send(lost.qp, request_to(world, WqeOpcode::rdma_write, 8));
  std::optional<Completion> done;
  world.hosts.run_until([&] {
    done = lost.driver.poll_cq(lost.cq);
    return done.has_value();
  });
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->error()) << "no acknowledge comes here";
}

}  // namespace
}  // namespace softhca::test
