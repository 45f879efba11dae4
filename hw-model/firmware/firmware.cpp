// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "hw-model/firmware/firmware.h"

#include <algorithm>
#include <utility>

#include "hw-model/firmware/command_table.h"

namespace softhca {

using prm::CommandStatus;

Firmware::Firmware(FirmwareConfig config, DmaSpace& dma, ib::Port& port, const Clock& clock,
                   InterruptSink& interrupts, std::function<void()> fatal)
    : state_(std::move(config), dma, port, clock, interrupts),
      queue_(dma, *this),
      fatal_(std::move(fatal)) {}

void Firmware::reset() {
  queue_.disable();
  state_.reset();
  queue_.set_checksums(state_.capabilities.checksums());
}

void Firmware::execute(std::span<const std::uint8_t> in, std::span<std::uint8_t> out) {
  Command command;
  command.opcode = static_cast<std::uint16_t>(prm::CommandInput::opcode::get(in.data()));
  command.op_mod = static_cast<std::uint16_t>(prm::CommandInput::op_mod::get(in.data()));
  command.uid = static_cast<std::uint16_t>(prm::CommandInput::uid::get(in.data()));
  command.in = in;
  command.out = out;
  const CommandResult result = run(command);
  if (!result.ok()) std::fill(out.begin(), out.end(), std::uint8_t{0});
  prm::CommandOutput::status::set(out.data(), static_cast<std::uint8_t>(result.status));
  prm::CommandOutput::syndrome::set(out.data(), result.syndrome);
  queue_.set_checksums(state_.capabilities.checksums());
}

CommandResult Firmware::run(const Command& command) {
  if (state_.failed) return failure(CommandStatus::internal_error, Syndrome::device_failed);
  const CommandRow* row = find_command(command.opcode);
  if (row == nullptr) return failure(CommandStatus::bad_opcode, Syndrome::unknown_opcode);
  if (state_.phase < row->phase) {
    return failure(CommandStatus::bad_system_state, state_.phase == HcaPhase::disabled
                                                        ? Syndrome::hca_disabled
                                                        : Syndrome::hca_not_initialized);
  }
  if (command.in.size() < row->input_size) {
    return failure(CommandStatus::bad_input_length, Syndrome::input_too_short);
  }
  if (command.out.size() < row->output_size) {
    return failure(CommandStatus::bad_output_length, Syndrome::output_too_short);
  }
  if (command.uid != 0 && command.uid != kSharedResourceUid &&
      state_.user_contexts.find(command.uid) == nullptr) {
    return failure(CommandStatus::bad_parameter, Syndrome::bad_user_context);
  }
  const CommandResult result = row->handler(state_, command);
  if (result.ok() && row->counts_pages) state_.account_pages();
  return result;
}

bool Firmware::completion_by_event() const {
  return state_.events.wanted(EventType::command_completion);
}

void Firmware::commands_completed(std::uint32_t vector) {
  state_.events.command_completed(vector);
}

void Firmware::command_queue_lost() {
  fatal_();
}

}  // namespace softhca
