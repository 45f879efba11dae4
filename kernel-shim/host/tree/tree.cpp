// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "kernel-shim/host/tree/tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

namespace softhca::shim {
namespace {

namespace fs = std::filesystem;
using runtime::Done;
using runtime::Result;

constexpr std::string_view kSlot = "0000:01:00.0";
constexpr std::string_view kBridge = "pci0000:00";

template <typename... Args>
std::string text(const char* format, Args... args) {
  char line[256];
  const int length = std::snprintf(line, sizeof(line), format, args...);
  return std::string(line, static_cast<std::size_t>(std::max(length, 0)));
}

/// Writes files below a folder. Errors stay: the first one is the result of all.
class Writer {
 public:
  /// Temporary names lie outside of the folders that programs list or whose times they watch.
  Writer(std::string folder, std::string scratch)
      : folder_(std::move(folder)), scratch_(std::move(scratch)) {}

  Writer below(std::string_view name) {
    Writer inner(folder_ + "/" + std::string(name), scratch_);
    std::error_code error;
    fs::create_directories(inner.folder_, error);
    inner.error_ = error ? error.value() : error_;
    return inner;
  }

  /// A value and its newline, replaced in one step.
  void file(std::string_view name, const std::string& value) {
    if (error_ != 0) return;
    const std::string path = folder_ + "/" + std::string(name);
    const int fd = ::open(scratch_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
      error_ = errno;
      return;
    }
    const std::string line = value + "\n";
    const bool written = ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
    if (!written) error_ = errno != 0 ? errno : EIO;
    ::close(fd);
    if (written && ::rename(scratch_.c_str(), path.c_str()) != 0) error_ = errno;
  }

  void link(std::string_view name, const std::string& target) {
    if (error_ != 0) return;
    const std::string path = folder_ + "/" + std::string(name);
    if (::symlink(target.c_str(), path.c_str()) != 0 && errno != EEXIST) error_ = errno;
  }

  void merge(const Writer& inner) {
    if (error_ == 0) error_ = inner.error_;
  }

  Result<Done> result() const {
    if (error_ != 0) return runtime::system_error(error_, "device tree " + folder_);
    return Done{};
  }

 private:
  std::string folder_;
  std::string scratch_;
  int error_ = 0;
};

const char* port_state_text(std::uint8_t state) {
  switch (state) {
    case 1:
      return "1: DOWN";
    case 2:
      return "2: INIT";
    case 3:
      return "3: ARMED";
    case 4:
      return "4: ACTIVE";
    case 5:
      return "5: ACTIVE_DEFER";
    default:
      return "0: NOP";
  }
}

const char* physical_state_text(std::uint8_t state) {
  switch (state) {
    case 1:
      return "1: Sleep";
    case 2:
      return "2: Polling";
    case 3:
      return "3: Disabled";
    case 4:
      return "4: PortConfigurationTraining";
    case 5:
      return "5: LinkUp";
    case 6:
      return "6: LinkErrorRecovery";
    case 7:
      return "7: Phy Test";
    default:
      return "0: <unknown>";
  }
}

void write_pci(Writer& pci) {
  pci.file("vendor", "0x15b3");
  pci.file("device", "0x1019");
  pci.file("subsystem_vendor", "0x15b3");
  pci.file("subsystem_device", "0x0008");
  pci.file("class", "0x020700");
  pci.file("revision", "0x00");
  pci.file("modalias", "pci:v000015B3d00001019sv000015B3sd00000008bc02sc07i00");
  pci.file("numa_node", "-1");
  // All processors: the device is as near to each.
  const long cpus = std::max(1L, ::sysconf(_SC_NPROCESSORS_CONF));
  pci.file("local_cpulist", cpus == 1 ? "0" : text("0-%ld", cpus - 1));
  std::string mask;
  for (long word = (cpus - 1) / 32; word >= 0; --word) {
    const long bits = std::min(32L, cpus - word * 32);
    const unsigned long value = bits == 32 ? 0xffffffffUL : (1UL << bits) - 1;
    mask += (mask.empty() ? "" : ",") + text("%08lx", value);
  }
  pci.file("local_cpus", mask);
  pci.file("max_link_speed", "8.0 GT/s PCIe");
  pci.file("max_link_width", "16");
  pci.file("current_link_speed", "8.0 GT/s PCIe");
  pci.file("current_link_width", "16");
  pci.file("uevent",
           "DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_ID=15B3:1019\n"
           "PCI_SUBSYS_ID=15B3:0008\nPCI_SLOT_NAME=0000:01:00.0\n"
           "MODALIAS=pci:v000015B3d00001019sv000015B3sd00000008bc02sc07i00");
}

void write_port(Writer& port, const TreeDevice& device) {
  const PortState& state = device.port;
  port.file("state", port_state_text(state.state));
  port.file("phys_state", physical_state_text(state.phys_state));
  port.file("rate", rate_text(state.active_width, state.active_speed));
  port.file("lid", text("0x%x", state.lid));
  port.file("lid_mask_count", text("%d", state.lmc));
  port.file("sm_lid", text("0x%x", state.sm_lid));
  port.file("sm_sl", text("%d", state.sm_sl));
  port.file("cap_mask", text("0x%08x", state.capability_mask));
  port.file("link_layer", "InfiniBand");
  Writer gids = port.below("gids");
  Writer attributes = port.below("gid_attrs");
  Writer types = attributes.below("types");
  Writer devices = attributes.below("ndevs");
  for (std::size_t i = 0; i < device.gids.size(); ++i) {
    gids.file(std::to_string(i), gid_text(device.gids[i]));
    types.file(std::to_string(i), "IB/RoCE v1");
  }
  Writer pkeys = port.below("pkeys");
  for (std::size_t i = 0; i < device.pkeys.size(); ++i) {
    pkeys.file(std::to_string(i), text("0x%04x", device.pkeys[i]));
  }
  for (const Writer* part : {&gids, &attributes, &types, &devices, &pkeys}) port.merge(*part);
}

void write_counters(Writer& port, const TreeDevice& device) {
  Writer counters = port.below("counters");
  for (const CounterValue& counter : device.counters) {
    counters.file(counter.name, std::to_string(counter.value));
  }
  Writer hw = port.below("hw_counters");
  for (const CounterValue& counter : device.hw_counters) {
    hw.file(counter.name, std::to_string(counter.value));
  }
  hw.file("lifespan", "10");
  port.merge(counters);
  port.merge(hw);
}

void write_ib_device(Writer& ib, const TreeDevice& device) {
  ib.file("node_type", "1: CA");
  ib.file("node_guid", guid_text(device.port.node_guid));
  ib.file("sys_image_guid", guid_text(device.port.system_image_guid));
  ib.file("node_desc", device.host + " " + device.name);
  ib.file("fw_ver", device.fw_version);
  ib.file("hca_type", "MT4121");
  ib.file("hw_rev", "0");
  ib.file("board_id", device.board_id);
  ib.link("device", "../../../" + std::string(kSlot));
  Writer ports = ib.below("ports");
  Writer port = ports.below("1");
  write_port(port, device);
  write_counters(port, device);
  ib.merge(port);
}

std::string scratch_of(const std::string& root) {
  return root + "/.tree-file";
}

std::string port_folder(const std::string& root, const std::string& name) {
  return root + "/sys/class/infiniband/" + name + "/ports/1";
}

}  // namespace

std::string gid_text(const GidBytes& gid) {
  std::string result;
  for (std::size_t i = 0; i < gid.size(); i += 2) {
    result += (i == 0 ? "" : ":") + text("%02x%02x", gid[i], gid[i + 1]);
  }
  return result;
}

std::string guid_text(std::uint64_t guid) {
  return text("%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48),
              static_cast<unsigned>(guid >> 32 & 0xffff),
              static_cast<unsigned>(guid >> 16 & 0xffff), static_cast<unsigned>(guid & 0xffff));
}

std::string rate_text(std::uint8_t width, std::uint16_t speed) {
  struct Speed {
    std::uint16_t code;
    int tenths;
    const char* name;
  };
  static constexpr Speed kSpeeds[] = {{1, 25, "SDR"},    {2, 50, "DDR"},    {4, 100, "QDR"},
                                      {8, 100, "FDR10"}, {16, 140, "FDR"},  {32, 250, "EDR"},
                                      {64, 500, "HDR"},  {128, 1000, "NDR"}};
  Speed found = kSpeeds[0];
  for (const Speed& candidate : kSpeeds) {
    if (candidate.code == speed) found = candidate;
  }
  const int lanes = width == 2 ? 4 : width == 4 ? 8 : width == 8 ? 12 : width == 16 ? 2 : 1;
  const int tenths = found.tenths * lanes;
  return text("%d%s Gb/sec (%dX %s)", tenths / 10, tenths % 10 != 0 ? ".5" : "", lanes, found.name);
}

Result<Done> DeviceTree::build(const TreeDevice& device) {
  remove();
  std::error_code ignored;
  fs::create_directories(root_ + "/sys", ignored);
  Writer sys(root_ + "/sys", scratch_of(root_));
  Writer pci = sys.below("devices/" + std::string(kBridge) + "/" + std::string(kSlot));
  write_pci(pci);
  const std::string up_to_slot = "../../devices/" + std::string(kBridge) + "/" + std::string(kSlot);

  Writer ib = pci.below("infiniband/" + device.name);
  write_ib_device(ib, device);
  Writer ib_class = sys.below("class/infiniband");
  ib_class.link(device.name, up_to_slot + "/infiniband/" + device.name);

  Writer verbs = pci.below("infiniband_verbs/uverbs0");
  verbs.file("ibdev", device.name);
  verbs.file("dev", text("%u:%u", device.major, device.minor));
  verbs.file("abi_version", "1");
  verbs.link("device", "../../../" + std::string(kSlot));
  Writer verbs_class = sys.below("class/infiniband_verbs");
  verbs_class.file("abi_version", "6");
  verbs_class.link("uverbs0", up_to_slot + "/infiniband_verbs/uverbs0");
  Writer mad_class = sys.below("class/infiniband_mad");
  mad_class.file("abi_version", "5");

  Writer dev(root_ + "/dev", scratch_of(root_));
  Writer nodes = dev.below("infiniband");
  nodes.file("uverbs0", "");
  for (const Writer* part : {&pci, &ib, &ib_class, &verbs, &verbs_class, &mad_class, &nodes}) {
    sys.merge(*part);
  }
  return sys.result();
}

Result<Done> DeviceTree::update_port(const TreeDevice& device) {
  Writer port(port_folder(root_, device.name), scratch_of(root_));
  write_port(port, device);
  return port.result();
}

Result<Done> DeviceTree::update_counters(const TreeDevice& device) {
  Writer port(port_folder(root_, device.name), scratch_of(root_));
  write_counters(port, device);
  return port.result();
}

void DeviceTree::remove() {
  std::error_code ignored;
  fs::remove_all(root_ + "/sys", ignored);
  fs::remove_all(root_ + "/dev", ignored);
  fs::remove(scratch_of(root_), ignored);
}

}  // namespace softhca::shim
