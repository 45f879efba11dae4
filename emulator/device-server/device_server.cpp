// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/device-server/device_server.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "emulator/device-server/file_memory.h"
#include "emulator/device-server/irq_table.h"
#include "emulator/device-server/log_limiter.h"
#include "emulator/device-server/message_memory.h"
#include "emulator/device-server/ordered_interrupts.h"
#include "emulator/device-server/register_access.h"
#include "emulator/device-server/shared_memory.h"
#include "emulator/vfio-user/server.h"

namespace softhca::emulator {
namespace {

using vfio_user::FileDescriptor;

constexpr std::uint64_t kConfigSize = 4096;
constexpr std::uint64_t kUarArea = std::uint64_t{Function::kFirstUar} * 4096;
constexpr std::uint64_t kUarAreaSize = std::uint64_t{Function::kUarCount} * 4096;
/// Type of region kDoorbellHintsRegionIndex: vendor-specific, of the PCI vendor 15b3
/// (linux/vfio.h).
constexpr std::uint32_t kVendorRegionType = 1U << 31 | 0x15b3;
constexpr std::uint32_t kHintsRegionSubtype = 0x5348;
constexpr int kEventsPerCall = 4;

FileDescriptor checked(int fd, const char* what) {
  if (fd < 0) throw std::system_error(errno, std::generic_category(), what);
  return FileDescriptor(fd);
}

/// Memory that a driver maps; renewed for every client, since an earlier one may have kept its
/// mapping.
struct DriverPages {
  explicit DriverPages(bool with_uars) : hints("softhca-hints", kDoorbellHintsSize) {
    if (with_uars) uars.emplace("softhca-uars", Function::kBar0Size);
    state = new (hints.base()) DoorbellHints{};
  }
  SharedMemory hints;
  std::optional<SharedMemory> uars;  ///< All of BAR0, so that file offsets are BAR offsets.
  DoorbellHints* state = nullptr;
};

}  // namespace

struct DeviceServer::Impl final : vfio_user::ServerDevice {
  Impl(const FunctionConfig& config, ib::Port& port, const Clock& clock_in,
       FileDescriptor listening, Log log_in);
  ~Impl() override;

  // vfio_user::ServerDevice
  std::vector<vfio_user::ServerRegion> regions() override;
  std::vector<vfio_user::ServerIrq> irqs() override { return interrupts.info(); }
  std::vector<vfio_user::ServerIoEventFd> region_io_fds(std::uint32_t index) override;
  std::errc region_read(std::uint32_t region, std::uint64_t offset,
                        std::span<std::byte> to) override;
  std::errc region_write(std::uint32_t region, std::uint64_t offset,
                         std::span<const std::byte> from) override;
  std::errc set_irqs(vfio_user::SetIrqsRequest request) override;
  std::errc dma_map(vfio_user::DmaMapRequest request) override;
  std::errc dma_unmap(std::uint64_t iova, std::uint64_t size) override;
  void dma_unmap_all() override { function.dma().clear(); }
  void reset() override;
  void disconnected(const std::string& reason) override;

  bool is_pending_bits(std::uint64_t offset) const;
  void read_pending_bits(std::uint64_t offset, std::span<std::byte> to) const;
  void attach_pages();
  void renew_pages();
  void renew_wake();
  int event_set() const { return shared_epoll >= 0 ? shared_epoll : epoll.get(); }
  bool watch(int fd, std::uint32_t events, std::uint32_t& current);
  bool watch_in(int epoll, std::uint64_t key);
  void update_watches();
  bool look_at_own_set();
  bool on_event();
  bool step(const StepBudget& budget);

  const Clock& clock;
  LogLimiter log;
  const bool mapped_uars;
  FileDescriptor epoll;  ///< Unless somebody else's set is used.
  int shared_epoll = -1;
  std::uint64_t shared_key = 0;
  FileDescriptor wake;
  std::unique_ptr<DriverPages> pages;
  IrqTable interrupts;
  OrderedInterrupts ordered_interrupts{interrupts};
  Function function;
  FileMemoryTable files;
  std::shared_ptr<MessageMemory> messages;  ///< Null until the first map without a descriptor.
  bool uses_hints = false;
  int watched_connection = -1;
  std::uint32_t connection_events = 0;
  std::uint32_t listen_events = 0;
  bool more_input = false;
  bool known_to_have_failed = false;
  vfio_user::Server server;  ///< Last: its end calls disconnected().
};

DeviceServer::Impl::Impl(const FunctionConfig& config, ib::Port& port, const Clock& clock_in,
                         FileDescriptor listening, Log log_in)
    : clock(clock_in),
      log(std::move(log_in), clock_in),
      mapped_uars(config.mapped_uars),
      epoll(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wake(checked(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")),
      pages(std::make_unique<DriverPages>(config.mapped_uars)),
      interrupts(config.num_msix_vectors),
      function(config, port, clock_in, ordered_interrupts),
      server(*this) {
  attach_pages();
  std::uint32_t none = 0;
  // Told of each write once and never read: clients have the eventfd too, and could make a read
  // wait.
  if (!watch(wake.get(), EPOLLIN | EPOLLET, none)) {
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
  server.attach(std::move(listening));
  update_watches();
}

DeviceServer::Impl::~Impl() {
  server.disconnect("device removed");
  function.attach_doorbell_hints(nullptr);
  function.attach_mapped_uars(nullptr);
  // Clients have the eventfd, too, so that it does not leave the set by being closed here.
  if (shared_epoll >= 0) ::epoll_ctl(shared_epoll, EPOLL_CTL_DEL, wake.get(), nullptr);
}

/// Hints are looked at since the client asked for the means to wake us (region_io_fds): a driver
/// that maps UAR pages and knows nothing of hints must not be waited for.
void DeviceServer::Impl::attach_pages() {
  function.attach_doorbell_hints(uses_hints ? pages->state : nullptr);
  function.attach_mapped_uars(pages->uars ? pages->uars->base() + kUarArea : nullptr);
}

void DeviceServer::Impl::renew_pages() {
  try {
    auto fresh = std::make_unique<DriverPages>(mapped_uars);
    fresh->state->engine_state.store(pages->state->engine_state.load());
    std::swap(pages, fresh);
    attach_pages();
  } catch (const std::system_error& error) {
    log.line(std::string("driver pages are not renewed: ") + error.what());
    attach_pages();
  }
}

/// A client that has gone keeps the eventfd, and could fill it, so that no write of the next one
/// gets through. Out of descriptors, that one has to do with the old eventfd.
void DeviceServer::Impl::renew_wake() {
  FileDescriptor fresh(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::uint32_t none = 0;
  if (!fresh || !watch(fresh.get(), EPOLLIN | EPOLLET, none)) {
    log.line("the wake eventfd is not renewed: out of descriptors");
    return;
  }
  ::epoll_ctl(event_set(), EPOLL_CTL_DEL, wake.get(), nullptr);
  wake = std::move(fresh);
}

// --- Regions ---

std::vector<vfio_user::ServerRegion> DeviceServer::Impl::regions() {
  std::vector<vfio_user::ServerRegion> regions(kDoorbellHintsRegionIndex + 1);
  auto& bar0 = regions[vfio_user::kRegionBar0];
  bar0.size = Function::kBar0Size;
  bar0.readable = bar0.writable = true;
  if (pages->uars) {
    bar0.fd = pages->uars->fd();
    bar0.mmap_areas = {{kUarArea, kUarAreaSize}};
  }
  auto& config = regions[vfio_user::kRegionConfig];
  config.size = kConfigSize;
  config.readable = config.writable = true;
  auto& hints = regions[kDoorbellHintsRegionIndex];
  hints.size = pages->hints.size();
  hints.readable = hints.writable = true;
  hints.fd = pages->hints.fd();
  hints.type =
      vfio_user::CapRegionType{{vfio_user::kCapRegionType}, kVendorRegionType, kHintsRegionSubtype};
  return regions;
}

std::vector<vfio_user::ServerIoEventFd> DeviceServer::Impl::region_io_fds(std::uint32_t index) {
  if (index != kDoorbellHintsRegionIndex) return {};
  uses_hints = true;
  attach_pages();
  vfio_user::ServerIoEventFd entry;
  entry.size = 8;
  entry.fd = wake.get();
  return {entry};
}

std::errc DeviceServer::Impl::region_read(std::uint32_t region, std::uint64_t offset,
                                          std::span<std::byte> to) {
  switch (region) {
    case vfio_user::kRegionBar0:
      for_each_register(offset, to, [&](std::uint64_t at, std::span<std::byte> part) {
        if (is_pending_bits(at)) {
          read_pending_bits(at, part);
        } else {
          function.bar_read(at, part);
        }
      });
      return {};
    case vfio_user::kRegionConfig:
      function.config_read(static_cast<std::uint32_t>(offset), to);
      return {};
    case kDoorbellHintsRegionIndex:
      std::memcpy(to.data(), pages->hints.base() + offset, to.size());
      return {};
    default:
      return std::errc::invalid_argument;
  }
}

bool DeviceServer::Impl::is_pending_bits(std::uint64_t offset) const {
  const std::uint64_t words = (interrupts.vectors() + 63) / 64;
  return offset >= Function::kMsixPba && offset - Function::kMsixPba < words * 8;
}

// The pending bits of MSI-X vectors are known here and not in the model (PCI Local
// Bus 3.0, 6.8.2.10).
void DeviceServer::Impl::read_pending_bits(std::uint64_t offset, std::span<std::byte> to) const {
  for (std::size_t i = 0; i < to.size(); ++i) {
    unsigned bits = 0;
    for (unsigned bit = 0; bit < 8; ++bit) {
      const auto vector = static_cast<std::uint16_t>((offset - Function::kMsixPba + i) * 8 + bit);
      if (interrupts.pending(vector)) bits |= 1U << bit;
    }
    to[i] = static_cast<std::byte>(bits);
  }
}

std::errc DeviceServer::Impl::region_write(std::uint32_t region, std::uint64_t offset,
                                           std::span<const std::byte> from) {
  if (messages) messages->invalidate_reads();
  switch (region) {
    case vfio_user::kRegionBar0:
      for_each_register(offset, from, [&](std::uint64_t at, std::span<const std::byte> part) {
        function.bar_write(at, part);
      });
      return {};
    case vfio_user::kRegionConfig:
      function.config_write(static_cast<std::uint32_t>(offset), from);
      return {};
    default:
      // Marking a hint takes an atomic or; by messages a driver rings its UAR instead.
      return std::errc::operation_not_permitted;
  }
}

// --- Interrupts and memory ---

std::errc DeviceServer::Impl::set_irqs(vfio_user::SetIrqsRequest request) {
  const std::errc error = interrupts.set(std::move(request));
  if (error != std::errc{}) log.line("client attached something that is not an eventfd");
  return error;
}

std::errc DeviceServer::Impl::dma_map(vfio_user::DmaMapRequest request) {
  DmaSpace& space = function.dma();
  if (space.range_count() >= vfio_user::kDefaultMaxDmaMaps) return std::errc::no_space_on_device;
  DmaSpace::Range range;
  if (request.fd) {
    const std::errc error = files.open(std::move(request), range);
    if (error != std::errc{}) {
      log.line("memory of the client is refused: " + std::make_error_code(error).message());
      return error;
    }
  } else {
    if (!messages) {
      messages = std::make_shared<MessageMemory>(server, clock, [this] {
        ordered_interrupts.release();
        function.memory_arrived();
      });
      ordered_interrupts.follow(messages);
    }
    range.iova = request.iova;
    range.size = request.size;
    range.readable = request.readable;
    range.writable = request.writable;
    range.backing = messages;
    range.backing_offset = request.iova;
  }
  return space.map(std::move(range));
}

std::errc DeviceServer::Impl::dma_unmap(std::uint64_t iova, std::uint64_t size) {
  return function.dma().unmap(iova, size);
}

void DeviceServer::Impl::reset() {
  function.reset();
  ordered_interrupts.clear();
  interrupts.clear_pending();
}

// The next client must find a device at power-on that knows nothing of this one and shares nothing
// with it.
void DeviceServer::Impl::disconnected(const std::string& reason) {
  log.line("client gone: " + reason);
  function.reset();
  function.dma().clear();
  ordered_interrupts.follow(nullptr);
  messages.reset();
  interrupts.drop();
  more_input = false;
  if (uses_hints) renew_wake();
  uses_hints = false;
  // The next connection may get the same number.
  watched_connection = -1;
  connection_events = 0;
  renew_pages();
}

// --- Events ---

bool DeviceServer::Impl::watch(int fd, std::uint32_t events, std::uint32_t& current) {
  if (events == current) return true;
  epoll_event event{};
  event.events = events;
  if (shared_epoll >= 0) {
    event.data.u64 = shared_key;
  } else {
    event.data.fd = fd;
  }
  const int operation = current == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  if (::epoll_ctl(event_set(), operation, fd, &event) != 0) return false;
  current = events;
  return true;
}

// A closed descriptor leaves the epoll set by itself; a new client waits in the backlog, unwatched,
// while another one is connected.
void DeviceServer::Impl::update_watches() {
  if (server.connection_fd() != watched_connection) connection_events = 0;
  watched_connection = server.connection_fd();
  if (watched_connection >= 0) {
    const std::uint32_t output = server.wants_write() ? std::uint32_t{EPOLLOUT} : 0U;
    if (!watch(watched_connection, EPOLLIN | output, connection_events)) {
      server.disconnect("the connection cannot be polled");
      watched_connection = -1;
    }
  }
  if (server.listen_fd() < 0) return;
  if (!watch(server.listen_fd(), watched_connection >= 0 ? 0U : std::uint32_t{EPOLLIN},
             listen_events)) {
    log.line("the listening socket cannot be polled");
  }
}

bool DeviceServer::Impl::watch_in(int set, std::uint64_t key) {
  shared_epoll = set;
  shared_key = key;
  std::uint32_t none = 0;
  if (!watch(wake.get(), EPOLLIN | EPOLLET, none)) {
    shared_epoll = -1;
    return false;
  }
  epoll.reset();
  watched_connection = -1;
  connection_events = 0;
  listen_events = 0;
  update_watches();
  return true;
}

/// What its own set has to say: true if there is input.
bool DeviceServer::Impl::look_at_own_set() {
  std::array<epoll_event, kEventsPerCall> events{};
  const int ready = ::epoll_wait(epoll.get(), events.data(), kEventsPerCall, 0);
  bool input = false;
  for (int i = 0; i < ready; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.fd == wake.get()) continue;
    if ((event.events & EPOLLOUT) != 0) server.on_writable();
    if ((event.events & ~std::uint32_t{EPOLLOUT}) != 0) input = true;
  }
  return input;
}

/// In a shared set nobody says what is ready: trying costs no more than asking.
bool DeviceServer::Impl::on_event() {
  bool input = true;
  if (shared_epoll < 0) {
    input = look_at_own_set() || more_input;
  } else if (server.wants_write()) {
    server.on_writable();
  }
  if (input) {
    files.renew_budget();
    const bool was_connected = server.connection_fd() >= 0;
    more_input = server.on_readable();
    if (!was_connected && server.connection_fd() >= 0) log.line("client connected");
  }
  if (messages) messages->retry_refused();
  update_watches();
  return more_input;
}

bool DeviceServer::Impl::step(const StepBudget& budget) {
  const bool more = function.step(budget);
  if (function.failed() != known_to_have_failed) {
    known_to_have_failed = function.failed();
    if (known_to_have_failed) log.line("the device has failed: " + function.failure_reason());
  }
  if (messages) {
    if (!more) messages->settle();
    update_watches();
  }
  return more;
}

DeviceServer::DeviceServer(const FunctionConfig& config, ib::Port& port, const Clock& clock,
                           FileDescriptor listening, Log log)
    : impl_(std::make_unique<Impl>(config, port, clock, std::move(listening), std::move(log))) {}

DeviceServer::~DeviceServer() = default;

Function& DeviceServer::function() {
  return impl_->function;
}
DoorbellHints& DeviceServer::hints() {
  return *impl_->pages->state;
}
bool DeviceServer::hints_wait() const {
  return impl_->function.rung();
}
int DeviceServer::poll_fd() const {
  return impl_->epoll.get();
}
bool DeviceServer::watch_in(int epoll, std::uint64_t key) {
  return impl_->watch_in(epoll, key);
}
bool DeviceServer::uses_hints() const {
  return impl_->uses_hints;
}
int DeviceServer::wake_fd() const {
  return impl_->wake.get();
}
bool DeviceServer::on_event() {
  return impl_->on_event();
}
bool DeviceServer::step(const StepBudget& budget) {
  return impl_->step(budget);
}

void DeviceServer::hold_interrupts() {
  impl_->interrupts.hold();
}

bool DeviceServer::deliver_interrupts() {
  return impl_->interrupts.deliver();
}
bool DeviceServer::connected() const {
  return impl_->server.connection_fd() >= 0;
}

void DeviceServer::disconnect(const std::string& reason) {
  impl_->server.disconnect(reason);
  impl_->update_watches();
}

}  // namespace softhca::emulator
