// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "kernel-shim/host/memory/client_memory.h"
#include "kernel-shim/host/memory/mkey_state_memory.h"
#include "kernel-shim/host/uverbs/call.h"
#include "kernel-shim/host/uverbs/ib_device.h"
#include "kernel-shim/host/uverbs/objects.h"

namespace softhca::shim {

/// A handler returns 0, an errno, or this: the reply asks for shared memory and the request comes
/// again.
inline constexpr int kRepeat = -1;

/// Objects of one kind by handle.
template <typename T>
class ObjectTable {
 public:
  /// Most objects of a kind that one context may own.
  static constexpr std::size_t kLimit = 1 << 18;

  /// Null: no such object (the kernel's ENOENT).
  T* find(std::uint64_t handle) const {
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second.get();
  }
  bool full() const { return objects_.size() >= kLimit; }
  T& insert(std::uint32_t handle, std::unique_ptr<T> object) {
    object->handle = handle;
    return *(objects_[handle] = std::move(object));
  }
  /// A handle from 1 to `last` that is not in use and was not lately, for objects without a number
  /// of their own. Fewer than `last` objects must exist.
  std::uint32_t new_handle(std::uint32_t last = ~0U) {
    do {
      last_handle_ = last_handle_ >= last ? 1 : last_handle_ + 1;
    } while (objects_.contains(last_handle_));
    return last_handle_;
  }
  void erase(std::uint32_t handle) { objects_.erase(handle); }
  bool empty() const { return objects_.empty(); }
  std::size_t size() const { return objects_.size(); }
  T& first() const { return *objects_.begin()->second; }
  auto begin() const { return objects_.begin(); }
  auto end() const { return objects_.end(); }

 private:
  std::map<std::uint64_t, std::unique_ptr<T>> objects_;
  std::uint32_t last_handle_ = 0;
};

/// One open of the device: what the kernel calls a ucontext, with everything it owns. Destruction
/// is the kernel's release(): it destroys what is left in an order that the device accepts.
class Context {
 public:
  Context(IbDevice& device, ClientMemory memory);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Destroys up to `most` of the objects that are left. True: there are none any more. The context
  /// is good for nothing else from then on.
  bool release_some(std::size_t most);

  IbDevice& device() { return device_; }
  Hca& hca() { return device_.hca(); }
  CommandInterface& commands() { return device_.commands(); }
  /// The memory that addresses in `call` are of: the caller's, as for any system call.
  const ClientMemory& memory(const Call& call) const {
    return call.own_memory ? *call.own_memory : memory_;
  }

  /// GET_CONTEXT has been done; other commands are EINVAL before.
  bool opened = false;
  std::uint8_t cqe_version = 0;
  std::uint32_t transport_domain = 0;
  std::uint16_t devx_uid = 0;
  MkeyStateMemory mkey_states;

  ObjectTable<Pd> pds;
  ObjectTable<Mr> mrs;
  ObjectTable<Mw> mws;
  ObjectTable<Cq> cqs;
  ObjectTable<Qp> qps;
  ObjectTable<Srq> srqs;
  ObjectTable<Uar> uars;
  ObjectTable<XrcdHandle> xrcds;
  ObjectTable<Ah> ahs;
  std::vector<std::shared_ptr<EventChannel>> completion_channels;
  std::vector<std::shared_ptr<EventChannel>> async_files;

  /// Makes a channel and gives the application its end. 0 or an errno.
  int make_completion_channel(runtime::UniqueFd& read_end);
  /// The first one becomes the default and stays it, also when it is closed
  /// (ib_uverbs_init_async_event_file).
  int make_async_file(runtime::UniqueFd& read_end);
  /// The channel whose descriptor `fd` is; null: none of ours.
  static std::shared_ptr<EventChannel> find_channel(
      const std::vector<std::shared_ptr<EventChannel>>& list, int fd);
  const std::shared_ptr<EventChannel>& default_async() const { return default_async_; }
  /// Async file of a new object: the one named by attribute `id`, else the default. EINVAL: not one
  /// of ours.
  int async_file(const Call& call, std::uint16_t id, std::shared_ptr<EventChannel>& file) const;

  bool owns_uar(std::uint32_t index) const;

  /// Gives back transport domain and DEVX user, if there are any: at the end, and when opening
  /// failed half way.
  void release_identity();

  /// Makes a queue buffer and its doorbell record (0: none) reachable for the device. Asks for
  /// sharing first: kRepeat. Else 0 or an errno.
  int map_queue(Call& call, std::uint64_t buffer, std::uint64_t length, std::uint64_t doorbell,
                QueueMemory& queue);

  /// Where the device finds the pages around [address, address + length): shared pages, pinned, or
  /// where the process cannot share them, its memory's descriptor. False: sharing must be asked
  /// for.
  bool find_pages(const Call& call, std::uint64_t address, std::uint64_t length,
                  std::vector<DmaPiece>& pages, Pins& pins) const;

  /// Result of a destroy command: on a device that is gone, objects are gone too.
  int unless_gone(int error) { return error != 0 && !hca().alive() ? 0 : error; }

  // Destruction of one object on the device, without looking at `uses`; for destroy commands and
  // release.
  int release(Qp& qp);
  int release(Srq& srq);
  int release(Cq& cq);
  int release(Mr& mr);
  int release(Mw& mw);
  int release(Uar& uar);
  int release(Pd& pd);

 private:
  template <typename T>
  bool release_some(ObjectTable<T>& table, std::size_t& most);
  int make_channel(std::vector<std::shared_ptr<EventChannel>>& list, std::size_t record_size,
                   runtime::UniqueFd& read_end);

  IbDevice& device_;
  ClientMemory memory_;
  DoorbellPages doorbells_;
  std::shared_ptr<EventChannel> default_async_;
};

}  // namespace softhca::shim
