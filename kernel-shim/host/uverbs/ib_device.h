// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "emulator/runtime/unique_fd.h"
#include "kernel-shim/host/device/hca.h"
#include "kernel-shim/host/device/port_query.h"
#include "kernel-shim/host/uverbs/key_names.h"
#include "kernel-shim/host/uverbs/objects.h"

namespace softhca::shim {

class Context;

/// What of the device is offered to applications of a virtual host, beside what it always is: each
/// only where the device has it, too.
struct Offers {
  bool xrc = false;
  bool devx = false;     ///< User contexts; objects and most commands are not served.
  bool windows = false;  ///< Memory windows, and what else work requests do to keys.
};

/// The InfiniBand device above the HCA, as mlx5_ib registers it: what all contexts share.
class IbDevice final : public HcaEvents {
 public:
  static constexpr std::uint8_t kPort = 1;  ///< The only one.

  explicit IbDevice(Hca& hca, Offers offers = {});

  Hca& hca() { return hca_; }
  const Offers& offers() const { return offers_; }
  CommandInterface& commands() { return hca_.commands(); }
  EventLoop& loop() { return hca_.loop(); }

  /// Reads port state, GIDs and P_Keys from the device. 0 or an errno.
  int refresh_port();
  const PortState& port() const { return port_; }
  const std::vector<GidBytes>& gids() const { return gids_; }
  const std::vector<std::uint16_t>& pkeys() const { return pkeys_; }
  /// Called after every refresh caused by a port event.
  void on_port_change(std::function<void()> action) { port_changed_ = std::move(action); }

  /// Contexts and objects that want events enter and leave here.
  void add(Context& context) { contexts_.insert(&context); }
  void remove(Context& context) { contexts_.erase(&context); }
  SharedFiles& shared_files() { return shared_files_; }
  std::size_t context_count() const { return contexts_.size(); }
  void add(Cq& cq) { cqs_[cq.cqn] = &cq; }
  void remove(Cq& cq) { cqs_.erase(cq.cqn); }
  void add(Qp& qp) { qps_.emplace(qp.real->qpn, &qp); }
  void remove(Qp& qp);
  void add(Srq& srq) { srqs_[srq.srqn] = &srq; }
  void remove(Srq& srq) { srqs_.erase(srq.srqn); }
  Qp* find_qp(std::uint32_t qpn);

  /// Borrowed; -1: none (clock_info.h).
  int clock_info_fd() const { return clock_info_.get(); }

  /// XRC domains by inode; `make` false: only look. 0 or an errno.
  std::shared_ptr<Xrcd> find_xrcd(std::uint64_t device, std::uint64_t inode);
  int make_xrcd(std::uint64_t device, std::uint64_t inode, std::shared_ptr<Xrcd>& xrcd);

  /// The device is gone: every context gets IBV_EVENT_DEVICE_FATAL, and who waits on a completion
  /// channel is woken by its end, as when mlx5_ib is removed (uverbs_destroy_ufile_hw).
  void fail();

  /// Next value of the key part that applications see change from registration to registration.
  std::uint8_t next_key_variant() { return ++key_variant_; }
  KeyNames& key_names() { return key_names_; }

  // HcaEvents
  void completion(std::uint32_t cqn) override;
  void async_event(const std::uint8_t* eqe) override;

 private:
  void qp_event(std::uint32_t qpn, std::uint32_t type);
  void port_event(std::uint8_t subtype);
  void device_event(std::uint32_t type, std::uint64_t element);

  Hca& hca_;
  SharedFiles shared_files_;
  Offers offers_;
  runtime::UniqueFd clock_info_;
  PortState port_;
  std::vector<GidBytes> gids_;
  std::vector<std::uint16_t> pkeys_;
  std::function<void()> port_changed_;
  std::set<Context*> contexts_;
  std::map<std::uint32_t, Cq*> cqs_;
  std::multimap<std::uint32_t, Qp*> qps_;
  std::map<std::uint32_t, Srq*> srqs_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<Xrcd>> xrcds_;
  std::uint8_t key_variant_ = 0;
  KeyNames key_names_;
};

}  // namespace softhca::shim
