// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// What the device offers to applications, and how it answers where it does not.
#include <fcntl.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <sys/mman.h>

#include <cerrno>

#include "hw-model/prm/command_queue.h"
#include "kernel-shim/host/uverbs/device_attributes.h"
#include "kernel-shim/host/uverbs/mmap.h"
#include "tests/unit/host/verbs_host.h"

namespace softhca::shim::test {
namespace {

class Offers : public VerbsHost {
 protected:
  /// MLX5_IB_METHOD_DEVX_OTHER with this opcode.
  int devx_other(prm::CommandOpcode opcode) {
    std::vector<std::uint8_t> in(16);
    prm::CommandInput::opcode::set(in.data(), static_cast<std::uint16_t>(opcode));
    Call call;
    IoctlAttribute input;
    input.id = MLX5_IB_ATTR_DEVX_OTHER_CMD_IN;
    input.length = 16;
    input.payload = std::as_bytes(std::span(in));
    IoctlAttribute output;
    output.id = MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT;
    output.length = 16;
    output.position = 1;
    call.attributes = {input, output};
    return find_method(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER)->handler(*context_, call);
  }
  MmapBody clock_page(std::uint32_t prot, std::uint32_t flags, std::uint64_t index = 0) {
    MmapBody body;
    body.offset = (std::uint64_t{MLX5_IB_MMAP_CLOCK_INFO} << 8 | index) * 4096;
    body.length = 4096;
    body.prot = prot;
    body.flags = flags;
    return body;
  }
};

TEST_F(Offers, NoXrcThoughTheDeviceHasIt) {
  EXPECT_EQ(device_attributes(*device_).device_cap_flags & IB_UVERBS_DEVICE_XRC, 0U);
  ib_uverbs_open_xrcd core{};
  core.fd = static_cast<std::uint32_t>(-1);
  core.oflags = O_CREAT;
  EXPECT_EQ((write<ib_uverbs_open_xrcd, ib_uverbs_open_xrcd_resp>(
                 *context_, IB_USER_VERBS_CMD_OPEN_XRCD, core))
                .error,
            EOPNOTSUPP);
  EXPECT_EQ(fake_->live(prm::CommandOpcode::alloc_xrcd), 2U) << "the kernel's own two";
}

class XrcOffers : public VerbsHost {
 protected:
  XrcOffers() : VerbsHost({.xrc = true}) {}
  std::uint32_t open_domain() {
    ib_uverbs_open_xrcd core{};
    core.fd = static_cast<std::uint32_t>(-1);
    core.oflags = O_CREAT;
    const Done opened = write<ib_uverbs_open_xrcd, ib_uverbs_open_xrcd_resp>(
        *context_, IB_USER_VERBS_CMD_OPEN_XRCD, core);
    EXPECT_EQ(opened.error, 0);
    return opened.as<ib_uverbs_open_xrcd_resp>().xrcd_handle;
  }
  Done make_target(std::uint32_t domain) {
    ib_uverbs_create_qp core{};
    core.pd_handle = domain;
    core.qp_type = IB_UVERBS_QPT_XRC_TGT;
    return write<ib_uverbs_create_qp, ib_uverbs_create_qp_resp>(*context_,
                                                                IB_USER_VERBS_CMD_CREATE_QP, core);
  }
  int destroy_qp(std::uint32_t handle) {
    ib_uverbs_destroy_qp core{};
    core.qp_handle = handle;
    return write<ib_uverbs_destroy_qp, ib_uverbs_destroy_qp_resp>(
               *context_, IB_USER_VERBS_CMD_DESTROY_QP, core)
        .error;
  }
};

TEST_F(XrcOffers, AreSaidToApplications) {
  EXPECT_NE(device_attributes(*device_).device_cap_flags & IB_UVERBS_DEVICE_XRC, 0U);
}

TEST_F(XrcOffers, TargetsNameObjectsOfTheDriver) {
  const std::uint32_t domain = open_domain();
  const auto pds = fake_->live(prm::CommandOpcode::alloc_pd);
  const auto cqs = fake_->live(prm::CommandOpcode::create_cq);
  const Done first = make_target(domain);
  ASSERT_EQ(first.error, 0);
  const Done second = make_target(domain);
  ASSERT_EQ(second.error, 0);
  EXPECT_EQ(fake_->live(prm::CommandOpcode::create_qp), 2U);
  EXPECT_EQ(fake_->live(prm::CommandOpcode::alloc_pd), pds + 1) << "one for all targets";
  EXPECT_EQ(fake_->live(prm::CommandOpcode::create_cq), cqs + 1) << "one for all targets";
  EXPECT_EQ(destroy_qp(first.as<ib_uverbs_create_qp_resp>().qp_handle), 0);
  EXPECT_EQ(destroy_qp(second.as<ib_uverbs_create_qp_resp>().qp_handle), 0);
  EXPECT_EQ(make_target(domain + 1).error, EINVAL) << "no such domain";
}

TEST_F(Offers, NoMemoryWindowsThoughTheDeviceHasThem) {
  EXPECT_EQ(device_attributes(*device_).device_cap_flags &
                (IB_UVERBS_DEVICE_MEM_WINDOW | IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS),
            0U);
  EXPECT_EQ(device_attributes(*device_).max_mw, 0U);
  ib_uverbs_alloc_mw core{};
  core.mw_type = 1;
  EXPECT_EQ((write<ib_uverbs_alloc_mw, ib_uverbs_alloc_mw_resp>(*context_,
                                                                IB_USER_VERBS_CMD_ALLOC_MW, core))
                .error,
            EOPNOTSUPP);
}

class WindowOffers : public VerbsHost {
 protected:
  WindowOffers() : VerbsHost({.windows = true}) {}
  Done alloc_mw(std::uint32_t pd, std::uint8_t type) {
    ib_uverbs_alloc_mw core{};
    core.pd_handle = pd;
    core.mw_type = type;
    return write<ib_uverbs_alloc_mw, ib_uverbs_alloc_mw_resp>(*context_, IB_USER_VERBS_CMD_ALLOC_MW,
                                                              core);
  }
  int dealloc_mw(std::uint32_t handle) {
    ib_uverbs_dealloc_mw core{};
    core.mw_handle = handle;
    return write<ib_uverbs_dealloc_mw, char>(*context_, IB_USER_VERBS_CMD_DEALLOC_MW, core).error;
  }
};

TEST_F(WindowOffers, AreSaidToApplications) {
  const auto flags = device_attributes(*device_).device_cap_flags;
  EXPECT_NE(flags & IB_UVERBS_DEVICE_MEM_WINDOW, 0U);
  EXPECT_NE(flags & IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B, 0U);
  EXPECT_GT(device_attributes(*device_).max_mw, 0U);
}

TEST_F(WindowOffers, EachWindowIsAKeyOfItsProtectionDomain) {
  const std::uint32_t pd = make_pd(*context_);
  const auto before = fake_->live(prm::CommandOpcode::create_mkey);
  for (const std::uint8_t type : {std::uint8_t{1}, std::uint8_t{2}}) {
    const Done made = alloc_mw(pd, type);
    ASSERT_EQ(made.error, 0) << "type " << unsigned{type};
    const auto response = made.as<ib_uverbs_alloc_mw_resp>();
    EXPECT_EQ(fake_->live(prm::CommandOpcode::create_mkey), before + 1);
    ib_uverbs_dealloc_pd dealloc{};
    dealloc.pd_handle = pd;
    EXPECT_EQ(
        (write<ib_uverbs_dealloc_pd, char>(*context_, IB_USER_VERBS_CMD_DEALLOC_PD, dealloc)).error,
        EBUSY)
        << "a window holds its protection domain";
    EXPECT_EQ(dealloc_mw(response.mw_handle), 0);
    EXPECT_EQ(fake_->live(prm::CommandOpcode::create_mkey), before);
    EXPECT_EQ(dealloc_mw(response.mw_handle), ENOENT);
  }
}

TEST_F(WindowOffers, HaveTwoTypes) {
  const std::uint32_t pd = make_pd(*context_);
  EXPECT_EQ(alloc_mw(pd, 0).error, EINVAL);
  EXPECT_EQ(alloc_mw(pd, 3).error, EINVAL);
  EXPECT_EQ(alloc_mw(pd + 1, 1).error, ENOENT);
}

TEST_F(Offers, WithoutDevxOpenQueriesAreNotSupportedAndTheRestIsInvalid) {
  ASSERT_EQ(context_->devx_uid, 0);
  EXPECT_EQ(devx_other(prm::CommandOpcode::query_hca_cap), EOPNOTSUPP);
  EXPECT_EQ(devx_other(prm::CommandOpcode::query_issi), EINVAL);
  EXPECT_EQ(devx_other(prm::CommandOpcode::create_qp), EINVAL);
}

TEST_F(Offers, AClockPageThatSaysACycleIsANanosecond) {
  EXPECT_NE(ucontext_response(*context_).clock_info_versions & 1U << MLX5_IB_CLOCK_INFO_V1, 0U);
  MmapReply reply;
  runtime::UniqueFd fd;
  ASSERT_EQ(serve_mmap(*context_, clock_page(PROT_READ, MAP_SHARED), reply, fd), 0);
  void* const page =
      ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd.get(), static_cast<off_t>(reply.file_offset));
  ASSERT_NE(page, MAP_FAILED);
  mlx5_ib_clock_info info{};
  std::memcpy(&info, page, sizeof(info));
  ::munmap(page, 4096);
  EXPECT_EQ(info.sign & MLX5_IB_CLOCK_INFO_KERNEL_UPDATING, 0U);
  const std::uint64_t timestamp = 0x1234'5678'9abc'def0ULL;
  const std::uint64_t delta = (timestamp - info.cycles) & info.mask;
  ASSERT_LE(delta, info.mask / 2) << "past that, libraries take it for a time before the page";
  EXPECT_EQ(info.nsec + ((delta * info.mult + info.frac) >> info.shift), timestamp);
}

TEST_F(Offers, TheClockPageIsForReadingOnly) {
  MmapReply reply;
  runtime::UniqueFd fd;
  EXPECT_EQ(serve_mmap(*context_, clock_page(PROT_READ | PROT_WRITE, MAP_SHARED), reply, fd),
            EPERM);
  EXPECT_EQ(serve_mmap(*context_, clock_page(PROT_READ, MAP_PRIVATE), reply, fd), EINVAL);
  EXPECT_EQ(serve_mmap(*context_, clock_page(PROT_READ, MAP_SHARED, 1), reply, fd), EOPNOTSUPP);
  ASSERT_EQ(serve_mmap(*context_, clock_page(PROT_READ, MAP_SHARED), reply, fd), 0);
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0), MAP_FAILED)
      << "one application must not change what others read";
}

}  // namespace
}  // namespace softhca::shim::test
