// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/runtime/logging.h"

#include <cstdlib>
#include <memory>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace softhca::runtime {

void set_up_logging(const std::string& name) {
  auto logger =
      std::make_shared<spdlog::logger>(name, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %n[%P] %l: %v");
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
  if (const char* level = std::getenv("SOFTHCA_LOG_LEVEL"); level != nullptr && *level != 0) {
    if (!set_log_level(level)) spdlog::warn("SOFTHCA_LOG_LEVEL: no such level '{}'", level);
  }
}

bool set_log_level(const std::string& level) {
  const auto parsed = spdlog::level::from_str(level);
  // from_str() answers "off" to what it does not know.
  if (parsed == spdlog::level::off && level != "off") return false;
  spdlog::set_level(parsed);
  return true;
}

std::string log_level() {
  const auto name = spdlog::level::to_string_view(spdlog::get_level());
  return {name.data(), name.size()};
}

bool LogLimit::allow(Clock::time_point now) {
  if (now >= period_end_) {
    period_end_ = now + period_;
    used_ = 0;
  }
  if (used_ < burst_) {
    ++used_;
    return true;
  }
  ++suppressed_;
  return false;
}

}  // namespace softhca::runtime
