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
    """`perfquery` of both HCAs."""
    for lid in lids(guest):
        out = guest.run(f"perfquery -C mlx5_0 {lid} 1").out
        if "PortXmitData" not in out:
            raise Failure(out)


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
    guest.run(SET_UP_NAMESPACES)
    wait_until(60, "both interfaces have a carrier", lambda: guest.run(
        "cat /sys/class/net/ib0/operstate; ip netns exec other cat /sys/class/net/ib1/operstate", check=False).out
        == "up\nup\n")


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


@ipoib.check
def iperf3_datagram(guest):
    """iperf3 over IPoIB in datagram mode."""
    guest.run("ip netns exec other iperf3 -s -1 >/tmp/iperf 2>&1 & sleep 2; timeout 40 iperf3 -c 192.168.7.2 -t 5",
              timeout=80)


@ipoib.check
def connected_mode(guest):
    """Connected mode: ping with the MTU of 65520, iperf3."""
    guest.run("set -e; echo connected >/sys/class/net/ib0/mode; ip link set ib0 mtu 65520; "
              "ip netns exec other sh -c 'echo connected >/sys/class/net/ib1/mode'; ip -n other link set ib1 mtu 65520; "
              "ping -c 3 -W 5 -s 65000 192.168.7.2")
    guest.run("ip netns exec other iperf3 -s -1 >/tmp/iperf 2>&1 & sleep 2; timeout 40 iperf3 -c 192.168.7.2 -t 5; "
              "status=$?; echo datagram >/sys/class/net/ib0/mode; "
              "ip netns exec other sh -c 'echo datagram >/sys/class/net/ib1/mode'; exit $status", timeout=80)


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
