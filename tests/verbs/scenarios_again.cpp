// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/verbs/scenarios.h"

/// Memory that is deregistered and registered again, over and over: no key of before may be used
/// after its deregistration, and each new one works at once.
namespace softhca::verbs_check {
namespace {

constexpr std::size_t kSize = 64 << 10;
constexpr std::size_t kLength = 16 << 10;
constexpr std::uint8_t kByServer = 0xee;

std::uint8_t* map_memory(void* place = nullptr, std::size_t size = kSize) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (place != nullptr ? MAP_FIXED : 0);
  void* memory = ::mmap(place, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  require(memory != MAP_FAILED, std::string("mmap: ") + std::strerror(errno));
  std::memset(memory, 0, size);
  return static_cast<std::uint8_t*>(memory);
}

MrHandle register_memory(ibv_pd* pd, std::uint8_t* memory, std::size_t size = kSize) {
  MrHandle mr(ibv_reg_mr(pd, memory, size, Buffer::kAllAccess));
  require(mr != nullptr, std::string("ibv_reg_mr: ") + std::strerror(errno));
  return mr;
}

void deregister(MrHandle& mr) {
  const int error = ibv_dereg_mr(mr.release());
  require(error == 0, std::string("ibv_dereg_mr: ") + std::strerror(error));
}

bool holds(const std::uint8_t* memory, std::size_t length, std::uint8_t value) {
  return std::all_of(memory, memory + length, [value](std::uint8_t byte) { return byte == value; });
}

void post(Connection& link, ibv_wr_opcode opcode, Buffer& buffer, const RemoteRange& remote,
          std::size_t length = kLength) {
  Request request;
  request.opcode = opcode;
  request.sges = {buffer.sge(0, length)};
  request.remote_address = remote.address;
  request.rkey = remote.rkey;
  link.qp.post(request);
}

RemoteRange told_by_server(Side& side, const RemoteRange& mine) {
  const RemoteRange theirs = side.exchange(mine);
  return side.is_server() ? mine : theirs;
}

/// Each round has a connection of its own, since a refused access ends it.
void check_round(Device& device, Side& side, const Style& style, std::uint8_t* memory, int round,
                 MrHandle& mr) {
  const auto value = static_cast<std::uint8_t>(round + 1);
  Connection link(device, side, style);
  Buffer buffer(device, kLength);
  RemoteRange range{};
  if (side.is_server()) {
    mr = register_memory(device.pd(), memory);
    range = {reinterpret_cast<std::uintptr_t>(memory), mr->rkey};
  }
  range = told_by_server(side, range);
  if (!side.is_server()) {
    buffer.clear(value);
    post(link, IBV_WR_RDMA_WRITE, buffer, range);
    link.cq.expect_success("a write by the key of round " + std::to_string(round));
  }
  side.barrier();
  RemoteRange next = range;
  if (side.is_server()) {
    require(holds(memory, kLength, value), "what was written in round " + std::to_string(round));
    deregister(mr);
    // Every other time the memory has a valid key by now, of another name.
    if (round % 2 != 0) {
      mr = register_memory(device.pd(), memory);
      require(mr->rkey != range.rkey, "a key came back");
      next.rkey = mr->rkey;
    }
    std::memset(memory, kByServer, kLength);
  }
  next = told_by_server(side, next);
  if (!side.is_server() && next.rkey != range.rkey) {
    post(link, IBV_WR_RDMA_READ, buffer, next);
    link.cq.expect_success("a read by the next key");
    require(holds(buffer.data(), kLength, kByServer), "what the next key reads");
  }
  if (!side.is_server()) {
    const bool reads = round % 3 == 0;
    post(link, reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, buffer, range);
    link.cq.expect(IBV_WC_REM_ACCESS_ERR, "a use of the old key in round " + std::to_string(round));
  }
  side.barrier();
  if (side.is_server()) {
    require(holds(memory, kLength, kByServer), "memory whose key has been deregistered");
    if (mr != nullptr) deregister(mr);
  }
}

void check_again(Device& device, Side& side, const Style& style) {
  std::uint8_t* const memory = side.is_server() ? map_memory() : nullptr;
  MrHandle mr;
  for (int round = 0; round < 30; ++round) {
    // Now and then other memory takes the place.
    if (side.is_server() && round % 7 == 6) map_memory(memory);
    check_round(device, side, style, memory, round, mr);
  }
  if (side.is_server()) ::munmap(memory, kSize);
  side.barrier();
}

/// Writes by a key that the other side is about to deregister.
void write_until_refused(Connection& link, Buffer& buffer, const RemoteRange& range) {
  constexpr int kAtOnce = 8;
  int outstanding = 0;
  bool refused = false;
  while (!refused || outstanding != 0) {
    while (!refused && outstanding < kAtOnce) {
      post(link, IBV_WR_RDMA_WRITE, buffer, range, 4096);
      ++outstanding;
    }
    const Completed done = link.cq.wait();
    --outstanding;
    if (done.status == IBV_WC_SUCCESS) continue;
    require(refused || done.status == IBV_WC_REM_ACCESS_ERR,
            std::string("a write is refused by ") + ibv_wc_status_str(done.status));
    refused = true;
  }
}

void check_under_traffic(Device& device, Side& side, const Style& style) {
  constexpr int kRounds = 40;
  std::uint8_t* const memory = side.is_server() ? map_memory() : nullptr;
  std::set<std::uint32_t> keys;
  for (int round = 0; round < kRounds; ++round) {
    Connection link(device, side, style);
    Buffer buffer(device, 4096);
    RemoteRange range{};
    MrHandle mr;
    if (side.is_server()) {
      mr = register_memory(device.pd(), memory);
      require(keys.insert(mr->rkey).second, "a key came back");
      range = {reinterpret_cast<std::uintptr_t>(memory), mr->rkey};
      std::memset(memory, 0, 4096);
    }
    range = told_by_server(side, range);
    if (!side.is_server()) {
      buffer.clear(static_cast<std::uint8_t>(round + 1));
      write_until_refused(link, buffer, range);
    } else {
      volatile const std::uint8_t* last = memory + 4095;
      while (*last == 0) ibv_poll_cq(link.cq.get(), 0, nullptr);
      deregister(mr);
      std::memset(memory, kByServer, 4096);
      for (int look = 0; look < 200; ++look) {
        require(holds(memory, 4096, kByServer), "memory was written after its deregistration");
      }
    }
    side.barrier();
    if (side.is_server()) require(holds(memory, 4096, kByServer), "after the last write");
  }
  if (side.is_server()) ::munmap(memory, kSize);
  side.barrier();
}

/// The same for what the program itself sends: a local key.
void check_local(Device& device, Side& side, const Style& style) {
  std::uint8_t* const memory = side.is_server() ? nullptr : map_memory();
  Buffer target(device, kLength);
  for (int round = 0; round < 12; ++round) {
    Connection link(device, side, style);
    const RemoteRange range = side.exchange(range_of(target));
    if (!side.is_server()) {
      MrHandle mr = register_memory(device.pd(), memory);
      Request request;
      request.opcode = IBV_WR_RDMA_WRITE;
      request.sges = {{reinterpret_cast<std::uintptr_t>(memory), kLength, mr->lkey}};
      request.remote_address = range.address;
      request.rkey = range.rkey;
      link.qp.post(request);
      link.cq.expect_success("a write from memory registered again");
      deregister(mr);
      link.qp.post(request);
      link.cq.expect(IBV_WC_LOC_PROT_ERR, "a write from memory that is deregistered");
    }
    side.barrier();
  }
  if (memory != nullptr) ::munmap(memory, kSize);
}

/// What was deregistered is in nobody's way.
void check_domains(Device& device, Side& side, const Style&) {
  std::uint8_t* const memory = map_memory();
  for (int round = 0; round < 5; ++round) {
    PdHandle pd(ibv_alloc_pd(device.context()));
    require(pd != nullptr, "ibv_alloc_pd");
    for (int i = 0; i < 3; ++i) {
      MrHandle mr = register_memory(pd.get(), memory);
      deregister(mr);
    }
    const int error = ibv_dealloc_pd(pd.release());
    require(error == 0, std::string("ibv_dealloc_pd: ") + std::strerror(error));
  }
  ::munmap(memory, kSize);
  side.barrier();
}

/// More regions than are kept, of all sizes.
void check_many(Device& device, Side& side, const Style&) {
  constexpr std::size_t kRegions = 60;
  std::vector<std::uint8_t*> memories;
  for (std::size_t i = 0; i < kRegions; ++i) {
    memories.push_back(map_memory(nullptr, kSize << i % 6));
  }
  for (int round = 0; round < 3; ++round) {
    std::vector<MrHandle> regions;
    for (std::size_t i = 0; i < kRegions; ++i) {
      regions.push_back(register_memory(device.pd(), memories[i], kSize << i % 6));
    }
    for (MrHandle& mr : regions) deregister(mr);
  }
  for (std::size_t i = 0; i < kRegions; ++i) ::munmap(memories[i], kSize << i % 6);
  side.barrier();
}

/// A child has the parent's memory as it was, and neither its keys nor a say in them.
void check_fork(Device& device, Side& side, const Style& style) {
  Connection link(device, side, style);
  Buffer buffer(device, kLength);
  std::uint8_t* const memory = side.is_server() ? map_memory() : nullptr;
  RemoteRange range{};
  MrHandle mr;
  if (side.is_server()) {
    for (int i = 0; i < 3; ++i) {
      mr = register_memory(device.pd(), memory);
      deregister(mr);
    }
    const pid_t child = ::fork();
    if (child == 0) {
      ::munmap(memory, kSize);
      ::_exit(0);
    }
    int status = -1;
    require(child > 0 && ::waitpid(child, &status, 0) == child && status == 0, "a child");
    mr = register_memory(device.pd(), memory);
    range = {reinterpret_cast<std::uintptr_t>(memory), mr->rkey};
  }
  range = told_by_server(side, range);
  if (!side.is_server()) {
    buffer.clear(0x44);
    post(link, IBV_WR_RDMA_WRITE, buffer, range);
    link.cq.expect_success("a write after a fork");
  }
  side.barrier();
  if (!side.is_server()) return;
  require(holds(memory, kLength, 0x44), "what was written after a fork");
  deregister(mr);
  ::munmap(memory, kSize);
}

/// A key that was given a new name is changed under that name, and keeps it.
void check_changed(Device& device, Side& side, const Style& style) {
  std::uint8_t* const memory = side.is_server() ? map_memory() : nullptr;
  Buffer buffer(device, kLength);
  MrHandle mr;
  std::vector<std::uint32_t> old_keys;
  if (side.is_server()) {
    for (int i = 0; i < 4; ++i) {
      if (mr != nullptr) old_keys.push_back(mr->rkey);
      if (mr != nullptr) deregister(mr);
      mr = register_memory(device.pd(), memory);
    }
    const std::uint32_t key = mr->rkey;
    ibv_mr* const imported = ibv_import_mr(device.pd(), mr->handle);
    require(imported != nullptr && imported->rkey == key, "the key of an imported region");
    ibv_unimport_mr(imported);
    const int error = ibv_rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    require(error == 0, "ibv_rereg_mr");
    require(mr->rkey == key, "a change of access rights keeps the key");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  for (std::size_t i = 0; i < 4; ++i) {
    Connection link(device, side, style);
    RemoteRange range{};
    if (side.is_server()) range = {address, i == 0 ? mr->rkey : old_keys[i - 1]};
    range = told_by_server(side, range);
    if (!side.is_server()) {
      post(link, IBV_WR_RDMA_WRITE, buffer, range);
      if (i == 0) {
        link.cq.expect_success("a write by the changed key");
      } else {
        link.cq.expect(IBV_WC_REM_ACCESS_ERR, "a write by a key from before");
      }
    }
    side.barrier();
  }
  if (!side.is_server()) return;
  const std::uint32_t handle = mr->handle;
  deregister(mr);
  mr = register_memory(device.pd(), memory);
  const std::uint32_t next = mr->handle;
  deregister(mr);
  for (const std::uint32_t gone : {handle, next}) {
    require(ibv_import_mr(device.pd(), gone) == nullptr, "a deregistered region was imported");
  }
  ::munmap(memory, kSize);
}

/// Whoever goes on with a copy of the command descriptor does not touch keys from before.
void check_copied_descriptor(Device& given, Side& side, const Style& style) {
  Device device(ibv_get_device_name(given.context()->device));
  std::uint8_t* memory = nullptr;
  RemoteRange range{};
  std::vector<MrHandle> kept;
  if (side.is_server()) {
    memory = map_memory();
    MrHandle mr = register_memory(device.pd(), memory);
    deregister(mr);
    for (std::size_t i = 0; i < 4; ++i) {
      kept.push_back(register_memory(device.pd(), memory + i * kLength, kLength));
    }
    const int fd = ::dup(device.context()->cmd_fd);
    require(fd >= 0, "dup");
    ::close(std::exchange(device.context()->cmd_fd, fd));
    std::uint8_t* const other = map_memory();
    for (int i = 0; i < 6; ++i) {
      mr = register_memory(device.pd(), other);
      deregister(mr);
    }
    ::munmap(other, kSize);
  }
  Buffer buffer(device, kLength);
  for (std::size_t i = 0; i < 4; ++i) {
    Connection link(device, side, style);
    if (side.is_server()) {
      range = {reinterpret_cast<std::uintptr_t>(memory) + i * kLength, kept[i]->rkey};
    }
    range = told_by_server(side, range);
    if (!side.is_server()) {
      post(link, IBV_WR_RDMA_WRITE, buffer, range);
      link.cq.expect_success("a write by a key from before");
    }
    side.barrier();
  }
  for (MrHandle& mr : kept) deregister(mr);
  if (memory != nullptr) ::munmap(memory, kSize);
}

}  // namespace

std::vector<Scenario> again_scenarios() {
  return {{"memory_registered_again", check_again, true},
          {"memory_registered_again_under_traffic", check_under_traffic, false},
          {"local_key_of_memory_registered_again", check_local, false},
          {"domain_of_memory_deregistered", check_domains, false},
          {"many_regions_registered_again", check_many, false},
          {"fork_between_registrations", check_fork, false},
          {"key_registered_again_is_changed", check_changed, false},
          {"descriptor_copied_between_registrations", check_copied_descriptor, false}};
}

}  // namespace softhca::verbs_check
