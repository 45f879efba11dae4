// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

/// A system call answers EFAULT for a bad pointer where a function in the application would crash.
/// These ask the kernel, page by page, before this library touches memory that a caller named.
namespace softhca::shim::preload {

/// True if every page of [address, address + length) can be read. An answer about this moment:
/// a thread that unmaps the memory meanwhile hurts itself.
bool is_readable(const void* address, std::size_t length);

/// True if every page can be written. Changes nothing (an atomic "add 0" by the kernel).
bool is_writable(void* address, std::size_t length);

/// memcpy() that returns false instead of crashing.
bool copy_from(void* destination, const void* source, std::size_t length);
bool copy_to(void* destination, const void* source, std::size_t length);

}  // namespace softhca::shim::preload
