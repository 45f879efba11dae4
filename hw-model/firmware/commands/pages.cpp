// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Pages lent by the driver (PRM "QUERY_PAGES", "MANAGE_PAGES").
#include "hw-model/firmware/handlers.h"
#include "hw-model/firmware/queue_memory.h"
#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/field.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;
using prm::ManagePagesInput;
using prm::ManagePagesOp;
using prm::ManagePagesOutput;

CommandResult give(FirmwareState& state, const Command& command, std::uint64_t entries) {
  const auto list = tail(command.in, ManagePagesInput::pas_offset);
  if (entries > list.size() / 8)
    return failure(CommandStatus::bad_input_length, Syndrome::bad_page_count);
  const Syndrome syndrome = state.pages.give(read_pas(list, entries));
  if (syndrome != Syndrome::none) return failure(CommandStatus::bad_parameter, syndrome);
  return {};
}

CommandResult take(FirmwareState& state, const Command& command, std::uint64_t entries) {
  const std::uint64_t room = (command.out.size() - ManagePagesOutput::pas_offset) / 8;
  if (entries > room) return failure(CommandStatus::bad_output_length, Syndrome::bad_page_count);
  const bool running = state.phase == HcaPhase::initialized;
  const auto pages = state.pages.take(static_cast<std::uint32_t>(entries), running);
  std::uint8_t* out = command.out.data();
  ManagePagesOutput::output_num_entries::set(out, pages.size());
  for (std::size_t i = 0; i < pages.size(); ++i) {
    prm::Field<0, 64>::set(out + ManagePagesOutput::pas_offset + i * 8, pages[i]);
  }
  return {};
}

}  // namespace

CommandResult query_pages(FirmwareState& state, const Command& command) {
  if (prm::QueryPagesInput::function_id::get(command.in.data()) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::other_function);
  }
  switch (static_cast<prm::QueryPagesOp>(command.op_mod)) {
    case prm::QueryPagesOp::boot:
    case prm::QueryPagesOp::init:
    case prm::QueryPagesOp::regular:
      break;
    default:
      return failure(CommandStatus::bad_parameter, Syndrome::bad_op_mod);
  }
  const std::int32_t wanted = state.pages.wanted(static_cast<prm::QueryPagesOp>(command.op_mod));
  prm::QueryPagesOutput::num_pages::set(command.out.data(), static_cast<std::uint32_t>(wanted));
  return {};
}

CommandResult manage_pages(FirmwareState& state, const Command& command) {
  if (ManagePagesInput::function_id::get(command.in.data()) != 0) {
    return failure(CommandStatus::bad_parameter, Syndrome::other_function);
  }
  const std::uint64_t entries = ManagePagesInput::input_num_entries::get(command.in.data());
  switch (static_cast<ManagePagesOp>(command.op_mod)) {
    case ManagePagesOp::cannot_give:
      state.pages.refuse();
      return {};
    case ManagePagesOp::give:
      return give(state, command, entries);
    case ManagePagesOp::take:
      return take(state, command, entries);
  }
  return failure(CommandStatus::bad_parameter, Syndrome::bad_op_mod);
}

}  // namespace softhca::firmware
