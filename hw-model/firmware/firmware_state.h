// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "hw-model/firmware/capabilities.h"
#include "hw-model/firmware/event_router.h"
#include "hw-model/firmware/page_accounting.h"
#include "hw-model/ib/port.h"
#include "hw-model/memory/dma_space.h"
#include "hw-model/memory/mkey_states.h"
#include "hw-model/memory/mkey_table.h"
#include "hw-model/queues/event_queue.h"
#include "hw-model/queues/object_table.h"
#include "hw-model/runtime/clock.h"
#include "hw-model/runtime/interrupts.h"
#include "hw-model/transport/transport.h"

namespace softhca {

/// What the firmware is told about the function it runs on.
struct FirmwareConfig {
  std::uint64_t node_guid = 0;
  std::string board_id;  ///< PSID, up to 16 characters.
  std::uint16_t num_msix = 64;
  std::uint32_t first_uar = 16;  ///< UARs are numbered [first_uar, first_uar + uar_count).
  std::uint32_t uar_count = 0;
  std::uint32_t boot_pages = 8;
  std::uint32_t init_pages = 32;
  bool umr = true;  ///< See Capabilities; otherwise drivers register memory by commands alone.
  bool blue_flame = true;  ///< See Capabilities.
};

/// How far a driver has brought the HCA up.
enum class HcaPhase : std::uint8_t { disabled, enabled, initialized };

/// A resource that is just a number: who else uses it is counted by its table.
template <typename Tag>
struct NumberedResource {
  explicit NumberedResource(std::uint32_t number_in, std::uint16_t uid_in = 0)
      : number(number_in), uid(uid_in) {}
  std::uint32_t number;
  std::uint16_t uid;  ///< User context that owns it.
};
using UarPage = NumberedResource<struct UarTag>;
using ProtectionDomain = NumberedResource<struct PdTag>;
using XrcDomain = NumberedResource<struct XrcdTag>;
using TransportDomain = NumberedResource<struct TransportDomainTag>;
using UserContext = NumberedResource<struct UctxTag>;

/// The kinds of shared receive queue share a number space.
enum class SrqKind : std::uint8_t { srq, xrc_srq, rmp };

/// What an object keeps alive beside the queues, and what of its context only QUERY_* needs.
struct EqRecord {
  ObjectRef<UarPage> uar;
};
struct CqRecord {
  ObjectRef<UarPage> uar;
  std::uint8_t log_page_size = 0;
};
struct MkeyRecord {
  ObjectRef<ProtectionDomain> pd;
};
struct QpRecord {
  ObjectRef<ProtectionDomain> pd;
  ObjectRef<UarPage> uar;
  std::uint8_t log_page_size = 0;
  ObjectRef<XrcDomain> xrc_domain;  ///< XRC QPs alone.
  std::uint32_t xrcd = 0;
};
struct SqRecord {
  ObjectRef<UarPage> uar;
  std::uint8_t log_page_size = 0;
};
struct SrqRecord {
  SrqKind kind = SrqKind::srq;
  ObjectRef<ProtectionDomain> pd;
  ObjectRef<XrcDomain> xrcd;
  ObjectRef<CompletionQueue> cq;
  std::uint8_t log_page_size = 0;
};

struct FirmwareState;

/// UMR moves memory keys between protection domains.
class MkeyDomains final : public ProtectionDomainUse {
 public:
  explicit MkeyDomains(FirmwareState& state) : state_(state) {}
  bool move_key(std::uint32_t mkey_index, std::uint32_t pd) override;

 private:
  FirmwareState& state_;
};

/// Everything that firmware commands read and change. Handlers get it by reference; the rules are
/// theirs.
struct FirmwareState {
  FirmwareState(FirmwareConfig config_in, DmaSpace& dma_in, ib::Port& port_in,
                const Clock& clock_in, InterruptSink& interrupts_in);

  /// TEARDOWN_HCA: every object is gone, lent pages stay.
  void destroy_objects();
  /// Power-on.
  void reset();
  /// After an object came or went: page requests follow the memory that contexts need.
  void account_pages();
  /// Applies the chosen capabilities.
  void apply_capabilities();

  FirmwareConfig config;
  DmaSpace& dma;
  ib::Port& port;
  InterruptSink& interrupts;

  HcaPhase phase = HcaPhase::disabled;
  bool failed = false;  ///< Fatal error: nothing is executed any more.
  std::uint16_t issi = 0;
  std::string driver_version;
  bool eqs_always_armed = false;    ///< See EqParams::always_armed.
  bool cq_records_watched = false;  ///< See CompletionQueue::watch_record().

  Capabilities capabilities;
  PageAccounting pages;

  ObjectTable<UarPage> uars;
  ObjectTable<ProtectionDomain> pds;
  ObjectTable<XrcDomain> xrcds;
  ObjectTable<TransportDomain> transport_domains;
  ObjectTable<UserContext> user_contexts;

  ObjectTable<EventQueue> eqs;
  EventRouter events;
  MkeyTable mkeys;
  MkeyStates mkey_states{dma, mkeys};
  Transport transport;

  MkeyDomains mkey_domains{*this};

  std::unordered_map<std::uint32_t, EqRecord> eq_records;
  std::unordered_map<std::uint32_t, CqRecord> cq_records;
  std::unordered_map<std::uint32_t, MkeyRecord> mkey_records;
  std::unordered_map<std::uint32_t, QpRecord> qp_records;
  /// Send queues without a transport: the transport has them as QPs, commands on QPs do not.
  std::unordered_map<std::uint32_t, SqRecord> sq_records;
  std::unordered_map<std::uint32_t, SrqRecord> srq_records;
  /// Multicast groups and the QPs attached to each.
  std::map<ib::Gid, std::set<std::uint32_t>> multicast_groups;
};

/// L_Key whose addresses are I/O virtual addresses; below the indexes of real keys.
inline constexpr std::uint32_t kReservedLkey = 0x300;
/// First index of a real memory key: the index of L_Key 0x100, which ends scatter lists, is never
/// given out.
inline constexpr std::uint32_t kFirstMkey = 16;

}  // namespace softhca
