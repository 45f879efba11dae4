// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/engine/engine.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <set>
#include <system_error>
#include <utility>

#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "emulator/control/server.h"
#include "emulator/engine/captures.h"
#include "emulator/engine/clock.h"
#include "emulator/engine/commands.h"
#include "emulator/engine/device_set.h"
#include "emulator/engine/event_set.h"
#include "emulator/engine/spin_schedule.h"

namespace softhca::emulator {
namespace {

using runtime::UniqueFd;

/// How often the sockets are looked at while there is work, and while spinning idle.
constexpr Nanoseconds kBusyPollInterval = 50'000;
constexpr Nanoseconds kIdlePollInterval = 20'000;
/// A client that has sent something is likely to send more: for so long after it, and so often.
constexpr Nanoseconds kTalk = 50'000;
constexpr Nanoseconds kTalkPollInterval = 5'000;
/// So long after a command the engine polls for the next one even where it does not poll otherwise.
constexpr Nanoseconds kNextCommand = 40'000;
/// Who waits for a command longer than this is not made way for.
constexpr Nanoseconds kLongestWait = 10'000'000;
/// The longest that an interrupt waits for the work it belongs to.
constexpr Nanoseconds kInterruptDelay = 20'000;
/// A sleep shorter than this is not worth its system calls.
constexpr Nanoseconds kShortestSleep = 10'000;
/// Standing still for so long is worth a line in the log: QEMU waits 5 s for a register, then tells
/// the guest that the device has gone.
constexpr Nanoseconds kStandstill = 1'000'000'000;

constexpr std::uint64_t kControlKey = 0;
constexpr std::uint64_t kSignalKey = 1;
constexpr std::uint64_t kFirstDeviceKey = 2;

UniqueFd termination_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) throw std::system_error(errno, std::generic_category(), "signalfd");
  return fd;
}

Nanoseconds later(Nanoseconds now, Nanoseconds by) {
  return by > kNever - now ? kNever : now + by;
}

}  // namespace

struct Engine::Impl {
  Impl(Options given, UniqueFd control_socket)
      : options(std::move(given)),
        devices({.fabric = options.fabric}, clock),
        captures(devices.fabric(), clock),
        commands(devices, captures, [this] { stopping = true; }),
        control(
            std::move(control_socket),
            [this](const ControlServer::Request& request) { return answer(request); },
            [this](ControlServer::ConnectionId connection) {
              captures.connection_closed(connection);
            }),
        signals(termination_signals()) {
    events.add(control.poll_fd(), kControlKey);
    events.add(signals.get(), kSignalKey);
    devices.on_removal([this](const std::string& host) { captures.host_detached(host); });
    unused_since = clock.now();
  }

  Options options;
  EngineClock clock;
  EventSet events;
  DeviceSet devices;
  Captures captures;
  Commands commands;
  ControlServer control;
  UniqueFd signals;
  bool stopping = false;
  bool more_control = false;
  bool was_used = false;
  bool resting = false;
  Nanoseconds unused_since = kNever;
  Nanoseconds last_active = 0;  ///< See note_activity().
  Nanoseconds last_poll = 0;
  Nanoseconds last_talk = 0;
  Nanoseconds last_command = 0;
  Nanoseconds last_delivery = 0;
  Nanoseconds last_seen_running = kNever;

  nlohmann::json answer(const ControlServer::Request& request) {
    nlohmann::json reply = commands.answer(request);
    if (captures.has_connection(request.connection)) control.keep(request.connection);
    watch_devices();
    return reply;
  }

  /// Devices come by control commands and go by several ways; the epoll set forgets closed ones by
  /// itself.
  void watch_devices() {
    for (auto& [name, device] : devices.devices()) {
      if (device.watched) continue;
      if (!device.server->watch_in(events.fd(), kFirstDeviceKey + device.id)) {
        throw std::system_error(errno, std::generic_category(), "epoll_ctl");
      }
      device.server->hold_interrupts();
      device.watched = true;
    }
  }

  /// Its driver may ring by stores that nobody sees.
  static bool is_swept(const Device& device) {
    return device.mapped_uars && device.server->connected() &&
           device.server->function().has_doorbell_records();
  }

  /// Polling pays for clients that ring by hints, which yield while they wait. A guest's processor
  /// does neither: its messages wake a sleeping engine at once, while one that polls keeps it from
  /// running, or waits behind it for a slice.
  void note_activity(const Device& device) {
    if (device.server->uses_hints()) last_active = clock.now();
  }

  bool step_device(Device& device) {
    bool active = device.server->hints_wait();
    if (device.server->uses_hints() &&
        device.server->hints().commands.load(std::memory_order_relaxed) != 0) {
      last_command = clock.now();
      device.waited_for_since = kNever;  // Somebody waits anew.
    }
    if (device.sweep.due(clock.now()) && is_swept(device)) {
      const Sweep sweep = device.server->function().sweep_doorbells(SweepSchedule::kQueuesAtOnce);
      device.sweep.swept(sweep, clock.now(), device.server->uses_hints());
      active |= sweep.moved;
    }
    active |= device.server->step(StepBudget{});
    if (active) note_activity(device);
    return active;
  }

  /// True if anything was done or is left to do.
  bool pass() {
    bool active = false;
    const Nanoseconds now = clock.refresh();
    // Of all first: what one device sends reaches memory of another.
    for (auto& [name, device] : devices.devices()) device.server->function().follow_mkey_states();
    for (auto& [name, device] : devices.devices()) active |= step_device(device);
    if (devices.fabric().next_deadline() <= now) {
      devices.fabric().step();
      active = true;
    }
    return active;
  }

  /// Interrupts go out when the work at hand is done, or has gone on for a while: a program that is
  /// woken by the first of several completions that belong together would find the others missing.
  void deliver_interrupts() {
    for (auto& [name, device] : devices.devices()) {
      if (!device.server->deliver_interrupts() || device.server->uses_hints()) continue;
      device.sweep.interrupted(clock.now());
    }
    last_delivery = clock.now();
  }

  /// Tells pollers where not to be.
  void publish_processor() {
    const auto here = static_cast<std::uint32_t>(::sched_getcpu() + 1);
    for (auto& [name, device] : devices.devices()) {
      auto& published = device.server->hints().engine_processor;
      if (published.load(std::memory_order_relaxed) != here) {
        published.store(here, std::memory_order_relaxed);
      }
    }
  }

  bool serve_devices() {
    bool served = false;
    for (auto& [name, device] : devices.devices()) {
      if (!device.ready && !device.more_events) continue;
      device.ready = false;
      clock.refresh();
      device.more_events = device.server->on_event();
      note_activity(device);
      served = true;
    }
    if (served) last_talk = clock.now();
    return served;
  }

  void mark_ready(std::uint64_t device_id) {
    for (auto& [name, device] : devices.devices()) device.ready |= device.id == device_id;
  }

  /// True if somebody was not heard for what had been written into the page of his hints.
  bool repair_hints() {
    bool repaired = false;
    for (auto& [name, device] : devices.devices()) {
      repaired |= device.server->function().repair_hints();
    }
    return repaired;
  }

  /// Waits up to `timeout` for input and handles it. True if there was any.
  bool poll_events(Nanoseconds timeout) {
    bool control_ready = more_control;
    const auto keys = events.wait(timeout);
    end_rest();
    for (const std::uint64_t key : keys) {
      if (key == kControlKey) {
        control_ready = true;
      } else if (key == kSignalKey) {
        stopping = true;
      } else {
        mark_ready(key - kFirstDeviceKey);
      }
    }
    bool served = serve_devices();
    if (control_ready) {
      clock.refresh();
      more_control = control.on_event();
      served = true;
    }
    last_poll = clock.refresh();
    publish_processor();
    served |= repair_hints();
    keep_house();
    return served;
  }

  /// Removes what nobody uses, and ends when nobody uses the engine.
  void keep_house() {
    captures.flush_if_due();
    devices.remove_unused();
    if (!devices.empty()) {
      was_used = true;
      unused_since = kNever;
    } else if (unused_since == kNever) {
      unused_since = clock.now();
    }
    if (clock.now() < end_time()) return;
    spdlog::info("nobody uses fabric {}: ending", options.fabric);
    stopping = true;
  }

  Nanoseconds end_time() const {
    if (!options.end_when_unused || unused_since == kNever) return kNever;
    return later(unused_since, was_used ? options.linger : options.first_attach_timeout);
  }

  Nanoseconds next_deadline() {
    Nanoseconds next = std::min({end_time(), devices.next_removal(),
                                 devices.fabric().next_deadline(), captures.next_flush()});
    for (auto& [name, device] : devices.devices()) {
      next = std::min(next, device.server->function().next_deadline());
      if (is_swept(device)) {
        next = std::min(next, device.sweep.next());
      }
    }
    return next;
  }

  void set_engine_state(std::uint32_t state) {
    for (auto& [name, device] : devices.devices()) {
      device.server->hints().engine_state.store(state, std::memory_order_seq_cst);
    }
  }

  /// Called once a pass: says when the engine was kept from running, so that a client's timeout is
  /// not looked for in the device.
  void note_standstill() {
    const Nanoseconds now = clock.now();
    if (last_seen_running != kNever && now - last_seen_running >= kStandstill) {
      spdlog::warn("the engine stood still for {} ms: the machine is short of processors or disk",
                   (now - last_seen_running) / 1'000'000);
    }
    last_seen_running = now;
  }

  bool must_stay_awake() {
    if (more_control || repair_hints()) return true;
    for (const auto& [name, device] : devices.devices()) {
      if (device.more_events || device.server->hints_wait()) return true;
    }
    return false;
  }

  /// Between these two nothing is done (Function::begin_rest()).
  void begin_rest() {
    for (auto& [name, device] : devices.devices()) device.server->function().begin_rest();
    resting = true;
  }
  void end_rest() {
    if (!std::exchange(resting, false)) return;
    for (auto& [name, device] : devices.devices()) device.server->function().end_rest();
  }

  /// Until the next deadline at most. A driver that rings after the store of kEngineSleeping sees
  /// it and writes the wake eventfd; one that rang before is seen by the look after it.
  void sleep() {
    deliver_interrupts();
    const Nanoseconds now = clock.refresh();
    const Nanoseconds deadline = next_deadline();
    if (deadline != kNever && deadline <= later(now, kShortestSleep)) return;
    set_engine_state(kEngineSleeping);
    const Nanoseconds wait = must_stay_awake() ? 0 : (deadline == kNever ? kNever : deadline - now);
    last_seen_running = wait == kNever ? kNever : now + wait;
    begin_rest();
    poll_events(wait);
    if (last_seen_running > clock.now()) last_seen_running = clock.now();
    set_engine_state(kEngineAwake);
  }

  /// True if a driver waits for a command, and for this processor: for so long as commands take,
  /// not because somebody has left or put a number there.
  bool is_waited_for_here() {
    bool waited_for = false;
    for (auto& [name, device] : devices.devices()) {
      const std::uint32_t at = device.server->hints().waiting_at.load(std::memory_order_relaxed);
      if (at == 0) device.waited_for_since = kNever;
      if (at == 0 || at != static_cast<std::uint32_t>(::sched_getcpu() + 1)) continue;
      device.waited_for_since = std::min(device.waited_for_since, clock.now());
      waited_for = waited_for || clock.now() - device.waited_for_since < kLongestWait;
    }
    return waited_for;
  }

  Nanoseconds poll_interval(bool active) const {
    if (clock.now() - last_talk < kTalk) return kTalkPollInterval;
    return active ? kBusyPollInterval : kIdlePollInterval;
  }

  /// Looks for doorbells alone for about as long as a pass takes: what comes meanwhile is found
  /// sooner.
  void await_doorbell() const {
    constexpr int kLooks = 32;
    for (int i = 0; i < kLooks; ++i) {
      for (const auto& [name, device] : devices.devices()) {
        if (device.server->hints_wait()) return;
      }
    }
  }

  void run() {
    SpinSchedule spin(options.idle_spin,
                      cheapest_of([this] { return clock.refresh(); }, [] { ::getppid(); }));
    while (!stopping) {
      bool active = pass();
      note_standstill();
      if (!active || clock.now() - last_delivery >= kInterruptDelay) deliver_interrupts();
      if (clock.now() - last_poll >= poll_interval(active)) active |= poll_events(0);
      if (!active && spin.spins(clock.now(), last_active) && !is_waited_for_here()) {
        const Nanoseconds before = clock.now();
        if (!spin.yields(before, last_active)) {
          await_doorbell();
          continue;
        }
        ::sched_yield();
        spin.yielded(before, clock.refresh());
      } else if (!active && clock.now() - last_command < kNextCommand && !is_waited_for_here()) {
        clock.refresh();
      } else if (!active) {
        sleep();
      }
    }
  }
};

Engine::Engine(Options options, UniqueFd control)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(control))) {}

Engine::~Engine() = default;

void Engine::run() {
  impl_->run();
}

void Engine::stop() {
  impl_->stopping = true;
}

}  // namespace softhca::emulator
