// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause

/// `softhca vm`: a Debian guest in QEMU whose own mlx5 driver drives HCAs of the fabric.

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "emulator/cli/commands.h"
#include "emulator/cli/fabric_access.h"
#include "emulator/runtime/paths.h"
#include "emulator/runtime/unix_socket.h"
#include "emulator/vm/accelerator.h"
#include "emulator/vm/cache.h"
#include "emulator/vm/command_client.h"
#include "emulator/vm/seed.h"
#include "emulator/vm/supervisor.h"

namespace softhca::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// As timeout(1) has it.
constexpr int kExitTimeout = 124;
constexpr int kExitSignal = 128;

constexpr char kModules[] = "mlx5_ib,ib_uverbs,ib_umad,rdma_ucm,ib_ipoib";

struct VmOptions {
  vm::Options guest;
  std::string command;
  bool has_command = false;
  bool attach = false;
  bool headless = false;
  bool print_command = false;
  bool build_only = false;
  double timeout = 0;
  std::string console_log;
  std::vector<std::string> copies;
  std::string modules{kModules};
};

[[noreturn]] void fail_run(const runtime::Error& error) {
  if (error.code == ETIMEDOUT) fail(error.message, kExitTimeout);
  if (error.code == EINTR) fail(error.message, kExitSignal + SIGINT);
  fail(error.message, kExitFailed);
}

Clock::time_point deadline_of(const VmOptions& options) {
  if (options.timeout <= 0) return Clock::time_point::max();
  return Clock::now() + std::chrono::milliseconds(static_cast<long>(options.timeout * 1000));
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::string part;
  for (const char character : text + separator) {
    if (character != separator) {
      part += character;
    } else if (!part.empty()) {
      parts.push_back(std::exchange(part, {}));
    }
  }
  return parts;
}

/// "PATH" goes to /root/<its name>, "PATH:GUEST_PATH" where it says.
vm::CopiedPath copied_path(const std::string& argument) {
  const auto colon = argument.rfind(":/");
  const std::string path = argument.substr(0, colon);
  if (!std::filesystem::exists(path)) fail("--copy-in: there is no " + path, kExitUsage);
  if (colon != std::string::npos) return {path, argument.substr(colon + 1)};
  return {path, "/root/" + std::filesystem::weakly_canonical(path).filename().string()};
}

/// Runs the command in a guest that is up (or coming up).
int run_in_running_guest(const VmOptions& options) {
  const auto paths = vm::guest_paths(options.guest.fabric, options.guest.name);
  auto socket = runtime::connect_unix(paths.commands, SOCK_STREAM);
  if (!socket) {
    fail("no guest '" + options.guest.name + "' runs in fabric " + options.guest.fabric +
             "; start it with `softhca vm --name " + options.guest.name + "`",
         kExitNotRunning);
  }
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  const runtime::UniqueFd watched(::signalfd(-1, &signals, SFD_CLOEXEC));
  const auto status =
      vm::run_command(socket->get(), {options.command, watched.get(), deadline_of(options)});
  if (!status) fail_run(status.error());
  return status.value();
}

void print_command(const VmOptions& options, const vm::QemuProgram& program,
                   const vm::GuestImage& image, const std::string& accelerator) {
  const std::string seed = vm::cache_folder() + "/seed-" + options.guest.name + ".tar";
  if (auto made = vm::make_seed(options.guest, seed); !made) fail(made.error());
  std::fputs(vm::printed_command(options.guest, program, image, accelerator, seed).c_str(), stdout);
}

int run_new_guest(VmOptions& options) {
  vm::GuestRun run;
  run.deadline = deadline_of(options);
  for (const std::string& copy : options.copies) {
    options.guest.copies.push_back(copied_path(copy));
  }
  options.guest.modules = split(options.modules, ',');
  auto program = vm::qemu_program();
  if (!program) fail(program.error().message, kExitFailed);
  auto image = vm::guest_image(options.guest.system);
  if (!image) fail(image.error().message, kExitFailed);
  if (options.build_only) return kExitOk;
  run.accelerator = vm::choose_accelerator(options.guest.accelerator, *program, *image);
  if (options.print_command) {
    print_command(options, *program, *image, run.accelerator);
    return kExitOk;
  }
  run.options = options.guest;
  run.program = std::move(*program);
  run.image = std::move(*image);
  run.announces = options.headless;
  if (options.has_command) run.command = options.command;
  run.console =
      options.has_command || options.headless ? vm::Console::kFile : vm::Console::kTerminal;
  if (!options.console_log.empty()) {
    run.console_log = std::filesystem::absolute(options.console_log).string();
  }
  const auto status = vm::run_guest(run);
  if (!status) fail_run(status.error());
  return status.value();
}

void run_vm(VmOptions& options) {
  if (options.attach && !options.has_command) fail("--attach needs --exec COMMAND", kExitUsage);
  const int status = options.attach ? run_in_running_guest(options) : run_new_guest(options);
  if (status != 0) throw CLI::RuntimeError(status);
}

void add_guest_options(CLI::App& command, VmOptions& options) {
  vm::Options& guest = options.guest;
  command.add_option("--name", guest.name, "Name of the guest; its HCAs are vm-NAME-0, ...")
      ->capture_default_str()
      ->check([](const std::string& name) {
        return runtime::is_valid_name(name) && name.size() <= 48
                   ? std::string()
                   : std::string("a name has 1 to 48 letters, digits, '_', '.', '-'");
      });
  command.add_option("--hcas", guest.hcas, "Number of HCAs")
      ->check(CLI::Range(0, 8))
      ->capture_default_str();
  command.add_option("--kernel", guest.system, "Debian system and kernel of the guest")
      ->check(CLI::IsMember(vm::guest_systems()))
      ->capture_default_str();
  command.add_option("--cpus", guest.cpus, "Number of CPUs")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command.add_option("--memory", guest.memory_mib, "Memory in MiB")
      ->check(CLI::Range(256, 1 << 20))
      ->capture_default_str();
  command.add_option("--accel", guest.accelerator, "kvm, tcg, or auto: kvm where it works")
      ->check(CLI::IsMember({"auto", "kvm", "tcg"}))
      ->capture_default_str();
  command.add_flag("--mapped-uars", guest.mapped_uars,
                   "Doorbell pages are shared memory that the emulator looks at every 0.25 ms");
  command.add_flag("--blue-flame", guest.blue_flame,
                   "Offer the driver doorbells that carry a WQE (eight trapped stores, not one)");
  command.add_flag("--iommu", guest.with_iommu, "A virtual IOMMU (intel-iommu) in the guest");
  command.add_option("--modules", options.modules, "Kernel modules loaded at boot, by commas")
      ->capture_default_str();
  command.add_option("--append", guest.kernel_arguments, "More kernel command line");
  command.add_option("--copy-in", options.copies,
                     "PATH[:/GUEST/PATH]: a file or folder that the guest gets (default: /root)");
  command
      .add_option("--forward", guest.forwards,
                  "HOSTPORT:GUESTPORT: a TCP port of 127.0.0.1 that leads into the guest")
      ->check([](const std::string& text) {
        const auto parts = split(text, ':');
        const bool numbers = text.find_first_not_of("0123456789:") == std::string::npos;
        return parts.size() == 2 && numbers ? std::string() : std::string("HOSTPORT:GUESTPORT");
      });
}

}  // namespace

void add_vm(CLI::App& app) {
  auto options = std::make_shared<VmOptions>();
  CLI::App* command = app.add_subcommand(
      "vm", "Boot a Debian guest whose own mlx5 driver drives HCAs of the fabric");
  add_fabric_option(*command, options->guest.fabric);
  add_guest_options(*command, *options);
  CLI::Option* exec = command->add_option(
      "-e,--exec", options->command,
      "Run a shell command in the guest, pass its output and exit status on, end the guest");
  CLI::Option* attach = command->add_flag(
      "--attach", options->attach, "With --exec: in the running guest of that name, which goes on");
  command
      ->add_flag("--headless", options->headless,
                 "No console on the terminal; says on stdout when the guest is up")
      ->excludes(exec);
  command
      ->add_option("--timeout", options->timeout, "Seconds until the guest is ended (status 124)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--console-log", options->console_log,
                      "Keep the console's text in this file");
  command
      ->add_flag("--print-command", options->print_command,
                 "Print QEMU's command line; boot nothing")
      ->excludes(exec)
      ->excludes(attach);
  command->add_flag("--build-only", options->build_only, "Only fill the cache; boot nothing");
  command->callback([options, exec] {
    options->has_command = exec->count() != 0;
    run_vm(*options);
  });
}

}  // namespace softhca::cli
