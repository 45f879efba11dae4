// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Resources that are just numbers: UAR pages, protection domains, XRC and transport domains, user
// contexts.
#include "hw-model/firmware/handlers.h"
#include "hw-model/prm/commands_hca.h"
#include "hw-model/prm/commands_resources.h"

namespace softhca::firmware {
namespace {

using prm::CommandStatus;

template <typename NumberField, typename Table>
CommandResult allocate(Table& table, const Command& command, Syndrome exhausted) {
  const auto* resource = table.emplace(command.uid);
  if (resource == nullptr) return failure(CommandStatus::no_resources, exhausted);
  NumberField::set(command.out.data(), resource->number);
  return {};
}

template <typename NumberField, typename Table>
CommandResult release(Table& table, const Command& command, Syndrome unknown, Syndrome in_use) {
  switch (table.destroy(static_cast<std::uint32_t>(NumberField::get(command.in.data())))) {
    case DestroyResult::ok:
      return {};
    case DestroyResult::not_found:
      return failure(CommandStatus::bad_resource, unknown);
    case DestroyResult::in_use:
      return failure(CommandStatus::bad_resource_state, in_use);
  }
  return {};
}

}  // namespace

CommandResult alloc_uar(FirmwareState& state, const Command& command) {
  return allocate<prm::AllocUarOutput::uar>(state.uars, command, Syndrome::out_of_uars);
}

CommandResult dealloc_uar(FirmwareState& state, const Command& command) {
  return release<prm::DeallocUarInput::uar>(state.uars, command, Syndrome::no_such_uar,
                                            Syndrome::uar_in_use);
}

CommandResult alloc_pd(FirmwareState& state, const Command& command) {
  return allocate<prm::AllocPdOutput::pd>(state.pds, command, Syndrome::out_of_pds);
}

CommandResult dealloc_pd(FirmwareState& state, const Command& command) {
  return release<prm::DeallocPdInput::pd>(state.pds, command, Syndrome::no_such_pd,
                                          Syndrome::pd_in_use);
}

CommandResult alloc_xrcd(FirmwareState& state, const Command& command) {
  return allocate<prm::AllocXrcdOutput::xrcd>(state.xrcds, command, Syndrome::out_of_xrcds);
}

CommandResult dealloc_xrcd(FirmwareState& state, const Command& command) {
  return release<prm::DeallocXrcdInput::xrcd>(state.xrcds, command, Syndrome::no_such_xrcd,
                                              Syndrome::xrcd_in_use);
}

CommandResult alloc_transport_domain(FirmwareState& state, const Command& command) {
  return allocate<prm::AllocTransportDomainOutput::transport_domain>(
      state.transport_domains, command, Syndrome::out_of_transport_domains);
}

CommandResult dealloc_transport_domain(FirmwareState& state, const Command& command) {
  return release<prm::DeallocTransportDomainInput::transport_domain>(
      state.transport_domains, command, Syndrome::no_such_transport_domain,
      Syndrome::no_such_transport_domain);
}

CommandResult create_uctx(FirmwareState& state, const Command& command) {
  return allocate<prm::CreateUctxOutput::uid>(state.user_contexts, command,
                                              Syndrome::out_of_user_contexts);
}

CommandResult destroy_uctx(FirmwareState& state, const Command& command) {
  return release<prm::DestroyUctxInput::uid>(
      state.user_contexts, command, Syndrome::no_such_user_context, Syndrome::user_context_in_use);
}

}  // namespace softhca::firmware
