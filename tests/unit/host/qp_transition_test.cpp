// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/uverbs/qp_transition.h"

#include <gtest/gtest.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include "hw-model/prm/qp_context.h"

namespace softhca::shim {
namespace {

using namespace qp_attr;  // NOLINT(google-build-using-namespace)
using S = IbQpState;

constexpr std::uint32_t kRcToRtr =
    kState | kAv | kPathMtu | kDestQpn | kRqPsn | kMaxDestRdAtomic | kMinRnrTimer;

TEST(QpTransition, RequiredAttributesMustBeThere) {
  EXPECT_TRUE(qp_transition_allowed(S::init, S::rtr, IB_UVERBS_QPT_RC, kRcToRtr));
  for (std::uint32_t bit = 2; bit < 1U << 21; bit <<= 1) {
    if ((kRcToRtr & bit) == 0) continue;
    EXPECT_FALSE(qp_transition_allowed(S::init, S::rtr, IB_UVERBS_QPT_RC, kRcToRtr & ~bit))
        << "INIT to RTR without attribute bit " << bit;
  }
}

TEST(QpTransition, AttributesOfOtherTransitionsAreRefused) {
  EXPECT_FALSE(qp_transition_allowed(S::init, S::rtr, IB_UVERBS_QPT_RC, kRcToRtr | kSqPsn));
  EXPECT_FALSE(qp_transition_allowed(S::init, S::rtr, IB_UVERBS_QPT_UC, kRcToRtr));
  EXPECT_TRUE(qp_transition_allowed(S::init, S::rtr, IB_UVERBS_QPT_UD, kState));
}

TEST(QpTransition, StatesAreNotSkipped) {
  EXPECT_FALSE(qp_transition_allowed(S::reset, S::rtr, IB_UVERBS_QPT_RC, kRcToRtr));
  EXPECT_FALSE(qp_transition_allowed(S::init, S::rts, IB_UVERBS_QPT_UD, kState | kSqPsn));
  EXPECT_FALSE(qp_transition_allowed(S::reset, S::error, IB_UVERBS_QPT_RC, kState));
}

TEST(QpTransition, ResetAndErrorAreReachedFromEverywhere) {
  for (const S from : {S::init, S::rtr, S::rts, S::sqd, S::sqe, S::error}) {
    EXPECT_TRUE(qp_transition_allowed(from, S::reset, IB_UVERBS_QPT_RC, kState));
    EXPECT_TRUE(qp_transition_allowed(from, S::error, IB_UVERBS_QPT_UD, kState));
    EXPECT_EQ(qp_transition_opcode(from, S::error), prm::CommandOpcode::to_err_qp);
  }
}

TEST(QpTransition, CurrentStateMayBeNamedOnlyWhereItCanDiffer) {
  EXPECT_TRUE(qp_transition_allowed(S::rts, S::rts, IB_UVERBS_QPT_UD, kState | kCurState | kQkey));
  EXPECT_FALSE(qp_transition_allowed(S::init, S::init, IB_UVERBS_QPT_UD, kState | kCurState));
}

TEST(QpTransition, TheDeviceIsToldWhichOptionalFieldsChange) {
  const std::uint32_t params =
      qp_optional_params(S::rts, S::rts, IB_UVERBS_QPT_RC, kState | kMinRnrTimer | kAccessFlags);
  EXPECT_EQ(params,
            prm::kOptParamRnrTimeout | prm::kOptParamRre | prm::kOptParamRae | prm::kOptParamRwe);
  EXPECT_EQ(qp_optional_params(S::init, S::rtr, IB_UVERBS_QPT_RC, kRcToRtr),
            prm::kOptParamRre | prm::kOptParamRae | prm::kOptParamRwe);
}

}  // namespace
}  // namespace softhca::shim
