// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "hw-model/ib/opcodes.h"
#include "tests/support/transport_pair.h"

// A QP that goes sends the acknowledge that it owes: its consumer has seen the message complete and
// may end at once, and the peer's request must not fail for that.
namespace softhca::transport_test {
namespace {

using prm::CqeSyndrome;
using prm::WqeOpcode;

enum class End { destroyed, to_reset, to_error };

struct Case {
  End end;
  bool link_full;
  std::string name;
};

class QpThatGoes : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    pair.fate = [this](ib::Packet& packet) {
      const bool request = ib::is_request(packet.bth.opcode);
      ++(request ? requests : responses);
      return PacketFate{};
    };
  }

  /// Takes what `a` sends from the wire and gives it to `b` alone: nothing has run there since it
  /// arrived, so that its acknowledge is due and has not left.
  void deliver_without_a_step() {
    std::vector<ib::PacketPtr> arrived;
    pair.fate = [&](ib::Packet& packet) {
      arrived.push_back(std::make_unique<ib::Packet>(packet));
      return PacketFate{.drop = true};
    };
    pair.a.transport.step({});
    ASSERT_FALSE(arrived.empty()) << "no request left";
    SetUp();
    for (ib::PacketPtr& packet : arrived) pair.b.transport.receive(*packet);
    ASSERT_EQ(responses, 0U);
  }

  void end_b() {
    if (GetParam().link_full) pair.b.port.is_ready = false;
    switch (GetParam().end) {
      case End::destroyed:
        EXPECT_EQ(pair.b.transport.destroy_qp(qps.b.number()), DestroyResult::ok);
        break;
      case End::to_reset:
        EXPECT_EQ(qps.b.modify(QpTransition::to_reset), ModifyResult::ok);
        break;
      case End::to_error:
        EXPECT_EQ(qps.b.modify(QpTransition::to_error), ModifyResult::ok);
        break;
    }
  }

  Completion wait_a() {
    std::optional<Completion> completion;
    EXPECT_TRUE(pair.run_until([&] { return (completion = qps.a_cq.poll()).has_value(); }))
        << "no completion came";
    return completion.value_or(Completion{});
  }

  TransportPair pair;
  ConnectedQps qps{pair};
  unsigned requests = 0;
  unsigned responses = 0;
};

TEST_P(QpThatGoes, AcknowledgesTheSendThatItsConsumerHasSeen) {
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  deliver_without_a_step();
  ASSERT_TRUE(qps.b_cq.poll().has_value()) << "the consumer has seen the message";
  end_b();
  EXPECT_EQ(responses, 1U) << "the acknowledge that is due leaves before the QP goes";
  EXPECT_TRUE(wait_a().ok()) << "the peer's request is done";
  EXPECT_EQ(requests, 0U) << "and need not be repeated";
}

TEST_P(QpThatGoes, AcknowledgesTheWriteThatItsConsumerHasSeen) {
  const auto data = TestHost::pattern(8, 1);
  pair.a.fill(qps.a_buffer, data);
  qps.a.post_send({.opcode = WqeOpcode::rdma_write,
                   .sges = {qps.a_sge(0, 8)},
                   .remote_address = qps.b_buffer,
                   .rkey = qps.b_key});
  deliver_without_a_step();
  const auto seen = pair.b.bytes(qps.b_buffer, 8);
  ASSERT_TRUE(std::equal(data.begin(), data.end(), seen.begin()));
  end_b();
  EXPECT_EQ(responses, 1U) << "the acknowledge that is due leaves before the QP goes";
  EXPECT_TRUE(wait_a().ok());
  EXPECT_EQ(requests, 0U);
}

TEST_P(QpThatGoes, OwesNothingTwice) {
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  EXPECT_TRUE(wait_a().ok());
  const unsigned before = responses;
  end_b();
  pair.run();
  EXPECT_EQ(responses, before) << "what was acknowledged is not acknowledged again";
}

TEST_P(QpThatGoes, DoesNotAcknowledgeWhatItRefused) {
  // No receive is posted: an RNR NAK is due, which an ACK must not take the place of.
  qps.a.post_send({.sges = {qps.a_sge(0, 8)}});
  deliver_without_a_step();
  end_b();
  EXPECT_EQ(responses, 0U) << "a message that was not received";
  EXPECT_EQ(wait_a().syndrome, CqeSyndrome::transport_retry_exceeded);
}

TEST_P(QpThatGoes, AcknowledgesWhatCameBeforeTheOneItRefused) {
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.a.write_send({.sges = {qps.a_sge(0, 8)}});
  qps.a.post_send({.sges = {qps.a_sge(8, 8)}});
  deliver_without_a_step();
  ASSERT_TRUE(qps.b_cq.poll().has_value());
  end_b();
  EXPECT_TRUE(wait_a().ok()) << "the first was received";
  EXPECT_EQ(wait_a().syndrome, CqeSyndrome::transport_retry_exceeded) << "the second was not";
}

INSTANTIATE_TEST_SUITE_P(Ends, QpThatGoes,
                         ::testing::Values(Case{End::destroyed, false, "Destroyed"},
                                           Case{End::to_reset, false, "Reset"},
                                           Case{End::to_error, false, "Error"},
                                           Case{End::destroyed, true, "DestroyedBehindAFullLink"},
                                           Case{End::to_reset, true, "ResetBehindAFullLink"},
                                           Case{End::to_error, true, "ErrorBehindAFullLink"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace softhca::transport_test
