// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// A hostile driver: commands with arbitrary contents, damaged command queue memory, arbitrary
// register and configuration space accesses, garbage work requests. The device must neither crash
// nor lose a command that was posted properly.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "hw-model/prm/uar.h"
#include "tests/support/one_host.h"

namespace softhca::test {
namespace {

constexpr std::uint64_t kDamagedMemory = 1ULL << 20;  // where the driver's queues and mailboxes are
constexpr unsigned kMaxOperations = 64;

/// A device with a few objects of each kind, so that commands find something to work on.
class HostileDriver {
 public:
  explicit HostileDriver(FuzzedDataProvider& input) : input_(input) {}

  void run() {
    if (input_.ConsumeBool()) {
      driver_.bring_up();
      cq_ = driver_.create_cq(4);
      srq_ = driver_.create_srq(4);
      qp_ = driver_.create_qp(cq_, cq_);
      mr_ = driver_.allocate_mr(8192);
    } else {
      driver_.start_command_queue();
    }
    for (unsigned i = 0; i < kMaxOperations && input_.remaining_bytes() > 0; ++i) operate();
  }

 private:
  enum class Operation : std::uint8_t {
    command,
    damaged_command,
    register_write,
    register_read,
    config_write,
    step,
    work_request,
    modify,
    kMaxValue = modify
  };

  void operate() {
    switch (input_.ConsumeEnum<Operation>()) {
      case Operation::command:
        command();
        break;
      case Operation::damaged_command:
        damaged_command();
        break;
      case Operation::register_write:
        register_write();
        break;
      case Operation::register_read: {
        std::array<std::byte, 8> bytes{};
        host_.function.bar_read(
            input_.ConsumeIntegral<std::uint64_t>(),
            std::span(bytes).first(input_.ConsumeIntegralInRange<std::size_t>(0, 8)));
        break;
      }
      case Operation::config_write: {
        disturbed_ = true;  // it may have been a reset
        const auto bytes =
            input_.ConsumeBytes<std::byte>(input_.ConsumeIntegralInRange<std::size_t>(0, 4));
        host_.function.config_write(input_.ConsumeIntegralInRange<std::uint32_t>(0, 4200), bytes);
        break;
      }
      case Operation::step:
        host_.clock.advance(input_.ConsumeIntegral<std::uint32_t>());
        host_.step();
        break;
      case Operation::work_request:
        work_request();
        break;
      case Operation::modify:
        modify();
        break;
    }
  }

  std::vector<std::uint8_t> command_bytes() {
    constexpr std::array<std::uint16_t, 16> kStarts = {0x100, 0x104, 0x108, 0x200, 0x300, 0x400,
                                                       0x500, 0x508, 0x700, 0x708, 0x760, 0x800,
                                                       0x808, 0x810, 0x908, 0xa00};
    std::vector<std::uint8_t> in(input_.ConsumeIntegralInRange<std::size_t>(8, 0x118));
    const auto data =
        input_.ConsumeBytes<std::uint8_t>(input_.ConsumeIntegralInRange<std::size_t>(0, in.size()));
    std::copy(data.begin(), data.end(), in.begin());
    const std::uint16_t opcode = static_cast<std::uint16_t>(
        input_.PickValueInArray(kStarts) + input_.ConsumeIntegralInRange<std::uint16_t>(0, 15));
    prm::CommandInput::opcode::set(in.data(), opcode);
    // Lists of pages that exist let the checks behind them be reached.
    for (unsigned i = input_.ConsumeIntegralInRange<unsigned>(0, 4); i > 0; --i) {
      in.resize(in.size() + 8);
      prm::Field<0, 64>::set(in.data() + in.size() - 8, driver_.memory().iova() + 4096ULL * i);
    }
    return in;
  }

  void command() {
    if (disturbed_) return damaged_command();
    driver_.prepare(0, command_bytes(), input_.ConsumeIntegralInRange<std::size_t>(8, 0x1100));
    driver_.ring(1);
    // What was posted properly is answered, whatever it says.
    if (!driver_.pump_until([this] { return driver_.completed(0); }, 100)) std::abort();
    // Its own commands may have taken the queue or the UAR away; the objects below are best effort
    // from here.
  }

  void damaged_command() {
    disturbed_ = true;
    const unsigned slot = input_.ConsumeIntegralInRange<unsigned>(0, 31);
    driver_.prepare(slot, command_bytes(), input_.ConsumeIntegralInRange<std::size_t>(8, 0x1100));
    damage(driver_.entry(slot), prm::CommandQueueEntry::size);
    if (input_.ConsumeBool())
      damage(driver_.memory().bytes(driver_.memory().iova()), kDamagedMemory);
    driver_.ring(input_.ConsumeIntegral<std::uint32_t>());
    for (int i = 0; i < 4; ++i) host_.step();
  }

  void damage(std::uint8_t* memory, std::size_t size) {
    const auto bytes =
        input_.ConsumeBytes<std::uint8_t>(input_.ConsumeIntegralInRange<std::size_t>(0, 16));
    const auto at = input_.ConsumeIntegralInRange<std::size_t>(0, size - bytes.size());
    std::copy(bytes.begin(), bytes.end(), memory + at);
  }

  void register_write() {
    disturbed_ = true;
    constexpr std::array<std::uint64_t, 6> kPages = {0, 0x1000, 0x2000, 0x3000, 0x10000, 0x11000};
    const std::uint64_t offset =
        input_.PickValueInArray(kPages) + input_.ConsumeIntegralInRange<std::uint64_t>(0, 0xfff);
    const auto bytes =
        input_.ConsumeBytes<std::byte>(input_.ConsumeIntegralInRange<std::size_t>(0, 8));
    host_.function.bar_write(offset, bytes);
  }

  void work_request() {
    if (qp_.qpn == 0) return;
    std::uint8_t* ring = driver_.memory().bytes(qp_.rq);
    damage(ring, (64UL << qp_.options.log_sq_size) + (64UL << qp_.options.log_rq_size));
    damage(driver_.memory().bytes(qp_.doorbell), 16);
    driver_.ring_sq(qp_);
    host_.step();
  }

  void modify() {
    if (qp_.qpn == 0 || disturbed_) return;
    switch (input_.ConsumeIntegralInRange<int>(0, 3)) {
      case 0:
        driver_.to_init(qp_);
        break;
      case 1:
        driver_.to_rtr(qp_, qp_.qpn, host_.port->attributes().lid, 0);
        break;
      case 2:
        driver_.to_rts(qp_, 0);
        break;
      default:
        driver_.to_reset(qp_);
        break;
    }
  }

  FuzzedDataProvider& input_;
  OneHost host_;
  MiniDriver& driver_ = host_.driver;
  DriverCq cq_;
  DriverSrq srq_;
  DriverQp qp_;
  DriverMr mr_;
  bool disturbed_ = false;  ///< The command queue may be anything by now.
};

}  // namespace
}  // namespace softhca::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  try {
    softhca::test::HostileDriver(input).run();
  } catch (const std::exception&) {
    // The well-behaved part of the driver ran into what the hostile part did.
  }
  return 0;
}
