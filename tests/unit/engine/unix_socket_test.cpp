// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/runtime/unix_socket.h"

#include <cerrno>
#include <filesystem>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/engine/runtime_folder.h"

namespace softhca::runtime {
namespace {

using test::RuntimeFolder;

TEST(UnixSockets, work_with_paths_longer_than_a_socket_address) {
  const RuntimeFolder folder;
  const std::string deep =
      folder.path() + "/" + std::string(100, 'd') + "/" + std::string(100, 'e');
  std::filesystem::create_directories(deep);
  const std::string path = deep + "/kernel.sock";
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    auto listening = listen_unix(path, type);
    ASSERT_TRUE(listening) << listening.error().message;
    auto client = connect_unix(path, type);
    ASSERT_TRUE(client) << client.error().message;
    EXPECT_EQ(peer_pid(client->get()), ::getpid());
    EXPECT_TRUE(peer_is_trusted(client->get()));
  }
}

TEST(UnixSockets, are_readable_by_their_owner_alone) {
  const RuntimeFolder folder;
  const std::string path = folder.path() + "/socket";
  auto listening = listen_unix(path, SOCK_STREAM);
  ASSERT_TRUE(listening);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST(UnixSockets, of_a_dead_server_are_refused_to_clients_and_replaced_by_the_next_server) {
  const RuntimeFolder folder;
  const std::string path = folder.path() + "/socket";
  auto first = listen_unix(path, SOCK_STREAM);
  ASSERT_TRUE(first);
  first->reset();

  auto client = connect_unix(path, SOCK_STREAM);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, ECONNREFUSED);

  auto second = listen_unix(path, SOCK_STREAM);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(connect_unix(path, SOCK_STREAM));
}

TEST(UnixSockets, that_do_not_exist_are_told_apart_from_dead_ones) {
  const RuntimeFolder folder;
  auto client = connect_unix(folder.path() + "/none", SOCK_STREAM);
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code, ENOENT);
}

}  // namespace
}  // namespace softhca::runtime
