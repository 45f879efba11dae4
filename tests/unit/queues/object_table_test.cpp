// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/queues/object_table.h"

#include <gtest/gtest.h>

namespace softhca {
namespace {

struct Thing {
  Thing(std::uint32_t n, int v) : number(n), value(v) {}
  std::uint32_t number;
  int value;
};

TEST(ObjectTable, FindsObjectsByTheirNumber) {
  ObjectTable<Thing> table(10, 100);
  Thing* thing = table.emplace(42);
  ASSERT_NE(thing, nullptr);
  EXPECT_EQ(thing->number, 10U);
  EXPECT_EQ(table.find(10), thing);
  EXPECT_EQ(table.find(9), nullptr);
  EXPECT_EQ(table.find(11), nullptr);
  EXPECT_EQ(table.find(0xffffffff), nullptr);
}

TEST(ObjectTable, AnObjectInUseCannotBeDestroyed) {
  ObjectTable<Thing> table;
  const std::uint32_t number = table.emplace(1)->number;
  auto first = table.ref(number);
  {
    const ObjectRef<Thing> second = first;  // NOLINT(performance-unnecessary-copy-initialization)
    EXPECT_EQ(table.use_count(number), 2U);
  }
  auto moved = std::move(first);
  EXPECT_EQ(table.use_count(number), 1U);
  EXPECT_EQ(table.destroy(number), DestroyResult::in_use);
  moved = {};
  EXPECT_EQ(table.destroy(number), DestroyResult::ok);
  EXPECT_EQ(table.destroy(number), DestroyResult::not_found);
  EXPECT_FALSE(table.ref(number));
}

TEST(ObjectTable, NumbersAreUsedAgainAsLateAsPossible) {
  ObjectTable<Thing> table(1, 4);
  table.emplace(0);
  table.emplace(0);
  EXPECT_EQ(table.destroy(1), DestroyResult::ok);
  EXPECT_EQ(table.emplace(0)->number, 3U);
  EXPECT_EQ(table.emplace(0)->number, 1U);
  EXPECT_EQ(table.emplace(0), nullptr) << "all numbers are taken";
  EXPECT_EQ(table.size(), 3U);
}

}  // namespace
}  // namespace softhca
