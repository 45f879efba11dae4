# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""umad tools, IPoIB and RDMA CM between two HCAs of one guest; with the built-in subnet manager, then with OpenSM.

The second HCA's IPoIB interface lives in a network namespace, so that traffic crosses the fabric."""
import re

from check import Group
from checks_driver import expect_no_complaints, one_guest_two_hcas, wait_for_ports
from checks_verbs import run_pair
from guests import Failure, wait_until

SET_UP_NAMESPACES = """
set -e
ip netns add other
ip link set ib1 netns other
ip address add 192.168.7.1/24 dev ib0
ip link set ib0 up
ip -n other address add 192.168.7.2/24 dev ib1
ip -n other link set ib1 up
ip -n other link set lo up
"""


def ipoib_guest(fabric):
    for guest in one_guest_two_hcas(fabric):
        wait_for_ports(guest)
        yield guest


umad = Group("umad", ipoib_guest)


def lids(guest):
    return [int(text, 16) for text in guest.run("cat /sys/class/infiniband/mlx5_[01]/ports/1/lid").out.split()]


@umad.check
def smpquery_answers(guest):
    """`smpquery`: NodeInfo and PortInfo of the own and of the other HCA, by LID and by directed route."""
    own, other = lids(guest)
    for arguments in (f"nodeinfo {own}", f"nodeinfo {other}", f"portinfo {other} 1", "-D nodeinfo 0", "-D nodeinfo 0,1",
                      f"nodedesc {other}"):
        guest.run(f"smpquery -C mlx5_0 {arguments}")


@umad.check
def perfquery_answers(guest):
    """`perfquery` of both HCAs from each of them: the own port and the other, narrow and wide counters, reset."""
    for device in ("mlx5_0", "mlx5_1"):
        for arguments in ("", "-x", *(f"{option} {lid} 1" for lid in lids(guest) for option in ("", "-x"))):
            out = guest.run(f"perfquery -C {device} {arguments}", timeout=120).out
            if "PortXmitData" not in out:
                raise Failure(out)
    guest.run("perfquery -C mlx5_0 -R", timeout=120)


# Sets the M_Key of a port of the first HCA by an SMP of its own; arguments: LID, current key, new key, protection level.
SET_M_KEY = r"""
import fcntl, os, struct, sys
lid, current, new, level = (int(text, 0) for text in sys.argv[1:])
ENABLE_PKEY, REGISTER = 0x1b03, 0xc01c1b01
umad = os.open("/dev/infiniband/umad0", os.O_RDWR)
fcntl.ioctl(umad, ENABLE_PKEY)
request = bytearray(struct.pack("<I16x7Bx", 0, 0, 1, 1, 0, 0, 0, 0))  # QP0, class 1, version 1
fcntl.ioctl(umad, REGISTER, request)
agent = struct.unpack_from("<I", request)[0]

def ask(method, data):
    header = struct.pack("<5I", agent, 0, 1000, 3, 0) + struct.pack(">IIHBBBBBB", 0, 0, lid, 0, 0, 0, 0, 0, 0)
    mad = struct.pack(">BBBBHHQHHIQ", 1, 1, 1, method, 0, 0, 1, 0x15, 0, 1, current).ljust(64, bytes(1)) + data
    os.write(umad, header.ljust(64, bytes(1)) + mad.ljust(256, bytes(1)))
    answer = os.read(umad, 64 + 256)
    status = struct.unpack_from("<I", answer, 4)[0]
    mad_status = struct.unpack_from(">H", answer, 64 + 4)[0]
    if status or mad_status:
        sys.exit(f"method {method}: status {status}, {mad_status:#x}")
    return answer[128:192]

info = bytearray(ask(1, bytes(64)))
info[0:8] = struct.pack(">Q", new)
info[32] &= 0xf0                             # PortState: no change
info[33] &= 0x0f                             # PortPhysicalState: no change
info[34] = info[34] & 0x3f | level << 6      # M_KeyProtectBits
ask(2, bytes(info))
"""
M_KEY = 0x1122334455667788


@umad.check
def m_key_protects_the_port(guest):
    """With an M_Key at protection level 2 the port's agent, which MAD_IFC asks, answers only who knows it; what the
    driver itself reads is not concerned."""
    own, _ = lids(guest)
    guest.put("/tmp/m_key.py", SET_M_KEY)
    guest.run(f"python3 /tmp/m_key.py {own} 0 {M_KEY} 2")
    try:
        guest.run(f"smpquery -C mlx5_0 -y {M_KEY:#x} portinfo {own} 1", timeout=120)
        refused = guest.run(f"smpquery -C mlx5_0 portinfo {own} 1", timeout=120, check=False)
        if refused.status == 0:
            raise Failure("an answer without the M_Key:\n" + refused.out)
        guest.run("ibstat mlx5_0; cat /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data")
    finally:
        guest.run(f"python3 /tmp/m_key.py {own} {M_KEY} 0 0")
    guest.run(f"smpquery -C mlx5_0 portinfo {own} 1", timeout=120)


@umad.check
def ibnetdiscover_finds_all(guest):
    """`ibnetdiscover` finds two HCAs and the switch."""
    out = guest.run("ibnetdiscover -C mlx5_0").out
    if len(re.findall(r"^Ca\s", out, re.M)) != 2 or len(re.findall(r"^Switch\s", out, re.M)) != 1:
        raise Failure(out)


@umad.check
def saquery_answers(guest):
    """`saquery`: node and path records from the subnet administrator."""
    own, other = lids(guest)
    guest.run("saquery -C mlx5_0")
    out = guest.run(f"saquery -C mlx5_0 -p --src-to-dst {own}:{other}").out
    if "PathRecord" not in out:
        raise Failure(out)


@umad.check
def sminfo_and_ibping(guest):
    """`sminfo`; `ibping` from one HCA to the other."""
    guest.run("sminfo -C mlx5_0")
    _, other = lids(guest)
    guest.run(f"ibping -S -C mlx5_1 & server=$!; sleep 1; ibping -c 3 -C mlx5_0 {other}; status=$?; kill $server; "
              "exit $status")


ipoib = Group("ipoib", ipoib_guest)


@ipoib.check
def interfaces_come_up(guest):
    """Both IPoIB interfaces join their multicast groups and get a carrier."""
    set_up_interfaces(guest)


@ipoib.check
def ping_datagram(guest):
    """ping in datagram mode, small and as large as the MTU."""
    mtu = int(guest.run("cat /sys/class/net/ib0/mtu").out)
    guest.run("ping -c 3 -W 5 192.168.7.2")
    guest.run(f"ping -c 3 -W 5 -M do -s {mtu - 28} 192.168.7.2")


@ipoib.check
def ping_ipv6(guest):
    """ping over IPv6 link-local addresses (all-nodes multicast, neighbour discovery)."""
    wait_until(20, "ib1 has an IPv6 address", lambda: guest.run(
        "ip -n other -6 -o address show ib1 scope link -tentative", check=False).out)
    guest.run("address=$(ip -n other -6 -o address show ib1 scope link | sed 's/.*inet6 \\([^/]*\\).*/\\1/'); "
              "ping -c 3 -W 5 $address%ib0")


def set_up_interfaces(guest):
    guest.run(SET_UP_NAMESPACES)
    wait_until(60, "both interfaces have a carrier", lambda: guest.run(
        "cat /sys/class/net/ib0/operstate; ip netns exec other cat /sys/class/net/ib1/operstate", check=False).out
        == "up\nup\n")


def both_interfaces(guest, mode, mtu):
    guest.run(f"set -e; echo {mode} >/sys/class/net/ib0/mode; ip link set ib0 mtu {mtu}; "
              f"ip netns exec other sh -c 'echo {mode} >/sys/class/net/ib1/mode'; ip -n other link set ib1 mtu {mtu}")


def ping_and_iperf(guest, mtu):
    """Packets as large as the MTU, not fragmented, and a TCP stream."""
    guest.run(f"ping -c 3 -W 5 -M do -s {mtu - 28} 192.168.7.2")
    guest.run("ip netns exec other iperf3 -s -1 >/tmp/iperf 2>&1 & sleep 2; timeout 40 iperf3 -c 192.168.7.2 -t 4",
              timeout=80)


def add_mtu_checks(group):
    for mode, mtu in (("datagram", 2044), ("datagram", 4092), ("connected", 65520)):
        def at_mtu(guest, mode=mode, mtu=mtu):
            both_interfaces(guest, mode, mtu)
            try:
                ping_and_iperf(guest, mtu)
            finally:
                both_interfaces(guest, "datagram", 2044)
        at_mtu.__name__ = f"{mode}_mtu_{mtu}"
        at_mtu.__doc__ = f"IPoIB in {mode} mode with an MTU of {mtu}: ping with full packets, iperf3."
        group.check(at_mtu)


add_mtu_checks(ipoib)


def add_cm_checks():
    commands = {
        "rping": ("rping -s -a 192.168.7.2 -C 20 -v", "rping -c -a 192.168.7.2 -C 20 -v"),
        "ucmatose": ("ucmatose -b 192.168.7.2", "ucmatose -s 192.168.7.2"),
        "udaddy": ("udaddy -b 192.168.7.2", "udaddy -s 192.168.7.2"),
        "cm_write_bw": ("ib_write_bw -R -n 200 -d mlx5_1", "ib_write_bw -R -n 200 -d mlx5_0 192.168.7.2"),
        "cm_send_lat": ("ib_send_lat -R -n 200 -d mlx5_1", "ib_send_lat -R -n 200 -d mlx5_0 192.168.7.2"),
    }
    for name, (server, client) in commands.items():
        def application(guest, server=server, client=client):
            # Servers of RDMA CM listen on no TCP port.
            run_pair(guest, f"ip netns exec other {server}", client, 0, seconds=40)
        application.__name__ = name
        application.__doc__ = f"`{client}` over RDMA CM."
        ipoib.check(application)


add_cm_checks()


@ipoib.check
def ipoib_is_silent(guest):
    """After all that the kernel log has no complaint."""
    expect_no_complaints(guest)


opensm = Group("opensm", ipoib_guest)

# MTU 4096 for IPoIB's broadcast group, which OpenSM itself would give 2048.
PARTITIONS = "Default=0x7fff, ipoib, mtu=5 : ALL=full ;\n"
OPENSM = "opensm -B -f /tmp/opensm.log -F /tmp/opensm.conf -P /tmp/partitions.conf"
# mlx5_ib keeps the answers to traps to itself, so OpenSM misses those to the one that it sends to the former master.
TRAP_ANSWERS = "ERR 5410|ERR 3113"


def start_opensm(guest):
    """OpenSM on the first HCA; returns when it is the master of a subnet that is up."""
    guest.put("/tmp/partitions.conf", PARTITIONS)
    guest.put("/tmp/opensm.conf", "force_log_flush TRUE\n")
    guest.run(OPENSM, timeout=60)
    own, _ = lids(guest)
    wait_until(60, "OpenSM is master", lambda: re.search(
        rf"sm lid {own} .*SMINFO_MASTER", guest.run("sminfo -C mlx5_1", check=False).out))
    wait_until(60, "OpenSM says SUBNET UP", lambda: "SUBNET UP" in guest.run("cat /tmp/opensm.log", check=False).out)
    wait_for_ports(guest)


def stop_opensm(guest):
    guest.run("pkill opensm; while pgrep opensm >/dev/null; do sleep 0.2; done", timeout=60)


@opensm.check
def opensm_takes_over(guest):
    """OpenSM in the guest becomes the master, the built-in manager stands by; the ports stay active."""
    start_opensm(guest)
    own, other = lids(guest)
    out = guest.run(f"saquery -C mlx5_1 -p --src-to-dst {other}:{own}", timeout=120).out
    if "PathRecord" not in out:
        raise Failure(out)
    errors = guest.run(f"grep -E ' ERR [0-9A-F]{{4}}' /tmp/opensm.log | grep -vE '{TRAP_ANSWERS}'", check=False).out
    if errors:
        raise Failure("OpenSM complains:\n" + errors)


@opensm.check
def interfaces_come_up_under_opensm(guest):
    """IPoIB joins the groups of OpenSM's subnet administrator."""
    set_up_interfaces(guest)


add_mtu_checks(opensm)


@opensm.check
def cm_under_opensm(guest):
    """`rping` with paths of OpenSM."""
    run_pair(guest, "ip netns exec other rping -s -a 192.168.7.2 -C 20 -v", "rping -c -a 192.168.7.2 -C 20 -v", 0)


@opensm.check
def built_in_manager_takes_over_again(guest):
    """OpenSM ends: the built-in manager is master again, traffic goes on."""
    stop_opensm(guest)
    wait_until(60, "the built-in manager is master", lambda: re.search(
        r"sm lid 1 .*SMINFO_MASTER", guest.run("sminfo -C mlx5_0 1", check=False).out))
    wait_for_ports(guest)
    guest.run("ping -c 3 -W 5 192.168.7.2")
