#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""kill -9 of a host's daemon or of the emulator: applications are told and do not hang, the next use finds everything
in order; what dead processes left is replaced, never waited for."""
import os
import signal
import socket
import sys
import time

from harness import Application, Flow, eventually, expect, free_port, is_listening, pingpong, run_cases


def expect_told(application):
    """It learns that its device is gone, and ends in good order."""
    output = application.succeed(8)
    expect("event local catastrophic error" in output or "events ended" in output, f"not told\n{output}")


def quick(fabric, provider):
    """A use of both hosts that waits for nobody."""
    start = time.monotonic()
    pingpong(fabric, provider)
    expect(time.monotonic() - start < 4, f"the next use took {time.monotonic() - start:.1f} s")


def daemon_killed(fabric, provider):
    flow = Flow(fabric, provider)
    os.kill(fabric.pid_of("host alpha"), signal.SIGKILL)
    expect_told(flow.server)
    # The other host is alive; its peer is not.
    flow.client.wait_line("status 12", 5)
    flow.client.succeed()
    quick(fabric, provider)


def daemon_killed_with_polling_client(fabric, provider):
    flow = Flow(fabric, provider, options=("--poll",))
    os.kill(fabric.pid_of("host beta"), signal.SIGKILL)
    expect_told(flow.client)
    quick(fabric, provider)


def a_new_daemon_beside_old_applications(fabric, provider):
    flow = Flow(fabric, provider, hosts=("alpha", "alpha"))
    idle = Application(fabric, "alpha", provider, ["sleep", "30"])
    os.kill(fabric.pid_of("host alpha"), signal.SIGKILL)
    quick(fabric, provider)
    expect_told(flow.server)
    expect_told(flow.client)
    idle.kill()


def persistent_daemon_killed(fabric, provider):
    fabric.done("up", "alpha")
    os.kill(fabric.pid_of("host alpha"), signal.SIGKILL)
    quick(fabric, provider)
    fabric.done("up", "alpha")
    expect(fabric.host("alpha")["port"]["state"] == "ACTIVE", "the host is up again")
    fabric.done("down", "alpha")


def emulator_killed(fabric, provider):
    flow = Flow(fabric, provider)
    os.kill(fabric.pid_of("emulator"), signal.SIGKILL)
    expect_told(flow.server)
    expect_told(flow.client)
    quick(fabric, provider)


def emulator_killed_under_polling_applications(fabric, provider):
    flow = Flow(fabric, provider, options=("--poll",))
    os.kill(fabric.pid_of("emulator"), signal.SIGKILL)
    expect_told(flow.server)
    expect_told(flow.client)
    quick(fabric, provider)


def endless_pingpong(fabric, provider, options=()):
    """ibv_rc_pingpong, which reads no asynchronous events, in the middle of its work: (server, client)."""
    port = free_port()
    command = ["ibv_rc_pingpong", "-p", str(port), "-n", "100000000", *options]
    server = Application(fabric, "alpha", provider, command)
    eventually("ibv_rc_pingpong listens", 15, lambda: is_listening(port))
    client = Application(fabric, "beta", provider, [*command, "127.0.0.1"])

    def packets():
        return sum(qp["counters"]["packets_sent"] for qp in fabric.host("beta")["device"]["qps"])

    eventually("messages flow", 15, lambda: fabric.host("beta") and packets() > 100)
    return server, client


def who_sleeps_for_a_completion_is_woken(fabric, provider):
    applications = endless_pingpong(fabric, provider, ("-e",))
    os.kill(fabric.pid_of("emulator"), signal.SIGKILL)
    for application in applications:
        expect("Failed to get cq_event" in application.output(8), "it was told by the end of its completion channel")
    quick(fabric, provider)


def who_only_polls_can_be_ended(fabric, provider):
    """As with hardware, no completion comes any more and nothing else is looked at: it polls until somebody ends it."""
    applications = endless_pingpong(fabric, provider)
    os.kill(fabric.pid_of("emulator"), signal.SIGKILL)
    quick(fabric, provider)
    for application in applications:
        application.process.terminate()
        application.output(3)
    quick(fabric, provider)


def emulator_killed_while_applications_stay(fabric, provider):
    fabric.done("up", "alpha")
    idle = Application(fabric, "alpha", provider, ["sleep", "30"])
    eventually("it runs", 5, lambda: "sleep 30" in fabric.members().values())
    os.kill(fabric.pid_of("emulator"), signal.SIGKILL)
    quick(fabric, provider)
    idle.kill()


def emulator_shut_down(fabric, provider):
    flow = Flow(fabric, provider)
    fabric.done("ctl", "shutdown")
    expect_told(flow.server)
    expect_told(flow.client)


def all_killed_at_once(fabric, provider):
    for name in ("alpha", "beta"):
        fabric.done("up", name)
    for role in ("emulator", "host alpha", "host beta"):
        os.kill(fabric.pid_of(role), signal.SIGKILL)
    expect(fabric.sockets(), "what was killed leaves its sockets")
    quick(fabric, provider)


def garbage_in_place_of_sockets(fabric, provider):
    for name in ("alpha", "beta"):
        fabric.done("up", name)
    fabric.done("down", "--all")
    fabric.expect_gone()
    for path in ("default/control.sock", "default/hosts/alpha/kernel.sock", "default/hosts/alpha/device.sock"):
        (fabric.folder / path).write_text("not a socket\n")
    (fabric.folder / "default/hosts/alpha/lock").write_text("12345\n")
    quick(fabric, provider)


def sockets_without_listener(fabric, provider):
    for folder in ("default", "default/hosts", "default/hosts/alpha"):
        (fabric.folder / folder).mkdir(mode=0o700)
    for path, kind in (("default/control.sock", socket.SOCK_STREAM),
                       ("default/hosts/alpha/kernel.sock", socket.SOCK_SEQPACKET),
                       ("default/hosts/alpha/device.sock", socket.SOCK_STREAM)):
        with socket.socket(socket.AF_UNIX, kind) as stale:
            stale.bind(str(fabric.folder / path))
    quick(fabric, provider)


def a_stopped_daemon_is_said_not_waited_for(fabric, provider):
    fabric.done("up", "alpha")
    pid = fabric.pid_of("host alpha")
    os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    result = fabric.cli("run", "--host", "alpha", "--provider", provider, "--", "true")
    expect(result.returncode == 1 and "does not answer" in result.stderr, f"{result.returncode} {result.stderr}")
    expect(time.monotonic() - start < 7, "it is said soon")
    os.kill(pid, signal.SIGCONT)
    fabric.done("run", "--host", "alpha", "--provider", provider, "--", "true")
    fabric.done("down", "alpha")


sys.exit(run_cases(__doc__, [daemon_killed, daemon_killed_with_polling_client, a_new_daemon_beside_old_applications,
                             emulator_killed, emulator_killed_under_polling_applications,
                             who_sleeps_for_a_completion_is_woken, who_only_polls_can_be_ended, emulator_shut_down],
                   takes_provider=True,
                   once=[persistent_daemon_killed, emulator_killed_while_applications_stay, all_killed_at_once,
                         garbage_in_place_of_sockets, sockets_without_listener,
                         a_stopped_daemon_is_said_not_waited_for]))
