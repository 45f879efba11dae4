// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/device/function.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "hw-model/device/function_impl.h"
#include "hw-model/prm/uar.h"

namespace softhca {
namespace {

constexpr std::uint64_t kUarStart = std::uint64_t{Function::kFirstUar} * prm::kUarPageSize;
constexpr std::uint64_t kMsixEntrySize = 16;
/// Mailbox blocks that one step may walk for commands.
constexpr unsigned kCommandBlocksPerStep = 256;

FirmwareConfig firmware_config(const FunctionConfig& config) {
  FirmwareConfig firmware;
  firmware.node_guid = config.node_guid;
  firmware.board_id = config.board_id;
  firmware.blue_flame = config.blue_flame;
  firmware.num_msix = static_cast<std::uint16_t>(config.num_msix_vectors);
  firmware.first_uar = Function::kFirstUar;
  firmware.uar_count = Function::kUarCount;
  return firmware;
}

bool is_bus_access(std::uint64_t offset, std::size_t size) {
  const bool whole = size == 1 || size == 2 || size == 4 || size == 8;
  return whole && offset % size == 0 && offset < Function::kBar0Size &&
         size <= Function::kBar0Size - offset;
}

std::uint32_t load_be32(const std::byte* from) {
  return std::to_integer<std::uint32_t>(from[0]) << 24 |
         std::to_integer<std::uint32_t>(from[1]) << 16 |
         std::to_integer<std::uint32_t>(from[2]) << 8 | std::to_integer<std::uint32_t>(from[3]);
}

/// The MSI-X table is little-endian, like all that PCI itself defines.
bool in_msix_table(std::uint64_t offset, std::size_t words) {
  return offset >= Function::kMsixTable && offset < Function::kMsixTable + words * 4;
}

}  // namespace

Function::Impl::Impl(FunctionConfig config_in, ib::Port& port, const Clock& clock_in,
                     InterruptSink& interrupts)
    : config(std::move(config_in)),
      clock(clock_in),
      config_space(kBar0Size, {config.num_msix_vectors, kMsixTable, kMsixPba}),
      iseg(clock_in),
      firmware(firmware_config(config), dma, port, clock_in, interrupts,
               [this] {
                 fail(static_cast<std::uint8_t>(prm::HealthSyndrome::firmware_error),
                      "command queue unreachable");
               }),
      msix_table(config.num_msix_vectors * kMsixEntrySize / 4),
      blue_flame(kUarCount, [this](std::uint32_t qpn, std::span<const std::uint8_t> wqe) {
        firmware.state().transport.doorbell(qpn, wqe);
      }) {
  follow_bus_master();
}

std::uint32_t Function::Impl::read_word(std::uint64_t offset) const {
  if (offset < InitializationSegment::kSize) return iseg.read(offset);
  if (in_msix_table(offset, msix_table.size()))
    return __builtin_bswap32(msix_table[(offset - kMsixTable) / 4]);
  return 0;  // UAR registers are write-only
}

void Function::Impl::write_word(std::uint64_t offset, std::uint32_t value) {
  if (in_msix_table(offset, msix_table.size())) {
    msix_table[(offset - kMsixTable) / 4] = __builtin_bswap32(value);
    return;
  }
  if (offset >= InitializationSegment::kSize) return;
  const auto request = iseg.write(offset, value);
  if (!request) return;
  switch (request->kind) {
    case InitializationSegment::Request::Kind::set_command_queue:
      firmware.queue().set_address(request->value);
      break;
    case InitializationSegment::Request::Kind::disable:
      firmware.reset();
      break;
    case InitializationSegment::Request::Kind::ring:
      firmware.queue().ring(static_cast<std::uint32_t>(request->value));
      break;
  }
}

void Function::Impl::ring_eq(std::uint32_t value, bool arm) {
  std::array<std::uint8_t, 4> word{};
  prm::Field<0, 32>::set(word.data(), value);
  EventQueue* eq =
      firmware.state().eqs.find(static_cast<std::uint32_t>(prm::EqDoorbell::eqn::get(word.data())));
  if (eq != nullptr)
    eq->doorbell(static_cast<std::uint32_t>(prm::EqDoorbell::consumer_index::get(word.data())),
                 arm);
}

void Function::Impl::write_uar(std::uint64_t offset, std::span<const std::byte> from) {
  using prm::Uar;
  const std::uint64_t page_offset = offset % prm::kUarPageSize;
  if (page_offset >= Uar::blue_flame) {
    write_send_register(offset, from);
    return;
  }
  blue_flame.flush();
  if (page_offset == Uar::eq_arm || page_offset == Uar::eq_update) {
    ring_eq(load_be32(from.data()), page_offset == Uar::eq_arm);
  } else if (page_offset == Uar::cq_arm && from.size() == 8) {
    firmware.state().transport.arm_cq(load_be32(from.data()), load_be32(from.data() + 4));
  } else if (page_offset == Uar::cq_arm) {
    std::copy(from.begin(), from.end(), half_doorbell.begin());
  } else if (page_offset == Uar::cq_arm + 4 && from.size() == 4) {
    firmware.state().transport.arm_cq(load_be32(half_doorbell.data()), load_be32(from.data()));
  }
}

void Function::Impl::write_send_register(std::uint64_t offset, std::span<const std::byte> from) {
  const auto page = static_cast<std::uint32_t>(offset / prm::kUarPageSize) - kFirstUar;
  std::uint64_t page_offset = offset % prm::kUarPageSize;
  std::array<std::uint8_t, 8> bytes{};
  if (from.size() == 4) {
    if (page_offset % 8 == 0) {
      std::copy(from.begin(), from.end(), half_doorbell.begin());
      return;
    }
    page_offset -= 4;
    std::memcpy(bytes.data(), half_doorbell.data(), 4);
    std::memcpy(bytes.data() + 4, from.data(), 4);
  } else {
    std::memcpy(bytes.data(), from.data(), 8);
  }
  blue_flame.store(page, page_offset, bytes, clock.now());
}

void Function::Impl::drop_hints() {
  if (hints == nullptr) return;
  firmware.state().transport.end_watch();
  hints->sq.drain([](std::uint32_t) {});
  hints->cq_arm.drain([](std::uint32_t) {});
  hints->take_commands();
}

bool Function::Impl::drain_hints() {
  DoorbellHints* const marked = hints;
  if (marked == nullptr) return false;
  Transport& transport = firmware.state().transport;
  const bool watched = transport.look_at_watched();
  const bool sends = marked->sq.drain([&](std::uint32_t qpn) { transport.hint(qpn); },
                                      [&](std::uint32_t qpn) { transport.expect_doorbell(qpn); });
  const bool arms =
      marked->cq_arm.drain([&](std::uint32_t cqn) { transport.arm_cq_from_record(cqn); });
  const std::uint32_t commands = marked->take_commands();
  if (commands != 0) firmware.queue().ring(commands);
  return watched || sends || arms || commands != 0;
}

bool Function::Impl::rung() const {
  return hints != nullptr && (firmware.state().transport.watched_rung() || hints->any());
}

bool Function::Impl::idle() const {
  return !rung() && !blue_flame.waits() && !firmware.queue().has_work() &&
         !firmware.state().transport.has_work();
}

bool Function::Impl::work(const StepBudget& budget) {
  if (firmware.state().failed) {
    blue_flame.reset();
    drop_hints();  // Or the runner would take them for work that is left.
    return false;
  }
  if (blue_flame.waits()) blue_flame.expire(clock.now());
  Transport& transport = firmware.state().transport;
  const TransportBudget whole{budget.wqes, budget.bytes};
  transport.lend_turn(whole);
  const bool rung = drain_hints();
  transport.end_turn();
  const bool commands = firmware.queue().has_work() && firmware.queue().step(kCommandBlocksPerStep);
  if (!running()) return commands;
  const bool more = transport.has_work() && transport.step(transport.left_of(whole));
  return rung || commands || more;
}

void Function::Impl::update_doorbell_mode() {
  FirmwareState& state = firmware.state();
  state.cq_records_watched = mapped_uars != nullptr;
  // With mapped UARs nobody sees a store that arms an EQ. A driver that uses hints arms by trapped
  // writes.
  state.eqs_always_armed = mapped_uars != nullptr && hints == nullptr;
}

void Function::Impl::follow_bus_master() {
  if (dma.suspended() != config_space.bus_master()) return;
  dma.suspend(!config_space.bus_master());
  if (!dma.suspended()) memory_arrived();
}

void Function::Impl::memory_arrived() {
  FirmwareState& state = firmware.state();
  state.eqs.for_each([](EventQueue& eq) { eq.memory_arrived(); });
  state.transport.memory_arrived();
}

void Function::Impl::reset() {
  firmware.reset();
  iseg.reset();
  config_space.reset();
  follow_bus_master();
  std::fill(msix_table.begin(), msix_table.end(), 0);
  failure_reason.clear();
  blue_flame.reset();
  half_doorbell = {};
}

void Function::Impl::fail(std::uint8_t syndrome, const std::string& reason) {
  if (firmware.state().failed) return;
  firmware.state().failed = true;
  failure_reason = reason;
  firmware.state().port.ways_changed();
  iseg.fail(static_cast<prm::HealthSyndrome>(syndrome));
}

bool Function::Impl::has_special_qp(std::uint32_t qp) const {
  const prm::QpServiceType type = qp == 0 ? prm::QpServiceType::qp0 : prm::QpServiceType::qp1;
  const FirmwareState& state = firmware.state();
  return std::any_of(state.qp_records.begin(), state.qp_records.end(), [&](const auto& entry) {
    const QpParams* params = state.transport.qp_params(entry.first);
    return params != nullptr && params->type == type;
  });
}

Function::Function(FunctionConfig config, ib::Port& port, const Clock& clock,
                   InterruptSink& interrupts)
    : impl_(std::make_unique<Impl>(std::move(config), port, clock, interrupts)) {}
Function::~Function() = default;

DmaSpace& Function::dma() {
  return impl_->dma;
}

void Function::config_read(std::uint32_t offset, std::span<std::byte> to) const {
  impl_->config_space.read(offset, to);
}

void Function::config_write(std::uint32_t offset, std::span<const std::byte> from) {
  if (impl_->config_space.write(offset, from)) reset();
  impl_->follow_bus_master();
}

void Function::bar_read(std::uint64_t offset, std::span<std::byte> to) const {
  if (!is_bus_access(offset, to.size())) {
    std::fill(to.begin(), to.end(), std::byte{0xff});
    return;
  }
  for (std::size_t i = 0; i < to.size();) {
    const std::uint64_t at = offset + i;
    const std::uint32_t word = impl_->read_word(at & ~std::uint64_t{3});
    for (std::uint64_t byte = at % 4; byte < 4 && i < to.size(); ++byte, ++i) {
      to[i] = static_cast<std::byte>(word >> 8 * (3 - byte));
    }
  }
}

void Function::bar_write(std::uint64_t offset, std::span<const std::byte> from) {
  // Registers are words: narrower stores have no effect.
  if (!is_bus_access(offset, from.size()) || from.size() < 4) return;
  if (offset >= kUarStart) {
    impl_->write_uar(offset, from);
    return;
  }
  const std::uint32_t first = load_be32(from.data());
  const std::uint32_t second = from.size() == 8 ? load_be32(from.data() + 4) : 0;
  impl_->write_word(offset, first);
  if (from.size() == 8) impl_->write_word(offset + 4, second);
}

void Function::attach_mapped_uars(std::byte* base) {
  impl_->mapped_uars = base;
  impl_->update_doorbell_mode();
}

void Function::attach_doorbell_hints(DoorbellHints* hints) {
  impl_->hints = hints;
  impl_->firmware.state().transport.watch_in(hints == nullptr ? nullptr : &hints->watched);
  impl_->update_doorbell_mode();
}

bool Function::step(const StepBudget& budget) {
  return !impl_->idle() && impl_->work(budget);
}

void Function::follow_mkey_states() {
  DoorbellHints* const hints = impl_->hints;
  if (hints != nullptr && hints->take_mkey_states()) impl_->firmware.state().mkey_states.look();
}

void Function::begin_rest() {
  FirmwareState& state = impl_->firmware.state();
  // Memory of a key that packets refer to is copied when the key is revoked, which then would be
  // too late.
  if (!state.transport.lends()) state.mkey_states.begin_rest();
}

void Function::end_rest() {
  impl_->firmware.state().mkey_states.end_rest();
}

bool Function::rung() const {
  return impl_->rung();
}

bool Function::repair_hints() {
  return impl_->firmware.state().transport.repair_watch();
}

Sweep Function::sweep_doorbells(std::uint32_t queues) {
  if (!impl_->running()) return {.whole = true};
  return impl_->firmware.state().transport.sweep_doorbells(queues);
}

bool Function::has_doorbell_records() const {
  return impl_->running() && impl_->firmware.state().transport.has_doorbell_records();
}

Nanoseconds Function::next_deadline() const {
  if (!impl_->running()) return kNever;
  return std::min(impl_->firmware.state().transport.next_deadline(), impl_->blue_flame.deadline());
}

void Function::memory_arrived() {
  impl_->memory_arrived();
}

void Function::reset() {
  impl_->reset();
}

void Function::fail(std::uint8_t health_syndrome, const std::string& reason) {
  impl_->fail(health_syndrome, reason);
}

bool Function::failed() const {
  return impl_->firmware.state().failed;
}

const std::string& Function::failure_reason() const {
  return impl_->failure_reason;
}

void Function::receive(ib::Packet& packet) {
  if (impl_->running()) impl_->firmware.state().transport.receive(packet);
}

ib::Answerer Function::direct_receiver(const ib::Destination& there) {
  if (!impl_->running()) return {};
  return impl_->firmware.state().transport.direct_receiver(there);
}

void Function::delivered() {
  if (impl_->running()) impl_->firmware.state().transport.delivered();
}

void Function::port_ready() {
  impl_->firmware.state().transport.port_ready();
}

void Function::port_event(ib::PortEvent event) {
  impl_->firmware.state().events.port_change(1, event);
}

bool Function::owns_special_qp(std::uint32_t qp) const {
  return impl_->running() && impl_->has_special_qp(qp);
}

}  // namespace softhca
