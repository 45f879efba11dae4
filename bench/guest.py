# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rows taken within one guest: Debian's mlx5 driver and libmlx5 on two HCAs, beside the kernel's own software RDMA
(rdma_rxe) on the same perftest and fio lines."""
import contextlib
import json
import re

from checks_driver import wait_for_ports
from checks_verbs import ATTEMPTS, between_hcas
from guests import Failure, GuestFabric, wait_until
from rows import Row

OURS = ("mlx5_0", "mlx5_1")
# To itself: rdma_rxe then hands packets over without a network device in between, the fastest that it is.
RXE = ("rxe0", "rxe0")
MIB = 1 << 20
# On a device whose MTU lets rdma_rxe have packets as large as ours.
SET_UP_RXE = """
set -e
ip link add rxenet mtu 9000 type dummy
ip address add 192.168.9.1/24 dev rxenet
ip link set rxenet up
modprobe rdma_rxe
rdma link add rxe0 type rxe netdev rxenet
"""
# The kernel's NVMe initiator and target know the first network namespace alone. Rules keep traffic between the
# addresses of two interfaces of one machine on the wire: the local table comes last, and either address is found
# behind the other interface.
SET_UP_IPOIB = """
set -e
for setting in accept_local=1 rp_filter=0 arp_ignore=1 arp_announce=2; do
  for scope in all ib0 ib1; do sysctl -qw net.ipv4.conf.$scope.$setting; done
done
ip address add 192.168.7.1/24 dev ib0
ip address add 192.168.7.2/24 dev ib1
ip link set ib0 up
ip link set ib1 up
ip route add 192.168.7.1 dev ib1 src 192.168.7.2 table 101
ip route add 192.168.7.2 dev ib0 src 192.168.7.1 table 102
ip rule add pref 10 iif lo from 192.168.7.2 to 192.168.7.1 lookup 101
ip rule add pref 11 iif lo from 192.168.7.1 to 192.168.7.2 lookup 102
ip rule add pref 12 iif ib1 to 192.168.7.1 lookup 101
ip rule add pref 13 iif ib0 to 192.168.7.2 lookup 102
ip rule add pref 100 lookup local
ip rule del pref 0
"""
SET_UP_NVME = """
set -e
modprobe -a brd nvmet nvmet-rdma nvme-rdma
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
cd /sys/kernel/config/nvmet
id=1
for target in ours=192.168.7.1 rxe=192.168.9.1; do
  name=${target%%=*}
  mkdir subsystems/$name subsystems/$name/namespaces/1 ports/$id
  echo 1 > subsystems/$name/attr_allow_any_host
  echo -n /dev/ram$id > subsystems/$name/namespaces/1/device_path
  echo 1 > subsystems/$name/namespaces/1/enable
  echo rdma > ports/$id/addr_trtype
  echo ipv4 > ports/$id/addr_adrfam
  echo ${target#*=} > ports/$id/addr_traddr
  echo 4420 > ports/$id/addr_trsvcid
  ln -s $PWD/subsystems/$name ports/$id/subsystems/$name
  id=$((id + 1))
done
nvme connect -t rdma -a 192.168.7.1 -w 192.168.7.2 -s 4420 -n ours
nvme connect -t rdma -a 192.168.9.1 -s 4420 -n rxe
"""
FIO = ("fio --name=reads --filename={disk} --direct=1 --ioengine=libaio --iodepth=32 --rw=randread --bs=4k "
       "--time_based --runtime={seconds} --output-format=json")


class GuestBench:
    """Measurements in a guest; each takes the devices of its two ends."""

    def __init__(self, guest, scale):
        self.guest, self.scale = guest, scale

    def perftest(self, devices, command, column):
        """A number of the last row of perftest's table. The same line on both: of packets of 4096 bytes."""
        for _ in range(ATTEMPTS):
            out = between_hcas(self.guest, f"{command} -F -m 4096", devices, seconds=100)
            client = out.split("--- server")[0]
            rows = [row.split() for row in client.splitlines() if re.match(r"^\s*\d+\s+\d+\s+[\d.]+", row)]
            # Its measure of the clock goes wrong on a busy machine: figures are then 0.
            if rows and len(rows[-1]) > column and float(rows[-1][column]) > 0:
                return float(rows[-1][column])
        raise Failure(f"{command} on {devices[0]} gives no figure:\n{out}")

    def bandwidth(self, devices, tool, size):
        # rdma_rxe moves some tens of MB a second here: few messages, and a completion for each.
        count = max(32, 32 * MIB // size) // self.scale
        return self.perftest(devices, f"{tool} -s {size} -n {count} -t 16 -Q 1", 3) * MIB / 1e9  # average

    def write_latency(self, devices):
        return self.perftest(devices, f"ib_write_lat -s 8 -n {1000 // self.scale}", 4)  # t_typical

    def random_reads(self, name):
        """Thousands of reads a second of an NVMe over Fabrics disk."""
        disk = self.guest.run(f"for disk in /sys/block/nvme?n1; do grep -qx {name} $disk/device/subsysnqn && "
                              "echo /dev/${disk##*/}; done", check=False).out.strip()
        out = self.guest.run(FIO.format(disk=disk, seconds=max(1, 6 // self.scale)), timeout=120).out
        return json.loads(out[out.index("{"):])["jobs"][0]["read"]["iops"] / 1000

    def set_up_disks(self):
        self.guest.run(SET_UP_IPOIB, timeout=60)
        wait_until(60, "IPoIB has carriers", lambda: self.guest.run(
            "cat /sys/class/net/ib[01]/operstate", check=False).out == "up\nup\n")
        self.guest.run(SET_UP_NVME, timeout=180)

    def perftest_rows(self):
        rows = []
        for size, target in ((65536, 20), (MIB, 40)):
            for tool in ("ib_write_bw", "ib_read_bw", "ib_send_bw"):
                name = f"guest: {tool} {size // 1024} KiB"
                rows.append(self.row(11, name, "GB/s", lambda devices, t=tool, s=size: self.bandwidth(devices, t, s),
                                     ">=", target))
        rows.append(self.row(12, "guest: ib_write_lat 8 B", "us", self.write_latency, "<=", 0.15))
        return rows

    def disk_rows(self):
        return [Row(13, "guest: NVMe-oF, 4 KiB random reads", "k/s", lambda: self.random_reads("ours"), "rdma_rxe",
                    lambda: self.random_reads("rxe"), ">=", 3)]

    @staticmethod
    def row(number, name, unit, measure, relation, target):
        return Row(number, name, unit, lambda: measure(OURS), "rdma_rxe", lambda: measure(RXE), relation, target)


@contextlib.contextmanager
def ready_guest(softhca, scale, options=()):
    """A guest with two HCAs, which is up meanwhile."""
    with GuestFabric(softhca) as fabric:
        guest = fabric.guest("bench", hcas=2, options=options)
        wait_for_ports(guest)
        guest.run(SET_UP_RXE, timeout=60)
        yield GuestBench(guest, scale)


@contextlib.contextmanager
def perftest_in_guest(softhca, scale):
    """Rows 11 and 12."""
    with ready_guest(softhca, scale) as bench:
        yield bench.perftest_rows()


@contextlib.contextmanager
def disks_in_guest(softhca, scale):
    """Row 13: with doorbell pages that the emulator looks at from time to time, so that it finds many requests at once."""
    with ready_guest(softhca, scale, ("--mapped-uars",)) as bench:
        bench.set_up_disks()
        yield bench.disk_rows()
