// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vfio-user/version.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

namespace softhca::vfio_user {
namespace {

constexpr std::size_t kMaxVersionData = 64U << 10;

/// Stores object[name] in `out` if it is there; false if it is not a number in [minimum, max of T].
template <typename T>
bool read_number(const nlohmann::json& object, const char* name, std::uint64_t minimum, T& out) {
  const auto found = object.find(name);
  if (found == object.end()) return true;
  if (!found->is_number_unsigned()) return false;
  const auto value = found->get<std::uint64_t>();
  if (value < minimum || value > std::numeric_limits<T>::max()) return false;
  out = static_cast<T>(value);
  return true;
}

bool read_capabilities(const nlohmann::json& object, Capabilities& out) {
  if (!object.is_object()) return false;
  if (!read_number(object, "max_msg_fds", 0, out.max_message_fds)) return false;
  if (!read_number(object, "max_data_xfer_size", 8, out.max_data_transfer)) return false;
  if (!read_number(object, "max_dma_maps", 1, out.max_dma_maps)) return false;
  if (!read_number(object, "pgsizes", 1, out.page_sizes)) return false;
  if (const auto found = object.find("write_multiple"); found != object.end()) {
    if (!found->is_boolean()) return false;
    out.write_multiple = found->get<bool>();
  }
  return true;
}

}  // namespace

std::string encode_version(const Capabilities& capabilities) {
  nlohmann::json object = {{"max_msg_fds", capabilities.max_message_fds},
                           {"max_data_xfer_size", capabilities.max_data_transfer},
                           {"max_dma_maps", capabilities.max_dma_maps},
                           {"pgsizes", capabilities.page_sizes}};
  if (capabilities.write_multiple) object["write_multiple"] = true;
  const std::string text = nlohmann::json{{"capabilities", std::move(object)}}.dump();
  const VersionBody version;
  std::string body(sizeof version, '\0');
  std::memcpy(body.data(), &version, sizeof version);
  body.append(text).push_back('\0');
  return body;
}

bool decode_version(std::span<const std::byte> body, VersionBody& version,
                    Capabilities& capabilities) {
  if (body.size() < sizeof version) return false;
  std::memcpy(&version, body.data(), sizeof version);
  const auto data = body.subspan(sizeof version);
  if (data.empty()) return true;
  if (data.size() > kMaxVersionData || data.back() != std::byte{0}) return false;
  const char* text = reinterpret_cast<const char*>(data.data());
  const std::string_view view(text, ::strnlen(text, data.size()));
  if (view.empty()) return true;
  const auto json = nlohmann::json::parse(view, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return false;
  const auto found = json.find("capabilities");
  return found == json.end() || read_capabilities(*found, capabilities);
}

}  // namespace softhca::vfio_user
