# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs commands on virtual hosts of a fabric of their own, with the provider asserted."""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# What each provider says at open when SOFTHCA_PROVIDER_TRACE=1; a run without its line used another one.
BOUND_LINE = {"softhca": "softhca provider bound", "mlx5": "stock mlx5 provider bound"}


class Failure(Exception):
    """A run that did not do what it should; the text says what was seen."""


# What names a fabric or host to `softhca` in a shell, or in a host that a test was started from.
CHOICES = ("SOFTHCA_FABRIC", "SOFTHCA_HOST", "SOFTHCA_LEASE_FD")


class Fabric:
    """A fabric in a private runtime folder; everything it started is gone when it is left."""

    def __init__(self, softhca):
        self._softhca = str(softhca)
        self._folder = tempfile.TemporaryDirectory(prefix="softhca-test-")
        self.environment = {name: value for name, value in os.environ.items() if name not in CHOICES}
        self.environment.update(SOFTHCA_RUNTIME_DIR=self._folder.name, SOFTHCA_PROVIDER_TRACE="1")

    def __enter__(self):
        # An end by ctest's time limit or by hand leaves nothing behind.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda *_: sys.exit("ended by a signal"))
        return self

    def __exit__(self, *_):
        self.wait_until_empty(5)
        self._folder.cleanup()

    def emulators(self):
        """Processes that belong to this runtime folder, by pid."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if self._folder.name.encode() in (entry / "environ").read_bytes() and \
                        b"softhca" in (entry / "cmdline").read_bytes().split(b"\0")[0]:
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    def wait_until_empty(self, seconds):
        """The fabric ends with its last member; what is still there after `seconds` is reported and ended."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if not self.emulators():
                return True
            time.sleep(0.1)
        left = self.emulators()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return not left

    def start(self, host, provider, command, **popen):
        argv = [self._softhca, "run", "--host", host, "--provider", provider, "--", *command]
        # A group of its own, to be ended as a whole; but one session for all, as for the jobs of a script: the kernel
        # shares processors out among sessions first.
        return subprocess.Popen(argv, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                process_group=0, **popen)

    def run(self, host, provider, command, timeout=60, must_bind=True):
        """Output of a command that must end with status 0 on the named provider."""
        return finish(self.start(host, provider, command), command, provider if must_bind else None, timeout)


def finish(process, command, provider, timeout):
    """Waits for a process, returns its output; raises Failure with the output when it failed, hung, or was not
    bound to `provider` (None: not asserted, for tools that open no device)."""
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        end_group(process)
        output, _ = process.communicate()
        raise Failure(f"{' '.join(command)}: still running after {timeout} s\n{output}") from None
    if process.returncode != 0:
        raise Failure(f"{' '.join(command)}: exit status {process.returncode}\n{output}")
    if provider and BOUND_LINE[provider] not in output:
        raise Failure(f"{' '.join(command)}: not bound to provider {provider}\n{output}")
    return output


def end_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_listening(port):
    """True if something listens on the TCP port (looked up without connecting: the servers take one client)."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        if any(row.split()[1].endswith(wanted) and row.split()[3] == "0A" for row in rows):
            return True
    return False


def run_pair(fabric, provider, placement, server_command, client_command, port, timeout=90):
    """Runs a server and its client; returns both outputs."""
    hosts = ("alpha", "beta") if placement == "two-hosts" else ("alpha", "alpha")
    server = fabric.start(hosts[0], provider, server_command)
    try:
        end = time.monotonic() + 20
        while not is_listening(port):
            if server.poll() is not None or time.monotonic() > end:
                end_group(server)
                output, _ = server.communicate()
                raise Failure(f"{' '.join(server_command)}: did not listen\n{output}")
            time.sleep(0.02)
        client_output = fabric.run(hosts[1], provider, client_command, timeout)
        return finish(server, server_command, provider, 15), client_output
    except Failure as failure:
        if server.poll() is None:
            end_group(server)
            output, _ = server.communicate()
            raise Failure(f"{failure}\n--- server:\n{output}") from None
        raise
