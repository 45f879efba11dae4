// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "provider/xrc_domain.h"

#include <cerrno>
#include <new>

#include "provider/abi/commands.h"

namespace softhca::provider {

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  auto* domain = new (std::nothrow) abi::verbs_xrcd{};
  if (domain == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  abi::OpenXrcd command;
  abi::OpenXrcdResponse response;
  if (const int error = abi::ibv_cmd_open_xrcd(context, domain, sizeof(*domain), attr, &command,
                                               sizeof(command), &response, sizeof(response));
      error != 0) {
    delete domain;
    errno = error;
    return nullptr;
  }
  return &domain->xrcd;
}

int close_xrcd(ibv_xrcd* xrcd) {
  auto* domain = reinterpret_cast<abi::verbs_xrcd*>(xrcd);
  if (const int error = abi::ibv_cmd_close_xrcd(domain); error != 0) return error;
  delete domain;
  return 0;
}

}  // namespace softhca::provider
