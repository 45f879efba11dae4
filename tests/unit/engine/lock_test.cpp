// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/runtime/lock.h"

#include <cerrno>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/engine/runtime_folder.h"

namespace softhca::runtime {
namespace {

using test::RuntimeFolder;

TEST(FileLock, has_one_holder) {
  const RuntimeFolder folder;
  const std::string path = folder.path() + "/lock";
  EXPECT_FALSE(FileLock::is_held(path));
  auto first = FileLock::try_acquire(path);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_TRUE(FileLock::is_held(path));
  auto second = FileLock::try_acquire(path);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, EWOULDBLOCK);
}

TEST(FileLock, is_waited_for) {
  const RuntimeFolder folder;
  const std::string path = folder.path() + "/lock";
  auto first = std::make_unique<Result<FileLock>>(FileLock::try_acquire(path));
  ASSERT_TRUE(*first);
  std::thread holder([&first] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    first.reset();
  });
  EXPECT_TRUE(FileLock::acquire(path, std::chrono::seconds(10)));
  holder.join();
}

TEST(FileLock, is_free_as_soon_as_its_holder_is_killed) {
  const RuntimeFolder folder;
  const std::string path = folder.path() + "/lock";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = FileLock::try_acquire(path);
    [[maybe_unused]] const ssize_t written = ::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(FileLock::try_acquire(path));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(FileLock::try_acquire(path));
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace softhca::runtime
