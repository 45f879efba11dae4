// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Function::status_json(): what `softhca status` shows of a device.
#include <nlohmann/json.hpp>

#include "hw-model/device/function_impl.h"

namespace softhca {
namespace {

using nlohmann::json;

const char* phase_name(HcaPhase phase) {
  switch (phase) {
    case HcaPhase::disabled:
      return "disabled";
    case HcaPhase::enabled:
      return "enabled";
    case HcaPhase::initialized:
      return "initialized";
  }
  return "unknown";
}

const char* service_name(prm::QpServiceType type) {
  switch (type) {
    case prm::QpServiceType::rc:
      return "RC";
    case prm::QpServiceType::uc:
      return "UC";
    case prm::QpServiceType::ud:
      return "UD";
    case prm::QpServiceType::xrc:
      return "XRC";
    case prm::QpServiceType::qp0:
      return "QP0";
    case prm::QpServiceType::qp1:
      return "QP1";
    case prm::QpServiceType::reg_umr:
      return "REG_UMR";
    default:
      return "other";
  }
}

const char* state_name(prm::QpState state) {
  switch (state) {
    case prm::QpState::reset:
      return "RESET";
    case prm::QpState::init:
      return "INIT";
    case prm::QpState::rtr:
      return "RTR";
    case prm::QpState::rts:
      return "RTS";
    case prm::QpState::sq_error:
      return "SQE";
    case prm::QpState::sq_drained:
      return "SQD";
    case prm::QpState::error:
      return "ERR";
    case prm::QpState::suspended:
      return "SUSPENDED";
  }
  return "unknown";
}

const char* cause_name(StallCause cause) {
  switch (cause) {
    case StallCause::none:
      return "";
    case StallCause::itself:
      return "itself";
    case StallCause::port:
      return "port";
    case StallCause::peer:
      return "peer";
  }
  return "";
}

json counters_json(const QpCounters& counters) {
  return {{"packets_sent", counters.packets_sent},
          {"packets_received", counters.packets_received},
          {"bytes_sent", counters.bytes_sent},
          {"bytes_received", counters.bytes_received},
          {"messages_sent", counters.messages_sent},
          {"messages_received", counters.messages_received},
          {"retransmissions", counters.retransmissions},
          {"timeouts", counters.timeouts},
          {"rnr_naks_sent", counters.rnr_naks_sent},
          {"rnr_naks_received", counters.rnr_naks_received},
          {"sequence_naks_sent", counters.sequence_naks_sent},
          {"sequence_naks_received", counters.sequence_naks_received},
          {"duplicate_requests", counters.duplicate_requests},
          {"packets_dropped", counters.packets_dropped},
          {"completions", counters.completions},
          {"error_completions", counters.error_completions}};
}

json qp_json(const QpSnapshot& qp) {
  return {{"qpn", qp.qpn},
          {"type", service_name(qp.type)},
          {"state", state_name(qp.state)},
          {"remote_qpn", qp.attributes.remote_qpn},
          {"dlid", qp.attributes.path.dlid},
          {"send_cqn", qp.send_cqn},
          {"recv_cqn", qp.recv_cqn},
          {"srqn", qp.srqn},
          {"sq_posted", qp.sq_posted},
          {"sq_taken", qp.sq_consumed},
          {"rq_posted", qp.rq_posted},
          {"rq_taken", qp.rq_consumed},
          {"outstanding_wqes", qp.outstanding_wqes},
          {"stall_cause", cause_name(qp.stall_cause)},
          {"stall", qp.stall},
          {"counters", counters_json(qp.counters)}};
}

json objects_json(const FirmwareState& state) {
  return {{"uars", state.uars.size()},
          {"pds", state.pds.size()},
          {"xrcds", state.xrcds.size()},
          {"eqs", state.eqs.size()},
          {"cqs", state.cq_records.size()},
          {"mkeys", state.mkey_records.size()},
          {"srqs", state.srq_records.size()},
          {"qps", state.qp_records.size()},
          {"multicast_groups", state.multicast_groups.size()}};
}

}  // namespace

std::string Function::status_json() const {
  const FirmwareState& state = impl_->firmware.state();
  json qps = json::array();
  state.transport.for_each_qp([&](std::uint32_t qpn) {
    if (const auto snapshot = state.transport.query_qp(qpn)) qps.push_back(qp_json(*snapshot));
  });
  const json status = {{"hca", phase_name(state.phase)},
                       {"driver_version", state.driver_version},
                       {"issi", state.issi},
                       {"pages", state.pages.held()},
                       {"commands_in_flight", impl_->firmware.queue().in_flight()},
                       {"health_syndrome", impl_->iseg.health_syndrome()},
                       {"failure", impl_->failure_reason},
                       {"dma_ranges", impl_->dma.range_count()},
                       {"objects", objects_json(state)},
                       {"qps", qps}};
  return status.dump();
}

}  // namespace softhca
