// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "hw-model/prm/commands_resources.h"
#include "kernel-shim/host/device/command.h"

namespace softhca::shim {

/// ALLOC_* and DEALLOC_* commands of objects that are only a 24-bit number at bit 0x48.
struct NumberedResource {
  prm::CommandOpcode alloc;
  prm::CommandOpcode dealloc;
};
inline constexpr NumberedResource kUarResource{prm::CommandOpcode::alloc_uar,
                                               prm::CommandOpcode::dealloc_uar};
inline constexpr NumberedResource kPdResource{prm::CommandOpcode::alloc_pd,
                                              prm::CommandOpcode::dealloc_pd};
inline constexpr NumberedResource kXrcdResource{prm::CommandOpcode::alloc_xrcd,
                                                prm::CommandOpcode::dealloc_xrcd};
inline constexpr NumberedResource kTransportDomainResource{
    prm::CommandOpcode::alloc_transport_domain, prm::CommandOpcode::dealloc_transport_domain};

using NumberField = prm::AllocPdOutput::pd;
template <typename... Fields>
constexpr bool all_at(std::size_t bit_offset) {
  return ((Fields::bit_offset == bit_offset) && ...);
}
static_assert(all_at<prm::AllocUarOutput::uar, prm::AllocXrcdOutput::xrcd, prm::DeallocPdInput::pd>(
    NumberField::bit_offset));

/// 0 and the number, or an errno.
inline int allocate_number(CommandInterface& commands, const NumberedResource& resource,
                           std::uint32_t& number) {
  const CommandInputBuffer in(resource.alloc, 16);
  std::uint8_t out[16] = {};
  const CommandResult result = commands.execute(in, out);
  if (result) number = static_cast<std::uint32_t>(NumberField::get(out));
  return result.error;
}

inline int release_number(CommandInterface& commands, const NumberedResource& resource,
                          std::uint32_t number) {
  CommandInputBuffer in(resource.dealloc, 16);
  NumberField::set(in.data(), number);
  return execute_plain(commands, in).error;
}

}  // namespace softhca::shim
