// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// Regions that are deregistered without the daemon, and registered again. The test is the device:
/// at rest, unless it says otherwise.

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_device.h"
#include "fake_regions.h"
#include "hw-model/runtime/doorbell_hints.h"
#include "hw-model/runtime/mkey_state.h"
#include "registered_region.h"

namespace softhca::shim::test {
namespace {

using preload::RegistrationAnswer;
using preload::RegistrationCommand;

constexpr std::size_t kSize = 16 * kPage;
constexpr std::uint32_t kLocalWrite = 1;
constexpr std::uint32_t kPd = 7;

/// ib_uverbs_cmd_hdr and a command.
template <typename Command>
int write_command(int fd, std::uint32_t number, const Command& command, std::size_t out = 0) {
  struct {
    std::uint32_t number;
    std::uint16_t in_words;
    std::uint16_t out_words;
    unsigned char command[sizeof(Command)];
  } call;
  call.number = number;
  call.in_words = sizeof(call) / 4;
  call.out_words = static_cast<std::uint16_t>(out / 4);
  std::memcpy(call.command, &command, sizeof(command));
  return ::write(fd, &call, sizeof(call)) == sizeof(call) ? 0 : errno;
}

class ParkedRegions : public ::testing::Test {
 protected:
  ParkedRegions() : memory_(map_pages(kSize / kPage)) {
    std::memset(memory_, 1, kSize);
    // A context has records once a registration follows a deregistration.
    EXPECT_EQ(deregister(register_memory()), 0);
    EXPECT_EQ(deregister(register_memory()), 0);
    page_ = static_cast<MkeyStatePage*>(
        ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd(), kMkeyStatesMmapOffset));
    EXPECT_NE(static_cast<void*>(page_), MAP_FAILED);
    page_->at_rest = 1;
    before_ = counts();
  }
  ~ParkedRegions() override {
    ::munmap(page_, kPage);
    if (memory_ != nullptr) ::munmap(memory_, kSize);
  }

  int fd() const { return device_->fd(); }

  RegistrationCommand command(void* start, std::size_t length = kSize,
                              std::uint32_t pd = kPd) const {
    RegistrationCommand command{};
    command.start = command.hca_va = reinterpret_cast<std::uint64_t>(start);
    command.length = length;
    command.pd_handle = pd;
    command.access_flags = kLocalWrite;
    return command;
  }
  RegistrationAnswer register_memory(RegistrationCommand command) const {
    RegistrationAnswer answer{};
    command.response = reinterpret_cast<std::uint64_t>(&answer);
    error_ = write_command(fd(), RegistrationCommand::kNumber, command, sizeof(answer));
    EXPECT_EQ(error_, 0);
    return answer;
  }
  RegistrationAnswer register_memory() const { return register_memory(command(memory_)); }
  int deregister(std::uint32_t handle) const { return write_command(fd(), kDeregMr, handle); }
  int deregister(const RegistrationAnswer& region) const { return deregister(region.mr_handle); }
  int end_domain(std::uint32_t pd) const { return write_command(fd(), kDeallocPd, pd); }

  RegionCounts counts() const {
    RegionCounts counts;
    FakeCall call(kRegions);
    call.pointer(&counts, sizeof(counts));
    EXPECT_EQ(call.run(fd()), 0);
    return counts;
  }
  /// What the daemon was asked since the fixture was made.
  std::uint64_t registrations() const { return counts().registrations - before_.registrations; }
  std::uint64_t deregistrations() const {
    return counts().deregistrations - before_.deregistrations;
  }
  /// The state without the number of the change.
  std::uint32_t wanted(std::uint64_t record) const {
    return __builtin_bswap32(page_->records[record - 1].wanted) & 0xffff;
  }

  std::unique_ptr<Device> device_ = std::make_unique<Device>();
  char* memory_;
  MkeyStatePage* page_ = nullptr;
  RegionCounts before_;
  mutable int error_ = 0;
};

TEST_F(ParkedRegions, TheSameMemoryIsRegisteredAgainWithoutTheDaemon) {
  const RegistrationAnswer first = register_memory();
  const std::uint64_t record = counts().last_record;
  ASSERT_NE(record, 0U);
  EXPECT_EQ(wanted(record), kMkeyAsCreated);
  ASSERT_EQ(deregister(first), 0);
  EXPECT_EQ(wanted(record), kMkeyRevoked | (first.lkey & 0xff));
  const RegistrationAnswer second = register_memory();
  EXPECT_EQ(second.mr_handle, first.mr_handle);
  EXPECT_EQ(second.lkey >> 8, first.lkey >> 8);
  EXPECT_NE(second.lkey, first.lkey) << "who has the old key must not have this one";
  EXPECT_EQ(second.rkey, second.lkey);
  EXPECT_EQ(wanted(record), kMkeyUsable | (second.lkey & 0xff));
  ASSERT_EQ(deregister(second), 0);
  EXPECT_EQ(registrations(), 1U);
  EXPECT_EQ(deregistrations(), 0U);
  EXPECT_EQ(deregister(second), ENOENT) << "the application has no such region";
}

TEST_F(ParkedRegions, TheIoctlFormsDoTheSame) {
  const RegistrationAnswer first = register_memory();
  FakeCall destroy(UVERBS_METHOD_MR_DESTROY, UVERBS_OBJECT_MR);
  destroy.empty(first.mr_handle);
  ASSERT_EQ(destroy.run(fd()), 0);
  RegistrationCommand again = command(memory_);
  RegistrationAnswer answer{};
  FakeCall call(UVERBS_METHOD_INVOKE_WRITE, UVERBS_OBJECT_DEVICE);
  call.pointer(&again, sizeof(again)).pointer(&answer, sizeof(answer));
  call.value(RegistrationCommand::kNumber);
  ASSERT_EQ(call.run(fd()), 0);
  EXPECT_EQ(answer.mr_handle, first.mr_handle);
  EXPECT_NE(answer.lkey, first.lkey);
  EXPECT_NE(call.attribute(1).flags & preload::kValidOutput, 0);
  EXPECT_EQ(registrations(), 1U);
}

TEST_F(ParkedRegions, NoKeyComesBack) {
  std::set<std::uint32_t> keys;
  for (int round = 0; round < 600; ++round) {
    const RegistrationAnswer region = register_memory();
    ASSERT_TRUE(keys.insert(region.rkey).second) << round;
    ASSERT_EQ(deregister(region), 0);
  }
  EXPECT_EQ(registrations(), 3U) << "as often as the names of a key were used up";
}

TEST_F(ParkedRegions, OtherRegistrationsAreNotAnsweredByIt) {
  const RegistrationAnswer first = register_memory();
  ASSERT_EQ(deregister(first), 0);
  RegistrationCommand shorter = command(memory_, kSize - 1);
  RegistrationCommand other_domain = command(memory_, kSize, kPd + 1);
  RegistrationCommand other_access = command(memory_);
  other_access.access_flags |= 4;
  RegistrationCommand other_address = command(memory_);
  other_address.hca_va += 1 << 20;
  for (const auto& each : {shorter, other_domain, other_access, other_address}) {
    EXPECT_NE(register_memory(each).mr_handle, first.mr_handle);
  }
  EXPECT_EQ(registrations(), 5U);
  EXPECT_EQ(register_memory().mr_handle, first.mr_handle);
}

TEST_F(ParkedRegions, ADeviceThatDoesNotAnswerIsLeftToTheDaemon) {
  const RegistrationAnswer first = register_memory();
  page_->at_rest = 0;
  ASSERT_EQ(deregister(first), 0);
  EXPECT_EQ(deregistrations(), 1U);
  page_->at_rest = 1;
  const RegistrationAnswer second = register_memory();
  EXPECT_EQ(registrations(), 2U);
  ASSERT_EQ(deregister(second), 0);
  page_->at_rest = 0;
  const RegistrationAnswer third = register_memory();
  EXPECT_NE(third.mr_handle, second.mr_handle);
  EXPECT_EQ(registrations(), 3U);
  EXPECT_EQ(deregistrations(), 2U) << "the one that was parked is ended";
}

TEST_F(ParkedRegions, ADeviceThatIsAwakeAnswersInTheRecord) {
  constexpr int kRounds = 500;
  page_->at_rest = 0;
  auto* const hints = static_cast<DoorbellHints*>(::mmap(
      nullptr, kDoorbellHintsSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd(), kHintsMmapOffset));
  ASSERT_NE(static_cast<void*>(hints), MAP_FAILED);
  std::atomic<bool> stop = false;
  std::thread engine([&] {
    while (!stop) {
      hints->engine_processor = static_cast<std::uint32_t>(::sched_getcpu() + 1);
      if (!hints->take_mkey_states()) continue;
      for (MkeyStateRecord& record : page_->records) record.seen = record.wanted.load();
    }
  });
  int done = 0;
  for (int round = 0; round < kRounds; ++round) {
    done += deregister(register_memory()) == 0 ? 1 : 0;
  }
  stop = true;
  engine.join();
  EXPECT_EQ(done, kRounds);
  EXPECT_LT(registrations(), kRounds) << "never in time";
  ::munmap(hints, kDoorbellHintsSize);
}

TEST_F(ParkedRegions, UnmappingEndsThem) {
  ASSERT_EQ(deregister(register_memory()), 0);
  char* const elsewhere = map_pages(1);
  ::munmap(elsewhere, kPage);
  EXPECT_EQ(deregistrations(), 0U);
  ::munmap(memory_ + kSize - kPage, kPage);
  EXPECT_EQ(deregistrations(), 1U);
}

TEST_F(ParkedRegions, MemoryPutInTheirPlaceEndsThem) {
  ASSERT_EQ(deregister(register_memory()), 0);
  ASSERT_NE(::mmap(memory_, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0),
            MAP_FAILED);
  EXPECT_EQ(deregistrations(), 1U);
  register_memory();
  EXPECT_EQ(registrations(), 2U);
}

TEST_F(ParkedRegions, DiscardingAndMovingEndsThem) {
  ASSERT_EQ(deregister(register_memory()), 0);
  ASSERT_EQ(::madvise(memory_, kSize, MADV_DONTNEED), 0);
  EXPECT_EQ(deregistrations(), 1U);
  ASSERT_EQ(deregister(register_memory()), 0);
  void* const moved = ::mremap(memory_, kSize, 2 * kSize, MREMAP_MAYMOVE);
  ASSERT_NE(moved, MAP_FAILED);
  EXPECT_EQ(deregistrations(), 2U);
  ::munmap(moved, 2 * kSize);
  memory_ = nullptr;
}

TEST_F(ParkedRegions, MemoryThatGoesUnseenIsNoticedByTheNextRegistration) {
  const RegistrationAnswer first = register_memory();
  ASSERT_EQ(deregister(first), 0);
  // As the C library does for itself.
  ::syscall(SYS_mmap, memory_, kSize, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  EXPECT_EQ(deregistrations(), 0U);
  EXPECT_NE(register_memory().mr_handle, first.mr_handle);
  EXPECT_EQ(registrations(), 2U);
  EXPECT_EQ(deregistrations(), 1U);
}

TEST_F(ParkedRegions, MemoryThatIsGoneBeforeIsNotParked) {
  const RegistrationAnswer region = register_memory();
  ::munmap(memory_, kSize);
  memory_ = nullptr;
  ASSERT_EQ(deregister(region), 0);
  EXPECT_EQ(deregistrations(), 1U);
}

TEST_F(ParkedRegions, MemoryThatMayNotBeWrittenIsLeftToTheDaemonToRefuse) {
  ASSERT_EQ(deregister(register_memory()), 0);
  ASSERT_EQ(::mprotect(memory_, kPage, PROT_READ), 0);
  register_memory();
  EXPECT_EQ(registrations(), 2U);
}

TEST_F(ParkedRegions, MemoryThatIsNotSharedIsNotParked) {
  alignas(kPage) char stack[kPage];
  std::memset(stack, 1, sizeof(stack));
  ASSERT_EQ(deregister(register_memory(command(stack, kPage))), 0);
  EXPECT_EQ(deregistrations(), 1U);
}

TEST_F(ParkedRegions, TheyAreNotInTheWayOfTheirDomainsEnd) {
  ASSERT_EQ(deregister(register_memory()), 0);
  ASSERT_EQ(deregister(register_memory(command(memory_, kPage, kPd + 1))), 0);
  EXPECT_EQ(end_domain(kPd), 0);
  EXPECT_EQ(deregistrations(), 1U) << "the other domain keeps its own";
  const RegistrationAnswer active = register_memory(command(memory_, kPage, kPd + 1));
  EXPECT_EQ(end_domain(kPd + 1), EBUSY);
  EXPECT_EQ(deregister(active), 0);
  EXPECT_EQ(end_domain(kPd + 1), 0);
}

TEST_F(ParkedRegions, TheyMakeRoomForARegistration) {
  std::vector<RegistrationAnswer> regions;
  // Others than the parked one.
  for (std::size_t i = 1; i < FakeRegions::kMost; ++i) {
    regions.push_back(register_memory(command(memory_, i)));
  }
  ASSERT_EQ(deregister(register_memory()), 0);
  register_memory(command(memory_, kPage, kPd + 1));
  EXPECT_EQ(deregistrations(), 1U);
  RegistrationCommand one_more = command(memory_, kPage, kPd + 2);
  RegistrationAnswer answer{};
  one_more.response = reinterpret_cast<std::uint64_t>(&answer);
  EXPECT_EQ(write_command(fd(), RegistrationCommand::kNumber, one_more, sizeof(answer)), ENOMEM);
}

TEST_F(ParkedRegions, TheOldestOfTooManyIsEnded) {
  constexpr std::size_t kMostParked = 16;
  std::vector<RegistrationAnswer> regions;
  for (std::size_t i = 1; i <= kMostParked + 1; ++i) {
    regions.push_back(register_memory(command(memory_, i)));
  }
  for (const RegistrationAnswer& region : regions) ASSERT_EQ(deregister(region), 0);
  EXPECT_EQ(deregistrations(), 1U);
  for (std::size_t i = kMostParked + 1; i > 1; --i) {
    EXPECT_EQ(register_memory(command(memory_, i)).mr_handle, regions[i - 1].mr_handle);
  }
  EXPECT_NE(register_memory(command(memory_, 1)).mr_handle, regions[0].mr_handle);
}

TEST_F(ParkedRegions, LargeOnesAreFewOrNone) {
  constexpr std::size_t kLarge = 16U << 20;
  char* const large = map_pages(5 * kLarge / kPage);
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(deregister(register_memory(command(large + i * kLarge, kLarge))), 0);
  }
  EXPECT_EQ(deregistrations(), 1U);
  ASSERT_EQ(deregister(register_memory(command(large, kLarge + kPage))), 0);
  EXPECT_EQ(deregistrations(), 2U);
  ::munmap(large, 5 * kLarge);
  EXPECT_EQ(deregistrations(), 6U);
}

TEST_F(ParkedRegions, AChildHasNone) {
  const RegistrationAnswer first = register_memory();
  ASSERT_EQ(deregister(first), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    // Neither its own unmapping nor its closing of the device is the parent's.
    ::munmap(memory_, kSize);
    const bool ended = deregistrations() != 0;
    ::_exit(ended ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(register_memory().mr_handle, first.mr_handle);
  EXPECT_EQ(registrations(), 1U);
}

TEST_F(ParkedRegions, AChildRegistersByTheDaemon) {
  const RegistrationAnswer first = register_memory();
  ASSERT_EQ(deregister(first), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RegistrationAnswer own = register_memory();
    const bool by_daemon = registrations() == 2 && own.mr_handle != first.mr_handle;
    const bool ended = deregister(own) == 0 && deregistrations() == 1;
    ::_exit(by_daemon && ended ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(ParkedRegions, ARegionThatWasChangedIsNotParked) {
  const RegistrationAnswer region = register_memory();
  struct {
    std::uint64_t response = 0;
    std::uint32_t handle = 0;
    std::uint32_t flags = 4;
  } change;
  change.handle = region.mr_handle;
  ASSERT_EQ(write_command(fd(), kReregMr, change), 0);
  ASSERT_EQ(deregister(region), 0);
  EXPECT_EQ(deregistrations(), 1U);
}

TEST_F(ParkedRegions, ADeviceThatIsOpenedAgainKnowsNothingOfThem) {
  ASSERT_EQ(deregister(register_memory()), 0);
  device_ = std::make_unique<Device>();
  EXPECT_EQ(counts().registrations, 0U);
  ASSERT_EQ(deregister(register_memory()), 0);
  EXPECT_EQ(counts().registrations, 1U);
  EXPECT_EQ(counts().deregistrations, 1U);
}

TEST_F(ParkedRegions, ACopyOfTheDescriptorIsTheSame) {
  const RegistrationAnswer first = register_memory();
  ASSERT_EQ(deregister(first), 0);
  const int copy = ::dup(fd());
  ::close(copy);
  EXPECT_EQ(register_memory().mr_handle, first.mr_handle);
}

TEST_F(ParkedRegions, ThreadsRegisterAtOnce) {
  constexpr int kThreads = 4;
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  std::vector<char*> memories;
  memories.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) memories.push_back(map_pages(kSize / kPage));
  threads.reserve(kThreads);
  for (char* memory : memories) {
    threads.emplace_back([&, memory] {
      std::uint32_t last = 0;
      for (int round = 0; round < 300; ++round) {
        const RegistrationAnswer region = register_memory(command(memory));
        if (region.rkey == last) ++failures;
        last = region.rkey;
        if (deregister(region) != 0) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_LT(registrations(), 20U);
  for (char* memory : memories) ::munmap(memory, kSize);
}

}  // namespace
}  // namespace softhca::shim::test
