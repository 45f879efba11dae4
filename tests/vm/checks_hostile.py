# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A guest that writes garbage where its driver writes: its HCA fails as hardware would, the other one goes on."""
import re
from pathlib import Path

from check import Group
from checks_driver import driver_functions, wait_for_ports
from checks_verbs import between_hcas, ports
from guests import Failure, wait_until

ABUSED, OTHER = "mlx5_0", "mlx5_1"
SCRIBBLE = "/root/softhca_vm_scribble"
# Offsets in BAR0: the initialization segment and its words, the UAR pages.
CMDQ_ADDRESS_HIGH, CMDQ_ADDRESS_LOW, COMMAND_DOORBELL, HEALTH_SYNDROME = 0x10, 0x14, 0x18, 0x23c
SEGMENT_END, UARS, UARS_END = 0x1000, 0x10000, 0x2000000
# The emulator says why, and does not say it a thousand times.
MOST_LOG_LINES = 60


def guest_with_scribbler(fabric):
    program = Path(fabric.softhca).resolve().parent / "softhca_vm_scribble"
    guest = fabric.guest("hostile", hcas=2, options=("--copy-in", str(program), "--append", "iomem=relaxed",
                                                           "--blue-flame"))
    guest.run(f"chmod +x {SCRIBBLE}")
    wait_for_ports(guest)
    guest.abused = driver_functions(guest)[0]
    yield guest


def emulator_log(guest):
    return (guest.fabric.folder / "emulator.log").read_text(errors="replace").splitlines()


hostile = Group("hostile", guest_with_scribbler)


class Watched:
    """What must hold around any abuse: emulator and other HCA go on, the log stays short."""

    def __init__(self, guest):
        self.guest = guest

    def __enter__(self):
        self.emulator = self.guest.fabric.control({"command": "ping"})["pid"]
        self.lines = len(emulator_log(self.guest))
        return self

    def new_lines(self):
        return emulator_log(self.guest)[self.lines:]

    def __exit__(self, kind, *_):
        if kind is not None:
            return
        reply = self.guest.fabric.control({"command": "ping"})
        if reply is None or reply["pid"] != self.emulator:
            raise Failure("the emulator is not the one it was:\n" + "\n".join(self.new_lines()))
        between_hcas(self.guest, "ibv_rc_pingpong -n 200 -c", devices=(OTHER, OTHER))
        if len(self.new_lines()) > MOST_LOG_LINES:
            raise Failure(f"{len(self.new_lines())} lines of log, the first:\n" + "\n".join(self.new_lines()[:20]))


def bring_back(guest):
    """Reset and bind: the abused HCA works again."""
    device = f"/sys/bus/pci/devices/{guest.abused}"
    guest.run(f"[ ! -e {device}/driver ] || echo {guest.abused} > {device}/driver/unbind", timeout=240)
    guest.run(f"echo 1 > {device}/reset; echo {guest.abused} > /sys/bus/pci/drivers_probe", timeout=240)
    wait_for_ports(guest)
    between_hcas(guest, "ibv_rc_pingpong -n 200 -c", devices=(ABUSED, OTHER))


@hostile.check
def blue_flame(guest):
    """WQEs copied into doorbells (perftest's inline sends) arrive whole, beside plain doorbells of the same pages."""
    hosts = guest.fabric.control({"command": "status"})["hosts"]
    if not hosts or not all(host["blue_flame"] for host in hosts):
        raise Failure(f"BlueFlame is not offered: {hosts}")
    with Watched(guest):
        for command in ("ib_write_lat -s 8 -n 500 -F", "ib_send_lat -s 200 -n 500 -F", "ib_write_bw -s 64 -I 64 -n 2000 -q 4 -F",
                        "ibv_rc_pingpong -n 200 -c"):
            between_hcas(guest, command)


@hostile.check
def garbage_in_send_queues(guest):
    """Random WQEs, plausible and not, in queues mapped into a program: the QPs fail, new ones work."""
    with Watched(guest):
        text = guest.run(f"{SCRIBBLE} queue {ABUSED} 7 400", timeout=240).out
        failed, count = map(int, re.match(r"(\d+) of (\d+) queue pairs failed", text).groups())
        # A NOP is as good a WQE as any, and by chance some queues begin and end with one.
        if failed < count * 8 // 10:
            raise Failure(text)
        between_hcas(guest, "ibv_rc_pingpong -n 200 -c", devices=(ABUSED, OTHER))


@hostile.check
def garbage_in_doorbell_pages(guest):
    """20000 random stores all over the UAR pages, with the driver bound: nothing but noise to the device."""
    with Watched(guest):
        guest.run(f"{SCRIBBLE} bar {guest.abused} {UARS} {UARS_END} 1 20000", timeout=240)
    bring_back(guest)


@hostile.check
def garbage_in_the_initialization_segment(guest):
    """3000 random stores to the initialization segment and command doorbell, with the driver bound."""
    with Watched(guest):
        guest.run(f"{SCRIBBLE} bar {guest.abused} 0 {SEGMENT_END} 2 3000", timeout=240)
    bring_back(guest)


@hostile.check
def command_queue_where_no_memory_is(guest):
    """The command queue at an address without memory: the health buffer has a syndrome, the log a line with the reason."""
    with Watched(guest) as watched:
        guest.run(f"echo {guest.abused} > /sys/bus/pci/drivers/mlx5_core/unbind; "
                  f"echo 1 > /sys/bus/pci/devices/{guest.abused}/reset; setpci -s {guest.abused} COMMAND=6:6", timeout=240)
        for offset, value in ((CMDQ_ADDRESS_HIGH, 0xdead), (CMDQ_ADDRESS_LOW, 0x1000), (COMMAND_DOORBELL, 1)):
            guest.run(f"{SCRIBBLE} word {guest.abused} {offset} {value}")
        wait_until(10, "a health syndrome", lambda: int(
            guest.run(f"{SCRIBBLE} read {guest.abused} {HEALTH_SYNDROME}").out, 0) >> 16 & 0xff)
        if not any("command queue" in line for line in watched.new_lines()):
            raise Failure("the log does not say why:\n" + "\n".join(watched.new_lines()))
    bring_back(guest)


@hostile.check
def garbage_for_a_command_queue(guest):
    """The command queue in the BIOS's code: whatever it reads there is no command, and does no harm."""
    with Watched(guest):
        guest.run(f"echo {guest.abused} > /sys/bus/pci/drivers/mlx5_core/unbind; "
                  f"echo 1 > /sys/bus/pci/devices/{guest.abused}/reset; setpci -s {guest.abused} COMMAND=6:6", timeout=240)
        for page in range(0xe0, 0x100, 4):
            for offset, value in ((CMDQ_ADDRESS_HIGH, 0), (CMDQ_ADDRESS_LOW, page << 12 | 5 << 4 | 6),
                                  (COMMAND_DOORBELL, 0xffffffff)):
                guest.run(f"{SCRIBBLE} word {guest.abused} {offset} {value}")
    bring_back(guest)


@hostile.check
def memory_goes_under_a_running_transfer(guest):
    """Bus mastering off in the middle of a transfer: its requester gives up; on again, all goes on without a reset."""
    port = next(ports)
    with Watched(guest):
        server = guest.start(f"timeout 60 ib_write_bw -d {ABUSED} -p {port} -D 20")
        client = guest.start(f"sleep 3; timeout 60 ib_write_bw -d {OTHER} -p {port} -D 20 localhost")
        guest.run(f"sleep 9; setpci -s {guest.abused} COMMAND=0:4; sleep 12; setpci -s {guest.abused} COMMAND=4:4", timeout=60)
        output, errors = client.communicate(timeout=90)
        server.kill()
        server.communicate()
        if client.returncode == 0 or "Completion with error" not in output + errors:
            raise Failure(f"the transfer: status {client.returncode}\n{output}{errors}")
        guest.run("pkill ib_write_bw", check=False)
        between_hcas(guest, "ibv_rc_pingpong -n 200 -c", devices=(ABUSED, OTHER))
