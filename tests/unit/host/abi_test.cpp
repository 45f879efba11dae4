// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <rdma/rdma_user_ioctl_cmds.h>

#include <random>

#include "tests/unit/host/verbs_host.h"

namespace softhca::shim::test {
namespace {

/// ib_uverbs_ioctl_hdr without its flexible array.
struct Header {
  std::uint16_t length = 0;
  std::uint16_t object_id = 0;
  std::uint16_t method_id = 0;
  std::uint16_t num_attrs = 0;
  std::uint64_t reserved1 = 0;
  std::uint32_t driver_id = 0;
  std::uint32_t reserved2 = 0;
};
static_assert(sizeof(Header) == sizeof(ib_uverbs_ioctl_hdr));

/// Builds what the preload sends for an ioctl.
class Ioctl {
 public:
  Ioctl(std::uint16_t object, std::uint16_t method) {
    header_.object_id = object;
    header_.method_id = method;
    header_.driver_id = 1;
  }
  Ioctl& attribute(std::uint16_t id, std::uint64_t data, std::uint16_t length = 0,
                   std::uint16_t flags = UVERBS_ATTR_F_MANDATORY,
                   const std::vector<std::byte>& payload = {}) {
    ib_uverbs_attr row{};
    row.attr_id = id;
    row.len = length;
    row.flags = flags;
    row.data = data;
    rows_.push_back(row);
    if (length > 8) {
      std::vector<std::byte> bytes = payload;
      bytes.resize((length + 7) / 8 * 8);
      payload_.insert(payload_.end(), bytes.begin(), bytes.end());
    }
    return *this;
  }
  std::vector<std::byte> bytes() {
    header_.num_attrs = static_cast<std::uint16_t>(rows_.size());
    header_.length = static_cast<std::uint16_t>(sizeof(header_) + rows_.size() * sizeof(rows_[0]));
    std::vector<std::byte> all;
    const auto append = [&all](std::span<const std::byte> part) {
      all.insert(all.end(), part.begin(), part.end());
    };
    append(std::as_bytes(std::span(&header_, 1)));
    append(std::as_bytes(std::span(rows_)));
    append(payload_);
    return all;
  }
  Header header_;

 private:
  std::vector<ib_uverbs_attr> rows_;
  std::vector<std::byte> payload_;
};

class Abi : public VerbsHost {
 protected:
  int ioctl(std::span<const std::byte> bytes, Context* context = nullptr) {
    Call call;
    return dispatch_ioctl(context != nullptr ? *context : *context_, call, RDMA_VERBS_IOCTL, bytes,
                          {});
  }
  int write_form(std::span<const std::byte> bytes) {
    Call call;
    return dispatch_write(*context_, call, bytes, {});
  }
};

TEST_F(Abi, TheProbeOfLibibverbsIsAnsweredWithENOSPC) {
  EXPECT_EQ(ioctl(Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
                      .attribute(UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_GET_CONTEXT, 8)
                      .bytes()),
            ENOSPC);
}

TEST_F(Abi, UnknownThingsHaveTheKernelsErrors) {
  EXPECT_EQ(ioctl(Ioctl(77, 0).bytes()), EPROTONOSUPPORT);
  EXPECT_EQ(ioctl(Ioctl(UVERBS_OBJECT_PD, 9).bytes()), EPROTONOSUPPORT);
  EXPECT_EQ(ioctl(Ioctl(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY)
                      .attribute(UVERBS_ATTR_DESTROY_PD_HANDLE, 1)
                      .attribute(55, 0)
                      .bytes()),
            EPROTONOSUPPORT)
      << "an unknown mandatory attribute";
  EXPECT_EQ(ioctl(Ioctl(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY)
                      .attribute(UVERBS_ATTR_DESTROY_PD_HANDLE, 1)
                      .attribute(55, 0, 0, 0)
                      .bytes()),
            ENOENT)
      << "an unknown optional attribute is ignored";
  EXPECT_EQ(ioctl(Ioctl(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY).bytes()), EINVAL)
      << "a mandatory attribute is missing";
  EXPECT_EQ(ioctl(Ioctl(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY)
                      .attribute(UVERBS_ATTR_DESTROY_PD_HANDLE, 1)
                      .attribute(UVERBS_ATTR_DESTROY_PD_HANDLE, 1)
                      .bytes()),
            EINVAL)
      << "an attribute twice";
  Ioctl other(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
  other.header_.driver_id = 2;
  EXPECT_EQ(ioctl(other.bytes()), EINVAL);
}

TEST_F(Abi, NothingButGetContextComesBeforeGetContext) {
  auto fresh = new_context();
  EXPECT_EQ(ioctl(Ioctl(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY)
                      .attribute(UVERBS_ATTR_DESTROY_PD_HANDLE, 1)
                      .bytes(),
                  fresh.get()),
            EINVAL);
  EXPECT_EQ((write<ib_uverbs_alloc_pd, ib_uverbs_alloc_pd_resp>(*fresh, IB_USER_VERBS_CMD_ALLOC_PD,
                                                                ib_uverbs_alloc_pd{}))
                .error,
            EINVAL);
}

TEST_F(Abi, LengthsOfAttributesAreChecked) {
  const auto query = [this](std::uint16_t room) {
    return ioctl(Ioctl(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
                     .attribute(UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1, 8)
                     .attribute(UVERBS_ATTR_QUERY_PORT_RESP, 0x1000, room)
                     .bytes());
  };
  EXPECT_EQ(query(sizeof(ib_uverbs_query_port_resp_ex)), 0);
  EXPECT_EQ(query(sizeof(ib_uverbs_query_port_resp_ex) + 64), 0)
      << "newer libraries give more room";
  EXPECT_EQ(query(8), EINVAL);
}

TEST_F(Abi, TheWriteFormChecksItsWordCounts) {
  struct {
    ib_uverbs_cmd_hdr header;
    std::uint64_t response;
  } packet{};
  packet.header.command = IB_USER_VERBS_CMD_ALLOC_PD;
  packet.header.in_words = sizeof(packet) / 4;
  packet.header.out_words = 2;
  packet.response = 0x10000;
  const auto bytes = std::as_bytes(std::span(&packet, 1));
  EXPECT_EQ(write_form(bytes), 0);
  EXPECT_EQ(write_form(bytes.first(bytes.size() - 4)), EINVAL);
  EXPECT_EQ(write_form(bytes.first(4)), EINVAL);
  packet.header.out_words = 0;
  EXPECT_EQ(write_form(bytes), ENOSPC);
  packet.header.command = IB_USER_VERBS_CMD_POLL_CQ;
  EXPECT_EQ(write_form(bytes), EOPNOTSUPP);
  packet.header.command = 0x4000;
  EXPECT_EQ(write_form(bytes), EINVAL);
}

TEST_F(Abi, LegacyAndExtendedQueriesAgree) {
  const Done legacy = write<ib_uverbs_query_device, ib_uverbs_query_device_resp>(
      *context_, IB_USER_VERBS_CMD_QUERY_DEVICE, ib_uverbs_query_device{});
  const Done extended_query = write<ib_uverbs_ex_query_device, ib_uverbs_ex_query_device_resp>(
      *context_, extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE), ib_uverbs_ex_query_device{},
      static_cast<char*>(nullptr), sizeof(mlx5_ib_query_device_resp));
  ASSERT_EQ(legacy.error, 0);
  ASSERT_EQ(extended_query.error, 0);
  const auto a = legacy.as<ib_uverbs_query_device_resp>();
  const auto b = extended_query.as<ib_uverbs_ex_query_device_resp>();
  EXPECT_EQ(std::memcmp(&a, &b.base, sizeof(a)), 0);
  EXPECT_EQ(b.response_length, sizeof(b));
  EXPECT_EQ(a.max_qp, 1U << 18);
  EXPECT_EQ(b.odp_caps.general_caps, 0U) << "on-demand paging is not offered";
}

TEST_F(Abi, MutilatedRequestsGetAnErrnoAndNothingElse) {
  std::mt19937 random(7);  // NOLINT(*-msc51-cpp): the same mutations in every run.
  std::vector<std::byte> seed = Ioctl(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE)
                                    .attribute(0, 0)
                                    .attribute(1, 10, 4)
                                    .attribute(2, 0, 8)
                                    .attribute(4, 0, 4)
                                    .attribute(6, 0x1000, 4)
                                    .attribute(0x1000, 0x2000, 32)
                                    .attribute(0x1001, 0x3000, 8)
                                    .bytes();
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes = seed;
    const unsigned changes = random() % 6 + 1;
    for (unsigned c = 0; c < changes; ++c) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    EXPECT_GE(ioctl(bytes), kRepeat);
    EXPECT_GE(write_form(bytes), kRepeat);
  }
}

}  // namespace
}  // namespace softhca::shim::test
