// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "hw-model/memory/dma_space.h"
#include "hw-model/memory/mkey_table.h"

namespace softhca {

/// The state records of a function's memory keys (hw-model/runtime/mkey_state.h). Beside the keys,
/// of which few have one and each has to stay small.
class MkeyStates {
 public:
  /// Pages of records that are looked at; keys with records elsewhere change by commands alone.
  static constexpr std::size_t kMostPages = 64;

  MkeyStates(DmaSpace& dma, MkeyTable& mkeys) : dma_(dma), mkeys_(mkeys) {}

  /// False: no record of a page can be there.
  static bool is_record(std::uint64_t iova);
  /// The key has a record at `iova`.
  void add(std::uint32_t index, std::uint64_t iova);
  /// The key is destroyed; it need not have a record.
  void remove(std::uint32_t index);
  void clear() { pages_.clear(); }
  std::size_t size() const;

  /// Does what records say that have changed.
  void look();
  /// Nothing under way refers to memory of keys, and nothing happens before end_rest().
  void begin_rest();
  /// Also where there was no rest.
  void end_rest();

 private:
  struct Record {
    std::uint32_t index = 0;
    std::uint64_t iova = 0;
    std::uint32_t seen = 0;
  };
  struct Page {
    std::uint32_t changes = 0;
    std::vector<Record> records;
  };
  void publish_rest(bool at_rest);
  void follow(Record& record);

  DmaSpace& dma_;
  MkeyTable& mkeys_;
  std::map<std::uint64_t, Page> pages_;  ///< By I/O virtual address.
};

}  // namespace softhca
