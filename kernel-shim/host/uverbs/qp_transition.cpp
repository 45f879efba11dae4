// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/uverbs/qp_transition.h"

#include <rdma/ib_user_ioctl_verbs.h>

#include "hw-model/prm/qp_context.h"

namespace softhca::shim {
namespace {

using namespace qp_attr;  // NOLINT(google-build-using-namespace): the tables below read like IBA's.
using S = IbQpState;

constexpr std::uint32_t type_bit(std::uint8_t type) {
  return type < 32 ? 1U << type : 0;
}
constexpr std::uint32_t kRc = type_bit(IB_UVERBS_QPT_RC);
constexpr std::uint32_t kUc = type_bit(IB_UVERBS_QPT_UC);
constexpr std::uint32_t kUd = type_bit(IB_UVERBS_QPT_UD);
constexpr std::uint32_t kXrcIni = type_bit(IB_UVERBS_QPT_XRC_INI);
constexpr std::uint32_t kXrcTgt = type_bit(IB_UVERBS_QPT_XRC_TGT);
constexpr std::uint32_t kConnected = kRc | kUc | kXrcIni | kXrcTgt;
constexpr std::uint32_t kAcknowledged = kRc | kXrcIni | kXrcTgt;
constexpr std::uint32_t kEvery = kConnected | kUd;

struct Row {
  S from;
  S to;
  std::uint32_t types;
  std::uint32_t required;
  std::uint32_t optional;
};

constexpr std::uint32_t kToRtr = kAv | kPathMtu | kDestQpn | kRqPsn;
constexpr std::uint32_t kRtrOptional = kAltPath | kAccessFlags | kPkeyIndex;
constexpr std::uint32_t kToRts = kTimeout | kSqPsn;
constexpr std::uint32_t kRtsOptional = kCurState | kAltPath | kAccessFlags | kPathMigState;
constexpr std::uint32_t kSqdOptional = kAv | kAltPath | kAccessFlags | kPkeyIndex | kPathMigState;
constexpr std::uint32_t kSqdAcknowledged = kSqdOptional | kPort | kTimeout | kMinRnrTimer;

// IBA table 88; the kernel's qp_state_table (core/verbs.c). To RESET and to ERR: see
// qp_transition_allowed.
constexpr Row kRows[] = {
    {S::reset, S::reset, kEvery, 0, 0},
    {S::reset, S::init, kUd, kPkeyIndex | kPort | kQkey, 0},
    {S::reset, S::init, kConnected, kPkeyIndex | kPort | kAccessFlags, 0},
    {S::init, S::init, kUd, 0, kPkeyIndex | kPort | kQkey},
    {S::init, S::init, kConnected, 0, kPkeyIndex | kPort | kAccessFlags},
    {S::init, S::rtr, kUd, 0, kPkeyIndex | kQkey},
    {S::init, S::rtr, kUc | kXrcIni, kToRtr, kRtrOptional},
    {S::init, S::rtr, kRc | kXrcTgt, kToRtr | kMaxDestRdAtomic | kMinRnrTimer, kRtrOptional},
    {S::rtr, S::rts, kUd, kSqPsn, kCurState | kQkey},
    {S::rtr, S::rts, kUc, kSqPsn, kRtsOptional},
    {S::rtr, S::rts, kRc, kToRts | kRetryCnt | kRnrRetry | kMaxQpRdAtomic,
     kRtsOptional | kMinRnrTimer},
    {S::rtr, S::rts, kXrcIni, kToRts | kRetryCnt | kRnrRetry | kMaxQpRdAtomic, kRtsOptional},
    {S::rtr, S::rts, kXrcTgt, kToRts, kRtsOptional | kMinRnrTimer},
    {S::rts, S::rts, kUd, 0, kCurState | kQkey},
    {S::rts, S::rts, kUc | kXrcIni, 0, kRtsOptional},
    {S::rts, S::rts, kRc | kXrcTgt, 0, kRtsOptional | kMinRnrTimer},
    {S::rts, S::sqd, kEvery, 0, kEnSqdAsyncNotify},
    {S::sqd, S::rts, kUd, 0, kCurState | kQkey},
    {S::sqd, S::rts, kUc | kXrcIni, 0, kRtsOptional},
    {S::sqd, S::rts, kRc | kXrcTgt, 0, kRtsOptional | kMinRnrTimer},
    {S::sqd, S::sqd, kUd, 0, kPkeyIndex | kQkey},
    {S::sqd, S::sqd, kUc, 0, kSqdOptional},
    {S::sqd, S::sqd, kRc, 0,
     kSqdAcknowledged | kRetryCnt | kRnrRetry | kMaxQpRdAtomic | kMaxDestRdAtomic},
    {S::sqd, S::sqd, kXrcIni, 0,
     (kSqdAcknowledged | kRetryCnt | kRnrRetry | kMaxQpRdAtomic) & ~kMinRnrTimer},
    {S::sqd, S::sqd, kXrcTgt, 0, kSqdAcknowledged | kMaxDestRdAtomic},
    {S::sqe, S::rts, kUd, 0, kCurState | kQkey},
    {S::sqe, S::rts, kUc, 0, kCurState | kAccessFlags},
};

const Row* find(S from, S to, std::uint32_t type) {
  for (const Row& row : kRows) {
    if (row.from == from && row.to == to && (row.types & type) != 0) return &row;
  }
  return nullptr;
}

/// mlx5_ib's opt_mask: what each transition can change, by service.
struct OptionalRow {
  S from;
  S to;
  std::uint32_t types;
  std::uint32_t params;
};
constexpr std::uint32_t kParamPrimaryPort = 1U << 16;
constexpr std::uint32_t kRights = prm::kOptParamRre | prm::kOptParamRae | prm::kOptParamRwe;
constexpr OptionalRow kOptionalRows[] = {
    {S::init, S::init, kAcknowledged, kRights | prm::kOptParamPkeyIndex | kParamPrimaryPort},
    {S::init, S::init, kUc, prm::kOptParamRwe | prm::kOptParamPkeyIndex | kParamPrimaryPort},
    {S::init, S::init, kUd, prm::kOptParamPkeyIndex | prm::kOptParamQkey | kParamPrimaryPort},
    {S::init, S::rtr, kAcknowledged,
     prm::kOptParamAlternatePath | kRights | prm::kOptParamPkeyIndex},
    {S::init, S::rtr, kUc,
     prm::kOptParamAlternatePath | prm::kOptParamRwe | prm::kOptParamPkeyIndex},
    {S::init, S::rtr, kUd, prm::kOptParamPkeyIndex | prm::kOptParamQkey},
    {S::rtr, S::rts, kAcknowledged,
     prm::kOptParamAlternatePath | kRights | prm::kOptParamPmState | prm::kOptParamRnrTimeout},
    {S::rtr, S::rts, kUc, prm::kOptParamAlternatePath | prm::kOptParamRwe | prm::kOptParamPmState},
    {S::rtr, S::rts, kUd, prm::kOptParamQkey},
    {S::rts, S::rts, kAcknowledged,
     prm::kOptParamAlternatePath | kRights | prm::kOptParamPmState | prm::kOptParamRnrTimeout},
    {S::rts, S::rts, kUc, prm::kOptParamAlternatePath | prm::kOptParamRwe | prm::kOptParamPmState},
    {S::rts, S::rts, kUd, prm::kOptParamQkey | prm::kOptParamSrqn | prm::kOptParamCqnRcv},
    {S::sqe, S::rts, kAcknowledged, kRights | prm::kOptParamRnrTimeout},
    {S::sqe, S::rts, kUc, prm::kOptParamRwe},
    {S::sqe, S::rts, kUd, prm::kOptParamQkey},
    {S::sqd, S::rts, kAcknowledged, kRights | prm::kOptParamRnrTimeout},
    {S::sqd, S::rts, kUc, prm::kOptParamRwe},
    {S::sqd, S::rts, kUd, prm::kOptParamQkey},
};

struct Translation {
  std::uint32_t attribute;
  std::uint32_t params;
};
constexpr Translation kTranslations[] = {
    {kAccessFlags, kRights},
    {kPkeyIndex, prm::kOptParamPkeyIndex},
    {kPort, kParamPrimaryPort},
    {kQkey, prm::kOptParamQkey},
    {kAv, prm::kOptParamPrimaryPath | kParamPrimaryPort},
    {kTimeout, prm::kOptParamAckTimeout},
    {kRetryCnt, prm::kOptParamRetryCount},
    {kRnrRetry, prm::kOptParamRnrRetry},
    {kMaxQpRdAtomic, prm::kOptParamSraMax},
    {kAltPath, prm::kOptParamAlternatePath},
    {kMinRnrTimer, prm::kOptParamRnrTimeout},
    {kMaxDestRdAtomic, prm::kOptParamRraMax | kRights},
    {kPathMigState, prm::kOptParamPmState},
};

}  // namespace

bool qp_transition_allowed(IbQpState from, IbQpState to, std::uint8_t type, std::uint32_t mask) {
  if ((mask & kCurState) != 0 && from != S::rtr && from != S::rts && from != S::sqd &&
      from != S::sqe) {
    return false;
  }
  if (to == S::reset || (to == S::error && from != S::reset)) return (mask & ~kState) == 0;
  const Row* const row = find(from, to, type_bit(type));
  if (row == nullptr || (mask & row->required) != row->required) return false;
  return (mask & ~(row->required | row->optional | kState)) == 0;
}

std::optional<prm::CommandOpcode> qp_transition_opcode(IbQpState from, IbQpState to) {
  using prm::CommandOpcode;
  if (to == S::reset) return CommandOpcode::to_rst_qp;
  if (to == S::error) return CommandOpcode::to_err_qp;
  if (from == S::reset && to == S::init) return CommandOpcode::rst2init_qp;
  if (from == S::init && to == S::init) return CommandOpcode::init2init_qp;
  if (from == S::init && to == S::rtr) return CommandOpcode::init2rtr_qp;
  if (to != S::rts) return std::nullopt;
  switch (from) {
    case S::rtr:
      return CommandOpcode::rtr2rts_qp;
    case S::rts:
      return CommandOpcode::rts2rts_qp;
    case S::sqd:
      return CommandOpcode::sqd_rts_qp;
    case S::sqe:
      return CommandOpcode::sqerr2rts_qp;
    default:
      return std::nullopt;
  }
}

std::uint32_t qp_optional_params(IbQpState from, IbQpState to, std::uint8_t type,
                                 std::uint32_t mask) {
  std::uint32_t wanted = 0;
  for (const Translation& row : kTranslations) {
    if ((mask & row.attribute) != 0) wanted |= row.params;
  }
  for (const OptionalRow& row : kOptionalRows) {
    if (row.from == from && row.to == to && (row.types & type_bit(type)) != 0) {
      return wanted & row.params;
    }
  }
  return 0;
}

}  // namespace softhca::shim
