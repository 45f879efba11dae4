// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/uverbs/context.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

#include "hw-model/prm/commands_hca.h"
#include "kernel-shim/host/device/number_commands.h"
#include "kernel-shim/host/memory/shared_pages.h"

namespace softhca::shim {
namespace {

constexpr std::size_t kMaxChannels = 4096;

}  // namespace

Context::Context(IbDevice& device, ClientMemory memory)
    : device_(device),
      memory_(std::move(memory)),
      doorbells_(device.hca().device(), device.hca().iovas()) {
  device_.add(*this);
}

Context::~Context() {
  release_some(std::numeric_limits<std::size_t>::max());
  release_identity();
  device_.shared_files().drop_idle_regions();
  device_.shared_files().sweep(memory_.pid());
}

bool Context::release_some(std::size_t most) {
  device_.remove(*this);
  return release_some(qps, most) && release_some(mws, most) && release_some(mrs, most) &&
         release_some(srqs, most) && release_some(cqs, most) && release_some(uars, most) &&
         release_some(pds, most);
}

void Context::release_identity() {
  if (transport_domain != 0) {
    release_number(commands(), kTransportDomainResource, transport_domain);
  }
  if (devx_uid != 0) {
    CommandInputBuffer in(prm::CommandOpcode::destroy_uctx, prm::DestroyUctxInput::size);
    prm::DestroyUctxInput::uid::set(in.data(), devx_uid);
    execute_plain(commands(), in);
  }
  transport_domain = 0;
  devx_uid = 0;
}

template <typename T>
bool Context::release_some(ObjectTable<T>& table, std::size_t& most) {
  for (; !table.empty() && most != 0; --most) {
    T& object = table.first();
    if (const int error = release(object); error != 0 && hca().alive()) {
      spdlog::warn("an object of a closed context could not be destroyed: errno {}", error);
    }
    table.erase(object.handle);
  }
  return table.empty();
}

int Context::make_channel(std::vector<std::shared_ptr<EventChannel>>& list, std::size_t record_size,
                          runtime::UniqueFd& read_end) {
  // Objects keep theirs. The inode number of a closed one may be another pipe's already.
  std::erase_if(list, [](const auto& channel) { return !channel->open(); });
  if (list.size() >= kMaxChannels) return EMFILE;
  auto made = EventChannel::create(device_.loop(), record_size);
  if (!made) return made.error().code;
  list.push_back(std::move(made->first));
  read_end = std::move(made->second);
  return 0;
}

int Context::make_completion_channel(runtime::UniqueFd& read_end) {
  return make_channel(completion_channels, sizeof(ib_uverbs_comp_event_desc), read_end);
}

int Context::make_async_file(runtime::UniqueFd& read_end) {
  const int error = make_channel(async_files, sizeof(ib_uverbs_async_event_desc), read_end);
  if (error == 0 && default_async_ == nullptr) default_async_ = async_files.back();
  return error;
}

std::shared_ptr<EventChannel> Context::find_channel(
    const std::vector<std::shared_ptr<EventChannel>>& list, int fd) {
  const auto found = std::find_if(list.begin(), list.end(), [fd](const auto& channel) {
    return channel->open() && channel->is_same(fd);
  });
  return found == list.end() ? nullptr : *found;
}

int Context::async_file(const Call& call, std::uint16_t id,
                        std::shared_ptr<EventChannel>& file) const {
  const IoctlAttribute* const attribute = call.find(id);
  file = attribute == nullptr ? default_async() : find_channel(async_files, attribute->fd);
  return attribute != nullptr && file == nullptr ? EINVAL : 0;
}

bool Context::owns_uar(std::uint32_t index) const {
  return std::any_of(uars.begin(), uars.end(),
                     [index](const auto& entry) { return entry.second->index == index; });
}

int Context::map_queue(Call& call, std::uint64_t buffer, std::uint64_t length,
                       std::uint64_t doorbell, QueueMemory& queue) {
  // A process has less than 2^56 bytes; this keeps the sums below from wrapping.
  if (length > 1ULL << 40 || buffer > 1ULL << 56 || doorbell > 1ULL << 56) return EFAULT;
  if ((doorbell & 7) != 0) return EINVAL;
  if (length != 0) {
    if (const int error = memory(call).check(buffer, length, true)) return error;
  }
  if (doorbell != 0) {
    if (const int error = memory(call).check(doorbell, 8, true)) return error;
  }
  std::vector<DmaPiece> buffer_pages;
  std::vector<DmaPiece> record_page;
  const bool found = find_pages(call, doorbell, doorbell != 0 ? 8 : 0, record_page, queue.pins) &&
                     find_pages(call, buffer, length, buffer_pages, queue.pins);
  if (!found) {
    const std::uint64_t all = hca().device().needs_shared_memory() ? kShareAll : 0;
    // The record first: should the buffer not be shareable, the page of the record, where other
    // records are in use from now on, must not be swapped under them by a later command.
    if (doorbell != 0) {
      ShareRange record = pages_of(doorbell, 8);
      record.zero_at = doorbell;
      record.flags |= all;
      call.reply.share(record);
    }
    if (length != 0) {
      ShareRange pages = pages_of(buffer, length);
      pages.flags |= all;
      call.reply.share(pages);
    }
    return kRepeat;
  }
  PciDevice& pci = hca().device();
  if (length != 0) {
    if (const int error =
            map_queue_buffer(pci, hca().iovas(), buffer_pages, buffer, length, queue)) {
      return error;
    }
  }
  if (doorbell == 0) return 0;
  return doorbells_.map(record_page.front(), doorbell, queue.doorbell_page, queue.doorbell_iova);
}

bool Context::find_pages(const Call& call, std::uint64_t address, std::uint64_t length,
                         std::vector<DmaPiece>& pages, Pins& pins) const {
  if (length == 0) return true;
  if (call.sharing == Sharing::not_asked) return false;
  const int fallback = call.sharing == Sharing::shared ? -1 : memory(call).fd();
  return call.shared.find(address, length, fallback, pages, pins);
}

}  // namespace softhca::shim
