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
  EXPECT_EQ(map(second), EBUSY) << "who asks anew does not know which records keys follow";
  EXPECT_EQ(fake_->maps(), maps + 1);
  struct stat one {};
  ASSERT_EQ(::fstat(first.get(), &one), 0);
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

/// A region of which the process has the record.
class RenamedKeys : public MkeyStateRecords {
 protected:
  RenamedKeys() {
    runtime::UniqueFd fd;
    EXPECT_EQ(map(fd), 0);
    page_ = static_cast<MkeyStatePage*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0));
    mkey_state_ = 1;
    const auto made = make_mr(*context_, pd_, buffer_, 4096, 0).as<ib_uverbs_reg_mr_resp>();
    handle_ = made.mr_handle;
    key_ = made.lkey;
    mkey_state_ = 0;
  }
  ~RenamedKeys() override { ::munmap(page_, 4096); }

  std::uint32_t renamed(std::uint32_t by) const { return (key_ & ~0xffU) | ((key_ + by) & 0xff); }
  void want(std::uint32_t state, std::uint32_t key) {
    page_->records[0].wanted = __builtin_bswap32(next_mkey_word(7U << 16, state | (key & 0xff)));
  }
  Done rereg() {
    ib_uverbs_rereg_mr core{};
    core.flags = 4;  // Access rights.
    core.mr_handle = handle_;
    core.access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE;
    return write_sharing<ib_uverbs_rereg_mr, ib_uverbs_rereg_mr_resp>(
        *context_, IB_USER_VERBS_CMD_REREG_MR, core);
  }
  int deregister() {
    return destroy(*context_, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, handle_);
  }
  Mr& region() { return *context_->mrs.find(handle_); }

  MkeyStatePage* page_ = nullptr;
  std::uint32_t handle_ = 0;
  std::uint32_t key_ = 0;
};

TEST_F(RenamedKeys, AreKeptAsTheyAreCalledNow) {
  want(kMkeyUsable, renamed(3));
  const Done done = rereg();
  ASSERT_EQ(done.error, 0);
  EXPECT_EQ(done.as<ib_uverbs_rereg_mr_resp>().lkey, renamed(3));
  EXPECT_EQ(done.as<ib_uverbs_rereg_mr_resp>().rkey, renamed(3));
  want(kMkeyUsable, renamed(9));
  ASSERT_EQ(rereg().error, 0) << "the record is no longer that key's";
  EXPECT_EQ(region().key, renamed(3));
}

TEST_F(RenamedKeys, OfParkedRegionsAreNoRegionsToAnybody) {
  want(kMkeyRevoked, renamed(3));
  EXPECT_EQ(rereg().error, ENOENT);
  want(0x4300, 0);
  EXPECT_EQ(rereg().error, ENOENT) << "nonsense revokes, too";
  EXPECT_EQ(deregister(), 0) << "but for who parked them";
}

TEST_F(RenamedKeys, LeaveTheirNamesToNobody) {
  const std::uint32_t index = key_ >> 8;
  EXPECT_FALSE(device_->key_names().find(index));
  want(kMkeyRevoked, renamed(3));
  ASSERT_EQ(deregister(), 0);
  EXPECT_EQ(device_->key_names().find(index), static_cast<std::uint8_t>(key_ + 4));
  // The next index of the fake device, as if it came back.
  const auto other = make_mr(*context_, pd_, buffer_, 4096, 0).as<ib_uverbs_reg_mr_resp>();
  const std::uint32_t next = (other.lkey >> 8) + 1;
  device_->key_names().ended(next << 8 | 0x20, next << 8 | 0x77);
  const auto again = make_mr(*context_, pd_, buffer_, 4096, 0).as<ib_uverbs_reg_mr_resp>();
  EXPECT_EQ(again.lkey, next << 8 | 0x78);
  const auto& created = fake_->seen(CommandOpcode::create_mkey).back();
  EXPECT_EQ(prm::CreateMkeyInput::input_mkey_index::get(created.data()), next);
  // Once it has had several, it goes on from the last one.
  device_->key_names().ended(next << 8 | 0x78, next << 8 | 0x78);
  EXPECT_EQ(device_->key_names().find(next), 0x79);
}

}  // namespace
}  // namespace softhca::shim::test
