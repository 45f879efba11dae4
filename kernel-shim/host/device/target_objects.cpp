// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/device/target_objects.h"

#include <cerrno>

#include "hw-model/prm/commands_queues.h"
#include "hw-model/prm/cq_context.h"
#include "kernel-shim/host/device/number_commands.h"

namespace softhca::shim {

runtime::Result<std::unique_ptr<TargetObjects>> TargetObjects::create(CommandInterface& commands,
                                                                      DmaArena& arena,
                                                                      std::uint32_t uar,
                                                                      std::uint8_t eqn) {
  std::unique_ptr<TargetObjects> objects(new TargetObjects(commands, arena));
  if (const int error = allocate_number(commands, kPdResource, objects->pdn_); error != 0) {
    return runtime::system_error(error, "ALLOC_PD");
  }
  objects->has_pd_ = true;
  if (const int error = objects->create_cq(uar, eqn); error != 0) {
    return runtime::system_error(error, "CREATE_CQ");
  }
  return objects;
}

int TargetObjects::create_cq(std::uint32_t uar, std::uint8_t eqn) {
  const auto block = arena_.allocate(2 * DmaArena::kPage);
  if (!block) return ENOMEM;
  memory_ = *block;
  CommandInputBuffer in(prm::CommandOpcode::create_cq, prm::CreateCqInput::size + 8);
  std::uint8_t* const context = in.at(prm::CreateCqInput::cq_context::offset);
  prm::CqContext::log_cq_size::set(context, 1);
  prm::CqContext::uar_page::set(context, uar);
  prm::CqContext::c_eqn_or_apu_element::set(context, eqn);
  prm::CqContext::dbr_addr::set(context, memory_.iova + DmaArena::kPage);
  prm::Field<0, 64>::set(in.at(prm::CreateCqInput::pas_offset), memory_.iova);
  std::uint8_t out[prm::CreateCqOutput::size] = {};
  const CommandResult result = commands_.execute(in, out);
  if (!result) return result.error;
  cqn_ = static_cast<std::uint32_t>(prm::CreateCqOutput::cqn::get(out));
  has_cq_ = true;
  return 0;
}

TargetObjects::~TargetObjects() {
  if (has_cq_) {
    CommandInputBuffer in(prm::CommandOpcode::destroy_cq, prm::DestroyCqInput::size);
    prm::DestroyCqInput::cqn::set(in.data(), cqn_);
    execute_plain(commands_, in);
  }
  if (memory_.data != nullptr) arena_.release(memory_);
  if (has_pd_) release_number(commands_, kPdResource, pdn_);
}

}  // namespace softhca::shim
