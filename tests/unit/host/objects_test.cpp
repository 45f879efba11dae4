// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <set>
#include <string>

#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/commands_qp.h"
#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/cq_context.h"
#include "hw-model/prm/mkey_context.h"
#include "hw-model/prm/qp_context.h"
#include "tests/unit/host/verbs_host.h"

namespace softhca::shim::test {
namespace {

using prm::CommandOpcode;

class Objects : public VerbsHost {};

TEST_F(Objects, ACqHandleIsItsNumber) {
  const Done cq = make_cq(*context_, 100);
  ASSERT_EQ(cq.error, 0);
  EXPECT_EQ(cq.as<ib_uverbs_create_cq_resp>().cq_handle,
            cq.driver_as<mlx5_ib_create_cq_resp>().cqn);
  EXPECT_EQ(cq.as<ib_uverbs_create_cq_resp>().cqe, 127U) << "next power of two minus one";
}

TEST_F(Objects, QueueMemoryIsAskedForBeforeAnythingIsMade) {
  ib_uverbs_create_cq core{};
  core.cqe = 100;
  core.comp_channel = -1;
  mlx5_ib_create_cq driver{};
  driver.buf_addr = buffer_ + 0x1000;
  driver.db_addr = buffer_ + 0x2040;
  driver.cqe_size = 64;
  driver.flags = MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
  driver.uar_page_index = static_cast<std::uint16_t>(uar_);
  const Done asked = write<ib_uverbs_create_cq, ib_uverbs_create_cq_resp>(
      *context_, IB_USER_VERBS_CMD_CREATE_CQ, core, &driver, 8, Sharing::not_asked);
  EXPECT_EQ(asked.error, kRepeat);
  ASSERT_EQ(asked.share.size(), 2U);
  EXPECT_EQ(asked.share[0].address, buffer_ + 0x2000) << "other queues' records are on this page";
  EXPECT_EQ(asked.share[0].length, 0x1000U);
  EXPECT_EQ(asked.share[0].zero_at, driver.db_addr);
  EXPECT_EQ(asked.share[1].address, buffer_ + 0x1000);
  EXPECT_EQ(asked.share[1].length, 128U * 64);
  EXPECT_EQ(fake_->count(CommandOpcode::create_cq), 0U);
}

TEST_F(Objects, AnAlignedBufferIsOnePageForTheDevice) {
  ASSERT_EQ(make_cq(*context_, 8191).error, 0);
  const auto& in = fake_->seen(CommandOpcode::create_cq).back();
  EXPECT_EQ(in.size(), prm::CreateCqInput::size + 8);
  const std::uint8_t* const cqc = in.data() + prm::CreateCqInput::cq_context::offset;
  EXPECT_EQ(4096ULL << prm::CqContext::log_page_size::get(cqc), 8192U * 64);
  EXPECT_EQ(prm::CqContext::page_offset::get(cqc), 0U);
  EXPECT_EQ(prm::CqContext::log_cq_size::get(cqc), 13U);
}

TEST_F(Objects, MemoryThatMayShrinkIsRefused) {
  runtime::UniqueFd unsealed(::memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), 1LL << 47), 0);
  std::swap(memory_, unsealed);
  EXPECT_EQ(make_cq(*context_, 10).error, EINVAL)
      << "a mapping of a file that shrinks kills who touches it";
  std::swap(memory_, unsealed);
}

TEST_F(Objects, DestroyOfAnObjectInUseIsBusy) {
  const std::uint32_t pd = make_pd(*context_);
  const std::uint32_t cq = make_cq(*context_, 10).as<ib_uverbs_create_cq_resp>().cq_handle;
  const Done qp = make_qp(*context_, pd, cq);
  ASSERT_EQ(qp.error, 0);
  EXPECT_EQ(destroy(*context_, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, pd), EBUSY);
  EXPECT_EQ(destroy(*context_, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, cq, 8), EBUSY);
  EXPECT_EQ(destroy(*context_, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY,
                    qp.as<ib_uverbs_create_qp_resp>().qp_handle, 4),
            0);
  EXPECT_EQ(destroy(*context_, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, cq, 8), 0);
  EXPECT_EQ(destroy(*context_, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, pd), 0);
  EXPECT_EQ(destroy(*context_, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, pd), ENOENT);
}

TEST_F(Objects, AClosedContextLeavesNothingOnTheDevice) {
  const std::size_t maps = fake_->maps();
  auto context = new_context();
  open(*context);
  const std::uint32_t before = uar_;
  uar_ = make_uar(*context);
  const std::uint32_t pd = make_pd(*context);
  const std::uint32_t cq = make_cq(*context, 10).as<ib_uverbs_create_cq_resp>().cq_handle;
  ASSERT_EQ(make_qp(*context, pd, cq).error, 0);
  ASSERT_EQ(make_mr(*context, pd, buffer_, 4096, IB_UVERBS_ACCESS_LOCAL_WRITE).error, 0);
  uar_ = before;
  context.reset();
  EXPECT_EQ(fake_->live(CommandOpcode::create_qp), 0U);
  EXPECT_EQ(fake_->live(CommandOpcode::create_cq), 0U);
  EXPECT_EQ(fake_->live(CommandOpcode::create_mkey), 0U);
  EXPECT_EQ(fake_->live(CommandOpcode::alloc_pd), 0U);
  EXPECT_EQ(fake_->maps(), maps) << "no memory of the process may stay mapped";
}

TEST_F(Objects, ContextsDoNotSeeEachOthersObjects) {
  auto other = new_context();
  open(*other);
  const std::uint32_t pd = make_pd(*context_);
  EXPECT_EQ(make_mr(*other, pd, buffer_, 4096, 0).error, ENOENT);
  EXPECT_EQ(destroy(*other, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, pd), ENOENT);
}

TEST_F(Objects, AHandleInUseIsNotGivenAgain) {
  ObjectTable<Pd> table;
  table.insert(1, std::make_unique<Pd>());
  table.insert(2, std::make_unique<Pd>());
  EXPECT_EQ(table.new_handle(), 3U);
  EXPECT_EQ(table.new_handle(4), 4U);
  EXPECT_EQ(table.new_handle(4), 3U) << "1 and 2 are in use";
}

TEST_F(Objects, UarsDoNotShareAMappingOffset) {
  // 16 bits of a handle make the offset.
  const std::uint32_t first = context_->uars.begin()->second->handle;
  while (context_->uars.new_handle(0xffff) != 0xffff) {
  }
  for (int i = 0; i < 2; ++i) make_uar(*context_);
  std::set<std::uint64_t> offsets;
  for (const auto& [handle, uar] : context_->uars) {
    EXPECT_LE(handle, 0xffffU);
    offsets.insert(uar->mmap_key);
  }
  EXPECT_EQ(offsets.size(), context_->uars.size());
  EXPECT_NE(context_->uars.find(first), nullptr);
}

class Opening : public VerbsHost {
 protected:
  Opening() : VerbsHost({.devx = true}) {}
  int open(Context& context) {
    ib_uverbs_get_context core{};
    mlx5_ib_alloc_ucontext_req_v2 driver{};
    driver.total_num_bfregs = 16;
    driver.flags = MLX5_IB_ALLOC_UCTX_DEVX;
    driver.lib_caps = MLX5_LIB_CAP_DYN_UAR;
    return write<ib_uverbs_get_context, ib_uverbs_get_context_resp>(
               context, IB_USER_VERBS_CMD_GET_CONTEXT, core, &driver,
               sizeof(mlx5_ib_alloc_ucontext_resp))
        .error;
  }
  void expect_one_of_each() {
    // The fixture's own context has a transport domain too.
    EXPECT_EQ(fake_->live(CommandOpcode::alloc_transport_domain), 2U);
    EXPECT_EQ(fake_->live(CommandOpcode::create_uctx), 1U);
  }
};

TEST_F(Opening, AContextIsOpenedOnce) {
  auto context = new_context();
  ASSERT_EQ(open(*context), 0);
  EXPECT_EQ(open(*context), EINVAL);
  expect_one_of_each();
  context.reset();
  EXPECT_EQ(fake_->live(CommandOpcode::create_uctx), 0U);
}

TEST_F(Opening, AFailureLeavesNothingAndMayBeTriedAgain) {
  auto context = new_context();
  constexpr std::uint8_t kNoResources = 0xf;
  fake_->fail_with[CommandOpcode::alloc_transport_domain] = kNoResources;
  EXPECT_NE(open(*context), 0);
  EXPECT_EQ(fake_->live(CommandOpcode::create_uctx), 0U);
  fake_->fail_with.clear();
  ASSERT_EQ(open(*context), 0);
  expect_one_of_each();
}

TEST_F(Opening, OutOfDescriptorsItLeavesNothing) {
  auto context = new_context();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(runtime::UniqueFd(::dup(0)).get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const int error = open(*context);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(error, EMFILE);
  EXPECT_EQ(fake_->live(CommandOpcode::alloc_transport_domain), 1U);
  EXPECT_EQ(fake_->live(CommandOpcode::create_uctx), 0U);
  ASSERT_EQ(open(*context), 0);
  expect_one_of_each();
}

class MemoryRegions : public VerbsHost {
 protected:
  MemoryRegions() : pd_(make_pd(*context_)) {}
  int reg(std::uint64_t start, std::uint64_t length, std::uint32_t access) {
    return make_mr(*context_, pd_, start, length, access).error;
  }
  std::uint32_t pd_;
};

TEST_F(MemoryRegions, RemoteWriteAndAtomicNeedLocalWrite) {
  EXPECT_EQ(reg(buffer_, 4096, IB_UVERBS_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(reg(buffer_, 4096, IB_UVERBS_ACCESS_REMOTE_ATOMIC), EINVAL);
  EXPECT_EQ(reg(buffer_, 4096, IB_UVERBS_ACCESS_REMOTE_WRITE | IB_UVERBS_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(reg(buffer_, 4096, IB_UVERBS_ACCESS_REMOTE_READ), 0);
}

TEST_F(MemoryRegions, UnknownAndUnsupportedFlagsAreRefused) {
  EXPECT_EQ(reg(buffer_, 4096, 1U << 15), EINVAL);
  EXPECT_EQ(reg(buffer_, 4096, IB_UVERBS_ACCESS_ON_DEMAND), EOPNOTSUPP);
  EXPECT_EQ(reg(buffer_, 4096, IB_UVERBS_ACCESS_RELAXED_ORDERING), 0) << "an optional flag passes";
}

TEST_F(MemoryRegions, RangesAreCheckedWithoutOverflow) {
  EXPECT_EQ(reg(buffer_, 0, 0), EINVAL);
  EXPECT_EQ(reg(~0ULL - 100, 200, 0), EINVAL);
  EXPECT_EQ(reg(buffer_, ~0ULL, 0), EINVAL);
  EXPECT_EQ(reg(0x1000, 4096, 0), EFAULT) << "nothing is mapped there";
  EXPECT_EQ(make_mr(*context_, 0x99999, buffer_, 4096, 0).error, ENOENT);
}

TEST_F(MemoryRegions, ReadOnlyMemoryCannotBeWrittenByTheDevice) {
  void* const page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto address = reinterpret_cast<std::uint64_t>(page);
  pieces_ = {{address, 4096, kBufferOffset}};
  EXPECT_EQ(reg(address, 4096, IB_UVERBS_ACCESS_LOCAL_WRITE), EFAULT);
  EXPECT_EQ(reg(address, 4096, IB_UVERBS_ACCESS_REMOTE_READ), 0);
  ::munmap(page, 4096);
}

TEST_F(MemoryRegions, TheApplicationIsAskedToShareEveryPageOfTheRegion) {
  const std::size_t maps = fake_->maps();
  const Done done = make_mr(*context_, pd_, buffer_ + 0xff8, 0x2010, IB_UVERBS_ACCESS_LOCAL_WRITE);
  ASSERT_EQ(done.error, 0);
  ASSERT_EQ(done.share.size(), 1U);
  EXPECT_EQ(done.share[0].address, buffer_) << "what it has in part is pinned, too";
  EXPECT_EQ(done.share[0].length, 0x4000U);
  EXPECT_EQ(done.share[0].zero_at, 0U);
  EXPECT_EQ(done.share[0].flags, kShareInUse | kSharePartOfFirst | kSharePartOfLast);
  EXPECT_EQ(fake_->maps(), maps + 1);
}

TEST_F(MemoryRegions, TheNextRegistrationOfTheSamePagesNeedsNoNewMap) {
  const auto access = IB_UVERBS_ACCESS_LOCAL_WRITE;
  const auto make = [&](std::uint64_t start, std::uint32_t with) {
    const Done done = make_mr(*context_, pd_, start, 0x10000, with);
    EXPECT_EQ(done.error, 0);
    return done.as<ib_uverbs_reg_mr_resp>().mr_handle;
  };
  const auto end = [&](std::uint32_t handle) {
    EXPECT_EQ(destroy(*context_, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, handle), 0);
  };
  end(make(buffer_, access));
  const std::size_t maps = fake_->maps();
  const std::uint32_t first = make(buffer_, access);
  EXPECT_EQ(fake_->maps(), maps);
  const std::uint32_t second = make(buffer_, access);
  EXPECT_EQ(fake_->maps(), maps + 1) << "two regions at once are two maps";
  end(first);
  end(second);
  end(make(buffer_, 0));
  EXPECT_EQ(fake_->maps(), maps + 2) << "what may only be read is another map";
  pieces_ = {{buffer_, 1 << 20, 2 * kBufferOffset}};
  end(make(buffer_, access));
  EXPECT_EQ(fake_->maps(), maps + 3) << "other pages are at the address now";
}

TEST_F(MemoryRegions, PagesThatTheApplicationLeavesOutAreReachedByTheirAddresses) {
  pieces_ = {{buffer_ + 0x1000, 0x1000, kBufferOffset + 0x1000}};
  ib_uverbs_reg_mr core{};
  core.start = core.hca_va = buffer_ + 0x800;
  core.length = 0x2000;
  core.pd_handle = pd_;
  const std::size_t maps = fake_->maps();
  Done done = write<ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp, char>(
      *context_, IB_USER_VERBS_CMD_REG_MR, core, nullptr, 0, Sharing::partly);
  EXPECT_EQ(done.error, 0);
  EXPECT_EQ(fake_->maps(), maps + 3);
  fake_->shared_memory_only = true;
  done = write<ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp, char>(*context_, IB_USER_VERBS_CMD_REG_MR,
                                                              core, nullptr, 0, Sharing::partly);
  EXPECT_EQ(done.error, kRepeat);
  ASSERT_EQ(done.share.size(), 1U);
  EXPECT_EQ(done.share[0].flags, kShareInUse | kShareAll) << "behind VFIO all of it is needed";
}

TEST_F(MemoryRegions, PagesThatWereNotToldAreAskedFor) {
  pieces_ = {{buffer_, 0x1000, kBufferOffset}};
  ib_uverbs_reg_mr core{};
  core.start = core.hca_va = buffer_;
  core.length = 0x2000;
  core.pd_handle = pd_;
  const Done done =
      write<ib_uverbs_reg_mr, ib_uverbs_reg_mr_resp>(*context_, IB_USER_VERBS_CMD_REG_MR, core);
  EXPECT_EQ(done.error, kRepeat);
  EXPECT_EQ(done.share.size(), 1U);
}

TEST_F(MemoryRegions, TheTranslationTableLeadsToTheFirstByte) {
  const std::uint64_t start = buffer_ + 0x123;
  ASSERT_EQ(reg(start, 100'000, IB_UVERBS_ACCESS_LOCAL_WRITE), 0);
  const auto& in = fake_->seen(CommandOpcode::create_mkey).back();
  const std::uint8_t* const key = in.data() + prm::CreateMkeyInput::memory_key_mkey_entry::offset;
  const std::uint64_t page = 1ULL << prm::MkeyContext::log_page_size::get(key);
  EXPECT_EQ(prm::MkeyContext::start_addr::get(key), start);
  EXPECT_EQ(prm::MkeyContext::len::get(key), 100'000U);
  const std::uint64_t first =
      prm::MttEntry::ptag::get(in.data() + prm::CreateMkeyInput::klm_pas_mtt_offset) & ~4095ULL;
  EXPECT_EQ(first % page, 0U) << "a page of the table is aligned to its size";
  EXPECT_LE((in.size() - prm::CreateMkeyInput::size) / 8, 2U) << "one or two entries are enough";
  EXPECT_EQ((first + start % page) % 4096, start % 4096);
}

/// Address at which the device finds address `va` of the key made last.
std::uint64_t translated(FakeDevice& device, std::uint64_t va) {
  const auto& in = device.seen(CommandOpcode::create_mkey).back();
  const std::uint8_t* const key = in.data() + prm::CreateMkeyInput::memory_key_mkey_entry::offset;
  const std::uint64_t page = 1ULL << prm::MkeyContext::log_page_size::get(key);
  const std::uint64_t start = prm::MkeyContext::start_addr::get(key);
  const std::uint64_t entry = (va - (start & ~(page - 1))) / page;
  const std::uint8_t* const table = in.data() + prm::CreateMkeyInput::klm_pas_mtt_offset;
  return (prm::MttEntry::ptag::get(table + entry * 8) & ~4095ULL) + va % page;
}

TEST_F(MemoryRegions, AddressesOfAZeroBasedOneLeadIntoItsMemoryAlone) {
  constexpr std::uint32_t access = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_ZERO_BASED;
  for (std::uint64_t pages = 1; pages < 16; ++pages) {
    const std::uint64_t start = buffer_ + pages * 4096;
    ASSERT_EQ(reg(start, 5 * 4096, access), 0);
    const std::uint64_t first = translated(*fake_, 0);
    EXPECT_TRUE(fake_->is_mapped(first));
    EXPECT_FALSE(fake_->is_mapped(first - 1));
    EXPECT_TRUE(fake_->is_mapped(translated(*fake_, 5 * 4096 - 1)));
    EXPECT_EQ(translated(*fake_, 5 * 4096 - 1), first + 5 * 4096 - 1);
  }
  EXPECT_EQ(reg(buffer_ + 8, 4096, access), EOPNOTSUPP) << "no page begins where it begins";
}

TEST_F(MemoryRegions, ReregistrationMayMakeOneZeroBased) {
  const std::uint64_t start = buffer_ + 3 * 4096;
  const auto made = make_mr(*context_, pd_, start, 5 * 4096, IB_UVERBS_ACCESS_LOCAL_WRITE)
                        .as<ib_uverbs_reg_mr_resp>();
  ib_uverbs_rereg_mr core{};
  core.mr_handle = made.mr_handle;
  core.flags = 4;
  core.access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_ZERO_BASED;
  ASSERT_EQ((write_sharing<ib_uverbs_rereg_mr, ib_uverbs_rereg_mr_resp>(
                 *context_, IB_USER_VERBS_CMD_REREG_MR, core))
                .error,
            0);
  const std::uint64_t first = translated(*fake_, 0);
  EXPECT_TRUE(fake_->is_mapped(first));
  EXPECT_FALSE(fake_->is_mapped(first - 1));
}

TEST_F(MemoryRegions, ReregistrationGivesNewKeysAndKeepsTheOldOnesIfItFails) {
  const auto made = make_mr(*context_, pd_, buffer_, 4096, 0).as<ib_uverbs_reg_mr_resp>();
  ib_uverbs_rereg_mr request{};
  ib_uverbs_rereg_mr& core = request;  // Clang captures no structure with a flexible array member.
  core.mr_handle = made.mr_handle;
  core.flags = 1;
  core.start = 0x1000;
  core.hca_va = 0x1000;
  core.length = 4096;
  const auto again = [&] {
    return write_sharing<ib_uverbs_rereg_mr, ib_uverbs_rereg_mr_resp>(
        *context_, IB_USER_VERBS_CMD_REREG_MR, core);
  };
  EXPECT_EQ(again().error, EFAULT);
  EXPECT_EQ(fake_->live(CommandOpcode::create_mkey), 1U);
  core.start = buffer_ + 4096;
  core.hca_va = core.start;
  const Done done = again();
  EXPECT_EQ(done.error, 0);
  EXPECT_NE(done.as<ib_uverbs_rereg_mr_resp>().lkey, made.lkey);
  EXPECT_EQ(fake_->live(CommandOpcode::create_mkey), 1U);
  core.flags = 0;
  EXPECT_EQ(again().error, EINVAL);
  core.flags = 8;
  EXPECT_EQ(again().error, EOPNOTSUPP);
}

/// A child of fork() that waits until it is destroyed, and its memory.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0) {
      while (true) ::pause();
    }
    const std::string path = "/proc/" + std::to_string(pid_) + "/mem";
    memory_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::optional<ClientMemory> memory() const {
    return ClientMemory::identify(runtime::UniqueFd(::dup(memory_.get())));
  }

 private:
  pid_t pid_;
  runtime::UniqueFd memory_;
};

TEST_F(MemoryRegions, AForkedChildRegistersItsOwnMemory) {
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const auto address = reinterpret_cast<std::uint64_t>(page);
  const Child child;
  ::munmap(page, 4096);  // From now on only the child has it.
  ib_uverbs_reg_mr request{};
  ib_uverbs_reg_mr& core = request;
  core.start = address;
  core.hca_va = address;
  core.length = 4096;
  core.pd_handle = pd_;
  core.access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE;
  const auto reg_from = [&](std::optional<ClientMemory> memory, Sharing sharing) {
    Call call;
    call.sharing = sharing;
    call.core = std::as_bytes(std::span(&core, 1));
    call.core_out = {1, sizeof(ib_uverbs_reg_mr_resp)};
    call.own_memory = std::move(memory);
    return run_write_command(*context_, call, IB_USER_VERBS_CMD_REG_MR);
  };
  EXPECT_EQ(reg_from(std::nullopt, Sharing::not_asked), EFAULT) << "the opener has nothing there";
  EXPECT_EQ(reg_from(child.memory(), Sharing::not_asked), kRepeat);
  EXPECT_EQ(reg_from(child.memory(), Sharing::refused), 0);
}

TEST_F(MemoryRegions, ANewAccessKeepsTheMemoryOfTheRegistration) {
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto address = reinterpret_cast<std::uint64_t>(page);
  pieces_ = {{address, 4096, kBufferOffset}};
  const auto made = make_mr(*context_, pd_, address, 4096, IB_UVERBS_ACCESS_LOCAL_WRITE)
                        .as<ib_uverbs_reg_mr_resp>();
  ::munmap(page, 4096);  // The pages stay the device's, as pinned ones do.
  const std::size_t maps = fake_->maps();
  ib_uverbs_rereg_mr core{};
  core.mr_handle = made.mr_handle;
  core.flags = 4;
  core.access_flags = IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE;
  EXPECT_EQ((write_sharing<ib_uverbs_rereg_mr, ib_uverbs_rereg_mr_resp>(
                 *context_, IB_USER_VERBS_CMD_REREG_MR, core))
                .error,
            0);
  EXPECT_EQ(fake_->maps(), maps);
  EXPECT_EQ(fake_->live(CommandOpcode::create_mkey), 1U);
}

TEST_F(Objects, CqCreationChecksWhatTheLibrarySends) {
  EXPECT_EQ(make_cq(*context_, 1U << 23).error, EINVAL);
  const std::uint32_t right = uar_;
  uar_ = right + 1;
  EXPECT_EQ(make_cq(*context_, 10).error, EINVAL) << "a UAR of someone else";
  uar_ = right;
  ib_uverbs_create_cq core{};
  core.cqe = 10;
  core.comp_channel = -1;
  core.comp_vector = kCompletionVectors;
  mlx5_ib_create_cq driver{};
  EXPECT_EQ((write<ib_uverbs_create_cq, ib_uverbs_create_cq_resp>(
                 *context_, IB_USER_VERBS_CMD_CREATE_CQ, core, &driver, 8))
                .error,
            EINVAL);
}

TEST_F(Objects, QpCommandsCarryWhatTheKernelWouldSet) {
  const std::uint32_t pd = make_pd(*context_);
  const std::uint32_t cq = make_cq(*context_, 10).as<ib_uverbs_create_cq_resp>().cq_handle;
  const Done qp = make_qp(*context_, pd, cq);
  ASSERT_EQ(qp.error, 0);
  const auto& in = fake_->seen(CommandOpcode::create_qp).back();
  const std::uint8_t* const qpc = in.data() + prm::CreateQpInput::qpc::offset;
  EXPECT_EQ(prm::QpContext::pd::get(qpc), pd);
  EXPECT_EQ(prm::QpContext::cqn_snd::get(qpc), cq);
  EXPECT_EQ(prm::QpContext::log_sq_size::get(qpc), 4U);
  EXPECT_EQ(prm::QpContext::log_rq_size::get(qpc), 4U);
  EXPECT_EQ(prm::QpContext::log_rq_stride::get(qpc), 0U);
  EXPECT_EQ(prm::QpContext::uar_page::get(qpc), uar_);
  EXPECT_EQ(prm::QpContext::pm_state::get(qpc), 3U);

  ib_uverbs_modify_qp modify{};
  modify.qp_handle = qp.as<ib_uverbs_create_qp_resp>().qp_handle;
  modify.attr_mask = 1 | 1 << 3 | 1 << 4 | 1 << 5;
  modify.qp_state = 1;
  modify.port_num = 1;
  EXPECT_EQ(
      write(*context_, IB_USER_VERBS_CMD_MODIFY_QP, std::as_bytes(std::span(&modify, 1)), 0).error,
      0);
  EXPECT_EQ(fake_->count(CommandOpcode::rst2init_qp), 1U);
  modify.port_num = 2;
  EXPECT_EQ(
      write(*context_, IB_USER_VERBS_CMD_MODIFY_QP, std::as_bytes(std::span(&modify, 1)), 0).error,
      EINVAL);
}

}  // namespace
}  // namespace softhca::shim::test
