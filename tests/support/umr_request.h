// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "hw-model/prm/mkey_context.h"
#include "hw-model/prm/wqe.h"

namespace softhca::transport_test {

/// The segments of a UMR work request after the control segment, as drivers write them.
class UmrRequest {
 public:
  using Control = prm::UmrCtrlSegment;
  using Context = prm::MkeyContext;

  UmrRequest() : bytes(Control::size + Context::size) {}

  template <typename Field>
  UmrRequest& control(std::uint64_t value) {
    Field::set(bytes.data(), value);
    return *this;
  }
  template <typename Field>
  UmrRequest& context(std::uint64_t value) {
    Field::set(bytes.data() + Control::size, value);
    return *this;
  }
  UmrRequest& mask(std::uint64_t fields) { return control<Control::mkey_mask>(fields); }
  UmrRequest& at_offset(std::uint64_t units) {
    control<Control::translation_offset_enable>(1);
    control<Control::translation_offset>(units & 0xffff);
    return control<Control::translation_offset_47_16>(units >> 16);
  }
  /// A list that follows in the WQE, filled up to whole blocks of 64 bytes.
  UmrRequest& inline_list(std::span<const std::uint8_t> list) {
    bytes.resize(Control::size + Context::size);
    bytes.insert(bytes.end(), list.begin(), list.end());
    const std::size_t padded = (list.size() + 63) / 64 * 64;
    bytes.resize(Control::size + Context::size + padded);
    control<Control::inline_translations>(1);
    return control<Control::translation_units>(padded / prm::kWqeUnit);
  }
  /// A list of `size` bytes where the data segments of the WQE say.
  UmrRequest& list_in_memory(std::size_t size) {
    return control<Control::translation_units>(size / prm::kWqeUnit);
  }

  std::vector<std::uint8_t> bytes;
};

inline std::vector<std::uint8_t> page_list(std::span<const std::uint64_t> pages) {
  constexpr std::uint64_t kPresent = 3;
  std::vector<std::uint8_t> list(pages.size() * prm::MttEntry::size);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    prm::MttEntry::ptag::set(list.data() + i * prm::MttEntry::size, pages[i] | kPresent);
  }
  return list;
}

struct KlmSpec {
  std::uint64_t address;
  std::uint32_t key;
  std::uint32_t length;
};
inline std::vector<std::uint8_t> klm_list(std::span<const KlmSpec> pieces) {
  std::vector<std::uint8_t> list(pieces.size() * prm::KlmEntry::size);
  std::uint8_t* entry = list.data();
  for (const KlmSpec& piece : pieces) {
    prm::KlmEntry::byte_count::set(entry, piece.length);
    prm::KlmEntry::key::set(entry, piece.key);
    prm::KlmEntry::address::set(entry, piece.address);
    entry += prm::KlmEntry::size;
  }
  return list;
}

/// The mask of a fast registration (kernel: frwr).
inline constexpr std::uint64_t kFastRegisterMask =
    prm::UmrMask::length | prm::UmrMask::page_size | prm::UmrMask::start_address |
    prm::UmrMask::enable_remote_invalidate | prm::UmrMask::key | prm::UmrMask::local_read |
    prm::UmrMask::local_write | prm::UmrMask::remote_read | prm::UmrMask::remote_write |
    prm::UmrMask::atomic | prm::UmrMask::small_fence | prm::UmrMask::free;

/// Segments of a fast registration: `length` bytes from `start` with every right.
inline UmrRequest fast_register(std::uint8_t variant, std::uint64_t start, std::uint64_t length) {
  using Context = prm::MkeyContext;
  UmrRequest request;
  request.mask(kFastRegisterMask)
      .control<prm::UmrCtrlSegment::check_free>(1)
      .context<Context::mkey_7_0>(variant)
      .context<Context::qpn>(prm::kMkeyAnyQp)
      .context<Context::en_rinval>(1)
      .context<Context::start_addr>(start)
      .context<Context::len>(length)
      .context<Context::log_page_size>(12);
  request.context<Context::lr>(1)
      .context<Context::lw>(1)
      .context<Context::rr>(1)
      .context<Context::rw>(1)
      .context<Context::a>(1);
  return request;
}

/// Segments of a local invalidate.
inline UmrRequest make_free() {
  UmrRequest request;
  request.mask(prm::UmrMask::free)
      .control<prm::UmrCtrlSegment::inline_translations>(1)
      .context<prm::MkeyContext::free>(1);
  return request;
}

}  // namespace softhca::transport_test
