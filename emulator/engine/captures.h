// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/control/server.h"
#include "emulator/runtime/result.h"
#include "emulator/runtime/unique_fd.h"
#include "hw-model/fabric/fabric.h"

namespace softhca::emulator {

/// Running packet captures. Each writes pcapng to a descriptor that a client of the control socket
/// brought, and lasts as long as that client's connection. Never blocks: what the reader does not
/// take waits in memory up to a bound, then packets are dropped and counted.
class Captures {
 public:
  /// `clock`: the fabric's.
  Captures(fabric::Fabric& fabric, const Clock& clock);
  ~Captures();
  Captures(const Captures&) = delete;
  Captures& operator=(const Captures&) = delete;

  /// `link` empty: every link, also those to come. EBUSY: the connection captures already; ENOENT:
  /// no such link; EINVAL: `output` is not a pipe (a file or terminal could block the engine).
  runtime::Result<runtime::Done> start(ControlServer::ConnectionId connection,
                                       const std::string& link, runtime::UniqueFd output);
  bool has_connection(ControlServer::ConnectionId connection) const;
  void connection_closed(ControlServer::ConnectionId connection);
  /// Links come and go with their hosts: the capture of a single link ends with it.
  void host_attached(const std::string& link);
  void host_detached(const std::string& link);

  /// Now and then writes what has gathered; ends captures whose reader or link has gone.
  void flush_if_due();
  /// When flush_if_due() has something to do; kNever if nothing is captured.
  Nanoseconds next_flush() const;

 private:
  struct Capture;

  void flush();

  fabric::Fabric& fabric_;
  const Clock& clock_;
  std::vector<std::unique_ptr<Capture>> captures_;
  Nanoseconds last_flush_ = 0;
};

}  // namespace softhca::emulator
