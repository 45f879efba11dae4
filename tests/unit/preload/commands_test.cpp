// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_device.h"

namespace softhca::shim::test {
namespace {

/// Not mapped, and not null.
void* bad_pointer() {
  static void* const address = [] {
    void* mapped = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mapped;
  }();
  return address;
}

/// Exit status of `run` in a child.
template <typename Run>
int in_child(Run run) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(CommandDescriptor, LooksLikeTheCharacterDeviceOfSysfs) {
  const Device device;
  ASSERT_GE(device.fd(), 0);
  struct stat status {};
  ASSERT_EQ(::fstat(device.fd(), &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_EQ(status.st_rdev, makedev(kRdevMajor, kRdevMinor));
  EXPECT_NE(::fcntl(device.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(CommandDescriptor, OpeningADeviceThatIsNotThereFails) {
  EXPECT_EQ(::open("/dev/infiniband/uverbs7", O_RDWR), -1);
  EXPECT_EQ(errno, ENXIO);
}

TEST(CommandDescriptor, IsRecognisedAfterDupForkAndExec) {
  const Device device(O_RDWR);
  const int copy = ::dup(device.fd());
  EXPECT_TRUE(echoes(copy));
  EXPECT_EQ(in_child([&] { return echoes(copy) ? 0 : 1; }), 0);
  EXPECT_EQ(in_child([&] {
              const std::string number = std::to_string(copy);
              ::execl("/proc/self/exe", "test", "--use-inherited", number.c_str(), nullptr);
              return 127;
            }),
            0);
  ::close(copy);
}

TEST(CommandDescriptor, IsRecognisedWhenPassedOverASocket) {
  const Device device;
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof(int))] = {};
  char byte = 0;
  iovec piece{&byte, 1};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int sent = device.fd();
  std::memcpy(CMSG_DATA(rights), &sent, sizeof(sent));
  ASSERT_EQ(::sendmsg(ends[0], &message, 0), 1);
  ASSERT_EQ(::recvmsg(ends[1], &message, 0), 1);
  int received = -1;
  std::memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(received));
  struct stat status {};
  ASSERT_EQ(::fstat(received, &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_TRUE(echoes(received));
  ::close(received);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(CommandDescriptor, ANumberUsedAgainForSomethingElseIsNotOurs) {
  int number = -1;
  {
    const Device device;
    number = device.fd();
  }
  const int file = ::memfd_create("other", 0);
  ASSERT_EQ(file, number);  // The lowest free one.
  EXPECT_EQ(::write(file, "0123456789abcdef", 16), 16);
  ::close(file);
}

TEST(Ioctl, InputsAndOutputsAreCarried) {
  const Device device;
  const char sent[16] = "sixteen bytes..";
  char got[16] = {};
  FakeCall call(kEcho);
  call.pointer(sent, sizeof(sent)).pointer(got, sizeof(got));
  ASSERT_EQ(call.run(device.fd()), 0);
  EXPECT_STREQ(got, sent);
  EXPECT_EQ(call.attribute(1).flags & preload::kValidOutput, preload::kValidOutput);
  EXPECT_EQ(call.attribute(0).flags & preload::kValidOutput, 0);
}

TEST(Ioctl, AnOutputIsNeverLongerThanItsAttribute) {
  const Device device;
  const char sent[24] = "twenty-four bytes......";
  char got[24] = "unchanged unchanged....";
  FakeCall call(kEcho);
  call.pointer(sent, sizeof(sent)).pointer(got, 9);
  ASSERT_EQ(call.run(device.fd()), 0);
  EXPECT_EQ(std::string(got, 12), "twenty-fo un");
}

TEST(Ioctl, LargeOutputsArrive) {
  const Device device;
  std::vector<unsigned char> got(60000);
  FakeCall call(kHugeOutput);
  call.pointer(got.data(), got.size());
  ASSERT_EQ(call.run(device.fd()), 0);
  EXPECT_EQ(got, std::vector<unsigned char>(60000, kHugeByte));
}

TEST(Ioctl, HandlesAndDescriptorsAreStoredInTheAttribute) {
  const Device device;
  FakeCall handle(kNewHandle);
  handle.empty();
  ASSERT_EQ(handle.run(device.fd()), 0);
  EXPECT_EQ(handle.attribute(0).data, kHandle);

  FakeCall descriptor(kNewDescriptor);
  descriptor.empty();
  ASSERT_EQ(descriptor.run(device.fd()), 0);
  const int fd = static_cast<int>(descriptor.attribute(0).data);
  char text[3] = {};
  EXPECT_EQ(::read(fd, text, 2), 2);
  EXPECT_STREQ(text, "hi");
  EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  ::close(fd);
}

TEST(Ioctl, DescriptorInputsReachTheDaemon) {
  const Device device;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  FakeCall create_cq(0, 3);
  create_cq.value(0).value(0).value(0).empty(static_cast<std::uint64_t>(ends[1]));
  EXPECT_EQ(create_cq.run(device.fd()), 0);
  char byte = 0;
  EXPECT_EQ(::read(ends[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
  ::close(ends[0]);
  ::close(ends[1]);

  FakeCall closed(0, 3);
  closed.value(0).value(0).value(0).empty(static_cast<std::uint64_t>(ends[1]));
  EXPECT_EQ(closed.run(device.fd()), -1);
  EXPECT_EQ(errno, EBADF);
}

TEST(Ioctl, ErrorsOfTheDaemonAreTheCallers) {
  const Device device;
  FakeCall call(kFailBusy);
  call.empty();
  EXPECT_EQ(call.run(device.fd()), -1);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(::ioctl(device.fd(), _IO(0x1b, 77)), -1);
  EXPECT_EQ(errno, ENOTTY);
}

TEST(Ioctl, BadPointersAreEfaultAndNotACrash) {
  const Device device;
  EXPECT_EQ(::ioctl(device.fd(), preload::kVerbsIoctl, bad_pointer()), -1);
  EXPECT_EQ(errno, EFAULT);
  char buffer[16] = {};
  FakeCall input(kEcho);
  input.pointer(bad_pointer(), 16).pointer(buffer, sizeof(buffer));
  EXPECT_EQ(input.run(device.fd()), -1);
  EXPECT_EQ(errno, EFAULT);
  FakeCall output(kReadMemory);
  output.value(reinterpret_cast<std::uint64_t>(buffer)).pointer(bad_pointer(), 8);
  EXPECT_EQ(output.run(device.fd()), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_TRUE(echoes(device.fd()));
}

TEST(Ioctl, ReadOnlyOutputsAreEfault) {
  const Device device;
  void* page = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const std::uint64_t value = 5;
  FakeCall call(kReadMemory);
  call.value(reinterpret_cast<std::uint64_t>(&value)).pointer(page, 8);
  EXPECT_EQ(call.run(device.fd()), -1);
  EXPECT_EQ(errno, EFAULT);
  ::munmap(page, 4096);
}

TEST(Ioctl, AWrongLengthIsEinval) {
  const Device device;
  FakeCall call(kFailBusy);
  call.empty();
  call.header().length += 8;
  EXPECT_EQ(call.run(device.fd()), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Ioctl, TheDaemonReadsMemoryThroughTheDescriptorOfHello) {
  const Device device;
  const std::uint64_t value = 0xfeedface;
  std::uint64_t got = 0;
  FakeCall call(kReadMemory);
  call.value(reinterpret_cast<std::uint64_t>(&value)).pointer(&got, sizeof(got));
  ASSERT_EQ(call.run(device.fd()), 0);
  EXPECT_EQ(got, value);
}

TEST(Ioctl, AddressesAreOfTheProcessThatCalls) {
  const Device device;
  volatile std::uint64_t value = 1;
  const auto read_by_daemon = [&](std::uint64_t& got) {
    FakeCall call(kReadMemory);
    call.value(reinterpret_cast<std::uint64_t>(&value)).pointer(&got, sizeof(got));
    return call.run(device.fd());
  };
  EXPECT_EQ(in_child([&] {
              value = 2;
              std::uint64_t got = 0;
              return read_by_daemon(got) == 0 ? static_cast<int>(got) : 100;
            }),
            2);
  std::uint64_t got = 0;
  ASSERT_EQ(read_by_daemon(got), 0);
  EXPECT_EQ(got, 1U);
}

TEST(Ioctl, ManyThreadsUseOneDescriptorAtOnce) {
  const Device device;
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 100; ++n) failures += echoes(device.fd()) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

TEST(CommandDescriptor, AnAnswerThatComesLateIsWaitedFor) {
  const Device device;
  EXPECT_TRUE(echoes(device.fd(), kLateEcho));
  EXPECT_TRUE(echoes(device.fd()));
  EXPECT_TRUE(echoes(device.fd(), kLateEcho));
}

TEST(Ioctl, ADeadDaemonIsEioAndNeverAWait) {
  const Device device;
  FakeCall call(kDie);
  call.empty();
  EXPECT_EQ(call.run(device.fd()), -1);
  EXPECT_EQ(errno, EIO);
  FakeCall again(kNewHandle);
  again.empty();
  EXPECT_EQ(again.run(device.fd()), -1);
  EXPECT_EQ(errno, EIO);
}

TEST(Ioctl, WorksWithANonBlockingDescriptor) {
  const Device device(O_RDWR | O_CLOEXEC | O_NONBLOCK);
  EXPECT_TRUE(echoes(device.fd(), kSlowEcho));
}

TEST(Ioctl, WorksWhenTheApplicationHasUsedUpItsDescriptors) {
  EXPECT_EQ(in_child([] {
              const Device device;
              if (!echoes(device.fd())) return 1;
              const rlimit limit{static_cast<rlim_t>(device.fd()) + 1, 1024};
              ::setrlimit(RLIMIT_NOFILE, &limit);
              if (::dup(0) >= 0 || errno != EMFILE) return 2;
              for (int i = 0; i < 3; ++i) {
                if (!echoes(device.fd())) return 3;
              }
              FakeCall descriptor(kNewDescriptor);
              descriptor.empty();
              if (descriptor.run(device.fd()) == 0 || errno != EMFILE) return 4;
              return echoes(device.fd()) ? 0 : 5;
            }),
            0);
}

TEST(WriteForm, ResponsesAreStoredWhereTheCommandSays) {
  const Device device;
  std::uint64_t response = 0;
  struct {
    std::uint32_t command = 3;
    std::uint16_t in_words = 4;
    std::uint16_t out_words = 2;
    std::uint64_t response = 0;
  } command;
  command.response = reinterpret_cast<std::uint64_t>(&response);
  EXPECT_EQ(::write(device.fd(), &command, sizeof(command)), static_cast<ssize_t>(sizeof(command)));
  EXPECT_EQ(response, kHandle);
  EXPECT_EQ(::write(device.fd(), bad_pointer(), 16), -1);
  EXPECT_EQ(errno, EFAULT);
  command.response = reinterpret_cast<std::uint64_t>(bad_pointer());
  EXPECT_EQ(::write(device.fd(), &command, sizeof(command)), -1);
  EXPECT_EQ(errno, EFAULT);
}

TEST(Mmap, OfADeviceOffsetMapsWhatTheDaemonGives) {
  const Device device;
  void* mapped = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, device.fd(), 3 * 4096);
  ASSERT_NE(mapped, MAP_FAILED);
  EXPECT_EQ(*static_cast<std::uint64_t*>(mapped), 3U * 4096);
  ::munmap(mapped, 4096);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, ends[0], 0), MAP_FAILED);
  EXPECT_EQ(errno, ENODEV);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Netlink, TheRdmaProtocolIsNotSupported) {
  EXPECT_EQ(::socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
}

}  // namespace
}  // namespace softhca::shim::test
