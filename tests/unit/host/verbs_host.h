// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <gtest/gtest.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cstring>
#include <memory>
#include <vector>

#include "kernel-shim/host/uverbs/dispatch.h"
#include "kernel-shim/host/uverbs/method.h"
#include "tests/unit/host/fake_device.h"

namespace softhca::shim::test {

/// An IB device over the fake one and an opened context of this process.
class VerbsHost : public ::testing::Test {
 protected:
  explicit VerbsHost(const shim::Offers& offers = {});
  ~VerbsHost() override;

  std::unique_ptr<Context> new_context();
  /// Opens `context` as libmlx5 does.
  void open(Context& context);

  /// Result of a write-style command: outputs in order of core, driver.
  struct Done {
    int error = 0;
    std::vector<std::byte> core;
    std::vector<std::byte> driver;
    std::vector<runtime::UniqueFd> fds;
    std::vector<ShareRange> share;

    template <typename T>
    T as() const {
      T value{};
      std::memcpy(static_cast<void*>(&value), core.data(), std::min(core.size(), sizeof(T)));
      return value;
    }
    template <typename T>
    T driver_as() const {
      T value{};
      std::memcpy(static_cast<void*>(&value), driver.data(), std::min(driver.size(), sizeof(T)));
      return value;
    }
  };
  Done write(Context& context, std::uint32_t command, std::span<const std::byte> core,
             std::size_t core_out, std::span<const std::byte> driver = {},
             std::size_t driver_out = 0, Sharing sharing = Sharing::not_asked, int core_fd = -1);
  /// As an application whose memory can be shared: repeats the command when it is asked to share.
  template <typename In, typename Out>
  Done write_sharing(Context& context, std::uint32_t command, const In& in) {
    Done asked = write<In, Out, char>(context, command, in, nullptr, 0, Sharing::not_asked);
    if (asked.share.empty()) return asked;
    Done done = write<In, Out, char>(context, command, in, nullptr, 0, Sharing::shared);
    done.share = std::move(asked.share);
    return done;
  }
  template <typename In, typename Out, typename Driver = char>
  Done write(Context& context, std::uint32_t command, const In& in, const Driver* driver = nullptr,
             std::size_t driver_out = 0, Sharing sharing = Sharing::shared) {
    return write(
        context, command, std::as_bytes(std::span(&in, 1)), sizeof(Out),
        driver == nullptr ? std::span<const std::byte>{} : std::as_bytes(std::span(driver, 1)),
        driver_out, sharing);
  }

  /// Runs an ioctl method whose only attribute is a handle, as destroy methods are.
  int destroy(Context& context, std::uint16_t object, std::uint16_t method, std::uint32_t handle,
              std::uint16_t response = 0, std::vector<std::byte>* out = nullptr);

  std::uint32_t make_pd(Context& context);
  std::uint32_t make_uar(Context& context);
  Done make_cq(Context& context, std::uint32_t cqe, int channel_fd = -1,
               std::uint64_t user_handle = 0);
  Done make_qp(Context& context, std::uint32_t pd, std::uint32_t cq);
  Done make_mr(Context& context, std::uint32_t pd, std::uint64_t start, std::uint64_t length,
               std::uint32_t access);

  EventLoop loop_;
  FakeDevice* fake_ = nullptr;
  std::unique_ptr<Hca> hca_;
  std::unique_ptr<IbDevice> device_;
  std::unique_ptr<Context> context_;
  static constexpr std::uint64_t kBufferOffset = 0x40000000;
  runtime::UniqueFd memory_;         ///< Plays the process's shared memory.
  std::uint64_t buffer_ = 0;         ///< Address of 1 MiB that `memory_` has from kBufferOffset on.
  std::vector<SharedPiece> pieces_;  ///< What commands tell of it.
  std::uint32_t uar_ = 0;
  std::uint32_t mkey_state_ = 0;  ///< RequestHeader::mkey_state of commands.
};

}  // namespace softhca::shim::test
