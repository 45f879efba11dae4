// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/resource_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace softhca::provider {
namespace {

TEST(ResourceTable, FindsWhatWasInsertedUntilItIsErased) {
  ResourceTable table;
  std::vector<Resource> resources(10000);
  for (Resource& resource : resources) ASSERT_TRUE(table.insert(&resource).has_value());
  for (Resource& resource : resources) EXPECT_EQ(table.find(resource.user_index), &resource);
  table.erase(resources[5].user_index);
  EXPECT_EQ(table.find(resources[5].user_index), nullptr);
  EXPECT_EQ(table.find(resources[6].user_index), &resources[6]);
}

TEST(ResourceTable, UnknownIndexesNameNothing) {
  const ResourceTable table;
  EXPECT_EQ(table.find(0), nullptr);
  EXPECT_EQ(table.find(0xffffff), nullptr);
}

TEST(ResourceTable, AnIndexIsNotReusedAtOnce) {
  ResourceTable table;
  Resource first;
  Resource second;
  const std::uint32_t index = *table.insert(&first);
  table.erase(index);
  EXPECT_NE(*table.insert(&second), index);
}

}  // namespace
}  // namespace softhca::provider
