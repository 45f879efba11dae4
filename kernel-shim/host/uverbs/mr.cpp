// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Memory regions: registration, re-registration, deregistration, query.
#include <rdma/ib_user_ioctl_verbs.h>

#include <bit>
#include <vector>

#include "hw-model/prm/commands_mkey.h"
#include "hw-model/prm/mkey_context.h"
#include "hw-model/runtime/mkey_state.h"
#include "kernel-shim/host/memory/shared_pages.h"
#include "kernel-shim/host/uverbs/method.h"

namespace softhca::shim {
namespace {

constexpr std::uint64_t kMrPageMask = 4095;
/// Page of a translation table: large enough that a few entries cover any region.
constexpr std::uint64_t kMaxTablePage = 1ULL << 30;
constexpr std::uint64_t kMaxTableEntries = 4096;
constexpr std::uint64_t kEntryPresent = 3;  // prm::MttEntry: wr_en and rd_en.
constexpr std::uint32_t kSupportedAccess =
    ((IB_UVERBS_ACCESS_HUGETLB << 1) - 1) | IB_UVERBS_ACCESS_OPTIONAL_RANGE;
// ibv_rereg_mr_flags.
constexpr std::uint32_t kReregTranslation = 1;
constexpr std::uint32_t kReregPd = 2;
constexpr std::uint32_t kReregAccess = 4;

/// ib_check_mr_access. On-demand paging is not offered: EOPNOTSUPP, as kernels since 6.10 answer
/// (before: EINVAL).
int check_access(std::uint32_t access) {
  constexpr std::uint32_t remote_change =
      IB_UVERBS_ACCESS_REMOTE_ATOMIC | IB_UVERBS_ACCESS_REMOTE_WRITE;
  if ((access & remote_change) != 0 && (access & IB_UVERBS_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  if ((access & ~kSupportedAccess) != 0) return EINVAL;
  if ((access & IB_UVERBS_ACCESS_ON_DEMAND) != 0) return EOPNOTSUPP;
  return 0;
}

bool is_writable(std::uint32_t access) {
  return (access & (IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_REMOTE_WRITE |
                    IB_UVERBS_ACCESS_REMOTE_ATOMIC | IB_UVERBS_ACCESS_MW_BIND)) != 0;
}

std::uint64_t table_page(std::uint64_t length) {
  return std::clamp<std::uint64_t>(std::bit_ceil(length), kMrPageMask + 1, kMaxTablePage);
}

/// Address by which work requests name the region's first byte.
std::uint64_t first_address(const Mr& mr) {
  return (mr.access & IB_UVERBS_ACCESS_ZERO_BASED) != 0 ? 0 : mr.iova;
}

/// Maps the memory of `mr` (start, length, iova, access) for the device: as shared pages, or where
/// there are none or the process cannot share them, through its memory's descriptor. Asks for
/// sharing first: kRepeat. The device is not waited for: create_key().
int map_memory(Context& context, Call& call, Mr& mr) {
  const std::uint64_t first = first_address(mr);
  // ib_umem_get refuses wrapping and empty ranges.
  if (mr.length == 0 || mr.start + mr.length < mr.start || mr.iova + mr.length < mr.iova ||
      mr.length > kMaxTablePage * (kMaxTableEntries - 1) || mr.start > ~0ULL - mr.length - 8191) {
    return EINVAL;
  }
  // Address 0 is the first byte of a page, and so must be the memory behind it.
  if ((mr.start & kMrPageMask) != (first & kMrPageMask)) return EOPNOTSUPP;
  const bool writable = is_writable(mr.access);
  const ClientMemory& memory = context.memory(call);
  if (const int error = memory.check(mr.start, mr.length, writable)) return error;
  std::vector<DmaPiece> pages;
  PciDevice& device = context.hca().device();
  const bool needs_all = device.needs_shared_memory() && call.sharing == Sharing::partly;
  if (needs_all || !context.find_pages(call, mr.start, mr.length, pages, mr.pins)) {
    // Whole pages, also where the region has a part only: all of it is to be pinned.
    ShareRange range = pages_of(mr.start, mr.length);
    range.flags = kShareInUse;
    if (device.needs_shared_memory()) {
      range.flags |= kShareAll;
    } else {
      if (mr.start != range.address) range.flags |= kSharePartOfFirst;
      if (mr.start + mr.length != range.address + range.length) range.flags |= kSharePartOfLast;
    }
    call.reply.share(range);
    return kRepeat;
  }
  const std::uint64_t alignment = table_page(mr.length);
  // Behind VFIO a map pins the pages, which is not to go on.
  if (call.sharing == Sharing::shared && pages.size() == 1 && !device.needs_shared_memory()) {
    mr.file = call.shared.file();
    mr.idle_key = {pages[0].offset, pages[0].length, alignment, first & (alignment - 1), writable};
    if (mr.file->idle_regions().take(mr.idle_key, mr.region)) return 0;
    context.commands().announce();
    return DmaRegion::start_map(device, context.hca().iovas(), pages[0], mr.start, mr.length,
                                alignment, first, writable, mr.region);
  }
  return DmaRegion::map(device, context.hca().iovas(), pages, mr.start, mr.length, alignment, first,
                        writable, mr.region);
}

/// Ends the map of memory to which no key leads any more, or keeps it for the next registration.
void unmap_memory(Mr& mr) {
  if (mr.file != nullptr && mr.region)
    mr.file->idle_regions().put(mr.idle_key, std::move(mr.region));
  mr.region = DmaRegion();
  mr.file.reset();
  mr.pins.clear();
}

int destroy_key(Context& context, std::uint32_t key) {
  CommandInputBuffer in(prm::CommandOpcode::destroy_mkey, prm::DestroyMkeyInput::size);
  prm::DestroyMkeyInput::mkey_index::set(in.data(), key >> 8);
  return execute_plain(context.commands(), in).error;
}

/// What the process has made of a key by its state record.
struct KeyNow {
  std::uint32_t key = 0;
  bool is_parked = false;  ///< To the application there is no such region.
};

KeyNow key_now(const Context& context, const Mr& mr) {
  const std::uint32_t word = context.mkey_states.wanted(mr.state_record);
  if (is_mkey_as_created(word)) return {mr.key, false};
  return {(mr.key & ~0xffU) | (word & 0xff), !is_mkey_usable(word)};
}

/// CREATE_MKEY for `mr` over `region`, of which the map may be on its way. `keep`: the key it must
/// get again, whose mkey has been destroyed; 0 for a new one. `state_record`: see
/// prm::CreateMkeyInput. 0 and mr.key, or an errno.
int create_key(Context& context, Mr& mr, const DmaRegion& region, std::uint32_t keep,
               std::uint64_t state_record) {
  const std::uint64_t page = table_page(mr.length);
  const std::uint64_t first = first_address(mr);
  const std::uint64_t in_page = first & (page - 1);
  const std::uint64_t entries = (in_page + mr.length + page - 1) / page;
  const std::uint64_t octwords = (entries + 1) / 2;
  CommandInputBuffer in(prm::CommandOpcode::create_mkey,
                        prm::CreateMkeyInput::size + octwords * 16);
  std::uint8_t* const key = in.at(prm::CreateMkeyInput::memory_key_mkey_entry::offset);
  using Mkey = prm::MkeyContext;
  const std::uint8_t variant =
      keep != 0 ? static_cast<std::uint8_t>(keep) : context.device().next_key_variant();
  prm::CreateMkeyInput::input_mkey_index::set(in.data(), keep >> 8);
  prm::CreateMkeyInput::state_record::set(in.data(), state_record);
  Mkey::access_mode_1_0::set(key, static_cast<std::uint8_t>(prm::MkeyAccessMode::mtt));
  Mkey::a::set(key, (mr.access & IB_UVERBS_ACCESS_REMOTE_ATOMIC) != 0);
  Mkey::rw::set(key, (mr.access & IB_UVERBS_ACCESS_REMOTE_WRITE) != 0);
  Mkey::rr::set(key, (mr.access & IB_UVERBS_ACCESS_REMOTE_READ) != 0);
  Mkey::lw::set(key, (mr.access & IB_UVERBS_ACCESS_LOCAL_WRITE) != 0);
  Mkey::lr::set(key, 1);
  Mkey::umr_en::set(key, 1);
  Mkey::qpn::set(key, prm::kMkeyAnyQp);
  Mkey::mkey_7_0::set(key, variant);
  Mkey::pd::set(key, mr.pd->pdn);
  Mkey::start_addr::set(key, first);
  Mkey::len::set(key, mr.length);
  Mkey::translations_octword_size::set(key, octwords);
  Mkey::log_page_size::set(key, static_cast<std::uint64_t>(std::countr_zero(page)));
  prm::CreateMkeyInput::translations_octword_actual_size::set(in.data(), octwords);
  for (std::uint64_t i = 0; i < entries; ++i) {
    prm::MttEntry::ptag::set(in.at(prm::CreateMkeyInput::klm_pas_mtt_offset + i * 8),
                             region.iova() - in_page + i * page + kEntryPresent);
  }
  std::uint8_t out[prm::CreateMkeyOutput::size] = {};
  const CommandResult result = context.commands().execute(in, out);
  if (result) {
    mr.key = static_cast<std::uint32_t>(prm::CreateMkeyOutput::mkey_index::get(out) << 8 | variant);
  }
  const int map_error = context.hca().device().settle();
  if (result && map_error != 0) destroy_key(context, mr.key);
  if (!result || map_error != 0) return result ? map_error : result.error;
  // Indexes come back: not with a name that a key has had there before.
  const auto name = context.device().key_names().find(mr.key >> 8);
  if (keep != 0 || !name || *name == variant) return 0;
  const std::uint32_t renamed = (mr.key & ~0xffU) | *name;
  if (const int error = destroy_key(context, mr.key)) return error;
  return create_key(context, mr, region, renamed, state_record);
}

int reg_mr(Context& context, Call& call) {
  ib_uverbs_reg_mr request{};
  if (const int error = call.read_core(request)) return error;
  if ((request.start & kMrPageMask) != (request.hca_va & kMrPageMask)) return EINVAL;
  if (const int error = check_access(request.access_flags)) return error;
  Pd* const pd = context.pds.find(request.pd_handle);
  if (pd == nullptr) return ENOENT;
  if (context.mrs.full()) return ENOMEM;
  auto mr = std::make_unique<Mr>();
  mr->pd = pd;
  mr->start = request.start;
  mr->length = request.length;
  mr->iova = request.hca_va;
  mr->access = request.access_flags;
  if (const int error = map_memory(context, call, *mr)) return error;
  const std::uint64_t record = context.mkey_states.iova(call.mkey_state);
  if (const int error = create_key(context, *mr, mr->region, 0, record)) return error;
  if (record != 0) mr->state_record = call.mkey_state;
  ++pd->uses;
  Mr& made = context.mrs.insert(context.mrs.new_handle(), std::move(mr));
  ib_uverbs_reg_mr_resp response{};
  response.mr_handle = made.handle;
  response.lkey = made.key;
  response.rkey = made.key;
  call.write_core(response);
  return 0;
}

/// A change of access rights or protection domain keeps the key, as on hardware: peers know it. For
/// new memory a new key takes the place of the old one, which stays valid if anything fails.
int rereg_mr(Context& context, Call& call) {
  ib_uverbs_rereg_mr request{};
  if (const int error = call.read_core(request)) return error;
  if (request.flags == 0) return EINVAL;
  if ((request.flags & ~(kReregTranslation | kReregPd | kReregAccess)) != 0) return EOPNOTSUPP;
  const bool moves = (request.flags & kReregTranslation) != 0;
  if (moves && (request.start & kMrPageMask) != (request.hca_va & kMrPageMask)) return EINVAL;
  Mr* const mr = context.mrs.find(request.mr_handle);
  if (mr == nullptr) return ENOENT;
  const KeyNow now = key_now(context, *mr);
  if (now.is_parked) return ENOENT;
  const bool new_access = (request.flags & kReregAccess) != 0;
  if (const int error = new_access ? check_access(request.access_flags) : 0) return error;
  Pd* const pd = (request.flags & kReregPd) != 0 ? context.pds.find(request.pd_handle) : mr->pd;
  if (pd == nullptr) return ENOENT;

  Mr changed;
  changed.pd = pd;
  changed.start = moves ? request.start : mr->start;
  changed.length = moves ? request.length : mr->length;
  changed.iova = moves ? request.hca_va : mr->iova;
  changed.access = new_access ? request.access_flags : mr->access;
  // Memory that stays is not looked up again: the caller may be another process than the one that
  // registered it.
  const bool keeps_memory = !moves && first_address(*mr) == first_address(changed) &&
                            (is_writable(mr->access) || !is_writable(changed.access));
  if (const int error = keeps_memory ? 0 : map_memory(context, call, changed)) return error;
  context.device().key_names().ended(mr->key, now.key);
  if (!moves) {
    if (const int error = destroy_key(context, mr->key)) return error;
  }
  if (const int error = create_key(context, changed, keeps_memory ? mr->region : changed.region,
                                   moves ? 0 : now.key, 0)) {
    if (!moves) mr->key = 0;  // ibv_rereg_mr: the MR is then of no use but to be deregistered.
    return error;
  }
  mr->state_record = 0;
  if (moves) destroy_key(context, mr->key);
  --mr->pd->uses;
  ++pd->uses;
  mr->pd = pd;
  mr->key = changed.key;
  mr->start = changed.start;
  mr->length = changed.length;
  mr->iova = changed.iova;
  mr->access = changed.access;
  if (!keeps_memory) {
    unmap_memory(*mr);
    mr->region = std::move(changed.region);
    mr->file = std::move(changed.file);
    mr->idle_key = changed.idle_key;
    mr->pins.swap(changed.pins);
  }
  ib_uverbs_rereg_mr_resp response{};
  response.lkey = mr->key;
  response.rkey = mr->key;
  call.write_core(response);
  return 0;
}

int destroy_mr(Context& context, std::uint64_t handle) {
  Mr* const mr = context.mrs.find(handle);
  if (mr == nullptr) return ENOENT;
  if (const int error = context.release(*mr)) return error;
  context.mrs.erase(mr->handle);
  return 0;
}

int destroy_mr_method(Context& context, Call& call) {
  return destroy_mr(context, call.find(UVERBS_ATTR_DESTROY_MR_HANDLE)->data);
}

int dereg_mr_command(Context& context, Call& call) {
  ib_uverbs_dereg_mr request{};
  if (const int error = call.read_core(request)) return error;
  return destroy_mr(context, request.mr_handle);
}

int query_mr(Context& context, Call& call) {
  const Mr* const mr = context.mrs.find(call.find(UVERBS_ATTR_QUERY_MR_HANDLE)->data);
  const KeyNow now = mr != nullptr ? key_now(context, *mr) : KeyNow{};
  if (mr == nullptr || now.is_parked) return ENOENT;
  call.write_attribute(UVERBS_ATTR_QUERY_MR_RESP_LKEY, now.key);
  call.write_attribute(UVERBS_ATTR_QUERY_MR_RESP_RKEY, now.key);
  call.write_attribute(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, mr->length);
  call.write_attribute(UVERBS_ATTR_QUERY_MR_RESP_IOVA, mr->iova);
  return 0;
}

const AttrSpec kMrDestroyAttributes[] = {attr_handle(UVERBS_ATTR_DESTROY_MR_HANDLE, kMandatory)};
const AttrSpec kQueryAttributes[] = {
    attr_handle(UVERBS_ATTR_QUERY_MR_HANDLE, kMandatory),
    attr_out<std::uint32_t>(UVERBS_ATTR_QUERY_MR_RESP_LKEY, kMandatory),
    attr_out<std::uint32_t>(UVERBS_ATTR_QUERY_MR_RESP_RKEY, kMandatory),
    attr_out<std::uint64_t>(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, kMandatory),
    attr_out<std::uint64_t>(UVERBS_ATTR_QUERY_MR_RESP_IOVA, kOptional),
};

const Method kMrMethodTable[] = {
    {UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, kMrDestroyAttributes, false, Needs::context,
     destroy_mr_method},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, kQueryAttributes, false, Needs::context, query_mr},
};

const WriteCommand kMrCommandTable[] = {
    {IB_USER_VERBS_CMD_REG_MR, sizeof(ib_uverbs_reg_mr), sizeof(ib_uverbs_reg_mr_resp), true,
     Needs::context, reg_mr},
    {IB_USER_VERBS_CMD_REREG_MR, sizeof(ib_uverbs_rereg_mr), sizeof(ib_uverbs_rereg_mr_resp), true,
     Needs::context, rereg_mr},
    {IB_USER_VERBS_CMD_DEREG_MR, sizeof(ib_uverbs_dereg_mr), 0, false, Needs::context,
     dereg_mr_command},
};

}  // namespace

int Context::release(Mr& mr) {
  // No key is left of an MR whose re-registration failed half way.
  const int error = mr.key == 0 ? 0 : unless_gone(destroy_key(*this, mr.key));
  if (error != 0) return error;
  if (mr.key != 0) device_.key_names().ended(mr.key, key_now(*this, mr).key);
  --mr.pd->uses;
  unmap_memory(mr);
  return 0;
}

const std::span<const Method> kMrMethods = kMrMethodTable;
const std::span<const WriteCommand> kMrCommands = kMrCommandTable;

}  // namespace softhca::shim
