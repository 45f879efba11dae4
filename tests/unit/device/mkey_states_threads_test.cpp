// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A program that revokes its key and makes it usable again, over and over, against a device in a
// thread of its own that writes by the key whenever it is awake, and rests in between.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "hw-model/memory/mkey_states.h"
#include "kernel-shim/protocol/mkey_state_change.h"

namespace softhca {
namespace {

constexpr std::uint64_t kMemory = 0x10'0000;
constexpr std::uint64_t kPage = 0x20'0000;
constexpr std::uint64_t kLength = 4096;
constexpr int kRounds = 200'000;

class MkeyStatesThreads : public ::testing::Test {
 protected:
  MkeyStatesThreads() {
    dma.map({.iova = kMemory, .size = memory.size(), .base = memory.data(), .backing = nullptr});
    dma.map({.iova = kPage,
             .size = sizeof(page),
             .base = reinterpret_cast<std::byte*>(&page),
             .backing = nullptr});
    MkeyAttributes attributes;
    attributes.access = MemoryAccess::remote_write;
    attributes.start = 0x7000'0000;
    attributes.length = kLength;
    attributes.mode = TranslationMode::mtt;
    const std::vector<std::uint64_t> list{kMemory};
    index = *keys.create(attributes, list);
    states.add(index, kPage + offsetof(MkeyStatePage, records));
  }

  /// What engines do: look, work, rest.
  void run_device() {
    bool resting = false;
    for (unsigned pass = 0; !stop.load(std::memory_order_relaxed); ++pass) {
      if (resting) {
        states.end_rest();
        resting = false;
      } else if (hints->take_mkey_states()) {
        states.look();
      }
      // Whoever has the key that was valid last, and the one before.
      const std::uint32_t now = newest.load(std::memory_order_acquire);
      for (const std::uint32_t variant : {now, now - 1}) {
        const std::uint32_t key = index << 8 | (variant & 0xff);
        std::byte* to = keys.span(key, {}, 0x7000'0000, 8, MemoryAccess::remote_write);
        if (to != nullptr) __atomic_store_n(reinterpret_cast<std::uint64_t*>(to), pass + 1, 0);
      }
      if (pass % 5 == 0) {
        states.begin_rest();
        resting = true;
        if (pass % 15 == 0) std::this_thread::yield();
      }
    }
    if (resting) states.end_rest();
  }
  class Running {
   public:
    explicit Running(MkeyStatesThreads& test)
        : test_(test), thread_([&test] { test.run_device(); }) {}
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running() {
      test_.stop = true;
      thread_.join();
    }

   private:
    MkeyStatesThreads& test_;
    std::thread thread_;
  };
  std::uint64_t word() const {
    return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(memory.data()), 0);
  }
  void clear() { __atomic_store_n(reinterpret_cast<std::uint64_t*>(memory.data()), 0, 0); }

  alignas(4096) std::array<std::byte, kLength> memory{};
  alignas(4096) MkeyStatePage page{};
  std::unique_ptr<DoorbellHints> hints = std::make_unique<DoorbellHints>();
  DmaSpace dma;
  MkeyTable keys{dma};
  MkeyStates states{dma, keys};
  std::uint32_t index = 0;
  std::atomic<std::uint32_t> newest = 0;
  std::atomic<bool> stop = false;
};

TEST_F(MkeyStatesThreads, NothingIsWrittenByAKeyThatIsRevoked) {
  const Running device(*this);
  shim::MkeyStateChanger changer(&page, hints.get());
  constexpr Nanoseconds kPatience = 5'000'000'000;
  std::uint32_t name = 0;
  int written = 0;
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(changer.change(1, kMkeyRevoked, kPatience)) << round;
    clear();
    for (int look = 0; look < round % 64; ++look) ASSERT_EQ(word(), 0U) << round;
    ++name;
    ASSERT_TRUE(changer.change(1, kMkeyUsable | (name & 0xff), kPatience)) << round;
    ASSERT_EQ(word(), 0U) << "nobody has the new name yet: " << round;
    newest.store(name, std::memory_order_release);
    if (round % 16 != 0) continue;
    // The new one works.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (word() == 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    ASSERT_NE(word(), 0U) << round;
    ++written;
  }
  EXPECT_GT(written, kRounds / 20);
}

}  // namespace
}  // namespace softhca
