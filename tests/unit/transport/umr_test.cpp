// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "hw-model/ib/opcodes.h"
#include "tests/support/transport_pair.h"
#include "tests/support/umr_request.h"

// Memory keys that work requests change: fast registration, windows, invalidation.
namespace softhca::transport_test {
namespace {

using prm::CqeOpcode;
using prm::CqeSyndrome;
using prm::UmrMask;
using prm::WqeOpcode;

class Umr : public ::testing::Test {
 protected:
  static constexpr std::size_t kPage = 4096;
  static constexpr std::uint64_t kVirtual = 0x7f00'0000'0000;

  Completion wait(TestCq& cq) {
    std::optional<Completion> completion;
    EXPECT_TRUE(pair.run_until([&] { return (completion = cq.poll()).has_value(); }))
        << "no completion came";
    return completion.value_or(Completion{});
  }
  static std::uint32_t with_variant(std::uint32_t key, std::uint8_t variant) {
    return (key & ~0xffU) | variant;
  }
  /// A registration of `pages` of a's buffer, in the order given, by a list in the WQE.
  Completion register_pages(std::uint32_t key, std::span<const std::uint64_t> pages,
                            std::uint64_t length) {
    auto request = fast_register(static_cast<std::uint8_t>(key), kVirtual, length);
    request.inline_list(page_list(pages));
    qps.a.post_send({.opcode = WqeOpcode::umr, .immediate = key, .umr = request.bytes});
    return wait(qps.a_cq);
  }
  /// Fetches through the key from b's side.
  Completion read_remotely(std::uint32_t key, std::uint64_t address, std::uint32_t length) {
    qps.b.post_send({.opcode = WqeOpcode::rdma_read,
                     .sges = {qps.b_sge(0, length)},
                     .remote_address = address,
                     .rkey = key});
    return wait(qps.b_cq);
  }
  std::byte a_byte(std::uint64_t offset) { return *pair.a.at(qps.a_buffer + offset); }
  std::byte b_byte(std::uint64_t offset) { return *pair.b.at(qps.b_buffer + offset); }

  TransportPair pair;
  ConnectedQps qps{pair};
};

TEST_F(Umr, AFastRegistrationIsUsedByWhatFollowsInTheQueue) {
  const auto data = TestHost::pattern(8 * kPage, 3);
  pair.a.fill(qps.a_buffer, data);
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, 4), 7);
  const std::array pages{qps.a_buffer + 6 * kPage, qps.a_buffer + kPage};
  auto request = fast_register(7, kVirtual + 16, 2 * kPage - 16);
  request.inline_list(page_list(pages));
  qps.b.post_recv({qps.b_sge(0, 2 * kPage)});
  qps.a.write_send({.opcode = WqeOpcode::umr, .immediate = key, .umr = request.bytes});
  qps.a.post_send({.sges = {{kVirtual + 16, 2 * kPage - 16, key}}});
  const Completion registered = wait(qps.a_cq);
  EXPECT_TRUE(registered.ok());
  EXPECT_EQ(registered.send_opcode, WqeOpcode::umr);
  EXPECT_TRUE(wait(qps.a_cq).ok());
  ASSERT_EQ(wait(qps.b_cq).byte_count, 2 * kPage - 16);
  EXPECT_EQ(b_byte(0), data[6 * kPage + 16]);
  EXPECT_EQ(b_byte(kPage - 16), data[kPage]);
}

TEST_F(Umr, AListInMemoryIsFetchedByItsLkey) {
  constexpr unsigned kPages = 200;
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, kPages / 2), 1);
  std::vector<std::uint64_t> pages;
  for (unsigned i = 0; i < kPages; ++i) pages.push_back(qps.a_buffer + (i * 37 % 200) * kPage);
  const auto list = page_list(pages);
  const std::uint64_t where = pair.a.allocate(list.size(), kPage);
  pair.a.fill(where, std::as_bytes(std::span(list)));
  const auto list_key = pair.a.register_memory(where, list.size(), MemoryAccess::local_read);
  auto request = fast_register(1, kVirtual, kPages * kPage);
  request.list_in_memory(list.size());
  const auto size = static_cast<std::uint32_t>(list.size());
  qps.a.post_send({.opcode = WqeOpcode::umr,
                   .sges = {{where, size, list_key}},
                   .immediate = key,
                   .umr = request.bytes});
  ASSERT_TRUE(wait(qps.a_cq).ok());
  for (const unsigned page : {0U, 1U, 77U, 199U}) {
    *pair.a.at(pages[page]) = std::byte{static_cast<std::uint8_t>(page + 1)};
    ASSERT_TRUE(read_remotely(key, kVirtual + page * kPage, 8).ok());
    EXPECT_EQ(b_byte(0), std::byte{static_cast<std::uint8_t>(page + 1)});
  }
}

TEST_F(Umr, AListThatCannotBeReadIsALocalProtectionError) {
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, 4), 1);
  auto request = fast_register(1, kVirtual, kPage);
  request.list_in_memory(64);
  qps.a.post_send({.opcode = WqeOpcode::umr,
                   .sges = {{qps.a_buffer, 64, qps.a_key ^ 1}},
                   .immediate = key,
                   .umr = request.bytes});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::local_protection);
  EXPECT_EQ(qps.a.query().state, prm::QpState::error);
}

TEST_F(Umr, AWqeShorterThanItsListIsMalformed) {
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, 64), 1);
  auto request = fast_register(1, kVirtual, kPage);
  request.control<prm::UmrCtrlSegment::inline_translations>(1);
  request.control<prm::UmrCtrlSegment::translation_units>(8);
  qps.a.post_send({.opcode = WqeOpcode::umr, .immediate = key, .umr = request.bytes});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::local_qp_operation);
}

TEST_F(Umr, ADataSegmentShorterThanTheListIsMalformed) {
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, 64), 1);
  auto request = fast_register(1, kVirtual, kPage);
  request.list_in_memory(128);
  qps.a.post_send({.opcode = WqeOpcode::umr,
                   .sges = {qps.a_sge(0, 64)},
                   .immediate = key,
                   .umr = request.bytes});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::local_qp_operation);
}

TEST_F(Umr, RegisteringAKeyThatIsNotFreeIsABindError) {
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, 4), 1);
  const std::array pages{qps.a_buffer, qps.a_buffer + kPage};
  ASSERT_TRUE(register_pages(key, pages, kPage).ok());
  const Completion again = register_pages(with_variant(key, 2), pages, kPage);
  EXPECT_EQ(again.opcode, CqeOpcode::requester_error);
  EXPECT_EQ(again.syndrome, CqeSyndrome::memory_window_bind);
  EXPECT_EQ(pair.a.mkeys.check(key, {TestHost::kPd}, kVirtual, 8, MemoryAccess::remote_read),
            MemoryStatus::ok)
      << "a failed request changes nothing";
}

TEST_F(Umr, LocalInvalidateEndsRemoteAccessAndTheKeyCanBeRegisteredAgain) {
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, 4), 1);
  const std::array pages{qps.a_buffer, qps.a_buffer + 3 * kPage};
  ASSERT_TRUE(register_pages(key, pages, 2 * kPage).ok());
  ASSERT_TRUE(read_remotely(key, kVirtual, 8).ok());
  qps.a.post_send({.opcode = WqeOpcode::umr, .immediate = key, .umr = make_free().bytes});
  ASSERT_TRUE(wait(qps.a_cq).ok());
  const auto next = with_variant(key, 2);
  ASSERT_TRUE(register_pages(next, pages, 2 * kPage).ok());
  ASSERT_TRUE(read_remotely(next, kVirtual, 8).ok());
  EXPECT_EQ(read_remotely(key, kVirtual, 8).syndrome, CqeSyndrome::remote_access)
      << "the old variant of the key";
}

TEST_F(Umr, SendWithInvalidateFreesARegistrationOfItsQp) {
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, 4), 1);
  const std::array pages{qps.a_buffer, qps.a_buffer + 3 * kPage};
  ASSERT_TRUE(register_pages(key, pages, 2 * kPage).ok());
  qps.a.post_recv({qps.a_sge(0, 64)});
  qps.b.post_send(
      {.opcode = WqeOpcode::send_invalidate, .sges = {qps.b_sge(0, 8)}, .immediate = key});
  EXPECT_EQ(wait(qps.a_cq).opcode, CqeOpcode::responder_send_invalidate);
  ASSERT_TRUE(wait(qps.b_cq).ok());
  ASSERT_TRUE(register_pages(with_variant(key, 2), pages, 2 * kPage).ok()) << "it is free again";
}

TEST_F(Umr, SendWithInvalidateOfAFreeKeyFails) {
  const auto key = pair.a.free_key(TranslationMode::mtt, 4);
  qps.a.post_recv({qps.a_sge(0, 64)});
  qps.b.post_send(
      {.opcode = WqeOpcode::send_invalidate, .sges = {qps.b_sge(0, 8)}, .immediate = key});
  EXPECT_FALSE(wait(qps.a_cq).ok());
  EXPECT_EQ(wait(qps.b_cq).syndrome, CqeSyndrome::remote_invalid_request);
}

TEST_F(Umr, AWindowGivesThePeerAPartOfARegion) {
  const auto key = with_variant(pair.a.free_key(TranslationMode::klm, 4), 5);
  auto request = fast_register(5, qps.a_buffer + 256, 512);
  request.mask((kFastRegisterMask & ~UmrMask::page_size) | UmrMask::qpn)
      .context<prm::MkeyContext::qpn>(qps.a.number());
  const std::array pieces{KlmSpec{qps.a_buffer + 256, qps.a_key, 512}};
  request.inline_list(klm_list(pieces));
  qps.a.post_send({.opcode = WqeOpcode::umr, .immediate = key, .umr = request.bytes});
  ASSERT_TRUE(wait(qps.a_cq).ok());
  pair.a.fill(qps.a_buffer, TestHost::pattern(1024, 9));
  ASSERT_TRUE(read_remotely(key, qps.a_buffer + 300, 100).ok());
  EXPECT_EQ(b_byte(0), a_byte(300));
  EXPECT_EQ(read_remotely(key, qps.a_buffer + 200, 100).syndrome, CqeSyndrome::remote_access);
}

TEST_F(Umr, AUsersQpBindsWindowsButWritesNoPageLists) {
  TestQp user(pair.a, qps.a_cq, qps.a_cq, {.fast_registration = false});
  TestQp peer(pair.b, qps.b_cq, qps.b_cq);
  user.connect(peer);
  const auto window = with_variant(pair.a.free_key(TranslationMode::klm, 4), 1);
  auto bind = fast_register(1, 0, 64);
  const std::array pieces{KlmSpec{qps.a_buffer, qps.a_key, 64}};
  bind.inline_list(klm_list(pieces));
  user.post_send({.opcode = WqeOpcode::umr, .immediate = window, .umr = bind.bytes});
  EXPECT_TRUE(wait(qps.a_cq).ok());
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, 4), 1);
  auto request = fast_register(1, kVirtual, kPage);
  const std::array pages{qps.a_buffer};
  request.inline_list(page_list(pages));
  user.post_send({.opcode = WqeOpcode::umr, .immediate = key, .umr = request.bytes});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::memory_window_bind);
}

TEST_F(Umr, ARegistrationQpServesEveryDomainAndNothingElse) {
  TestQp registrar(pair.a, qps.a_cq, qps.a_cq, {.type = prm::QpServiceType::reg_umr, .pd = 0});
  registrar.to_init();
  registrar.to_rtr(nullptr);
  registrar.to_rts();
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, 4, /*pd=*/0), 1);
  const std::array pages{qps.a_buffer + kPage};
  const auto list = page_list(pages);
  const std::uint64_t where = pair.a.allocate(64);
  pair.a.fill(where, std::as_bytes(std::span(list)));
  const auto list_key = pair.a.register_memory(where, 64, MemoryAccess::local_read, 99);
  auto request = fast_register(1, kVirtual, kPage);
  request.mask(kFastRegisterMask | UmrMask::pd)
      .context<prm::MkeyContext::pd>(TestHost::kPd)
      .list_in_memory(64);
  registrar.post_send({.opcode = WqeOpcode::umr,
                       .sges = {{where, 64, list_key}},
                       .immediate = key,
                       .umr = request.bytes});
  ASSERT_TRUE(wait(qps.a_cq).ok());
  ASSERT_TRUE(read_remotely(key, kVirtual, 8).ok());
  registrar.post_send({.sges = {qps.a_sge(0, 8)}});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::local_qp_operation);
  EXPECT_EQ(registrar.query().state, prm::QpState::error);
  registrar.post_send({.opcode = WqeOpcode::umr, .immediate = key});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::flushed);
  // The driver resets it and goes on.
  EXPECT_EQ(registrar.modify(QpTransition::to_reset), ModifyResult::ok);
  registrar.set_send_counter(0);
  pair.a.store_be32(registrar.record() + 4, 0);
  registrar.to_init();
  registrar.to_rtr(nullptr);
  registrar.to_rts();
  registrar.post_send({.opcode = WqeOpcode::umr, .immediate = key});
  EXPECT_TRUE(wait(qps.a_cq).ok());
}

TEST_F(Umr, AnUnknownKeyIsABindError) {
  qps.a.post_send({.opcode = WqeOpcode::umr, .immediate = 0xfffff042});
  EXPECT_EQ(wait(qps.a_cq).syndrome, CqeSyndrome::memory_window_bind);
}

TEST_F(Umr, AListWhoseMemoryIsPendingIsFetchedWhenItArrives) {
  auto backing = std::make_shared<CallMemory>(kPage);
  constexpr std::uint64_t kIova = 0x9000'0000;
  pair.a.dma.map({.iova = kIova, .size = kPage, .base = nullptr, .backing = backing});
  const std::array pages{qps.a_buffer + 2 * kPage};
  const auto list = page_list(pages);
  std::copy_n(reinterpret_cast<const std::byte*>(list.data()), list.size(), backing->bytes.begin());
  MkeyAttributes attributes;
  attributes.pd = TestHost::kPd;
  attributes.access = MemoryAccess::local_read;
  attributes.start = kIova;
  attributes.length = kPage;
  const auto list_key = *pair.a.mkeys.create(attributes, {}) << 8;
  backing->pending = true;
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, 4), 1);
  auto request = fast_register(1, kVirtual, kPage);
  request.list_in_memory(64);
  qps.a.post_send({.opcode = WqeOpcode::umr,
                   .sges = {{kIova, 64, list_key}},
                   .immediate = key,
                   .umr = request.bytes});
  pair.run_for(1'000'000);
  EXPECT_FALSE(qps.a_cq.poll().has_value());
  backing->pending = false;
  pair.a.transport.memory_arrived();
  EXPECT_TRUE(wait(qps.a_cq).ok());
  EXPECT_TRUE(read_remotely(key, kVirtual, 8).ok());
}

TEST_F(Umr, ARegistrationIsExecutedOnceThoughWhatIsBeforeItIsSentAgain) {
  const auto key = with_variant(pair.a.free_key(TranslationMode::mtt, 4), 1);
  unsigned sends = 0;
  pair.fate = [&](ib::Packet& packet) {
    PacketFate fate;
    fate.drop = ib::is_send(packet.bth.opcode) && sends++ == 0;
    return fate;
  };
  qps.b.post_recv({qps.b_sge(0, 64)});
  qps.b.post_recv({qps.b_sge(64, 64)});
  auto request = fast_register(1, kVirtual, kPage);
  const std::array pages{qps.a_buffer};
  request.inline_list(page_list(pages));
  qps.a.write_send({.sges = {qps.a_sge(0, 8)}});
  qps.a.write_send({.opcode = WqeOpcode::umr, .immediate = key, .umr = request.bytes});
  qps.a.post_send({.sges = {{kVirtual, 8, key}}});
  for (unsigned i = 0; i < 3; ++i) EXPECT_TRUE(wait(qps.a_cq).ok()) << "work request " << i;
  EXPECT_GE(qps.a.query().counters.retransmissions, 1U);
}

}  // namespace
}  // namespace softhca::transport_test
