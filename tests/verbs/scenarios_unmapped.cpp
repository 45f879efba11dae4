// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tests/verbs/scenarios.h"

/// Keys whose memory the program has unmapped, replaced or discarded: pages are pinned, so the key
/// means the old ones until it is deregistered, and never what takes their place.
namespace softhca::verbs_check {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kPages = 4;
/// The region has its first and its last page in part.
constexpr std::size_t kOffset = 64;
constexpr std::size_t kLength = kPages * kPage - 2 * kOffset;
constexpr std::uint8_t kOld = 0x11;
constexpr std::uint8_t kNew = 0x22;
constexpr std::uint8_t kStored = 0x33;

enum class End : std::uint8_t { unmapped, replaced, replaced_and_registered, discarded };

std::uint8_t* map_pages(void* place, std::uint8_t value) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (place != nullptr ? MAP_FIXED : 0);
  void* memory = ::mmap(place, kPages * kPage, PROT_READ | PROT_WRITE, flags, -1, 0);
  require(memory != MAP_FAILED, std::string("mmap: ") + std::strerror(errno));
  std::memset(memory, value, kPages * kPage);
  return static_cast<std::uint8_t*>(memory);
}

MrHandle register_part(const Device& device, std::uint8_t* memory) {
  MrHandle mr(ibv_reg_mr(device.pd(), memory + kOffset, kLength, Buffer::kAllAccess));
  require(mr != nullptr, std::string("ibv_reg_mr: ") + std::strerror(errno));
  return mr;
}

void require_all(const std::uint8_t* memory, std::size_t length, std::uint8_t value,
                 const std::string& what) {
  for (std::size_t i = 0; i < length; ++i) {
    require(memory[i] == value, what + ": byte " + std::to_string(i) + " is " +
                                    std::to_string(memory[i]) + " instead of " +
                                    std::to_string(value));
  }
}

/// What the server does to its memory, and what it registers there afterwards.
MrHandle end_mapping(const Device& device, std::uint8_t* memory, End end) {
  if (end == End::unmapped) ::munmap(memory, kPages * kPage);
  if (end == End::discarded) {
    require(::madvise(memory, kPages * kPage, MADV_DONTNEED) == 0, "madvise");
    require_all(memory, kPages * kPage, 0, "discarded memory");
    std::memset(memory, kNew, kPages * kPage);
  }
  if (end == End::replaced || end == End::replaced_and_registered) map_pages(memory, kNew);
  return end == End::replaced_and_registered ? register_part(device, memory) : nullptr;
}

struct Keys {
  RemoteRange old_range;
  RemoteRange new_range;  ///< rkey 0: there is none.
};

void transfer(Connection& link, ibv_wr_opcode opcode, Buffer& buffer, const RemoteRange& remote,
              const std::string& what) {
  Request request;
  request.opcode = opcode;
  request.sges = {buffer.sge(0, kLength)};
  request.remote_address = remote.address;
  request.rkey = remote.rkey;
  link.qp.post(request);
  link.cq.expect(IBV_WC_SUCCESS, what);
}

void use_keys(Connection& link, Buffer& buffer, const Keys& keys) {
  transfer(link, IBV_WR_RDMA_READ, buffer, keys.old_range, "a read by the old key");
  require_all(buffer.data(), kLength, kOld, "what the old key reads");
  buffer.clear(kStored);
  transfer(link, IBV_WR_RDMA_WRITE, buffer, keys.old_range, "a write by the old key");
  buffer.clear(0);
  transfer(link, IBV_WR_RDMA_READ, buffer, keys.old_range, "a read of what was written");
  require_all(buffer.data(), kLength, kStored, "what the old key reads after its write");
  if (keys.new_range.rkey == 0) return;
  transfer(link, IBV_WR_RDMA_READ, buffer, keys.new_range, "a read by the new key");
  require_all(buffer.data(), kLength, kNew, "what the new key reads");
}

void check_end(Device& device, Side& side, const Style& style, End end) {
  Connection link(device, side, style);
  Buffer buffer(device, kLength);
  Keys keys{};
  std::uint8_t* memory = nullptr;
  MrHandle old_mr;
  MrHandle new_mr;
  if (side.is_server()) {
    memory = map_pages(nullptr, kOld);
    const auto address = reinterpret_cast<std::uintptr_t>(memory) + kOffset;
    old_mr = register_part(device, memory);
    new_mr = end_mapping(device, memory, end);
    keys.old_range = {address, old_mr->rkey};
    keys.new_range = {address, new_mr != nullptr ? new_mr->rkey : 0};
  }
  keys = side.exchange(keys);
  if (!side.is_server()) use_keys(link, buffer, keys);
  side.barrier();
  if (side.is_server() && end != End::unmapped) {
    require_all(memory, kPages * kPage, kNew, "the memory that the program has now");
  }
  require(!side.is_server() || ibv_dereg_mr(old_mr.release()) == 0, "ibv_dereg_mr");
  side.barrier();
  if (!side.is_server()) {
    Request request;
    request.opcode = IBV_WR_RDMA_READ;
    request.sges = {buffer.sge(0, 8)};
    request.remote_address = keys.old_range.address;
    request.rkey = keys.old_range.rkey;
    link.qp.post(request);
    link.cq.expect(IBV_WC_REM_ACCESS_ERR, "a read by a key that is deregistered");
  }
  side.barrier();
  new_mr.reset();
  if (side.is_server() && end != End::unmapped) ::munmap(memory, kPages * kPage);
}

template <End end>
void check(Device& device, Side& side, const Style& style) {
  // Twice, as the second time pages of the first may be in the way.
  for (int round = 0; round < 2; ++round) check_end(device, side, style, end);
}

}  // namespace

std::vector<Scenario> unmapped_scenarios() {
  return {{"key_of_unmapped_memory", check<End::unmapped>, false},
          {"key_of_replaced_memory", check<End::replaced>, false},
          {"key_of_replaced_and_registered_memory", check<End::replaced_and_registered>, false},
          {"key_of_discarded_memory", check<End::discarded>, false}};
}

}  // namespace softhca::verbs_check
