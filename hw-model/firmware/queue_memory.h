// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hw-model/firmware/syndromes.h"
#include "hw-model/queues/queue_buffer.h"

namespace softhca {

/// Queue memory as CREATE_* commands describe it.
struct QueueMemory {
  std::span<const std::uint8_t> pas;  ///< The list of pages: big-endian 64-bit addresses.
  std::uint64_t log_page_size = 0;    ///< Pages are 4096 << log_page_size bytes.
  std::uint64_t page_offset = 0;      ///< In units of page size / 64.
  std::uint64_t bytes = 0;            ///< What the queue needs.
};

/// Checks the description and makes the buffer.
Syndrome make_queue_buffer(DmaSpace& dma, const QueueMemory& memory, QueueBuffer& buffer);

/// `count` addresses of a list; the caller has checked that the list is long enough.
std::vector<std::uint64_t> read_pas(std::span<const std::uint8_t> pas, std::uint64_t count);

/// Part of a command input from `offset` on; empty if the input is shorter.
std::span<const std::uint8_t> tail(std::span<const std::uint8_t> in, std::size_t offset);

}  // namespace softhca
