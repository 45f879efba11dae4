# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Guests of `softhca vm` under test: boot, commands inside, QEMU's monitor, end."""
import json
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "applications"))
from virtual_hosts import Fabric, Failure, free_port  # noqa: E402  (shared with the applications' tests)

__all__ = ["Failure", "Guest", "GuestFabric", "KnownDefect", "Output", "free_port"]

# A stock kernel under plain emulation on busy cores.
BOOT_SECONDS = 300
# Of QEMU 11.1: it takes the MSI-X pending bits out of a BAR that is already gone.
UNPLUG_ASSERTION = "memory_region_del_subregion: Assertion"


class KnownDefect(Exception):
    """A check that cannot pass because of a known defect of something else; the text names it."""


class Output(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def text(self):
        return self.out + self.err


class GuestFabric(Fabric):
    """A fabric with guests; whatever is left of them is ended with it."""

    def __init__(self, softhca, verbose=False):
        super().__init__(softhca)
        self.softhca = str(softhca)
        self.verbose = verbose
        self.guests = []

    @property
    def folder(self):
        return Path(self.environment["SOFTHCA_RUNTIME_DIR"]) / "default"

    def guest(self, name, **options):
        guest = Guest(self, name, **options)
        self.guests.append(guest)
        return guest

    def softhca_command(self, *arguments, timeout=30):
        """Output of a subcommand of `softhca` in this fabric."""
        done = subprocess.run([self.softhca, *arguments], env=self.environment, capture_output=True, text=True,
                              timeout=timeout, stdin=subprocess.DEVNULL)
        return Output(done.returncode, done.stdout, done.stderr)

    def hosts(self):
        """Names of the hosts that the emulator knows; none if it does not run."""
        status = self.control({"command": "status"})
        return sorted(host["name"] for host in status.get("hosts", [])) if status else []

    def control(self, command):
        """Reply of the emulator to a command of its control socket; None if there is no emulator."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect(str(self.folder / "control.sock"))
                connection.sendall(json.dumps(command).encode() + b"\n")
                return json.loads(connection.makefile().readline())
        except OSError:
            return None

    def stop_guests(self):
        while self.guests:
            self.guests.pop().stop()

    def __exit__(self, *details):
        self.stop_guests()
        super().__exit__(*details)


class Guest:
    """One run of `softhca vm --headless`."""

    def __init__(self, fabric, name, hcas=2, kernel="trixie", options=()):
        self.fabric, self.name = fabric, name
        self.log = Path(fabric.environment["SOFTHCA_RUNTIME_DIR"]) / f"{name}.console"
        self.boot_seconds = None
        command = [fabric.softhca, "vm", "--headless", "--name", name, "--hcas", str(hcas), "--kernel", kernel,
                   "--console-log", str(self.log), *options]
        started = time.monotonic()
        self.process = subprocess.Popen(command, env=fabric.environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in self.process.stdout:  # Of what is built first, if the cache lacks it.
            if line == f"guest {name} is up\n":
                break
            said.append(line)
        else:
            self.process.wait(timeout=30)
            raise Failure(f"guest {name} did not come up:\n{''.join(said)}")
        self.boot_seconds = time.monotonic() - started

    # Commands in the guest.

    def start(self, command):
        return subprocess.Popen([self.fabric.softhca, "vm", "--attach", "--name", self.name, "--exec", command],
                                env=self.fabric.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace")

    def run(self, command, timeout=60, check=True, shown=None):
        """Output of a shell command; Failure if it hangs or (with check) its status is not 0.
        `shown` is what messages call it."""
        process = self.start(command)
        shown = shown or command
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise Failure(f"{self.name}: {shown}: still running after {timeout} s\n{out}{err}\n{self.complaints()}") \
                from None
        output = Output(process.returncode, out, err)
        if self.fabric.verbose:
            print(f"[{self.name}] {command} -> {output.status}\n{output.text}", flush=True)
        if check and output.status != 0:
            raise Failure(f"{self.name}: {shown}: status {output.status}\n{output.text}\n{self.complaints()}")
        return output

    def put(self, path, text):
        self.run(f"printf %s {shlex.quote(text)} > {path}")

    def complaints(self, since=0):
        """What the kernel said at warning level or worse about the HCA and its drivers, after `since` seconds of
        uptime; one line each."""
        done = subprocess.run([self.fabric.softhca, "vm", "--attach", "--name", self.name, "--timeout", "20", "--exec",
                               "dmesg --level=emerg,alert,crit,err,warn"],
                              env=self.fabric.environment, capture_output=True, text=True, errors="replace",
                              stdin=subprocess.DEVNULL)
        lines = []
        for line in done.stdout.splitlines():
            stamp = line[1:].split("]")[0].strip()
            if any(word in line for word in ("mlx5", "infiniband", "ib_", "ib0", "ib1", "rdma", "Call Trace", "BUG",
                                             "hung", "blocked for")):
                if not since or (stamp and float(stamp) > since):
                    lines.append(line)
        return "\n".join(lines)

    def uptime(self):
        return float(self.run("cat /proc/uptime").out.split()[0])

    # The machine from outside.

    def qmp(self, command, **arguments):
        """Result of a QMP command."""
        if not self.is_running():
            raise Failure(f"{self.name}: `softhca vm` has ended: {self.process.communicate()[0]}")
        path = self.fabric.folder / "vms" / self.name / "qmp.sock"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(path))
            stream = connection.makefile("rw")
            stream.readline()
            for request in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                reply = json.loads(stream.readline())
                while "event" in reply:
                    reply = json.loads(stream.readline())
                if "error" in reply:
                    raise Failure(f"{self.name}: QMP {command}: {reply['error']['desc']}")
            return reply["return"]

    def plug(self, host, port):
        """`device_add` of a host's HCA behind root port `port`."""
        socket_path = self.fabric.folder / "hosts" / host / "device.sock"
        self.qmp("device_add", driver="vfio-user-pci", id=f"plugged{port}", bus=f"port{port}",
                 socket={"type": "unix", "path": str(socket_path)})

    def unplug(self, name):
        """`device_del`: asks the guest to let the device go (it takes some seconds), waits until QEMU has removed it."""
        self.qmp("device_del", id=name)
        try:
            wait_until(90, f"{name} is unplugged", lambda: name not in [
                entry["name"] for entry in self.qmp("qom-list", path="/machine/peripheral")])
            # QEMU ends the device itself some time after it has left the list.
            for _ in range(10):
                time.sleep(0.5)
                self.qmp("query-status")
        except (Failure, OSError) as failure:
            end = str(failure) if isinstance(failure, Failure) else self.process.communicate(timeout=30)[0]
            if UNPLUG_ASSERTION in end:
                raise KnownDefect("QEMU aborts when a vfio-user device with MSI-X is unplugged") from None
            raise

    def reboot(self):
        """`reboot` in the guest; returns when its agent answers again."""
        before = self.run("cat /proc/sys/kernel/random/boot_id").out
        self.run("reboot; sleep 100", check=False, timeout=BOOT_SECONDS)
        wait_until(BOOT_SECONDS, f"guest {self.name} is up again",
                   lambda: self.run("cat /proc/sys/kernel/random/boot_id", check=False).out not in ("", before))

    def is_running(self):
        return self.process.poll() is None

    def stop(self):
        if self.is_running():
            self.process.terminate()
            try:
                self.process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.communicate()


def wait_until(seconds, what, condition):
    """Returns the first true value of condition(), asked twice a second; Failure after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(0.5)
