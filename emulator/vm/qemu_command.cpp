// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "emulator/vm/qemu_command.h"

#include <sys/un.h>
#include <nlohmann/json.hpp>

#include "emulator/vm/frame.h"
#include "emulator/vm/subprocess.h"

namespace softhca::vm {
namespace {

/// `path`, or the same relative to the guest's folder if it does not fit a socket address.
std::string socket_name(const std::string& path, const Options& options) {
  if (path.size() < sizeof(sockaddr_un::sun_path)) return path;
  const std::string fabric = runtime::fabric_paths(options.fabric).folder + "/";
  return path.starts_with(fabric) ? "../../" + path.substr(fabric.size()) : path;
}

std::string size_of(const Options& options) {
  return std::to_string(options.memory_mib) + "M";
}

/// A comma in an option's value is doubled.
std::string escaped(const std::string& value) {
  std::string text;
  for (const char character : value) text += character == ',' ? ",," : std::string(1, character);
  return text;
}

/// QEMU gives a HCA up when an answer takes longer; its default of 5 s has been seen to pass on
/// machines that stall.
constexpr unsigned kAnswerMilliseconds = 30000;

std::string device_json(const Options& options, unsigned index) {
  const std::string socket =
      runtime::host_paths(options.fabric, hca_host(options.name, index)).device_socket;
  return nlohmann::json{{"driver", "vfio-user-pci"},
                        {"id", "hca" + std::to_string(index)},
                        {"bus", "port" + std::to_string(index)},
                        {"x-msg-timeout", kAnswerMilliseconds},
                        {"socket", {{"type", "unix"}, {"path", socket_name(socket, options)}}}}
      .dump();
}

class CommandLine {
 public:
  explicit CommandLine(std::vector<std::string> words) : words_(std::move(words)) {}
  void add(const std::string& option, const std::string& value) {
    words_.push_back(option);
    words_.push_back(value);
  }
  void add(const std::string& option) { words_.push_back(option); }
  std::vector<std::string> take() { return std::move(words_); }

 private:
  std::vector<std::string> words_;
};

void add_machine(CommandLine& line, const Options& options, const std::string& accelerator) {
  line.add("-name", escaped(options.name));
  line.add("-accel", accelerator == "tcg" ? "tcg,thread=multi" : accelerator);
  line.add("-cpu", accelerator == "kvm" ? "host" : "max");
  line.add("-smp", std::to_string(options.cpus));
  line.add("-m", size_of(options));
  // The emulator maps the guest's memory: it must be a shared descriptor.
  line.add("-object", "memory-backend-memfd,id=memory,size=" + size_of(options) + ",share=on");
  line.add("-machine", std::string("q35,memory-backend=memory") +
                           (options.with_iommu ? ",kernel-irqchip=split" : ""));
  line.add("-no-user-config");
  line.add("-nodefaults");
  line.add("-display", "none");
  if (options.with_iommu) line.add("-device", "intel-iommu,intremap=on,caching-mode=on");
}

void add_system(CommandLine& line, const Options& options, const GuestImage& image,
                const std::string& seed, Console console) {
  line.add("-kernel", image.kernel);
  line.add("-initrd", image.initrd);
  // On a busy machine the kernel would not see the timer ticks that it waits for at boot, and
  // panic.
  std::string arguments =
      "console=ttyS0 root=/dev/vda rootfstype=ext4 rw quiet init=/sbin/softhca-init net.ifnames=0 "
      "nokaslr mitigations=off no_timer_check";
  if (options.with_iommu) arguments += " intel_iommu=on";
  if (console == Console::kTerminal) arguments += " softhca.console";
  if (!options.kernel_arguments.empty()) arguments += " " + options.kernel_arguments;
  line.add("-append", arguments);
  line.add("-drive", "file=" + escaped(image.disk) + ",format=raw,if=virtio,snapshot=on");
  line.add("-drive", "file=" + escaped(seed) + ",format=raw,if=virtio,read-only=on");
  line.add("-device", "virtio-rng-pci");
  std::string network = "user,id=network";
  for (const std::string& forward : options.forwards) {
    const auto colon = forward.find(':');
    network +=
        ",hostfwd=tcp:127.0.0.1:" + forward.substr(0, colon) + "-:" + forward.substr(colon + 1);
  }
  line.add("-netdev", network);
  line.add("-device", "virtio-net-pci,netdev=network,romfile=");
}

void add_hcas(CommandLine& line, const Options& options) {
  // Firmware sizes a port's window by what is behind it at boot: what is plugged in later needs
  // room.
  constexpr char kPort[] = "pcie-root-port,pref64-reserve=64M,id=port";
  for (unsigned i = 0; i <= options.hcas; ++i) {
    const std::string slot = std::to_string(i + 1);
    std::string port = kPort + std::to_string(i);
    port.append(",chassis=").append(slot).append(",slot=").append(slot);
    line.add("-device", port);
  }
  for (unsigned i = 0; i < options.hcas; ++i) line.add("-device", device_json(options, i));
}

std::string quoted_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    // One option a line.
    if (!line.empty()) line += word.starts_with('-') ? " \\\n  " : " ";
    line += shell_quoted(word);
  }
  return line;
}

}  // namespace

std::vector<std::string> qemu_command(const Options& options, const QemuProgram& program,
                                      const GuestImage& image, const std::string& accelerator,
                                      Console console) {
  const GuestPaths paths = guest_paths(options.fabric, options.name);
  CommandLine line(program.command);
  add_machine(line, options, accelerator);
  add_system(line, options, image, paths.seed, console);
  if (console == Console::kTerminal) {
    line.add("-chardev", "stdio,id=console,mux=on,signal=off");
    line.add("-mon", "chardev=console,mode=readline");
  } else {
    line.add("-chardev", "file,id=console,path=console.log");
  }
  line.add("-serial", "chardev:console");
  line.add("-device", "virtio-serial-pci");
  line.add("-chardev", "socket,id=agent,path=agent.sock,server=on,wait=off");
  line.add("-device", "virtserialport,chardev=agent,name=" + std::string(kPortName));
  line.add("-qmp", "unix:qmp.sock,server=on,wait=off");
  add_hcas(line, options);
  return line.take();
}

std::string printed_command(const Options& options, const QemuProgram& program,
                            const GuestImage& image, const std::string& accelerator,
                            const std::string& seed) {
  CommandLine line(program.command);
  add_machine(line, options, accelerator);
  add_system(line, options, image, seed, Console::kTerminal);
  line.add("-serial", "mon:stdio");
  add_hcas(line, options);
  std::string script = "# The HCAs (end them with `softhca down`):\n";
  for (unsigned i = 0; i < options.hcas; ++i) {
    script += "softhca up --device-only --fabric " + options.fabric +
              (options.mapped_uars ? " --mapped-uars" : "") +
              (options.blue_flame ? " --blue-flame " : " ") + hca_host(options.name, i) + "\n";
  }
  script += "# The guest:\n";
  for (const std::string& variable : program.environment) script += variable + " \\\n";
  return script + quoted_line(line.take()) + "\n";
}

}  // namespace softhca::vm
