// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "tests/verbs/scenarios.h"

/// Ever new memory, registered and deregistered again, as programs do that register what they send:
/// each region shows what was in its memory, and those that stay registered go on doing so,
/// although the memory behind them has long been unmapped and its place been taken by others.
namespace softhca::verbs_check {
namespace {

constexpr std::size_t kLargest = 1 << 20;
constexpr std::size_t kSizes[] = {kLargest, kLargest, 64 << 10, kLargest, 300 << 10};
constexpr int kRounds = 40;
constexpr int kKeptEvery = 7;

struct Region {
  MrHandle mr;
  std::uint8_t* memory = nullptr;
  std::size_t size = 0;
};

std::uint8_t value_of(int round) {
  return static_cast<std::uint8_t>(round + 1);
}

Region make_region(const Device& device, int round) {
  Region region;
  region.size = kSizes[static_cast<std::size_t>(round) % std::size(kSizes)];
  void* memory =
      ::mmap(nullptr, region.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, std::string("mmap: ") + std::strerror(errno));
  std::memset(memory, value_of(round), region.size);
  region.memory = static_cast<std::uint8_t*>(memory);
  region.mr.reset(ibv_reg_mr(device.pd(), memory, region.size, Buffer::kAllAccess));
  require(region.mr != nullptr, std::string("ibv_reg_mr: ") + std::strerror(errno));
  return region;
}

/// What a peer needs to know.
struct Place {
  RemoteRange range;
  std::size_t size = 0;
  int round = 0;
};

void read_and_check(Connection& link, Buffer& buffer, const Place& place) {
  const std::string what = "the region of round " + std::to_string(place.round);
  buffer.clear(0);
  Request request;
  request.opcode = IBV_WR_RDMA_READ;
  request.sges = {buffer.sge(0, place.size)};
  request.remote_address = place.range.address;
  request.rkey = place.range.rkey;
  link.qp.post(request);
  link.cq.expect(IBV_WC_SUCCESS, "a read of " + what);
  for (std::size_t i = 0; i < place.size; ++i) {
    require(buffer.data()[i] == value_of(place.round),
            what + ": byte " + std::to_string(i) + " is " + std::to_string(buffer.data()[i]));
  }
}

void check_anew(Device& device, Side& side, const Style& style) {
  Connection link(device, side, style);
  Buffer buffer(device, kLargest);
  std::vector<MrHandle> kept;
  std::vector<Place> places;
  for (int round = 0; round < kRounds; ++round) {
    Region region;
    Place place;
    if (side.is_server()) {
      region = make_region(device, round);
      place = {
          {reinterpret_cast<std::uintptr_t>(region.memory), region.mr->rkey}, region.size, round};
    }
    place = side.exchange(place);
    if (!side.is_server()) read_and_check(link, buffer, place);
    side.barrier();
    if (round % kKeptEvery == 0) {
      places.push_back(place);
      kept.push_back(std::move(region.mr));
    }
    region.mr.reset();
    if (region.memory != nullptr) ::munmap(region.memory, region.size);
  }
  if (!side.is_server()) {
    for (const Place& place : places) read_and_check(link, buffer, place);
  }
  side.barrier();
}

}  // namespace

std::vector<Scenario> anew_scenarios() {
  return {{"memory_registered_anew", check_anew, false}};
}

}  // namespace softhca::verbs_check
