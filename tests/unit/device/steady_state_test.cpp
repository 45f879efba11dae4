// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Once a flow runs, the device model asks the allocator for nothing: counted by every operator new
// of this program while both devices and the fabric work.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "hw-model/runtime/doorbell_hints.h"
#include "tests/support/two_hosts.h"

namespace {

bool counting = false;
unsigned long allocations = 0;

void* counted(std::size_t size, std::size_t alignment) {
  if (counting) ++allocations;
  const std::size_t rounded = (std::max<std::size_t>(size, 1) + alignment - 1) & ~(alignment - 1);
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// What the library has beside these ends in them.
void* operator new(std::size_t size) {
  return counted(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

namespace softhca::test {
namespace {

using prm::WqeOpcode;

constexpr std::uint32_t kPsn = 0xfffff0;
constexpr unsigned kDepth = 16;
constexpr unsigned kWarmUp = 4 * kDepth;

struct Watching final : fabric::LinkObserver {
  void observe(const fabric::LinkObservation& /*seen*/) override { ++packets; }
  unsigned long packets = 0;
};

struct End {
  End(TwoHosts::Host& of, std::uint32_t size)
      : driver(of.driver),
        lid(of.lid()),
        cq(driver.create_cq(8)),
        qp(driver.create_qp(cq, cq)),
        mr(driver.allocate_mr(size, kAllAccess)) {}
  void connect(const End& peer) {
    const bool ok = driver.to_init(qp).ok() &&
                    driver.to_rtr(qp, peer.qp.qpn, peer.lid, kPsn, 5).ok() &&
                    driver.to_rts(qp, kPsn).ok();
    if (!ok) throw DriverError("cannot connect");
  }
  MiniDriver& driver;
  std::uint16_t lid;
  DriverCq cq;
  DriverQp qp;
  DriverMr mr;
};

struct Flow {
  WqeOpcode opcode;
  std::uint32_t size;
  bool hinted;   ///< Rung by hints, as our provider does, or by registers.
  bool watched;  ///< An observer on the links sees every packet, so that nothing passes unseen.
};

std::string name_of(const Flow& flow) {
  const std::string operation = flow.opcode == WqeOpcode::rdma_write  ? "write"
                                : flow.opcode == WqeOpcode::rdma_read ? "read"
                                                                      : "send";
  return operation + "_" + std::to_string(flow.size) + (flow.hinted ? "_hinted" : "_rung") +
         (flow.watched ? "_watched" : "");
}

class SteadyStateTest : public ::testing::TestWithParam<Flow> {
 protected:
  SteadyStateTest() : a_(*world_.a, GetParam().size), b_(*world_.b, GetParam().size) {
    a_.connect(b_);
    b_.connect(a_);
    if (GetParam().hinted) world_.a->function.attach_doorbell_hints(hints_.get());
    if (GetParam().watched) world_.fabric.add_observer("", observer_);
  }
  ~SteadyStateTest() override {
    world_.fabric.remove_observer(observer_);
    world_.a->function.attach_doorbell_hints(nullptr);
  }

  void post() {
    const auto [opcode, size, hinted, watched] = GetParam();
    if (opcode == WqeOpcode::send) {
      const std::array<Sge, 1> room{Sge{b_.mr.address, size, b_.mr.key}};
      b_.driver.post_receive(b_.qp, room);
    }
    SendRequest request;
    request.opcode = opcode;
    request.sges = {{a_.mr.address, size, a_.mr.key}};
    request.remote_address = b_.mr.address;
    request.rkey = b_.mr.key;
    if (hinted) {
      a_.driver.queue_send(a_.qp, request);
      hints_->sq.mark(a_.qp.qpn);
    } else {
      a_.driver.post_send(a_.qp, request);
    }
  }

  /// Runs so many messages, kDepth of them outstanding.
  void run(unsigned messages) {
    unsigned posted = 0;
    for (unsigned done = 0; done < messages;) {
      for (; posted < messages && posted - done < kDepth; ++posted) post();
      counting = true;
      world_.step();
      counting = false;
      while (const auto completion = a_.driver.poll_cq(a_.cq)) {
        ASSERT_FALSE(completion->error());
        ++done;
      }
      while (b_.driver.poll_cq(b_.cq)) {
      }
    }
  }

  Watching observer_;
  std::unique_ptr<DoorbellHints> hints_ = std::make_unique<DoorbellHints>();
  TwoHosts world_;
  End a_;
  End b_;
};

TEST_P(SteadyStateTest, no_message_allocates) {
  run(kWarmUp);
  const unsigned long packets = observer_.packets;
  allocations = 0;
  const unsigned messages = GetParam().size > 65536 ? 48 : GetParam().size > 4096 ? 200 : 2000;
  run(messages);
  EXPECT_EQ(allocations, 0U) << "in " << messages << " messages";
  if (GetParam().watched) {
    EXPECT_GE(observer_.packets - packets, messages);
  }
}

TEST(SteadyStateCounterTest, allocations_are_counted) {
  allocations = 0;
  counting = true;
  const auto memory = std::make_unique<std::vector<int>>(1000);
  counting = false;
  EXPECT_EQ(allocations, 2U) << "a count that stays 0 would prove nothing";
}

std::vector<Flow> flows() {
  std::vector<Flow> flows;
  for (const WqeOpcode opcode : {WqeOpcode::rdma_write, WqeOpcode::rdma_read, WqeOpcode::send}) {
    for (const std::uint32_t size : {8U, 4096U, 65536U, 1U << 20}) {
      for (const bool hinted : {true, false}) {
        for (const bool watched : {true, false}) flows.push_back({opcode, size, hinted, watched});
      }
    }
  }
  return flows;
}

INSTANTIATE_TEST_SUITE_P(Flows, SteadyStateTest, ::testing::ValuesIn(flows()),
                         [](const auto& tested) { return name_of(tested.param); });

}  // namespace
}  // namespace softhca::test
