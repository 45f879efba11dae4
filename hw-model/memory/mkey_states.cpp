// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/memory/mkey_states.h"

#include <algorithm>

#include "hw-model/runtime/full_fence.h"
#include "hw-model/runtime/mkey_state.h"

namespace softhca {
namespace {

constexpr std::uint64_t kInPage = MkeyStatePage::kAlignment - 1;
constexpr std::uint64_t kChanges = offsetof(MkeyStatePage, changes);
constexpr std::uint64_t kAtRest = offsetof(MkeyStatePage, at_rest);
constexpr std::uint64_t kWanted = offsetof(MkeyStateRecord, wanted);
constexpr std::uint64_t kSeen = offsetof(MkeyStateRecord, seen);

}  // namespace

bool MkeyStates::is_record(std::uint64_t iova) {
  const std::uint64_t offset = iova & kInPage;
  return offset % sizeof(MkeyStateRecord) == 0 && offset >= offsetof(MkeyStatePage, records) &&
         offset < sizeof(MkeyStatePage);
}

void MkeyStates::add(std::uint32_t index, std::uint64_t iova) {
  remove(index);
  const std::uint64_t address = iova & ~kInPage;
  if (pages_.size() == kMostPages && !pages_.contains(address)) return;
  std::vector<Record>& records = pages_[address].records;
  // Several keys may be given one record, but not without end.
  if (records.size() < MkeyStatePage::kRecords) records.push_back({.index = index, .iova = iova});
}

void MkeyStates::remove(std::uint32_t index) {
  for (auto at = pages_.begin(); at != pages_.end(); ++at) {
    std::vector<Record>& records = at->second.records;
    if (std::erase_if(records, [index](const Record& each) { return each.index == index; }) == 0) {
      continue;
    }
    if (records.empty()) {
      dma_.store_be32(at->first + kAtRest, 0);
      pages_.erase(at);
    }
    return;
  }
}

std::size_t MkeyStates::size() const {
  std::size_t count = 0;
  for (const auto& [address, page] : pages_) count += page.records.size();
  return count;
}

void MkeyStates::look() {
  for (auto& [address, page] : pages_) {
    std::uint32_t changes = 0;
    const bool readable = dma_.load_be32(address + kChanges, changes) == DmaStatus::ok;
    if (readable && changes == page.changes) continue;
    page.changes = changes;
    for (Record& record : page.records) follow(record);
  }
}

void MkeyStates::follow(Record& record) {
  std::uint32_t wanted = 0;
  // The driver may be changing it: it is read once.
  if (dma_.load_be32(record.iova + kWanted, wanted) != DmaStatus::ok) {
    mkeys_.revoke(record.index);
    record.seen = kMkeyRevoked;
    return;
  }
  if (wanted == record.seen) return;
  if (is_mkey_usable(wanted)) {
    mkeys_.restore(record.index, static_cast<std::uint8_t>(wanted));
  } else if (wanted != kMkeyAsCreated) {
    mkeys_.revoke(record.index);
  }
  record.seen = wanted;
  dma_.store_be32(record.iova + kSeen, wanted);
}

void MkeyStates::publish_rest(bool at_rest) {
  for (const auto& [address, page] : pages_) dma_.store_be32(address + kAtRest, at_rest ? 1 : 0);
}

void MkeyStates::begin_rest() {
  publish_rest(true);
}

void MkeyStates::end_rest() {
  if (pages_.empty()) return;
  publish_rest(false);
  // A driver that has still seen the rest stored its changes before: they are seen now.
  full_fence();
  look();
}

}  // namespace softhca
