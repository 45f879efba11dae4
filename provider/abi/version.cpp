// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/abi/version.h"

#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "provider/abi/commands.h"

namespace softhca::provider::abi {
namespace {

Version current_version = Version::v44;

/// Path of the library's file as the dynamic linker has it; null if it cannot tell.
const char* library_path() {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(&verbs_set_ops), &info) != 0 ? info.dli_fname : nullptr;
}

}  // namespace

void* open_library() {
  const char* const path = library_path();
  return path != nullptr ? dlopen(path, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
}

LibraryFacts loaded_library() {
  LibraryFacts facts;
  if (const char* const loaded = library_path(); loaded != nullptr) {
    if (char* path = realpath(loaded, nullptr); path != nullptr) {
      facts.real_path = path;
      std::free(path);
    }
  }
  // Looked up in the library itself: the process may hold other definitions of the names.
  if (void* library = open_library(); library != nullptr) {
    facts.has_create_cq_ex2 = dlsym(library, "ibv_cmd_create_cq_ex2") != nullptr;
    facts.has_wr_opcode_str = dlsym(library, "ibv_wr_opcode_str") != nullptr;
    dlclose(library);
  }
  return facts;
}

std::optional<unsigned> package_version(std::string_view path) {
  constexpr std::string_view kMarker = "libibverbs.so.";
  const std::size_t at = path.rfind(kMarker);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view numbers = path.substr(at + kMarker.size());
  unsigned value = 0;
  for (int i = 0; i < 3; ++i) {
    const auto [end, error] =
        std::from_chars(numbers.data(), numbers.data() + numbers.size(), value);
    if (error != std::errc{}) return std::nullopt;
    numbers.remove_prefix(static_cast<std::size_t>(end - numbers.data()));
    if (i == 2) return value;
    if (numbers.empty() || numbers.front() != '.') return std::nullopt;
    numbers.remove_prefix(1);
  }
  return std::nullopt;
}

std::optional<Version> identify(const LibraryFacts& facts, std::string& reason) {
  const std::optional<unsigned> number = package_version(facts.real_path);
  const bool newer = facts.has_create_cq_ex2 && facts.has_wr_opcode_str;
  const bool older = !facts.has_create_cq_ex2 && !facts.has_wr_opcode_str;
  if (number == 44U && older) return Version::v44;
  if (number == 56U && newer) return Version::v56;
  reason = "unknown provider ABI of " + (facts.real_path.empty() ? "libibverbs" : facts.real_path) +
           " (known: rdma-core 44 and 56)";
  return std::nullopt;
}

Version current() {
  return current_version;
}
void set_current(Version version) {
  current_version = version;
}

void add_qp_comp_mask(verbs_qp& qp, std::uint32_t bits) {
  std::uint32_t mask = 0;
  unsigned char* at = qp.storage + qp_comp_mask_offset(current_version);
  std::memcpy(&mask, at, sizeof(mask));
  mask |= bits;
  std::memcpy(at, &mask, sizeof(mask));
}

}  // namespace softhca::provider::abi
