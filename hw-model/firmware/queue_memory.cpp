// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/queue_memory.h"

#include "hw-model/prm/field.h"

namespace softhca {
namespace {

constexpr std::uint64_t kPasSize = 8;
constexpr std::uint64_t kMaxLogPageSize = 20;  // 4 GiB pages

}  // namespace

Syndrome make_queue_buffer(DmaSpace& dma, const QueueMemory& memory, QueueBuffer& buffer) {
  if (memory.log_page_size > kMaxLogPageSize) return Syndrome::bad_page_size;
  const std::uint64_t page_size = 4096ULL << memory.log_page_size;
  const std::uint64_t offset = memory.page_offset * (page_size / 64);
  if (offset >= page_size) return Syndrome::bad_page_size;
  const std::uint64_t count = (offset + memory.bytes + page_size - 1) / page_size;
  if (memory.pas.size() / kPasSize < count) return Syndrome::too_few_pages;
  const std::vector<std::uint64_t> pages = read_pas(memory.pas, count);
  for (const std::uint64_t page : pages) {
    if (page % page_size != 0) return Syndrome::bad_page_alignment;
  }
  buffer = QueueBuffer(dma, pages, static_cast<std::uint8_t>(12 + memory.log_page_size), offset);
  return Syndrome::none;
}

std::vector<std::uint64_t> read_pas(std::span<const std::uint8_t> pas, std::uint64_t count) {
  std::vector<std::uint64_t> addresses(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    addresses[i] = prm::Field<0, 64>::get(pas.data() + i * kPasSize);
  }
  return addresses;
}

std::span<const std::uint8_t> tail(std::span<const std::uint8_t> in, std::size_t offset) {
  return offset < in.size() ? in.subspan(offset) : std::span<const std::uint8_t>();
}

}  // namespace softhca
