// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// The page of state records of a context, and the records of its keys.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "hw-model/prm/commands_mkey.h"
#include "hw-model/runtime/mkey_state.h"
#include "kernel-shim/host/uverbs/mmap.h"
#include "tests/unit/host/verbs_host.h"

namespace softhca::shim::test {
namespace {

using prm::CommandOpcode;

class MkeyStateRecords : public VerbsHost {
 protected:
  MkeyStateRecords() : pd_(make_pd(*context_)) { fake_->has_hints = true; }

  int map(runtime::UniqueFd& fd, std::uint64_t length = 4096) {
    MmapBody request{};
    request.offset = kMkeyStatesMmapOffset;
    request.length = length;
    MmapReply reply{};
    return serve_mmap(*context_, request, reply, fd);
  }
  std::uint64_t record_of_new_key(std::uint32_t number) {
    mkey_state_ = number;
    EXPECT_EQ(make_mr(*context_, pd_, buffer_, 4096, 0).error, 0);
    mkey_state_ = 0;
    return prm::CreateMkeyInput::state_record::get(
        fake_->seen(CommandOpcode::create_mkey).back().data());
  }

  std::uint32_t pd_;
};

TEST_F(MkeyStateRecords, DevicesWithoutHintsHaveNone) {
  fake_->has_hints = false;
  runtime::UniqueFd fd;
  EXPECT_EQ(map(fd), EOPNOTSUPP);
  EXPECT_EQ(record_of_new_key(1), 0U);
}

TEST_F(MkeyStateRecords, TheProcessAndTheDeviceHaveOnePage) {
  const std::size_t maps = fake_->maps();
  runtime::UniqueFd first;
  runtime::UniqueFd second;
  EXPECT_EQ(map(first, 8192), EINVAL);
  ASSERT_EQ(map(first), 0);
  ASSERT_EQ(map(second), 0);
  EXPECT_EQ(fake_->maps(), maps + 1);
  struct stat one {};
  struct stat other {};
  ASSERT_EQ(::fstat(first.get(), &one), 0);
  ASSERT_EQ(::fstat(second.get(), &other), 0);
  EXPECT_EQ(one.st_ino, other.st_ino);
  EXPECT_EQ(one.st_size, 4096);
  EXPECT_NE(::fcntl(first.get(), F_GET_SEALS) & F_SEAL_SHRINK, 0) << "the device has it mapped";
  context_.reset();
  EXPECT_LT(fake_->maps(), maps + 1);
}

TEST_F(MkeyStateRecords, AKeyHasTheRecordThatTheProcessNames) {
  EXPECT_EQ(record_of_new_key(1), 0U) << "there is no page yet";
  runtime::UniqueFd fd;
  ASSERT_EQ(map(fd), 0);
  const std::uint64_t first = record_of_new_key(1);
  EXPECT_TRUE(fake_->is_mapped(first & ~4095ULL));
  EXPECT_EQ(first % 4096, offsetof(MkeyStatePage, records));
  EXPECT_EQ(record_of_new_key(MkeyStatePage::kRecords),
            first + (MkeyStatePage::kRecords - 1) * sizeof(MkeyStateRecord));
  EXPECT_EQ(record_of_new_key(0), 0U);
  EXPECT_EQ(record_of_new_key(MkeyStatePage::kRecords + 1), 0U);
  EXPECT_EQ(record_of_new_key(~0U), 0U);
}

TEST_F(MkeyStateRecords, AKeyThatIsMadeAnewHasNone) {
  runtime::UniqueFd fd;
  ASSERT_EQ(map(fd), 0);
  mkey_state_ = 3;
  const auto made = make_mr(*context_, pd_, buffer_, 4096, 0).as<ib_uverbs_reg_mr_resp>();
  ib_uverbs_rereg_mr core{};
  core.flags = 4;  // Access rights.
  core.mr_handle = made.mr_handle;
  core.access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE;
  ASSERT_EQ((write_sharing<ib_uverbs_rereg_mr, ib_uverbs_rereg_mr_resp>(
                 *context_, IB_USER_VERBS_CMD_REREG_MR, core))
                .error,
            0);
  EXPECT_EQ(prm::CreateMkeyInput::state_record::get(
                fake_->seen(CommandOpcode::create_mkey).back().data()),
            0U);
}

}  // namespace
}  // namespace softhca::shim::test
