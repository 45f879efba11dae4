// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "emulator/vfio-user/file_descriptor.h"
#include "hw-model/device/function.h"

namespace softhca::emulator {

/// One device of the emulator: a Function and the vfio-user server by which a driver (QEMU, or a
/// virtual host's daemon) reaches it. Owns the socket, the interrupts, the DMA maps and the shared
/// memory regions. Single threaded like the Function.
///
/// The engine polls for input, by poll_fd() or in its own set by watch_in(), and calls on_event()
/// when there is some; nothing else has to be polled. step() goes in place of Function::step().
class DeviceServer {
 public:
  /// Called with one line when a client comes or goes, or does something worth a log entry.
  /// Rate-limited.
  using Log = std::function<void(const std::string&)>;

  /// `listening` as vfio_user::listen_unix() makes it. Throws std::system_error if descriptors or
  /// memory run out.
  DeviceServer(const FunctionConfig& config, ib::Port& port, const Clock& clock,
               vfio_user::FileDescriptor listening, Log log = {});
  ~DeviceServer();
  DeviceServer(const DeviceServer&) = delete;
  DeviceServer& operator=(const DeviceServer&) = delete;

  Function& function();
  /// The engine stores kEngineSleeping here before it sleeps. Replaced when a client goes: ask
  /// again after every on_event() and disconnect().
  DoorbellHints& hints();
  /// True if the next step() finds hints. Marks of a client that has not asked for the wake
  /// eventfd do not count: what such a client rings is found without them.
  bool hints_wait() const;
  /// Its client rings by hints, not by messages alone.
  bool uses_hints() const;

  /// One descriptor for everything: new client, messages, client that reads again, doorbell wake
  /// eventfd.
  int poll_fd() const;
  /// Watches all of that in `epoll` instead, with `key` as data of its events, until this ends: a
  /// set within a set costs a system call an event, and whoever sends is not told to give its
  /// processor to the sleeper. False, and nothing changes, if `epoll` takes no more. Once only.
  bool watch_in(int epoll, std::uint64_t key);
  /// Handles what is there, within a bound; never blocks. True if more is waiting.
  bool on_event();
  bool step(const StepBudget& budget);
  /// Interrupts wait for deliver_interrupts() from now on.
  void hold_interrupts();
  /// True if there were any.
  bool deliver_interrupts();
  /// The eventfd by which a driver wakes a sleeping engine; part of poll_fd(), and is replaced when
  /// a client goes that had it.
  int wake_fd() const;

  bool connected() const;
  /// Ends the connection and lets the next client in.
  void disconnect(const std::string& reason);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace softhca::emulator
