# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The second door: `softhca run --device` on a HCA that is bound to vfio-pci, in a guest with a virtual IOMMU. The host's
own programs are copied in: Debian 12 in the guest, as on the build machine."""
import re
import subprocess
from pathlib import Path

from check import Group
from checks_driver import wait_for_ports
from checks_matrix import WITH_OURS, expect_provider
from checks_verbs import PERFTESTS, PINGPONGS, UNSTEADY_CLOCK, between_hcas, ports, run_pair
from guests import Failure
from virtual_hosts import BOUND_LINE

FOLDER = "/opt/softhca"
PROGRAM = f"{FOLDER}/bin/softhca"
# The first HCA goes to VFIO, the second stays with the kernel's driver.
DEVICE = "0000:01:00.0"
OTHER = "0000:02:00.0"
# Libraries of the program that the guest's system does not have.
LIBRARIES = re.compile(r"(lib(?:spdlog|fmt)\.so\S*) => (\S+)")

BIND = f"""
set -e
modprobe vfio-pci
echo vfio-pci > /sys/bus/pci/devices/{DEVICE}/driver_override
echo {DEVICE} > /sys/bus/pci/devices/{DEVICE}/driver/unbind
echo {DEVICE} > /sys/bus/pci/drivers_probe
basename $(readlink /sys/bus/pci/devices/{DEVICE}/driver)
"""


def copies(fabric):
    """Options of `softhca vm` that put a built tree into the guest."""
    build = Path(fabric.softhca).resolve().parent.parent
    files = {build / "bin" / "softhca": PROGRAM}
    for name in ("libsofthca-preload.so", "libsofthca-rdmav34.so"):
        files[build / "lib" / name] = f"{FOLDER}/lib/{name}"
    linked = subprocess.run(["ldd", fabric.softhca], capture_output=True, text=True, check=True).stdout
    for name, path in LIBRARIES.findall(linked):
        files[Path(path).resolve()] = f"/usr/lib/x86_64-linux-gnu/{name}"
    return [word for source, target in files.items() for word in ("--copy-in", f"{source}:{target}")]


def guest_with_iommu(fabric):
    guest = fabric.guest("door", hcas=2, kernel="bookworm", options=("--iommu", *copies(fabric)))
    wait_for_ports(guest)
    yield guest


door = Group("second_door", guest_with_iommu)


def refusal(guest, arguments):
    output = guest.run(f"{PROGRAM} run {arguments} -- true", check=False)
    lines = output.err.strip().splitlines()
    if output.status == 0 or len(lines) != 1:
        raise Failure(f"run {arguments}: status {output.status}, not one line:\n{output.text}")
    return lines[0]


@door.check
def the_stock_driver_works_behind_the_iommu(guest):
    """mlx5_core's DMA goes through the virtual IOMMU: vfio-user gets every map of it."""
    if not guest.run(f"readlink /sys/bus/pci/devices/{DEVICE}/iommu_group").out.strip():
        raise Failure("the HCA is in no IOMMU group")
    between_hcas(guest, PINGPONGS["rc_pingpong"])
    between_hcas(guest, PERFTESTS["write_bw"])


@door.check
def our_provider_on_rdma_core_44(guest):
    """Our provider on this guest's stock kernel 6.1 and rdma-core 44."""
    for command in (PINGPONGS["rc_pingpong"], PERFTESTS["write_bw"]):
        expect_provider(between_hcas(guest, command, prefix=WITH_OURS), "softhca")


@door.check
def bad_devices_are_refused(guest):
    """No address, no such device, another driver: one line each that says what to do."""
    for arguments, wanted in (("--device 1:0", "PCI address"), ("--device 0000:7f:00.0", "no PCI device 0000:7f:00.0"),
                              (f"--device {OTHER}", "bound to the driver mlx5_core"),
                              ("--device 0000:00:00.0", "no ConnectX")):
        line = refusal(guest, arguments)
        if wanted not in line:
            raise Failure(f"{wanted!r} is not in: {line}")


@door.check
def binds_to_vfio_pci(guest):
    """The first HCA leaves mlx5_core for vfio-pci; the second stays."""
    driver = guest.run(BIND, timeout=180).out.strip()
    if driver != "vfio-pci":
        raise Failure(f"bound to {driver}")
    wait_for_ports(guest, 1)


@door.check
def ibv_devinfo_through_vfio(guest):
    """`softhca run --device` brings the HCA up: `ibv_devinfo` shows an active port."""
    out = guest.run(f"SOFTHCA_PROVIDER_TRACE=1 {PROGRAM} run --device {DEVICE} -- ibv_devinfo", timeout=180).text
    if "PORT_ACTIVE" not in out or BOUND_LINE["softhca"] not in out:
        raise Failure(out)


def through_vfio(guest, provider, command):
    """Server and client on the one device."""
    prefix = f"env SOFTHCA_PROVIDER_TRACE=1 {PROGRAM} run --device {DEVICE} --provider {provider} -- {command}"
    for attempt in range(4):
        port = next(ports)
        try:
            out = run_pair(guest, f"{prefix} -p {port}", f"{prefix} -p {port} localhost", port, seconds=100)
        except Failure as failure:
            if UNSTEADY_CLOCK not in str(failure) or attempt == 3:
                raise
            continue
        if out.count(BOUND_LINE[provider]) < 2:
            raise Failure(f"not bound to provider {provider}:\n{out}")
        return


def add_applications():
    commands = {name: PINGPONGS[name] for name in ("rc_pingpong", "rc_pingpong_events", "ud_pingpong")}
    commands |= {name: PERFTESTS[name] for name in ("write_bw", "write_bw_all_sizes", "send_bw", "read_bw")}
    for provider in ("softhca", "mlx5"):
        for name, command in commands.items():
            def application(guest, provider=provider, command=command):
                through_vfio(guest, provider, command)
            application.__name__ = f"vfio_{provider}_{name}"
            application.__doc__ = f"`{command}` with both ends on the device behind VFIO, provider {provider}."
            door.check(application)


add_applications()


@door.check
def goes_back_to_the_kernel(guest):
    """When the last program has left, the device can go back to mlx5_core, which finds it as new."""
    guest.run(f"echo > /sys/bus/pci/devices/{DEVICE}/driver_override; "
              f"timeout 60 sh -c 'echo {DEVICE} > /sys/bus/pci/drivers/vfio-pci/unbind'; "
              f"echo {DEVICE} > /sys/bus/pci/drivers_probe", timeout=120)
    wait_for_ports(guest)
