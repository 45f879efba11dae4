// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>

#include "provider/abi/commands.h"
#include "provider/abi/driver.h"
#include "provider/abi/version.h"

namespace softhca::provider::abi {
namespace {

constexpr const char* kOldPath = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0";
constexpr const char* kNewPath = "/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.56.0";

TEST(ProviderAbi, OperationsAreSeventySixPointersInAlphabeticalOrder) {
  EXPECT_EQ(sizeof(verbs_context_ops), 76 * sizeof(void*));
  EXPECT_EQ(offsetof(verbs_context_ops, advise_mr), 0U);
  EXPECT_EQ(offsetof(verbs_context_ops, create_cq), 15 * sizeof(void*));
  EXPECT_EQ(offsetof(verbs_context_ops, free_context), 39 * sizeof(void*));
  EXPECT_EQ(offsetof(verbs_context_ops, poll_cq), 53 * sizeof(void*));
  EXPECT_EQ(offsetof(verbs_context_ops, unimport_pd), 75 * sizeof(void*));
}

TEST(ProviderAbi, ExtendedPartOfQueuePairMovedByOnePointer) {
  EXPECT_EQ(qp_comp_mask_offset(Version::v44), 352U);
  EXPECT_EQ(qp_xrcd_offset(Version::v44) + sizeof(void*), 368U);
  EXPECT_EQ(qp_comp_mask_offset(Version::v56), 360U);
  EXPECT_EQ(qp_xrcd_offset(Version::v56) + sizeof(void*), 376U);
}

TEST(ProviderAbi, CompMaskIsSetWhereTheLibraryInUseReadsIt) {
  const Version before = current();
  for (const Version version : {Version::v44, Version::v56}) {
    set_current(version);
    verbs_qp qp{};
    add_qp_comp_mask(qp, kVerbsQpEx);
    std::uint32_t mask = 0;
    std::memcpy(&mask, qp.storage + qp_comp_mask_offset(version), sizeof(mask));
    EXPECT_EQ(mask, kVerbsQpEx);
  }
  set_current(before);
}

TEST(ProviderAbi, LoadedLibraryIsAKnownVersion) {
  std::string reason;
  EXPECT_TRUE(identify(loaded_library(), reason).has_value()) << reason;
}

TEST(ProviderAbi, PackageVersionComesFromTheFileName) {
  EXPECT_EQ(package_version(kOldPath), 44U);
  EXPECT_EQ(package_version(kNewPath), 56U);
  EXPECT_EQ(package_version("/opt/libibverbs.so.1"), std::nullopt);
  EXPECT_EQ(package_version("/opt/libibverbs.so.1.14.x"), std::nullopt);
  EXPECT_EQ(package_version("/opt/other.so.1.14.44.0"), std::nullopt);
  EXPECT_EQ(package_version(""), std::nullopt);
}

TEST(ProviderAbi, KnownVersionsAreAcceptedOnlyWithTheirSymbols) {
  std::string reason;
  EXPECT_EQ(identify({kOldPath, false, false}, reason), Version::v44);
  EXPECT_EQ(identify({kNewPath, true, true}, reason), Version::v56);
  EXPECT_EQ(identify({kOldPath, true, true}, reason), std::nullopt);
  EXPECT_EQ(identify({kNewPath, false, false}, reason), std::nullopt);
}

TEST(ProviderAbi, UnknownVersionIsRefusedWithOneLineThatNamesTheFile) {
  std::string reason;
  EXPECT_EQ(identify({"/lib/libibverbs.so.1.14.50.0", false, false}, reason), std::nullopt);
  EXPECT_NE(reason.find("/lib/libibverbs.so.1.14.50.0"), std::string::npos) << reason;
  EXPECT_EQ(reason.find('\n'), std::string::npos);
}

TEST(ProviderAbi, DriverPartFollowsTheCoreStructureOfEveryCommand) {
  EXPECT_EQ(sizeof(GetContext) - offsetof(GetContext, driver),
            sizeof(mlx5_ib_alloc_ucontext_req_v2));
  EXPECT_EQ(sizeof(mlx5_ib_alloc_ucontext_req_v2), 32U);
  EXPECT_EQ(sizeof(mlx5_ib_alloc_ucontext_resp), 72U);
  EXPECT_EQ(sizeof(CreateQp) - offsetof(CreateQp, driver), sizeof(mlx5_ib_create_qp));
  EXPECT_EQ(sizeof(CreateCqEx) - offsetof(CreateCqEx, driver), sizeof(mlx5_ib_create_cq));
  EXPECT_EQ(sizeof(CreateSrq) - offsetof(CreateSrq, driver), sizeof(mlx5_ib_create_srq));
  EXPECT_EQ(sizeof(ModifyQp), 8 + sizeof(ib_uverbs_modify_qp));
}

}  // namespace
}  // namespace softhca::provider::abi
