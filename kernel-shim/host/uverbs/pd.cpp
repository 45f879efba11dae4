// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Protection domains, memory windows, address handles.
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/mkey_context.h"
#include "kernel-shim/host/device/number_commands.h"
#include "kernel-shim/host/uverbs/method.h"

namespace softhca::shim {
namespace {

constexpr std::uint8_t kMwType1 = 1;
constexpr std::uint8_t kMwType2 = 2;
/// Room for the one KLM of a window; the device counts 16-byte units by fours.
constexpr std::uint32_t kWindowOctwords = 4;

int alloc_pd(Context& context, Call& call) {
  if (context.pds.full()) return ENOMEM;
  auto pd = std::make_unique<Pd>();
  if (const int error = allocate_number(context.commands(), kPdResource, pd->pdn)) return error;
  const std::uint32_t pdn = pd->pdn;
  context.pds.insert(pdn, std::move(pd));
  ib_uverbs_alloc_pd_resp response{};
  response.pd_handle = pdn;
  call.write_core(response);
  mlx5_ib_alloc_pd_resp driver{};
  driver.pdn = pdn;
  call.write_udata(driver);
  return 0;
}

int destroy_pd(Context& context, std::uint64_t handle) {
  Pd* const pd = context.pds.find(handle);
  if (pd == nullptr) return ENOENT;
  if (pd->uses != 0) return EBUSY;
  if (const int error = context.release(*pd)) return error;
  context.pds.erase(pd->handle);
  return 0;
}

int destroy_pd_method(Context& context, Call& call) {
  return destroy_pd(context, call.find(UVERBS_ATTR_DESTROY_PD_HANDLE)->data);
}

int dealloc_pd_command(Context& context, Call& call) {
  ib_uverbs_dealloc_pd request{};
  if (const int error = call.read_core(request)) return error;
  return destroy_pd(context, request.pd_handle);
}

int query_pd(Context& context, Call& call) {
  const Pd* const pd = context.pds.find(call.find(MLX5_IB_ATTR_QUERY_PD_HANDLE)->data);
  if (pd == nullptr) return ENOENT;
  call.write_attribute(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, pd->pdn);
  return 0;
}

/// An indirect key without translation yet, to be bound by work requests (mlx5_ib_alloc_mw).
/// `again`: the key that it must get, whose index is free; 0: any.
int create_window_key(Context& context, const Pd& pd, std::uint8_t type, std::uint32_t& rkey,
                      std::uint32_t again = 0) {
  CommandInputBuffer in(prm::CommandOpcode::create_mkey, prm::CreateMkeyInput::size);
  std::uint8_t* const key = in.at(prm::CreateMkeyInput::memory_key_mkey_entry::offset);
  using Mkey = prm::MkeyContext;
  const std::uint8_t variant =
      again != 0 ? static_cast<std::uint8_t>(again) : context.device().next_key_variant();
  prm::CreateMkeyInput::input_mkey_index::set(in.data(), again >> 8);
  Mkey::free::set(key, 1);
  Mkey::translations_octword_size::set(key, kWindowOctwords);
  Mkey::pd::set(key, pd.pdn);
  Mkey::umr_en::set(key, 1);
  Mkey::lr::set(key, 1);
  Mkey::access_mode_1_0::set(key, static_cast<std::uint8_t>(prm::MkeyAccessMode::klms));
  Mkey::en_rinval::set(key, type == kMwType2 ? 1 : 0);
  Mkey::qpn::set(key, prm::kMkeyAnyQp);
  Mkey::mkey_7_0::set(key, variant);
  std::uint8_t out[prm::CreateMkeyOutput::size] = {};
  const CommandResult result = context.commands().execute(in, out);
  if (!result) return result.error;
  const auto index = static_cast<std::uint32_t>(prm::CreateMkeyOutput::mkey_index::get(out));
  rkey = index << 8 | variant;
  const auto name = context.device().key_names().find(index);
  if (again != 0 || !name || *name == variant) return 0;
  CommandInputBuffer destroy(prm::CommandOpcode::destroy_mkey, prm::DestroyMkeyInput::size);
  prm::DestroyMkeyInput::mkey_index::set(destroy.data(), index);
  if (const int error = execute_plain(context.commands(), destroy).error) return error;
  return create_window_key(context, pd, type, rkey, index << 8 | *name);
}

int alloc_mw(Context& context, Call& call) {
  ib_uverbs_alloc_mw request{};
  if (const int error = call.read_core(request)) return error;
  if (!context.device().offers().windows || context.hca().cap<prm::HcaCap::imaicl>() == 0) {
    return EOPNOTSUPP;
  }
  Pd* const pd = context.pds.find(request.pd_handle);
  if (pd == nullptr) return ENOENT;
  if (request.mw_type != kMwType1 && request.mw_type != kMwType2) return EINVAL;
  if (context.mws.full()) return ENOMEM;
  auto mw = std::make_unique<Mw>();
  if (const int error = create_window_key(context, *pd, request.mw_type, mw->rkey)) return error;
  mw->pd = pd;
  ++pd->uses;
  const std::uint32_t handle = mw->rkey >> 8;
  Mw& made = context.mws.insert(handle, std::move(mw));
  ib_uverbs_alloc_mw_resp response{};
  response.mw_handle = made.handle;
  response.rkey = made.rkey;
  call.write_core(response);
  return 0;
}

int destroy_mw(Context& context, std::uint64_t handle) {
  Mw* const mw = context.mws.find(handle);
  if (mw == nullptr) return ENOENT;
  if (const int error = context.release(*mw)) return error;
  context.mws.erase(mw->handle);
  return 0;
}

int destroy_mw_method(Context& context, Call& call) {
  return destroy_mw(context, call.find(UVERBS_ATTR_DESTROY_MW_HANDLE)->data);
}

int dealloc_mw_command(Context& context, Call& call) {
  ib_uverbs_dealloc_mw request{};
  if (const int error = call.read_core(request)) return error;
  return destroy_mw(context, request.mw_handle);
}

/// The library builds address vectors itself on InfiniBand; the command only keeps the books.
int create_ah(Context& context, Call& call) {
  ib_uverbs_create_ah request{};
  if (const int error = call.read_core(request)) return error;
  if (request.attr.port_num != IbDevice::kPort) return EINVAL;
  Pd* const pd = context.pds.find(request.pd_handle);
  if (pd == nullptr) return ENOENT;
  if (request.attr.is_global != 0 &&
      request.attr.grh.sgid_index >= context.device().gids().size()) {
    return EINVAL;
  }
  if (context.ahs.full()) return ENOMEM;
  auto ah = std::make_unique<Ah>();
  ah->pd = pd;
  ++pd->uses;
  ib_uverbs_create_ah_resp response{};
  response.ah_handle = context.ahs.insert(context.ahs.new_handle(), std::move(ah)).handle;
  call.write_core(response);
  return 0;
}

int destroy_ah(Context& context, std::uint64_t handle) {
  const Ah* const ah = context.ahs.find(handle);
  if (ah == nullptr) return ENOENT;
  --ah->pd->uses;
  context.ahs.erase(ah->handle);
  return 0;
}

int destroy_ah_method(Context& context, Call& call) {
  return destroy_ah(context, call.find(UVERBS_ATTR_DESTROY_AH_HANDLE)->data);
}

int destroy_ah_command(Context& context, Call& call) {
  ib_uverbs_destroy_ah request{};
  if (const int error = call.read_core(request)) return error;
  return destroy_ah(context, request.ah_handle);
}

const AttrSpec kDestroyPdAttributes[] = {attr_handle(UVERBS_ATTR_DESTROY_PD_HANDLE, kMandatory)};
const AttrSpec kDestroyMwAttributes[] = {attr_handle(UVERBS_ATTR_DESTROY_MW_HANDLE, kMandatory)};
const AttrSpec kDestroyAhAttributes[] = {attr_handle(UVERBS_ATTR_DESTROY_AH_HANDLE, kMandatory)};
const AttrSpec kQueryPdAttributes[] = {
    attr_handle(MLX5_IB_ATTR_QUERY_PD_HANDLE, kMandatory),
    attr_out<std::uint32_t>(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, kMandatory),
};

const Method kPdMethodTable[] = {
    {UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, kDestroyPdAttributes, false, Needs::context,
     destroy_pd_method},
    {UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, kQueryPdAttributes, false, Needs::context,
     query_pd},
    {UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, kDestroyMwAttributes, false, Needs::context,
     destroy_mw_method},
    {UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, kDestroyAhAttributes, false, Needs::context,
     destroy_ah_method},
};

const WriteCommand kPdCommandTable[] = {
    {IB_USER_VERBS_CMD_ALLOC_PD, sizeof(ib_uverbs_alloc_pd), sizeof(ib_uverbs_alloc_pd_resp), true,
     Needs::context, alloc_pd},
    {IB_USER_VERBS_CMD_DEALLOC_PD, sizeof(ib_uverbs_dealloc_pd), 0, false, Needs::context,
     dealloc_pd_command},
    {IB_USER_VERBS_CMD_ALLOC_MW, sizeof(ib_uverbs_alloc_mw), sizeof(ib_uverbs_alloc_mw_resp), true,
     Needs::context, alloc_mw},
    {IB_USER_VERBS_CMD_DEALLOC_MW, sizeof(ib_uverbs_dealloc_mw), 0, false, Needs::context,
     dealloc_mw_command},
    {IB_USER_VERBS_CMD_CREATE_AH, sizeof(ib_uverbs_create_ah), sizeof(ib_uverbs_create_ah_resp),
     true, Needs::context, create_ah},
    {IB_USER_VERBS_CMD_DESTROY_AH, sizeof(ib_uverbs_destroy_ah), 0, false, Needs::context,
     destroy_ah_command},
};

}  // namespace

int Context::release(Pd& pd) {
  return unless_gone(release_number(commands(), kPdResource, pd.pdn));
}

int Context::release(Mw& mw) {
  CommandInputBuffer in(prm::CommandOpcode::destroy_mkey, prm::DestroyMkeyInput::size);
  prm::DestroyMkeyInput::mkey_index::set(in.data(), mw.rkey >> 8);
  const int error = unless_gone(execute_plain(commands(), in).error);
  if (error == 0) --mw.pd->uses;
  return error;
}

const std::span<const Method> kPdMethods = kPdMethodTable;
const std::span<const WriteCommand> kPdCommands = kPdCommandTable;

}  // namespace softhca::shim
