#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A virtual host begins with its first use and ends with its last process, or is managed by hand."""
import signal
import subprocess
import sys
import time

from harness import EXIT_NOT_RUNNING, Application, Flow, eventually, expect, pingpong, run_cases


def first_use_starts_and_last_process_ends(fabric):
    expect(fabric.status() is None, "a fabric runs before its first use")
    application = Application(fabric, "alpha", "softhca", ["sleep", "30"])
    eventually("the host is up", 10, lambda: "sleep 30" in fabric.members().values())
    expect(fabric.host("alpha")["port"]["state"] == "ACTIVE", "the port of a new host is ACTIVE")
    emulator, daemon = fabric.pid_of("emulator"), fabric.pid_of("host alpha")
    second = Application(fabric, "alpha", "softhca", ["sleep", "0.3"])
    second.succeed()
    time.sleep(0.3)
    expect((emulator, daemon) == (fabric.pid_of("emulator"), fabric.pid_of("host alpha")),
           "another process of the host neither ends nor restarts it")
    application.kill()


def the_second_host_keeps_the_fabric(fabric):
    alpha = Application(fabric, "alpha", "softhca", ["sleep", "30"])
    beta = Application(fabric, "beta", "softhca", ["sleep", "30"])
    eventually("both hosts are up", 10, lambda: list(fabric.members().values()).count("sleep 30") == 2)
    lids = {fabric.host(name)["port"]["lid"] for name in ("alpha", "beta")}
    expect(len(lids) == 2 and 0 not in lids, f"LIDs of two hosts: {lids}")
    alpha.kill()
    eventually("the first host ends", 5, lambda: not fabric.host("alpha"))
    expect(fabric.host("beta")["port"]["state"] == "ACTIVE", "the second host goes on")
    beta.kill()


def up_status_down(fabric):
    fabric.done("up", "alpha")
    time.sleep(0.3)
    expect(fabric.host("alpha"), "a host that is up stays without processes")
    daemon = fabric.pid_of("host alpha")
    fabric.done("up", "alpha")
    fabric.done("run", "--host", "alpha", "--", "ibv_devinfo")
    expect(fabric.pid_of("host alpha") == daemon, "a process of the host leaves it up")
    text = fabric.done("status")
    expect("alpha" in text and "ACTIVE" in text, f"status shows the host\n{text}")
    fabric.done("up", "beta")
    fabric.done("down", "alpha")
    expect(fabric.host("alpha") is None and fabric.host("beta"), "down ends the host that it names")
    fabric.done("down", "--all")
    expect(fabric.cli("status").returncode == EXIT_NOT_RUNNING, "status after the last host: not running")


def down_waits_for_users(fabric):
    fabric.done("up", "alpha")
    application = Application(fabric, "alpha", "softhca", ["sleep", "30"])
    eventually("the process has its lease", 5, lambda: "sleep 30" in fabric.members().values())
    text = fabric.done("down", "alpha")
    expect("in use" in text and "--force" in text, f"down says that the host is in use\n{text}")
    expect(fabric.host("alpha"), "a host in use goes on")
    application.kill()
    fabric.expect_gone()


def down_by_force(fabric):
    flow = Flow(fabric, "softhca")
    fabric.done("down", "--force", "alpha")
    flow.server.wait_line("lost", 5)
    flow.server.succeed()
    flow.client.wait_line("status 12", 5)
    flow.client.succeed()


def exit_status_and_signals(fabric):
    fabric.done("up", "alpha")
    run = ("run", "--host", "alpha", "--")
    for command, status in ((["true"], 0), (["sh", "-c", "exit 42"], 42), (["no-such-command"], 127),
                            (["/no/such/file"], 127), (["/etc/passwd"], 126), (["/tmp"], 126)):
        result = fabric.cli(*run, *command)
        expect(result.returncode == status, f"{command}: exit status {result.returncode}, not {status}\n{result.stderr}")
        expect(status < 126 or "softhca: " + command[0] in result.stderr, f"{command}: no reason\n{result.stderr}")
    expect(fabric.cli(*run, "sh", "-c", "kill -9 $$").returncode == -signal.SIGKILL, "death by a signal is passed on")
    application = Application(fabric, "alpha", "softhca", ["sh", "-c", "trap 'echo got it; exit 7' TERM; echo set;"
                                                                       "while :; do sleep 0.05; done"])
    application.wait_line("set")
    application.process.send_signal(signal.SIGTERM)
    application.wait_line("got it")
    application.output()
    expect(application.process.returncode == 7, "a signal to `run` is a signal to its command")
    result = fabric.cli(*run, "cat", input=None)
    expect(result.returncode == 0, "standard input is the command's")
    fabric.done("down", "alpha")


def a_missing_command_starts_nothing(fabric):
    result = fabric.cli("run", "--", "no-such-command")
    expect(result.returncode == 127 and not fabric.members(), f"{result.returncode}, {fabric.members()}")


def exec_and_background_processes_keep_the_host(fabric):
    application = Application(fabric, "alpha", "softhca", ["sh", "-c", "ibv_devices; exec sleep 30"])
    eventually("it executed", 5, lambda: "sleep 30" in fabric.members().values())
    expect(fabric.host("alpha"), "exec keeps the host")
    application.kill()
    eventually("the host ends", 5, lambda: fabric.host("alpha") is None)
    result = subprocess.run(fabric.command("run", "--host", "alpha", "--", "sh", "-c",
                                           "(sleep 0.5; ibv_devinfo >/dev/null && echo still there >&2) &"),
                            env=fabric.environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, timeout=10)
    expect("still there" in result.stderr, f"a process in the background has the host\n{result.stderr}")


def run_inside_run(fabric):
    inner = [str(word) for word in fabric.command("run", "--host", "beta", "--", "ibv_devinfo")]
    outer = fabric.done("run", "--host", "alpha", "--", "sh", "-c", "ibv_devinfo; " + " ".join(inner))
    guids = {line.split()[1] for line in outer.splitlines() if "node_guid" in line}
    expect(len(guids) == 2, f"each host shows a device of its own: {guids}")


def many_processes_on_one_host(fabric):
    # The first uses of both hosts, all at once: one daemon each, and one emulator.
    flows = [Application(fabric, name, "softhca", ["sh", "-c", "ibv_devinfo | grep -q PORT_ACTIVE && sleep 1"])
             for name in ("alpha", "alpha", "beta", "alpha", "beta")]
    for flow in flows:
        flow.succeed()
    daemons = [line for line in fabric.members().values() if line.startswith(("softhca host", "softhca emulator"))]
    expect(len(daemons) <= 3, f"daemons: {daemons}")


def three_pingpongs_on_one_host(fabric):
    fabric.done("up", "alpha")
    flows = [Flow(fabric, provider, hosts=("alpha", "alpha")) for provider in ("softhca", "mlx5", "softhca")]
    qps = fabric.objects("alpha")["qps"]
    expect(qps == 6, f"QPs on the host: {qps}")
    pingpong(fabric, "softhca", hosts=("alpha", "alpha"))
    for flow in flows:
        flow.end()
    eventually("objects are gone", 1, lambda: fabric.objects("alpha")["qps"] == 0)
    fabric.done("down", "alpha")


def fabrics_are_apart(fabric):
    left = fabric.done("run", "--fabric", "left", "--", "ibv_devinfo")
    expect("PORT_ACTIVE" in left, "a host in a fabric of its own")
    fabric.done("up", "--fabric", "left", "alpha")
    fabric.done("up", "--fabric", "right", "alpha")
    text = fabric.done("status")
    expect("fabric left" in text and "fabric right" in text, f"status shows every fabric\n{text}")
    fabric.done("down", "--fabric", "left", "alpha")
    expect(fabric.status("left") is None and fabric.status("right"), "the other fabric goes on")
    fabric.done("down", "--fabric", "right", "alpha")


sys.exit(run_cases(__doc__, [
    first_use_starts_and_last_process_ends, the_second_host_keeps_the_fabric, up_status_down, down_waits_for_users,
    down_by_force, exit_status_and_signals, a_missing_command_starts_nothing,
    exec_and_background_processes_keep_the_host, run_inside_run, many_processes_on_one_host,
    three_pingpongs_on_one_host, fabrics_are_apart]))
