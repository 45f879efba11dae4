# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The stock driver on two HCAs of one guest: probe, queries, unload, reset, reboot."""
import re

from check import Group
from guests import Failure, wait_until

# What the driver says of every healthy HCA, and IPoIB of every change to connected mode.
HARMLESS = re.compile("available PCIe bandwidth|PTM is not supported|will cause multicast packet drops")


def one_guest_two_hcas(fabric, options=()):
    yield fabric.guest("one", hcas=2, options=options)


driver = Group("driver", one_guest_two_hcas)


def expect_no_complaints(guest, since=0):
    lines = [line for line in guest.complaints(since).splitlines() if not HARMLESS.search(line)]
    if lines:
        raise Failure("the kernel complains:\n" + "\n".join(lines))


def wait_for_ports(guest, count=2):
    """Both ports are active (the fabric's subnet manager has brought them up)."""
    wait_until(60, f"{count} active ports",
               lambda: guest.run("cat /sys/class/infiniband/*/ports/1/state 2>/dev/null", check=False).out
               .count("ACTIVE") == count)


def driver_functions(guest):
    """PCI addresses that mlx5_core drives."""
    return guest.run("cd /sys/bus/pci/drivers/mlx5_core && ls -d 0000:*", check=False).out.split()


@driver.check
def probe_is_silent(guest):
    """mlx5_core and mlx5_ib bind both HCAs; the kernel log has no error and no warning."""
    if len(driver_functions(guest)) != 2:
        raise Failure("mlx5_core is not bound to both:\n" + guest.run("lspci -k; dmesg | grep mlx5", check=False).out)
    wait_for_ports(guest)
    expect_no_complaints(guest)


@driver.check
def ibv_devinfo_shows_a_connectx(guest):
    """`ibv_devinfo -v` lists both HCAs with an active InfiniBand port."""
    out = guest.run("ibv_devinfo -v").out
    for wanted in ("hca_id:\tmlx5_0", "hca_id:\tmlx5_1", "vendor_part_id:\t\t\t4121", "link_layer:\t\tInfiniBand"):
        if wanted not in out:
            raise Failure(f"no {wanted!r} in:\n{out}")
    if out.count("PORT_ACTIVE (4)") != 2:
        raise Failure("not two active ports:\n" + out)


@driver.check
def ibstat_shows_active_ports(guest):
    """`ibstat` (through ib_umad) shows both ports active with a LID of their own."""
    out = guest.run("ibstat").out
    lids = re.findall(r"Base lid: (\d+)", out)
    if out.count("State: Active") != 2 or len(set(lids)) != 2 or "0" in lids:
        raise Failure(out)


@driver.check
def rdma_tool_lists_links_and_resources(guest):
    """`rdma link` and `rdma resource` answer for both devices."""
    link = guest.run("rdma link").out
    if link.count("state ACTIVE") != 2:
        raise Failure(link)
    resources = guest.run("rdma resource show").out
    if not re.search(r"mlx5_0: .*\bqp [1-9]", resources):
        raise Failure(resources)
    guest.run("rdma resource show qp")
    guest.run("rdma resource show mr")


@driver.check
def rdma_statistic_shows_counters(guest):
    """`rdma statistic` shows the hardware counters of a port."""
    out = guest.run("rdma statistic show link mlx5_0/1").out
    for counter in ("rx_write_requests", "out_of_buffer", "out_of_sequence", "packet_seq_err", "resp_cqe_flush_error"):
        if counter not in out:
            raise Failure(f"no {counter} in:\n{out}")


@driver.check
def msix_vectors_suffice(guest):
    """Every CPU has a completion vector of its own beside the driver's."""
    for bdf in driver_functions(guest):
        vectors = int(guest.run(f"ls /sys/bus/pci/devices/{bdf}/msi_irqs | wc -l").out)
        table = guest.run(f"lspci -s {bdf} -vv | grep 'MSI-X: Enable+'").out
        count = int(re.search(r"Count=(\d+)", table).group(1))
        if count < int(guest.run("nproc").out) + 1 or vectors < 1:
            raise Failure(f"{bdf}: {vectors} vectors in use, {table}")


@driver.check
def health_is_polled(guest):
    """Ten seconds of health polls bring no complaint."""
    since = guest.uptime()
    guest.run("sleep 10")
    expect_no_complaints(guest, since)


@driver.check
def modules_unload_and_probe_again(guest):
    """`modprobe -r mlx5_ib mlx5_core`, then `modprobe mlx5_ib`: both ports come back."""
    since = guest.uptime()
    guest.run("modprobe -r ib_ipoib rdma_ucm; modprobe -r mlx5_ib mlx5_core", timeout=180)
    if guest.run("ls /sys/class/infiniband 2>/dev/null", check=False).out.strip():
        raise Failure("devices are left without a driver")
    guest.run("modprobe -a mlx5_ib ib_uverbs ib_umad rdma_ucm ib_ipoib", timeout=180)
    wait_for_ports(guest)
    expect_no_complaints(guest, since)


@driver.check
def unbind_and_bind_one(guest):
    """unbind and bind of one function leave the other one alone."""
    since = guest.uptime()
    first = driver_functions(guest)[0]
    guest.run(f"echo {first} > /sys/bus/pci/drivers/mlx5_core/unbind", timeout=120)
    wait_for_ports(guest, 1)
    guest.run(f"echo {first} > /sys/bus/pci/drivers/mlx5_core/bind", timeout=120)
    wait_for_ports(guest)
    expect_no_complaints(guest, since)


@driver.check
def function_level_reset(guest):
    """`echo 1 > reset` with the driver unbound, then bind: as after power on."""
    since = guest.uptime()
    first = driver_functions(guest)[0]
    guest.run(f"echo {first} > /sys/bus/pci/drivers/mlx5_core/unbind", timeout=120)
    guest.run(f"echo 1 > /sys/bus/pci/devices/{first}/reset")
    guest.run(f"echo {first} > /sys/bus/pci/drivers/mlx5_core/bind", timeout=120)
    wait_for_ports(guest)
    expect_no_complaints(guest, since)


@driver.check
def guest_reboots(guest):
    """After `reboot` in the guest both HCAs probe again without a complaint."""
    guest.reboot()
    wait_for_ports(guest)
    expect_no_complaints(guest)


@driver.check
def reset_under_the_driver(guest):
    """`echo 1 > reset` with the driver bound: it quiesces, the function resets, the driver comes back."""
    first = driver_functions(guest)[0]
    guest.run(f"echo 1 > /sys/bus/pci/devices/{first}/reset", timeout=180)
    wait_for_ports(guest)
    guest.run("timeout 60 ibv_devinfo -d mlx5_0", timeout=90)
