// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "emulator/control/bring_up.h"
#include "emulator/control/client.h"
#include "emulator/runtime/lock.h"
#include "kernel-shim/host/device/hca.h"
#include "kernel-shim/host/device/vfio/vfio_device.h"
#include "kernel-shim/host/device/vfio_user_device.h"
#include "kernel-shim/host/host.h"
#include "kernel-shim/host/server/server.h"
#include "kernel-shim/host/tree/counters.h"
#include "kernel-shim/host/tree/tree.h"
#include "kernel-shim/host/uverbs/ib_device.h"

namespace softhca::shim {
namespace {

using namespace std::chrono_literals;
using runtime::Done;
using runtime::Result;

constexpr int kExitFailed = 1;
constexpr int kExitBusy = 2;
/// A predecessor that is just ending gets this long to give the host up.
constexpr auto kLockTimeout = 5s;
/// Between the last user and the end: commands in a row need not bring the device up again each
/// time.
constexpr auto kLinger = 200ms;
/// Counter files are not rewritten more often.
constexpr auto kCounterAge = 100ms;

/// One virtual host's daemon from start to end.
class HostDaemon final : public ServerOwner {
 public:
  explicit HostDaemon(const HostOptions& options)
      : options_(options), persistent_(options.persistent), tree_(options.host_dir) {}
  ~HostDaemon() override { shut_down(); }

  Result<Done> start();
  void run() { loop_.run(); }

  // ServerOwner
  void refresh_tree() override;
  void control(ControlAction action) override;
  bool persistent() const override { return persistent_; }
  void users_changed() override;

 private:
  Result<std::unique_ptr<PciDevice>> open_device();
  Result<Done> connect_device();
  void watch_signals();
  TreeDevice describe() const;
  void update_port();
  void shut_down();
  void detach();

  const HostOptions& options_;
  bool persistent_;
  EventLoop loop_;
  DeviceTree tree_;
  std::unique_ptr<Hca> hca_;
  std::unique_ptr<IbDevice> device_;
  std::unique_ptr<Server> server_;
  runtime::UniqueFd signals_;
  std::optional<std::uint64_t> end_timer_;
  EventLoop::Clock::time_point counters_read_{};
};

Result<std::unique_ptr<PciDevice>> HostDaemon::open_device() {
  if (!options_.pci_address.empty()) return open_vfio_device(options_.pci_address);
  const std::string socket = options_.host_dir + "/device.sock";
  auto pci = connect_vfio_user_device(socket);
  if (!pci && !options_.control_socket.empty()) {
    // The emulator may have dropped the device when the previous daemon of this host left.
    const auto attached = emulator::attach_host(options_.fabric, options_.host, {});
    if (!attached) return attached.error();
    pci = connect_vfio_user_device(socket);
  }
  return pci;
}

Result<Done> HostDaemon::connect_device() {
  auto pci = open_device();
  if (!pci) return pci.error();
  auto hca = Hca::bring_up(std::move(*pci), loop_);
  if (!hca) return hca.error();
  hca_ = std::move(*hca);
  return Done{};
}

Result<Done> HostDaemon::start() {
  watch_signals();
  if (auto connected = connect_device(); !connected) return connected;
  device_ = std::make_unique<IbDevice>(*hca_, Offers{.xrc = true, .windows = true});
  if (const int error = device_->refresh_port()) {
    return runtime::system_error(error, "reading the port's state");
  }
  device_->on_port_change([this] { update_port(); });
  hca_->start_events(*device_, [this] {
    device_->fail();
    users_changed();
  });
  if (auto built = tree_.build(describe()); !built) return built;
  server_ = std::make_unique<Server>(loop_, *device_, *this);
  if (auto listening = server_->listen(options_.host_dir + "/kernel.sock"); !listening) {
    return listening;
  }
  spdlog::info("host {} is up: LID {:#x}, port GUID {}, {} firmware pages", options_.host,
               device_->port().lid, guid_text(device_->port().port_guid), hca_->firmware_pages());
  if (!persistent_) {
    end_timer_ = loop_.after(std::chrono::milliseconds(options_.first_use_timeout_ms),
                             [this] { loop_.stop(); });
  }
  return Done{};
}

void HostDaemon::watch_signals() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGTERM);
  ::sigaddset(&set, SIGINT);
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  signals_.reset(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_) loop_.watch(signals_.get(), EPOLLIN, [this](std::uint32_t) { loop_.stop(); });
}

TreeDevice HostDaemon::describe() const {
  TreeDevice tree;
  tree.host = options_.host;
  tree.board_id = hca_->board_id();
  char version[32];
  std::snprintf(version, sizeof(version), "%u.%u.%04u", hca_->fw_major(), hca_->fw_minor(),
                hca_->fw_subminor());
  tree.fw_version = version;
  tree.major = Server::kMajor;
  tree.minor = Server::kMinor;
  tree.port = device_->port();
  tree.gids = device_->gids();
  tree.pkeys = device_->pkeys();
  tree.counters = read_port_counters(hca_->commands());
  tree.hw_counters = read_hw_counters(hca_->commands(), hca_->q_counter_set());
  return tree;
}

void HostDaemon::update_port() {
  if (auto updated = tree_.update_port(describe()); !updated) {
    spdlog::warn("{}", updated.error().message);
  }
}

void HostDaemon::refresh_tree() {
  const auto now = EventLoop::Clock::now();
  if (!hca_->alive() || now - counters_read_ < kCounterAge) return;
  counters_read_ = now;
  if (auto updated = tree_.update_counters(describe()); !updated) {
    spdlog::warn("{}", updated.error().message);
  }
}

void HostDaemon::control(ControlAction action) {
  switch (action) {
    case ControlAction::none:
      return;
    case ControlAction::persist:
      persistent_ = true;
      break;
    case ControlAction::release:
      persistent_ = false;
      break;
    case ControlAction::stop:
      device_->fail();
      // After the reply is on its way.
      loop_.after(0ms, [this] { loop_.stop(); });
      return;
  }
  users_changed();
}

/// Ends the daemon when nobody uses it, unless it is to stay. Without its device it does not stay.
void HostDaemon::users_changed() {
  if (end_timer_) loop_.cancel(*end_timer_);
  end_timer_.reset();
  if (server_ == nullptr || server_->leases() != 0 || server_->contexts() != 0) return;
  if (persistent_ && hca_->alive()) return;
  end_timer_ = loop_.after(kLinger, [this] { loop_.stop(); });
}

void HostDaemon::shut_down() {
  if (server_ != nullptr) server_->stop_listening();
  server_.reset();
  device_.reset();
  const bool had_device = hca_ != nullptr;
  const bool alive = had_device && hca_->alive();
  hca_.reset();
  if (alive) detach();
  if (had_device) tree_.remove();
}

void HostDaemon::detach() {
  if (options_.control_socket.empty()) return;
  auto client = emulator::ControlClient::connect_path(options_.control_socket);
  if (!client) return;
  const auto reply = client->request({{"command", "detach"}, {"host", options_.host}});
  if (!reply) spdlog::debug("detach: {}", reply.error().message);
}

/// Every context, event channel and connection takes descriptors. What cannot be raised stays.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Tells who waits for us that we are ready (empty), or why we are not.
void report(int fd, const std::string& failure) {
  if (fd < 0) return;
  const std::string message = failure.empty() ? "\n" : failure;
  [[maybe_unused]] const ssize_t written = ::write(fd, message.data(), message.size());
  ::close(fd);
}

}  // namespace

int host_main(const HostOptions& options) {
  raise_descriptor_limit();
  // Naps while a command runs are shorter than what the system allows itself to add to them.
  ::prctl(PR_SET_TIMERSLACK, 1);
  // The lock says who may replace a stale kernel.sock.
  const auto lock = runtime::FileLock::acquire(options.host_dir + "/lock", kLockTimeout);
  if (!lock) {
    const bool held = lock.error().code == EWOULDBLOCK;
    report(options.ready_fd,
           held ? "host " + options.host + " has a daemon already" : lock.error().message);
    return kExitBusy;
  }
  HostDaemon daemon(options);
  if (const auto started = daemon.start(); !started) {
    spdlog::error("host {}: {}", options.host, started.error().message);
    report(options.ready_fd, started.error().message);
    return kExitFailed;
  }
  report(options.ready_fd, "");
  daemon.run();
  spdlog::info("host {} ends", options.host);
  return 0;
}

}  // namespace softhca::shim
