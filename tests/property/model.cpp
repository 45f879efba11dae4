// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "tests/property/model.h"

#include <algorithm>
#include <cstdio>

namespace softhca::property {

Model::Model(const HostMemory& memory)
    : value_(memory.bytes(HostMemory::kVa, memory.size())), ignored_(memory.size()) {}

std::vector<std::uint8_t> Model::bytes(std::uint64_t va, std::uint64_t length) const {
  const auto from = value_.begin() + static_cast<std::ptrdiff_t>(va - HostMemory::kVa);
  return {from, from + static_cast<std::ptrdiff_t>(length)};
}

void Model::write(std::uint64_t va, std::span<const std::uint8_t> data) {
  const auto offset = static_cast<std::ptrdiff_t>(va - HostMemory::kVa);
  std::copy(data.begin(), data.end(), value_.begin() + offset);
}

void Model::scatter(const std::vector<Piece>& pieces, std::span<const std::uint8_t> data) {
  for (const Piece& piece : pieces) {
    const std::size_t length = std::min<std::size_t>(piece.length, data.size());
    write(piece.va, data.first(length));
    data = data.subspan(length);
  }
}

void Model::may_write(std::uint64_t va, std::span<const std::uint8_t> data) {
  others_.push_back({va - HostMemory::kVa, {data.begin(), data.end()}});
}

void Model::may_scatter(const std::vector<Piece>& pieces, std::span<const std::uint8_t> data) {
  for (const Piece& piece : pieces) {
    const std::size_t length = std::min<std::size_t>(piece.length, data.size());
    may_write(piece.va, data.first(length));
    data = data.subspan(length);
  }
}

void Model::ignore(std::uint64_t va, std::uint64_t length) {
  const auto from = ignored_.begin() + static_cast<std::ptrdiff_t>(va - HostMemory::kVa);
  std::fill(from, from + static_cast<std::ptrdiff_t>(length), true);
}

void Model::ignore(const std::vector<Piece>& pieces, std::uint64_t length) {
  for (const Piece& piece : pieces) {
    const std::uint64_t part = std::min<std::uint64_t>(piece.length, length);
    ignore(piece.va, part);
    length -= part;
  }
}

std::string Model::compare(const HostMemory& memory) const {
  const auto actual = memory.bytes(HostMemory::kVa, memory.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == value_[i] || ignored_[i]) continue;
    const bool as_good = std::any_of(others_.begin(), others_.end(), [&](const auto& other) {
      return i - other.offset < other.data.size() && other.data[i - other.offset] == actual[i];
    });
    if (as_good) continue;
    char text[128];
    std::snprintf(text, sizeof text, "byte at va 0x%llx holds %02x, must hold %02x",
                  static_cast<unsigned long long>(HostMemory::kVa + i), actual[i], value_[i]);
    return memory.purpose_of(HostMemory::kVa + i) + ": " + text;
  }
  return {};
}

}  // namespace softhca::property
