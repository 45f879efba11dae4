// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/dma_arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace softhca::shim {

DmaArena::~DmaArena() {
  for (const std::unique_ptr<Chunk>& chunk : chunks_) {
    device_.dma_unmap(chunk->iova, kChunk);
    ::munmap(chunk->base, kChunk);
  }
}

std::optional<DmaArena::Block> DmaArena::allocate(std::size_t size) {
  if (size == 0 || size > kChunk) return std::nullopt;
  const std::size_t pages = (size + kPage - 1) / kPage;
  for (const std::unique_ptr<Chunk>& chunk : chunks_) {
    if (const std::optional<Block> block = allocate_in(*chunk, pages)) return block;
  }
  if (!add_chunk()) return std::nullopt;
  return allocate_in(*chunks_.back(), pages);
}

std::optional<DmaArena::Block> DmaArena::allocate_in(Chunk& chunk, std::size_t pages) {
  const auto run = std::search_n(chunk.used.begin(), chunk.used.end(),
                                 static_cast<std::ptrdiff_t>(pages), false);
  if (run == chunk.used.end()) return std::nullopt;
  std::fill_n(run, pages, true);
  const std::size_t offset = static_cast<std::size_t>(run - chunk.used.begin()) * kPage;
  Block block{chunk.base + offset, chunk.iova + offset, pages * kPage};
  std::memset(block.data, 0, block.size);
  return block;
}

void DmaArena::release(const Block& block) {
  for (const std::unique_ptr<Chunk>& chunk : chunks_) {
    if (block.iova < chunk->iova || block.iova - chunk->iova >= kChunk) continue;
    const std::size_t first = (block.iova - chunk->iova) / kPage;
    std::fill_n(chunk->used.begin() + static_cast<std::ptrdiff_t>(first), block.size / kPage,
                false);
    return;
  }
}

bool DmaArena::add_chunk() {
  auto chunk = std::make_unique<Chunk>();
  chunk->fd.reset(::memfd_create("softhca-driver", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!chunk->fd || ::ftruncate(chunk->fd.get(), kChunk) != 0 ||
      ::fcntl(chunk->fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return false;
  }
  void* const base =
      ::mmap(nullptr, kChunk, PROT_READ | PROT_WRITE, MAP_SHARED, chunk->fd.get(), 0);
  if (base == MAP_FAILED) return false;
  const std::optional<std::uint64_t> iova = iovas_.allocate(kChunk, kChunk, 0);
  if (!iova || device_.dma_map(*iova, kChunk, chunk->fd.get(), 0, true) != 0) {
    ::munmap(base, kChunk);
    return false;
  }
  chunk->base = static_cast<std::uint8_t*>(base);
  chunk->iova = *iova;
  chunk->used.resize(kChunk / kPage);
  chunks_.push_back(std::move(chunk));
  return true;
}

}  // namespace softhca::shim
