// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/preload/parked_regions.h"

#include <atomic>

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "kernel-shim/preload/command_fd.h"
#include "kernel-shim/preload/errno_guard.h"
#include "kernel-shim/preload/lock.h"
#include "kernel-shim/preload/mkey_state_memory.h"
#include "kernel-shim/preload/region_table.h"
#include "kernel-shim/preload/shared_memory.h"

namespace softhca::shim::preload {
namespace {

constexpr std::uint64_t kLargestParked = 16ULL << 20;
constexpr unsigned kMostParked = 16;
constexpr std::uint64_t kMostParkedBytes = 64ULL << 20;
/// A key's variant bytes: none is given twice, or an old one would be valid again.
constexpr std::uint32_t kNames = 256;

struct Table {
  Lock lock;
  RegionContext contexts[8];
  pid_t of;  // A child that was made without our fork handlers must leave it to its parent.
  std::uint64_t clock;  // Counts what was parked.
  /// What is parked, and between which addresses: read without the lock.
  std::atomic<unsigned> parked;
  std::atomic<std::uint64_t> lowest;
  std::atomic<std::uint64_t> highest;
};
Table table;

template <typename Visit>
void for_each_parked(Visit visit) {
  for (RegionContext& context : table.contexts) {
    if (context.inode == 0) continue;
    for (Region& region : context.regions) {
      if (region.state == RegionState::parked) visit(context, region);
    }
  }
}

void note_parked() {
  unsigned count = 0;
  std::uint64_t lowest = ~0ULL;
  std::uint64_t highest = 0;
  for_each_parked([&](RegionContext&, const Region& region) {
    ++count;
    if (region.start < lowest) lowest = region.start;
    if (region.start + region.length > highest) highest = region.start + region.length;
  });
  table.lowest.store(lowest, std::memory_order_relaxed);
  table.highest.store(highest, std::memory_order_relaxed);
  table.parked.store(count, std::memory_order_relaxed);
}

/// Null: nothing was deregistered there by this process.
RegionContext* find_context(int fd) {
  const std::uint64_t inode = inode_of(fd);
  if (inode == 0 || table.of != ::getpid()) return nullptr;
  for (RegionContext& context : table.contexts) {
    if (context.inode == inode) return &context;
  }
  return nullptr;
}

RegionContext* make_context(int fd) {
  const std::uint64_t inode = inode_of_own(fd);
  if (inode == 0) return nullptr;
  if (table.of == 0) table.of = ::getpid();
  for (RegionContext& context : table.contexts) {
    if (context.inode != 0) continue;
    context.inode = inode;
    context.fd = fd;
    return &context;
  }
  return nullptr;
}

/// Regions that the daemon is about to deregister, without the lock.
class Ending {
 public:
  /// Under the lock.
  void add(RegionContext& context, Region& region) {
    if (is_full()) return;
    region.state = RegionState::ending;
    ++context.exchanges;
    entries_[count_++] = {&context, &region, context.fd, context.inode, region.handle};
  }
  bool any() const { return count_ != 0; }
  bool is_full() const { return count_ == kMost; }
  void run() {
    for (unsigned i = 0; i < count_; ++i) {
      const Entry& entry = entries_[i];
      // Closed, and its number used again: the region has gone with it.
      if (inode_of(entry.fd) == entry.inode) deregister_region(entry.fd, entry.handle);
      const LockGuard guard(table.lock);
      *entry.region = Region{};
      --entry.context->exchanges;
    }
    // What was given back is allocated for the next registration here: nothing waits for it.
    if (count_ != 0) prepare_pages(0, 0);
  }

 private:
  struct Entry {
    RegionContext* context;
    Region* region;
    int fd;
    std::uint64_t inode;
    std::uint32_t handle;
  };
  static constexpr unsigned kMost = kMostParked + 1;
  Entry entries_[kMost];
  unsigned count_ = 0;
};

/// Not with the lock, for the one that this takes lets signals through to who waits for it, but not
/// if they are blocked already.
bool memory_is_there(const Region& region) {
  return lies_at(region.start, region.start + region.length, region.place,
                 is_writable_region(region.access));
}

/// Ends parked regions that `which(context, region)` names.
template <typename Which>
bool end_parked(Which which) {
  if (table.parked.load(std::memory_order_relaxed) == 0) return false;
  const ErrnoGuard errno_guard;
  Ending ending;
  {
    const LockGuard guard(table.lock);
    if (table.of != ::getpid()) return false;
    for_each_parked([&](RegionContext& context, Region& region) {
      if (which(context, region)) ending.add(context, region);
    });
    if (ending.any()) note_parked();
  }
  ending.run();
  return ending.any();
}

void end_parked_without_memory() {
  if (table.parked.load(std::memory_order_relaxed) == 0) return;
  Region found[kMostParked];
  unsigned count = 0;
  {
    const LockGuard guard(table.lock);
    for_each_parked([&](RegionContext&, const Region& region) {
      if (count < kMostParked) found[count++] = region;
    });
  }
  for (unsigned i = 0; i < count; ++i) {
    if (memory_is_there(found[i])) continue;
    end_parked([&](RegionContext&, const Region& region) {
      return region.parked_at == found[i].parked_at;
    });
  }
}

/// Until `done()`, which is called with the lock, is true: mostly at once.
template <typename Done>
void wait_until(Done done) {
  // Nothing takes longer, but for a daemon that does not answer, and that one answers nobody.
  constexpr int kMostNaps = 10'000;
  constexpr int kYields = 1'000;
  constexpr timespec kNap{0, 1'000'000};
  const ErrnoGuard errno_guard;
  for (int i = 0; i < kYields + kMostNaps; ++i) {
    {
      const LockGuard guard(table.lock);
      if (done()) return;
    }
    if (i < kYields) {
      ::sched_yield();
    } else {
      ::nanosleep(&kNap, nullptr);
    }
  }
}

/// Too many, or too much.
void end_oldest(Ending& ending) {
  while (!ending.is_full()) {
    unsigned count = 0;
    std::uint64_t bytes = 0;
    RegionContext* context_of_oldest = nullptr;
    Region* oldest = nullptr;
    for_each_parked([&](RegionContext& context, Region& region) {
      ++count;
      bytes += region.length;
      if (oldest != nullptr && oldest->parked_at < region.parked_at) return;
      oldest = &region;
      context_of_oldest = &context;
    });
    if (count <= kMostParked && bytes <= kMostParkedBytes) return;
    ending.add(*context_of_oldest, *oldest);
  }
}

/// Gives the context its page of records, once a registration follows a deregistration.
void give_records(int fd) {
  RegionContext* context = nullptr;
  {
    const LockGuard guard(table.lock);
    context = find_context(fd);
    if (context == nullptr || context->asked) return;
    context->asked = true;
    ++context->exchanges;
  }
  const MkeyStateChanger changer = map_mkey_states(fd);
  const LockGuard guard(table.lock);
  context->changer = changer;
  --context->exchanges;
}

bool may_be_parked(const RegistrationCommand& command) {
  return command.length != 0 && command.length <= kLargestParked;
}

/// With the name that the key has, or had last.
std::uint32_t revoked_state(const Region& region) {
  return kMkeyRevoked | (region.key & 0xff);
}

/// 0 or the next variant byte, with kMkeyUsable.
std::uint32_t next_state(const Region& region) {
  if (region.names == kNames) return 0;
  return kMkeyUsable | ((region.key + 1) & 0xff);
}

}  // namespace

bool revive(int fd, const RegistrationCommand& command, RegistrationAnswer& answer) {
  if (table.parked.load(std::memory_order_relaxed) == 0) return false;
  const ErrnoGuard errno_guard;
  RegionContext* context = nullptr;
  Region* region = nullptr;
  {
    const LockGuard guard(table.lock);
    context = find_context(fd);
    region = context != nullptr ? context->find_parked(command) : nullptr;
    if (region == nullptr) return false;
    region->state = RegionState::busy;
    ++context->exchanges;
    note_parked();
  }
  const std::uint32_t record = context->number_of(*region);
  const std::uint32_t state = next_state(*region);
  bool done = state != 0 && memory_is_there(*region);
  if (done) {
    region->key = (region->key & ~0xffU) | (state & 0xff);
    done = context->changer.change(record, state);
    if (!done) context->changer.change(record, revoked_state(*region), 0);
  }
  Ending ending;
  {
    const LockGuard guard(table.lock);
    --context->exchanges;
    if (done) {
      region->state = RegionState::active;
      ++region->names;
      answer = {region->handle, region->key, region->key};
    } else {
      ending.add(*context, *region);
    }
  }
  ending.run();
  return done;
}

std::uint32_t begin_registration(int fd, const RegistrationCommand& command) {
  const ErrnoGuard errno_guard;
  end_parked_without_memory();
  if (!may_be_parked(command)) return 0;
  give_records(fd);
  const LockGuard guard(table.lock);
  RegionContext* const context = find_context(fd);
  if (context == nullptr || !context->changer) return 0;
  Region* const region = context->find_free();
  if (region == nullptr) return 0;
  region->state = RegionState::registering;
  context->changer.reset(context->number_of(*region));
  return context->number_of(*region);
}

void end_registration(int fd, std::uint32_t record, const RegistrationCommand& command,
                      const RegistrationAnswer* answer, const SharedPiece& piece) {
  if (record == 0) return;
  const ErrnoGuard errno_guard;
  const LockGuard guard(table.lock);
  RegionContext* const context = find_context(fd);
  if (context == nullptr) return;
  Region& region = context->regions[record - 1];
  region = Region{};
  if (answer == nullptr) return;
  region.state = RegionState::active;
  region.handle = answer->mr_handle;
  region.key = answer->lkey;
  region.names = 1;
  region.pd_handle = command.pd_handle;
  region.access = command.access_flags;
  region.start = command.start;
  region.length = command.length;
  region.address = command.hca_va;
  const ShareRange pages = pages_of(command);
  if (piece.address == pages.address && piece.length == pages.length) {
    region.place = piece.offset + (command.start - piece.address);
    region.has_place = true;
  }
}

Parked park(int fd, std::uint32_t handle) {
  const ErrnoGuard errno_guard;
  RegionContext* context = nullptr;
  Region* region = nullptr;
  {
    const LockGuard guard(table.lock);
    context = find_context(fd);
    region = context != nullptr ? context->find(handle) : nullptr;
    if (region == nullptr) return Parked::no;
    if (region->state != RegionState::active) return Parked::already;
    // As which it is known if the daemon has to be asked.
    region->state = RegionState::leaving;
    if (!region->has_place) return Parked::no;
    ++context->exchanges;
  }
  const bool done = memory_is_there(*region) &&
                    context->changer.change(context->number_of(*region), revoked_state(*region));
  Ending ending;
  {
    const LockGuard guard(table.lock);
    --context->exchanges;
    if (!done) return Parked::no;
    region->state = RegionState::parked;
    region->parked_at = ++table.clock;
    end_oldest(ending);
    note_parked();
  }
  ending.run();
  return Parked::yes;
}

void end_deregistration(int fd, std::uint32_t handle, bool done) {
  const ErrnoGuard errno_guard;
  const LockGuard guard(table.lock);
  RegionContext* context = find_context(fd);
  if (context == nullptr && done) context = make_context(fd);
  Region* const region = context != nullptr ? context->find(handle) : nullptr;
  if (region == nullptr || region->state != RegionState::leaving) return;
  if (done) {
    *region = Region{};
    return;
  }
  // The key that the application goes on having.
  context->changer.change(context->number_of(*region), kMkeyUsable | (region->key & 0xff));
  region->state = RegionState::active;
}

void keep_from_parking(int fd, std::uint32_t handle) {
  const ErrnoGuard errno_guard;
  const LockGuard guard(table.lock);
  RegionContext* const context = find_context(fd);
  Region* const region = context != nullptr ? context->find(handle) : nullptr;
  if (region != nullptr) region->has_place = false;
}

void end_parked_of(int fd, std::uint32_t pd_handle) {
  const std::uint64_t inode = inode_of(fd);
  end_parked([=](const RegionContext& context, const Region& region) {
    return context.inode == inode && region.pd_handle == pd_handle;
  });
  // Those that another thread is about to end count, too.
  wait_until([=] {
    const RegionContext* const context = find_context(fd);
    if (context == nullptr) return true;
    for (const Region& region : context->regions) {
      if (region.state == RegionState::ending && region.pd_handle == pd_handle) return false;
    }
    return true;
  });
}

bool end_all_parked() {
  return end_parked([](RegionContext&, Region&) { return true; });
}

void end_parked_in(std::uint64_t begin, std::uint64_t end) {
  if (table.parked.load(std::memory_order_relaxed) == 0 || begin >= end ||
      end <= table.lowest.load(std::memory_order_relaxed) ||
      begin >= table.highest.load(std::memory_order_relaxed)) {
    return;
  }
  end_parked([=](RegionContext&, const Region& region) {
    return region.start < end && region.start + region.length > begin;
  });
}

void forget_context(int fd) {
  wait_until([=] {
    RegionContext* const context = find_context(fd);
    // A copy of the descriptor that goes leaves everything as it is.
    if (context == nullptr || context->fd != fd) return true;
    if (context->exchanges != 0) return false;
    unmap_mkey_states(context->changer);
    context->clear();
    note_parked();
    return true;
  });
}

void forget_parked_regions() {
  // Their page is not mapped here.
  for (RegionContext& context : table.contexts) {
    if (context.inode != 0) context.clear();
  }
  table.parked.store(0, std::memory_order_relaxed);
  table.of = 0;
  table.lock.reset();
}

}  // namespace softhca::shim::preload
