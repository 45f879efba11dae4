// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/firmware_pages.h"

#include <algorithm>
#include <cerrno>
#include <vector>

namespace softhca::shim {
namespace {

/// Entries of one MANAGE_PAGES command.
constexpr std::uint32_t kBatch = 512;
constexpr std::size_t kEntrySize = 8;
using Entry = prm::Field<0, 64>;

CommandInputBuffer manage_pages(prm::ManagePagesOp op, std::uint32_t count, std::size_t entries) {
  CommandInputBuffer in(prm::CommandOpcode::manage_pages,
                        prm::ManagePagesInput::size + entries * kEntrySize,
                        static_cast<std::uint16_t>(op));
  prm::ManagePagesInput::input_num_entries::set(in.data(), count);
  return in;
}

}  // namespace

int FirmwarePages::satisfy(prm::QueryPagesOp kind) {
  const CommandInputBuffer in(prm::CommandOpcode::query_pages, prm::QueryPagesInput::size,
                              static_cast<std::uint16_t>(kind));
  std::uint8_t out[prm::QueryPagesOutput::size] = {};
  if (const CommandResult result = commands_.execute(in, out); !result) return result.error;
  return request(static_cast<std::int32_t>(prm::QueryPagesOutput::num_pages::get(out)));
}

int FirmwarePages::request(std::int32_t pages) {
  std::int64_t left = pages;
  while (left != 0) {
    const auto part = static_cast<std::uint32_t>(std::min<std::int64_t>(std::abs(left), kBatch));
    const std::size_t before = given_.size();
    if (const int error = left > 0 ? give(part) : take(part); error != 0) return error;
    if (given_.size() == before) return 0;  // The firmware had none to return.
    left += left > 0 ? -static_cast<std::int64_t>(part) : static_cast<std::int64_t>(part);
  }
  return 0;
}

int FirmwarePages::give(std::uint32_t count) {
  std::vector<DmaArena::Block> pages;
  CommandInputBuffer in = manage_pages(prm::ManagePagesOp::give, count, count);
  int error = 0;
  for (std::uint32_t i = 0; i < count && error == 0; ++i) {
    if (const auto page = arena_.allocate(DmaArena::kPage)) {
      pages.push_back(*page);
      Entry::set(in.at(prm::ManagePagesInput::pas_offset + i * kEntrySize), page->iova);
    } else {
      error = ENOMEM;
    }
  }
  if (error == 0) error = execute_plain(commands_, in).error;
  if (error != 0) {
    for (const DmaArena::Block& page : pages) arena_.release(page);
    if (error == ENOMEM) {  // So that the firmware does not wait for ever.
      execute_plain(commands_, manage_pages(prm::ManagePagesOp::cannot_give, 0, 0));
    }
    return error;
  }
  for (const DmaArena::Block& page : pages) given_[page.iova] = page;
  return 0;
}

int FirmwarePages::take(std::uint32_t count) {
  const CommandInputBuffer in = manage_pages(prm::ManagePagesOp::take, count, 0);
  std::vector<std::uint8_t> out(prm::ManagePagesOutput::size + count * kEntrySize);
  if (const CommandResult result = commands_.execute(in, out); !result) return result.error;
  const std::uint64_t returned = prm::ManagePagesOutput::output_num_entries::get(out.data());
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(returned, count); ++i) {
    const auto page =
        given_.find(Entry::get(out.data() + prm::ManagePagesOutput::pas_offset + i * kEntrySize));
    if (page == given_.end()) return EPROTO;
    arena_.release(page->second);
    given_.erase(page);
  }
  return 0;
}

int FirmwarePages::reclaim_all() {
  while (!given_.empty()) {
    const std::size_t before = given_.size();
    const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(before, kBatch));
    if (const int error = take(count); error != 0) return error;
    if (given_.size() == before) return EBUSY;
  }
  return 0;
}

}  // namespace softhca::shim
