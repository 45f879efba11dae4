// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

/// Defines an exported C function `name` that stands in front of the one of the C library (or of
/// libibverbs). Its C++ name differs, so that the header which declares the original may be
/// included beside it.
#define SOFTHCA_INTERPOSE(result, name, ...)            \
  extern "C" __attribute__((visibility("default")))     \
  result interposed_##name(__VA_ARGS__) __asm__(#name); \
  result interposed_##name(__VA_ARGS__)
