# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Ends and beginnings seen from outside: commands, hot plug, a killed guest, a dead emulator."""
import os
import signal

from check import Group
from checks_driver import driver_functions, expect_no_complaints, wait_for_ports
from guests import Failure, wait_until


def fabric_itself(fabric):
    yield fabric


lifecycle = Group("lifecycle", fabric_itself, after=lambda fabric: fabric.stop_guests())


def expect(condition, what):
    if not condition:
        raise Failure(what)


def nothing_is_left(fabric):
    wait_until(20, "the fabric ends with its last guest", lambda: not fabric.emulators())
    left = [str(path) for path in fabric.folder.glob("vms/*/*") if path.name != "lock"]
    expect(not left, f"files are left: {left}")


@lifecycle.check
def exec_passes_output_and_status_on(fabric):
    """`--exec`: stdout, stderr and status are the command's own, byte for byte; stdin reaches it."""
    data = bytes(range(256)) * 4096
    import subprocess
    done = subprocess.run([fabric.softhca, "vm", "--hcas", "0", "--name", "exec", "--exec",
                           "cat; printf 'a\\0b' >&2; exit 7"],
                          env=fabric.environment, input=data, capture_output=True, timeout=300)
    expect(done.returncode == 7, f"status {done.returncode}, {done.stderr[-500:]}")
    expect(done.stdout == data, f"stdout: {len(done.stdout)} bytes, not what stdin was")
    expect(done.stderr == b"a\0b", f"stderr: {done.stderr!r}")
    nothing_is_left(fabric)


@lifecycle.check
def timeout_ends_the_guest(fabric):
    """`--timeout`: status 124, QEMU and HCAs are gone."""
    done = fabric.softhca_command("vm", "--name", "late", "--timeout", "6", "--exec", "sleep 1000", timeout=60)
    expect(done.status == 124, f"status {done.status}: {done.text}")
    nothing_is_left(fabric)


@lifecycle.check
def several_commands_at_once(fabric):
    """Commands in one guest run side by side; one that is killed takes none along."""
    guest = fabric.guest("many", hcas=0)
    sleeper = guest.start("echo ready; exec sleep 1000")
    sleeper.stdout.readline()
    others = [guest.start(f"sleep 1; echo {i}; exit {i}") for i in range(4)]
    for i, other in enumerate(others):
        out, _ = other.communicate(timeout=60)
        expect((other.returncode, out) == (i, f"{i}\n"), f"{i}: {other.returncode} {out!r}")
    sleeper.kill()
    sleeper.communicate()
    wait_until(20, "the killed client's command is ended", lambda: guest.run("pgrep -x sleep", check=False).status == 1)
    guest.stop()
    nothing_is_left(fabric)


@lifecycle.check
def hot_plug(fabric):
    """`device_add`: the driver takes a second HCA while the first one goes on."""
    guest = fabric.guest("plug", hcas=1)
    wait_for_ports(guest, 1)
    brought_up = fabric.softhca_command("up", "--device-only", "second")
    expect(brought_up.status == 0, brought_up.text)
    guest.plug("second", 1)
    wait_until(60, "two functions", lambda: len(driver_functions(guest)) == 2)
    wait_for_ports(guest)
    expect_no_complaints(guest)
    guest.stop()
    fabric.softhca_command("down", "second")
    nothing_is_left(fabric)


@lifecycle.check
def hot_unplug(fabric):
    """`device_del`: the driver lets go of the HCA, the other one goes on."""
    guest = fabric.guest("unplug", hcas=2)
    wait_for_ports(guest)
    guest.unplug("hca0")
    wait_for_ports(guest, 1)
    expect_no_complaints(guest)
    guest.stop()
    nothing_is_left(fabric)


@lifecycle.check
def killed_guest_leaves_the_others(fabric):
    """kill -9 of a guest's `softhca vm`: its HCA leaves the fabric, another guest goes on."""
    stays = fabric.guest("stays", hcas=1)
    goes = fabric.guest("goes", hcas=1)
    wait_for_ports(stays, 1)
    wait_for_ports(goes, 1)
    expect(fabric.hosts() == ["vm-goes-0", "vm-stays-0"], f"hosts: {fabric.hosts()}")
    goes.process.kill()
    goes.process.communicate()
    wait_until(20, "the killed guest's HCA has left", lambda: fabric.hosts() == ["vm-stays-0"])
    wait_for_ports(stays, 1)
    expect_no_complaints(stays)
    stays.stop()
    nothing_is_left(fabric)


@lifecycle.check
def killed_qemu_detaches(fabric):
    """kill -9 of QEMU alone: `softhca vm` says so, ends with status 1, the HCA has left."""
    guest = fabric.guest("crash", hcas=1)
    children = [int(pid) for pid in os.popen(f"pgrep -P {guest.process.pid} -f qemu-system").read().split()]
    expect(len(children) == 1, f"QEMU processes: {children}")
    os.kill(children[0], signal.SIGKILL)
    output, _ = guest.process.communicate(timeout=30)
    expect(guest.process.returncode == 1 and "signal 9" in output, f"{guest.process.returncode}: {output}")
    nothing_is_left(fabric)


@lifecycle.check
def dead_emulator_and_a_new_one(fabric):
    """kill -9 of the emulator: the guest lives on, its driver reports a fatal health error; a new attach and
    `device_add` bring an HCA back."""
    guest = fabric.guest("orphan", hcas=1)
    wait_for_ports(guest, 1)
    emulator = fabric.control({"command": "ping"})["pid"]
    since = guest.uptime()
    os.kill(emulator, signal.SIGKILL)
    complaints = wait_until(120, "the driver notices", lambda: guest.complaints(since))
    print("    the driver says: " + complaints.splitlines()[0])
    expect("fatal" in complaints or "health" in complaints, complaints)
    brought_up = fabric.softhca_command("up", "--device-only", "vm-orphan-0")
    expect(brought_up.status == 0, brought_up.text)
    guest.plug("vm-orphan-0", 1)
    wait_for_ports(guest, 1)
    guest.stop()
    nothing_is_left(fabric)
