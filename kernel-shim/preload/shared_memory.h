// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel-shim/preload/shared_pieces.h"
#include "kernel-shim/protocol/protocol.h"

/// Memory of the application that the device reads and writes directly: queue buffers, doorbell
/// records, and registered memory.
///
/// Private pages cannot be mapped by another process, so they are swapped: their content moves to
/// a memfd, which is then mapped in their place. One sparse memfd serves the whole process.
/// Registered memory may be in use by other threads while it is swapped; they are kept from storing
/// meanwhile (store_guard.h). Nobody uses the memory of a queue while its create call runs.
///
/// Pages stay swapped for as long as they are mapped; when free() unmaps them and malloc() maps
/// anew, the new pages are private again, which is why each call looks at the real mappings instead
/// of remembering. Swapped in their turn, they get a place of their own in the file
/// (file_offsets.h): the old pages are still the device's where they are registered. The daemon
/// gives them back when neither side has them any more.
///
/// Shared pages would stay shared over fork(): a handler in the child replaces them by private
/// copies while the parent waits. So a stack cannot be shared, on which both would run.
namespace softhca::shim::preload {

/// Shares the ranges and clears their zero_at words. 0 or errno: EFAULT: not mapped or not
/// accessible; EIO: a nonsensical range; others: cannot be shared here (stacks, program code,
/// hugetlb, foreign shared mappings, no memfd, file size limit, threads that cannot be kept away).
/// `pieces`: where they lie in the file; without pages of which a part is asked for only, if the
/// rest belongs to a heap of the C library.
int share_ranges(const ShareRange* ranges, std::size_t count, SharedPieces& pieces);

/// Fills the page tables of pages that share_ranges() has mapped: better while the daemon works
/// than by faults of the program.
void fill_page_tables(std::uint64_t begin, std::uint64_t end);

/// The memfd, sealed against shrinking; after share_ranges() has succeeded.
int shared_memory_fd();

/// Gives back parts of the memfd, if it has that inode: `count` FileRange records at `ranges`, of
/// which the daemon says that nothing leads there any more.
void give_back_pages(std::uint64_t inode, const unsigned char* ranges, std::size_t count);

/// Allocates pages for the next registration, if as many were given back: better while the daemon
/// works. The arguments do not matter.
void prepare_pages(std::uint64_t, std::uint64_t);

/// What madvise(MADV_DONTNEED) means for private pages: new ones, full of zeros, take their place.
/// The device keeps those that are registered. Returns how many bytes were replaced.
std::uint64_t discard_shared(std::uint64_t begin, std::uint64_t end);

/// True if [begin, end) is shared pages, all of one piece of the file that begins at `place`, and
/// the program may read them, and write them if `writable`.
bool lies_at(std::uint64_t begin, std::uint64_t end, std::uint64_t place, bool writable);

/// True if a part of [begin, end) is shared pages.
bool is_shared(std::uint64_t begin, std::uint64_t end);

/// Replaces shared pages of [begin, end) by private ones with the same content: before a call that
/// moves or grows a mapping. The device keeps the old ones.
void unshare(std::uint64_t begin, std::uint64_t end);

/// Registers the handlers that keep parent and child apart, once.
void prepare_for_fork();

}  // namespace softhca::shim::preload
