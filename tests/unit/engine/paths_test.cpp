// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/runtime/paths.h"

#include <cerrno>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/engine/runtime_folder.h"

namespace softhca::runtime {
namespace {

using test::RuntimeFolder;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Names, that_could_leave_their_folder_are_refused) {
  for (const char* name : {"", ".", "..", ".hidden", "-f", "a/b", "a b", "a\n", "ä"}) {
    EXPECT_FALSE(is_valid_name(name)) << name;
  }
  EXPECT_FALSE(is_valid_name(std::string(65, 'a')));
}

TEST(Names, of_letters_digits_and_inner_punctuation_are_accepted) {
  for (const char* name : {"a", "host", "node-01.rack_2", "_x", "0"}) {
    EXPECT_TRUE(is_valid_name(name)) << name;
  }
  EXPECT_TRUE(is_valid_name(std::string(64, 'a')));
}

TEST(RuntimeRoot, falls_back_from_own_variable_to_xdg_to_tmp) {
  const RuntimeFolder folder;
  EXPECT_EQ(root_folder(), folder.path());

  ::unsetenv("SOFTHCA_RUNTIME_DIR");
  ::setenv("XDG_RUNTIME_DIR", folder.path().c_str(), 1);
  EXPECT_EQ(root_folder(), folder.path() + "/softhca");

  ::setenv("XDG_RUNTIME_DIR", "/nonexistent/softhca-test", 1);
  EXPECT_EQ(root_folder(), "/tmp/softhca-" + std::to_string(::geteuid()))
      << "a session's folder that is not there must not be used";
  ::unsetenv("XDG_RUNTIME_DIR");
}

TEST(PrivateFolders, are_made_with_mode_0700_down_from_the_root) {
  const RuntimeFolder folder;
  ::setenv("SOFTHCA_RUNTIME_DIR", (folder.path() + "/new/root").c_str(), 1);
  const auto paths = make_host_folder("fabric", "alpha");
  ASSERT_TRUE(paths) << paths.error().message;
  const std::string root = folder.path() + "/new/root";
  EXPECT_EQ(paths.value().folder, root + "/fabric/hosts/alpha");
  for (const std::string& made :
       {root, root + "/fabric", root + "/fabric/hosts", paths.value().folder}) {
    struct stat status {};
    ASSERT_EQ(::stat(made.c_str(), &status), 0) << made;
    EXPECT_EQ(status.st_mode & 0777U, 0700U) << made;
  }
  EXPECT_TRUE(make_host_folder("fabric", "alpha")) << "a folder that is there already is fine";
  EXPECT_THAT(known_fabrics(), ElementsAre("fabric"));
  EXPECT_THAT(known_hosts("fabric"), ElementsAre("alpha"));
}

TEST(PrivateFolders, that_others_may_enter_are_refused) {
  const RuntimeFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  const auto paths = make_fabric_folder("fabric");
  ASSERT_FALSE(paths);
  EXPECT_EQ(paths.error().code, EPERM);
  EXPECT_THAT(paths.error().message, HasSubstr("chmod 700 " + folder.path()));
}

TEST(PrivateFolders, that_are_symbolic_links_are_refused) {
  const RuntimeFolder folder;
  std::filesystem::create_symlink("/tmp", folder.path() + "/fabric");
  const auto paths = make_fabric_folder("fabric");
  ASSERT_FALSE(paths);
  EXPECT_EQ(paths.error().code, ENOTDIR);
}

TEST(PrivateFolders, of_another_user_are_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to make a folder of another user";
  const RuntimeFolder folder;
  ASSERT_TRUE(make_fabric_folder("fabric"));
  ASSERT_EQ(::chown((folder.path() + "/fabric").c_str(), 65534, 65534), 0);
  const auto paths = make_fabric_folder("fabric");
  ASSERT_FALSE(paths);
  EXPECT_EQ(paths.error().code, EPERM);
}

}  // namespace
}  // namespace softhca::runtime
