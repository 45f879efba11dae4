// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "emulator/cli/commands.h"
#include "emulator/cli/fabric_access.h"
#include "emulator/cli/table.h"

namespace softhca::cli {
namespace {

using nlohmann::json;

struct StatusOptions {
  std::string fabric;
  bool as_json = false;
};

/// A member as a table cell: text as it is, numbers in decimal, what is missing as "-".
std::string cell(const json& object, const char* name) {
  const auto member = object.find(name);
  if (member == object.end() || member->is_null()) return "-";
  if (member->is_string()) return member->get<std::string>();
  if (member->is_boolean()) return member->get<bool>() ? "yes" : "no";
  if (member->is_number_float()) {
    char text[32];
    std::snprintf(text, sizeof(text), "%g", member->get<double>());
    return text;
  }
  return member->dump();
}

json member(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? json::object() : *found;
}

std::string client_of(const json& host) {
  std::string text = host.value("connected", false) ? "connected" : "none";
  if (host.value("persistent", false)) text += ", stays";
  return text;
}

void print_hosts(const json& hosts) {
  Table table({"HOST", "PORT", "LINK", "LID", "SM LID", "RATE", "MTU", "SENT", "RECEIVED",
               "NODE GUID", "CLIENT", "HCA"});
  for (const json& host : hosts) {
    const json port = member(host, "port");
    const json counters = member(port, "counters");
    table.add({cell(host, "name"), cell(port, "state"), cell(port, "link"), cell(port, "lid"),
               cell(port, "sm_lid"), cell(port, "rate_gbps") + " Gb/s", cell(port, "mtu"),
               cell(counters, "xmit_packets"), cell(counters, "rcv_packets"),
               cell(host, "node_guid"), client_of(host), cell(member(host, "device"), "hca")});
  }
  std::fputs(table.text(2).c_str(), stdout);
}

std::string peer_of(const json& qp) {
  const std::uint64_t number = qp.value("remote_qpn", std::uint64_t{0});
  const std::uint64_t lid = qp.value("dlid", std::uint64_t{0});
  if (number == 0 && lid == 0) return "-";
  return "LID " + std::to_string(lid) + " QP " + std::to_string(number);
}

/// Taken of posted work requests.
std::string progress(const json& qp, const char* taken, const char* posted) {
  return cell(qp, taken) + "/" + cell(qp, posted);
}

std::string stall_of(const json& qp) {
  const std::string stall = qp.value("stall", "");
  return stall.empty() ? "-" : stall;
}

void print_queue_pairs(const json& hosts) {
  Table table({"HOST", "QP", "TYPE", "STATE", "PEER", "SENDS", "RECEIVES", "SENT", "RECEIVED",
               "RESENT", "WAITS FOR"});
  for (const json& host : hosts) {
    for (const json& qp : member(member(host, "device"), "qps")) {
      const json counters = member(qp, "counters");
      table.add({cell(host, "name"), cell(qp, "qpn"), cell(qp, "type"), cell(qp, "state"),
                 peer_of(qp), progress(qp, "sq_taken", "sq_posted"),
                 progress(qp, "rq_taken", "rq_posted"), cell(counters, "packets_sent"),
                 cell(counters, "packets_received"), cell(counters, "retransmissions"),
                 stall_of(qp)});
    }
  }
  if (!table.empty()) std::fputs(("\n" + table.text(2)).c_str(), stdout);
}

void print_fabric(const json& status) {
  std::printf("fabric %s (softhca %s, process %s)\n", cell(status, "fabric").c_str(),
              cell(status, "version").c_str(), cell(status, "pid").c_str());
  const json hosts = member(status, "hosts");
  if (hosts.empty()) {
    std::puts("  no hosts");
    return;
  }
  print_hosts(hosts);
  print_queue_pairs(hosts);
}

/// The fabrics to show: the one that was named, else all that run.
std::vector<std::string> chosen_fabrics(const std::string& named) {
  if (!named.empty()) return {named};
  std::vector<std::string> running = running_fabrics();
  if (running.empty()) {
    fail("no fabric is running; start one with `softhca run -- COMMAND` or `softhca up HOST`",
         kExitNotRunning);
  }
  return running;
}

void show_status(const StatusOptions& options) {
  json all = json::array();
  for (const std::string& fabric : chosen_fabrics(options.fabric)) {
    auto status = connect_or_fail(fabric).request(json{{"command", "status"}});
    if (!status) fail(status.error());
    status->erase("ok");
    all.push_back(std::move(*status));
  }
  if (options.as_json) {
    std::puts(all.dump(2).c_str());
    return;
  }
  for (const json& status : all) print_fabric(status);
}

}  // namespace

void add_status(CLI::App& app) {
  auto options = std::make_shared<StatusOptions>();
  CLI::App* command = app.add_subcommand(
      "status", "Show hosts, ports and queue pairs, and why one waits (default: of all fabrics)");
  command->add_option("-f,--fabric", options->fabric, "Only this fabric")
      ->envname("SOFTHCA_FABRIC")
      ->check(complain_of_name);
  command->add_flag("--json", options->as_json, "An array with one JSON object for each fabric");
  command->callback([options] { show_status(*options); });
}

}  // namespace softhca::cli
