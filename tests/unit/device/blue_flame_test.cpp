// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/device/blue_flame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "tests/support/two_hosts.h"

namespace softhca::test {
namespace {

constexpr std::uint32_t kPage = 3;
constexpr std::uint64_t kRegister = prm::Uar::blue_flame;

class BlueFlameTest : public ::testing::Test {
 protected:
  /// `units` of a WQE of 16-byte units come to `offset` as stores of eight bytes.
  void copy(unsigned stores, unsigned units = 2, std::uint32_t qpn = 7, unsigned first = 0) {
    std::array<std::uint8_t, 256> wqe{};
    prm::CtrlSegment::qpn::set(wqe.data(), qpn);
    prm::CtrlSegment::ds_count::set(wqe.data(), units);
    for (unsigned i = 8; i < wqe.size(); ++i) wqe[i] = static_cast<std::uint8_t>(i);
    for (unsigned i = first; i < first + stores; ++i) {
      blue_flame.store(kPage, kRegister + 8 * i, std::span(wqe).subspan(8 * i).first<8>(), now);
    }
  }
  /// As a driver has copied to the page before.
  void make_known() {
    copy(4);
    rung.clear();
  }

  Nanoseconds now = 1'000;
  std::vector<std::pair<std::uint32_t, std::size_t>> rung;  ///< Queue, bytes copied.
  BlueFlame blue_flame{8, [this](std::uint32_t qpn, std::span<const std::uint8_t> wqe) {
                         rung.emplace_back(qpn, wqe.size());
                         for (std::size_t i = 8; i < wqe.size(); ++i) EXPECT_EQ(wqe[i], i);
                       }};
  using Rung = decltype(rung);
};

TEST_F(BlueFlameTest, a_doorbell_of_eight_bytes_rings_at_once) {
  copy(1);
  EXPECT_EQ(rung, (Rung{{7, 0}}));
  EXPECT_EQ(blue_flame.deadline(), kNever);
}

TEST_F(BlueFlameTest, once_copies_are_known_the_whole_wqe_rings) {
  make_known();
  copy(3);
  EXPECT_TRUE(rung.empty());
  copy(5, 2, 7, 3);
  EXPECT_EQ(rung, (Rung{{7, 32}})) << "the rest of the block rings nothing";
}

TEST_F(BlueFlameTest, a_doorbell_that_no_copy_follows_waits_no_longer_than_its_patience) {
  make_known();
  copy(1);
  EXPECT_EQ(blue_flame.deadline(), now + BlueFlame::kPatience);
  blue_flame.expire(now + BlueFlame::kPatience - 1);
  EXPECT_TRUE(rung.empty());
  blue_flame.expire(now + BlueFlame::kPatience);
  EXPECT_EQ(rung, (Rung{{7, 0}}));
  EXPECT_EQ(blue_flame.deadline(), kNever);
}

TEST_F(BlueFlameTest, doorbells_keep_their_order) {
  make_known();
  copy(2, 3, 7);
  copy(6, 3, 9);
  blue_flame.flush();
  EXPECT_EQ(rung, (Rung{{7, 0}, {9, 48}}));
}

TEST_F(BlueFlameTest, lengths_that_no_copy_has_ring_plainly) {
  make_known();
  copy(1, 0);
  copy(1, 17);
  EXPECT_EQ(rung, (Rung{{7, 0}, {7, 0}})) << "0 bytes, and more than the register holds";
}

/// A NOP that asks for a completion only in what is copied (as the write-combining test of Linux).
class CopiedWqe : public ::testing::Test {
 protected:
  CopiedWqe() {
    QpOptions options;
    options.type = prm::QpServiceType::ud;
    cq = driver.create_cq(4);
    qp = driver.create_qp(cq, cq, options);
    driver.to_init(qp);
    driver.to_rtr(qp, 0, 0, 0);
    driver.to_rts(qp, 0);
  }
  void post(std::size_t store) {
    SendRequest nop;
    nop.opcode = prm::WqeOpcode::nop;
    nop.signaled = false;
    const std::uint16_t index = driver.queue_send(qp, nop);
    std::array<std::byte, 64> wqe{};
    std::memcpy(
        wqe.data(),
        driver.memory().bytes(qp.sq + std::uint64_t{index % (1U << qp.options.log_sq_size)} * 64),
        wqe.size());
    prm::CtrlSegment::completion::set(reinterpret_cast<std::uint8_t*>(wqe.data()), 2);
    const std::uint64_t uar =
        std::uint64_t{driver.uar()} * prm::kUarPageSize + prm::Uar::blue_flame;
    for (std::size_t at = 0; at < wqe.size(); at += store) {
      world.a->function.bar_write(uar + at, std::span(wqe).subspan(at, store));
    }
  }
  bool completes() {
    return world.run_until([&] { return driver.poll_cq(cq).has_value(); }, 1000);
  }

  TwoHosts world;
  MiniDriver& driver = world.a->driver;
  DriverCq cq;
  DriverQp qp;
};

TEST_F(CopiedWqe, is_executed_as_copied) {
  post(8);  // The first one makes the page known.
  post(8);
  EXPECT_TRUE(completes());
}

TEST_F(CopiedWqe, may_come_in_stores_of_four_bytes) {
  post(4);
  post(4);
  EXPECT_TRUE(completes());
}

}  // namespace
}  // namespace softhca::test
