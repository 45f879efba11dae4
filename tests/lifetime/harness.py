# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the lifetime tests share: a private fabric that is looked at from outside, applications that are in use while
something is done to them, and a runner that gives every case a fresh fabric and leaves no process behind."""
import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "applications"))
from virtual_hosts import BOUND_LINE, Fabric, Failure, end_group, free_port, is_listening  # noqa: E402,F401

EXIT_FAILED, EXIT_USAGE, EXIT_NOT_RUNNING = 1, 2, 3


def expect(condition, what):
    if not condition:
        raise Failure(what)


def as_user(user):
    """Words in front of a command that make it this user's (a number)."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all"]


class Skip(Exception):
    """The case cannot be run here; the text says why."""


def can_run(*words):
    """True if a command ends with status 0 here: for what needs a privilege."""
    try:
        return subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=10).returncode == 0
    except OSError:
        return False


def eventually(what, seconds, condition):
    """The first true value of condition(); a Failure when there is none within `seconds`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"not within {seconds} s: {what}")
        time.sleep(0.02)


class PrivateFabric(Fabric):
    """A runtime folder of its own, with the programs in `bin`. Commands run behind the words of `prefix`."""

    def __init__(self, bin_folder):
        self.bin = Path(bin_folder)
        super().__init__(self.bin / "softhca")
        self.prefix = []
        self.use_folder(Path(self._folder.name))

    def use_folder(self, folder):
        self.folder = folder
        self.environment["SOFTHCA_RUNTIME_DIR"] = str(folder)

    def give_to(self, user):
        """From here on everything is done by this user (a number), without privileges. Only root can."""
        os.chown(self.folder, user, user)
        self.prefix = as_user(user)

    def command(self, *arguments):
        return [*self.prefix, str(self.bin / "softhca"), *arguments]

    def cli(self, *arguments, timeout=20, **run):
        """`softhca ARGUMENTS`, ended, with its standard output and error apart."""
        run.setdefault("env", self.environment)
        try:
            return subprocess.run(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  stdin=subprocess.DEVNULL, text=True, timeout=timeout, **run)
        except subprocess.TimeoutExpired:
            raise Failure(f"softhca {' '.join(arguments)}: still running after {timeout} s") from None

    def done(self, *arguments, **run):
        """Standard output of a `softhca` call that must end with status 0."""
        result = self.cli(*arguments, **run)
        expect(result.returncode == 0, f"softhca {' '.join(arguments)}: exit status {result.returncode}\n"
                                       f"{result.stdout}{result.stderr}")
        return result.stdout

    def status(self, fabric="default"):
        """`softhca status` as an object; None when the fabric does not run."""
        result = self.cli("status", "--fabric", fabric, "--json")
        if result.returncode == EXIT_NOT_RUNNING:
            return None
        expect(result.returncode == 0, f"softhca status: exit status {result.returncode}\n{result.stderr}")
        return json.loads(result.stdout)[0]

    def host(self, name):
        """What `softhca status` says of a host; None when it is not there."""
        status = self.status()
        return next((host for host in status["hosts"] if host["name"] == name), None) if status else None

    def objects(self, name):
        host = self.host(name)
        return host["device"]["objects"] if host else None

    def members(self):
        """Every process of this runtime folder, applications too: {pid: command line}."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if f"SOFTHCA_RUNTIME_DIR={self.folder}".encode() not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if line:  # not a zombie
                    found[int(entry.name)] = line
            except OSError:
                continue
        return found

    def pid_of(self, role):
        """Process of "emulator" or of a host's daemon ("host NAME")."""
        wanted = "softhca emulator " if role == "emulator" else "softhca host "
        for pid, line in self.members().items():
            if line.startswith(wanted) and (role == "emulator" or f"--host {role.split()[1]}" in line):
                return pid
        raise Failure(f"there is no process of {role}: {self.members()}")

    def sockets(self):
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*.sock") if path.is_socket())

    def expect_gone(self, seconds=5):
        """Within `seconds` no process and no socket is left."""
        try:
            eventually("processes end", seconds, lambda: not self.members())
            eventually("sockets are removed", seconds, lambda: not self.sockets())
        except Failure as failure:
            raise Failure(f"{failure}: {self.members()} {self.sockets()}") from None

    def end_all(self):
        for pid in self.members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def logs(self):
        text = ""
        for log in sorted(self.folder.rglob("*.log")):
            text += f"--- {log.relative_to(self.folder)}\n" + "\n".join(log.read_text().splitlines()[-15:]) + "\n"
        return text


class Application:
    """A command under `softhca run` whose lines are read as they come."""

    def __init__(self, fabric, host, provider, command, **popen):
        self.command = [str(word) for word in command]
        popen.setdefault("env", fabric.environment)
        arguments = fabric.command("run", "--host", host, "--provider", provider, "--", *self.command)
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, start_new_session=True, **popen)
        self.lines = []
        self._arriving = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._arriving.put(line.rstrip("\n"))
        self._arriving.put(None)

    def wait_line(self, begin, seconds=10):
        """The next line that begins with `begin`; what came before it stays in `lines`."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._arriving.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise self.failure(f"no line '{begin}' within {seconds} s") from None
            if line is None:
                self._arriving.put(None)
                raise self.failure(f"ended without a line '{begin}'")
            self.lines.append(line)
            if line.startswith(begin):
                return line

    def output(self, seconds=15):
        """Everything it said, after its end, which must come within `seconds`."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failure(f"still running after {seconds} s") from None
        while (line := self._arriving.get(timeout=5)) is not None:
            self.lines.append(line)
        self._arriving.put(None)
        return "\n".join(self.lines)

    def succeed(self, seconds=15):
        output = self.output(seconds)
        expect(self.process.returncode == 0, f"{' '.join(self.command)}: exit status {self.process.returncode}\n{output}")
        return output

    def end_input(self):
        self.process.stdin.close()

    def kill(self):
        end_group(self.process)
        self.process.wait()

    def failure(self, what):
        return Failure(f"{' '.join(self.command)}: {what}\n" + "\n".join(self.lines))


class Flow:
    """A connection in use (flow.cpp): `client` writes to `server` and reads back without pause."""

    def __init__(self, fabric, provider, hosts=("alpha", "beta"), options=(), server_options=()):
        port = str(free_port())
        program = [fabric.bin / "softhca_lifetime_flow", "--provider", provider]
        self.server = Application(fabric, hosts[0], provider, [*program, "--server", port, *options, *server_options])
        self.client = Application(fabric, hosts[1], provider, [*program, "--client", port, *options])
        self.server.wait_line("ready")
        self.client.wait_line("round")

    def goes_on(self):
        """Rounds that began after this call are done."""
        while not self.client._arriving.empty():
            self.client.wait_line("")
        self.client.wait_line("round")

    def end(self):
        """Ends both in good order; every round was right."""
        self.goes_on()
        self.client.end_input()
        output = self.client.succeed()
        expect("ended" in output and "done" in output, f"the client did not end in good order\n{output}")
        self.server.succeed()


def pingpong(fabric, provider, hosts=("alpha", "beta"), options=("-c", "-e", "-n", "50"), **application):
    """ibv_rc_pingpong between two hosts, in good order; its outputs."""
    port = free_port()
    command = ["ibv_rc_pingpong", "-p", str(port), *options]
    server = Application(fabric, hosts[0], provider, command, **application)
    try:
        eventually("ibv_rc_pingpong listens", 15, lambda: is_listening(port) or server.process.poll() is not None)
        if server.process.poll() is not None:
            server.succeed()
        client = Application(fabric, hosts[1], provider, [*command, "127.0.0.1"], **application)
        outputs = client.succeed(), server.succeed()
    finally:
        if server.process.poll() is None:
            server.kill()
    for output in outputs:
        expect("bytes in" in output and "invalid data" not in output, f"no good result\n{output}")
        expect(BOUND_LINE[provider] in output, f"not bound to provider {provider}\n{output}")
    return outputs


def run_cases(description, cases, takes_provider=False, once=()):
    """Runs functions of a fabric (and a provider), each on a fabric of its own, which must end by itself. Those in
    `once` have nothing to do with the provider: they are run with the first one only."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bin", required=True, help="folder of softhca and of the test programs")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    if takes_provider:
        parser.add_argument("--provider", required=True, choices=tuple(BOUND_LINE))
    options = parser.parse_args()
    failures = 0
    if takes_provider and options.provider == next(iter(BOUND_LINE)):
        cases = [*cases, *once]
    for case in cases:
        if options.only not in case.__name__:
            continue
        start = time.monotonic()
        result = ""
        with PrivateFabric(Path(options.bin).resolve()) as fabric:
            try:
                case(fabric, options.provider) if takes_provider else case(fabric)
                fabric.expect_gone()
            except Failure as failure:
                failures += 1
                result = f"{failure}\n{fabric.logs()}"
            except Skip as reason:
                print(f"skip  {case.__name__.replace('_', ' ')}: {reason}", flush=True)
                continue
            finally:
                fabric.end_all()
        print(f"{'FAIL' if result else 'ok  '}  {case.__name__.replace('_', ' ')}  ({time.monotonic() - start:.1f} s)",
              flush=True)
        if result:
            print(result, flush=True)
    return 1 if failures else 0
