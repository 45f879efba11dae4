// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/runtime/result.h"

#include <system_error>

namespace softhca::runtime {

Error system_error(int code, const std::string& what) {
  return Error{code, what + ": " + std::generic_category().message(code)};
}

}  // namespace softhca::runtime
