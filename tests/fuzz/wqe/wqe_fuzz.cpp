// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/transport_pair.h"

// A driver that writes anything into its rings and doorbell records. Its device must not crash,
// must come to rest, and its peer must go on.
namespace softhca::transport_test {
namespace {

/// Ring contents and counters from the input: mostly plausible WQEs with some bytes changed.
class Driver {
 public:
  Driver(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  std::uint32_t take(unsigned bytes) {
    std::uint32_t value = 0;
    for (; bytes > 0 && left_ > 0; --bytes, --left_) value = value << 8 | *data_++;
    return value;
  }
  void scribble(TestHost& host, std::uint64_t at, std::size_t size) {
    const std::size_t count = std::min<std::size_t>(take(1) % 64 + 1, size);
    const std::size_t where = take(2) % size;
    for (std::size_t i = 0; i < count; ++i) {
      *host.at(at + (where + i) % size) = static_cast<std::byte>(take(1));
    }
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

SendRequest plausible(const ConnectedQps& qps, Driver& driver) {
  SendRequest request;
  request.opcode = static_cast<prm::WqeOpcode>(driver.take(1) & 0x3f);
  const std::uint32_t entries = driver.take(1) % 6;
  for (std::uint32_t i = 0; i < entries; ++i) {
    request.sges.push_back(qps.a_sge(driver.take(2), driver.take(2)));
  }
  if (driver.take(1) % 4 == 0) {
    request.use_inline = true;
    request.inline_data.resize(driver.take(2) % 600);
  }
  request.remote_address = qps.b_buffer + driver.take(2);
  request.rkey = qps.b_key;
  request.fence = driver.take(1) % 2 == 0;
  request.destination_qpn = qps.b.number();
  request.destination_lid = static_cast<std::uint16_t>(driver.take(1) % 3);
  request.qkey = 0x1234;
  return request;
}

}  // namespace
}  // namespace softhca::transport_test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace softhca;                  // NOLINT(google-build-using-namespace)
  using namespace softhca::transport_test;  // NOLINT(google-build-using-namespace)
  if (size < 4) return 0;
  Driver driver(data, size);
  TransportPair pair(12 << 20);
  TestQpOptions options;
  static constexpr prm::QpServiceType kTypes[] = {prm::QpServiceType::rc, prm::QpServiceType::uc,
                                                  prm::QpServiceType::ud};
  options.type = kTypes[driver.take(1) % 3];
  options.log_sq_size = static_cast<std::uint8_t>(driver.take(1) % 6);
  options.log_rq_size = 3;
  options.cs_req = options.cs_res = 32;
  ConnectedQps qps(pair, options, 6);
  TestSrq srq(pair.a, 3);
  TestQpOptions shared = options;
  shared.srq = &srq;
  TestQp sharing(pair.a, qps.a_cq, qps.a_cq, shared);
  TestQp sender(pair.b, qps.b_cq, qps.b_cq, options);
  sharing.connect(sender);
  sender.connect(sharing);
  const std::size_t sq_bytes = prm::kWqeBasicBlock << options.log_sq_size;
  for (unsigned turn = 0; !driver.empty() && turn < 200; ++turn) {
    switch (driver.take(1) % 8) {
      case 0:
        driver.scribble(pair.a, qps.a.sq_address(), sq_bytes);
        break;
      case 1:
        driver.scribble(pair.a, qps.a.record(), 8);
        pair.a.transport.doorbell(qps.a.number());
        break;
      case 2:
        driver.scribble(pair.a, srq.ring(), 64 << 3);
        break;
      case 3:
        driver.scribble(pair.a, srq.record(), 4);
        sender.post_send(plausible(qps, driver));
        break;
      case 4:
        driver.scribble(pair.a, qps.a_cq.record(), 8);
        pair.a.transport.sweep_doorbells();
        break;
      case 5:
        qps.b.post_recv({qps.b_sge(0, driver.take(2))});
        qps.a.post_recv({qps.a_sge(0, driver.take(2))});
        break;
      case 6: {
        const std::array sges{qps.a_sge(0, driver.take(2))};
        srq.post(sges);
        break;
      }
      default:
        qps.a.post_send(plausible(qps, driver));
        break;
    }
    pair.run_for(driver.take(1) * 10'000);
    qps.a_cq.drain();
    qps.b_cq.drain();
  }
  pair.run_for(1'000'000'000);
  return 0;
}
