# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Debian's verbs applications with stock libmlx5: within one guest, between guests, and to the host."""
import itertools
import json
import re

from check import Group
from checks_driver import expect_no_complaints, one_guest_two_hcas, wait_for_ports
from guests import Failure, free_port, wait_until

# perftest measures the CPU's clock first and gives up when that varies, as it does on a busy machine.
UNSTEADY_CLOCK = "Correlation coefficient"
ATTEMPTS = 4

ports = itertools.count(18600)

# Runs a server, waits until it listens on the TCP port (port 0: some seconds), runs its client; output of both, status
# of the worse.
PAIR = """
timeout {seconds} {server} >/tmp/server.log 2>&1 & server=$!
[ {port} != 0 ] || sleep 3
for i in $(seq 100); do [ {port} != 0 ] || break; ss -Hltn "sport = :{port}" | grep -q . && break; kill -0 $server 2>/dev/null || break; sleep 0.1; done
timeout {seconds} {client}; status=$?
[ $status = 0 ] || kill $server 2>/dev/null
wait $server; other=$?
echo "--- server ($other):"; cat /tmp/server.log
[ $status != 0 ] || status=$other
exit $status
"""


def run_pair(guest, server, client, port, seconds=40):
    return guest.run(PAIR.format(server=server, client=client, port=port, seconds=seconds), timeout=2 * seconds + 30,
                     shown=client).text


def between_hcas(guest, command, devices=("mlx5_0", "mlx5_1"), seconds=100, prefix="", client_prefix=None):
    """The same command as server on one HCA and client on the other; what both wrote. The prefixes go before the
    commands, the server's also before the client's if that has none."""
    if client_prefix is None:
        client_prefix = prefix
    for attempt in range(ATTEMPTS):
        port = next(ports)
        try:
            return run_pair(guest, f"{prefix} {command} -d {devices[0]} -p {port}",
                            f"{client_prefix} {command} -d {devices[1]} -p {port} localhost", port, seconds)
        except Failure as failure:
            if UNSTEADY_CLOCK not in str(failure) or attempt + 1 == ATTEMPTS:
                raise


def ready_guest(fabric):
    for guest in one_guest_two_hcas(fabric):
        wait_for_ports(guest)
        yield guest


def ready_guest_with_mapped_pages(fabric):
    for guest in one_guest_two_hcas(fabric, ("--mapped-uars",)):
        wait_for_ports(guest)
        yield guest


verbs = Group("verbs", ready_guest)
mapped = Group("mapped", ready_guest_with_mapped_pages)

# Check name, its command.
PINGPONGS = {
    "rc_pingpong": "ibv_rc_pingpong -n 200 -c",
    "rc_pingpong_events": "ibv_rc_pingpong -n 200 -e -c",
    "uc_pingpong": "ibv_uc_pingpong -n 200",
    "ud_pingpong": "ibv_ud_pingpong -n 200 -s 1024",
    "srq_pingpong": "ibv_srq_pingpong -n 200 -c",
    "xsrq_pingpong": "ibv_xsrq_pingpong -n 200",
    "rc_pingpong_extended_cq": "ibv_rc_pingpong -n 200 -t",
}
PERFTESTS = {
    "write_bw": "ib_write_bw -n 300",
    "write_bw_all_sizes": "ib_write_bw -a -n 20",
    "write_bw_many_qps": "ib_write_bw -n 100 -q 16",
    "write_bw_bidirectional": "ib_write_bw -n 200 -b",
    "write_bw_uc": "ib_write_bw -n 200 -c UC",
    "read_bw": "ib_read_bw -n 300",
    "send_bw": "ib_send_bw -n 300",
    "send_bw_events": "ib_send_bw -n 300 -e",
    "send_bw_ud": "ib_send_bw -n 300 -c UD",
    "send_bw_srq": "ib_send_bw -n 200 --use-srq -q 2",
    "atomic_bw_fetch_and_add": "ib_atomic_bw -n 200 -A FETCH_AND_ADD",
    "write_lat": "ib_write_lat -n 200",
    "write_lat_inline": "ib_write_lat -n 200 -I 64 -s 32",
    "read_lat": "ib_read_lat -n 200",
    "send_lat": "ib_send_lat -n 200",
    "atomic_lat_compare_and_swap": "ib_atomic_lat -n 200 -A CMP_AND_SWAP",
}


def add_application_checks(group, commands):
    for name, command in commands.items():
        def application(guest, command=command):
            between_hcas(guest, command)
        application.__name__ = name
        application.__doc__ = f"`{command}` between the two HCAs of a guest."
        group.check(application)


add_application_checks(verbs, {**PINGPONGS, **PERFTESTS})
# Doorbells that nobody traps: events, and every service.
add_application_checks(mapped, {**PINGPONGS, **{name: PERFTESTS[name] for name in (
    "write_bw", "write_bw_many_qps", "send_bw", "send_bw_events", "read_lat")}})


@verbs.check
def one_hca_to_itself(guest):
    """`ib_write_bw` with both ends on one HCA."""
    between_hcas(guest, "ib_write_bw -n 200", ("mlx5_0", "mlx5_0"))


@verbs.check
def counters_count(guest):
    """sysfs counters of the port have counted the traffic."""
    sent = int(guest.run("cat /sys/class/infiniband/mlx5_1/ports/1/counters/port_xmit_data").out)
    if sent == 0:
        raise Failure("port_xmit_data is 0")


def hardware_counters(guest, device):
    """Q counters of the port's default set, by name."""
    out = guest.run(f"rdma -j statistic show link {device}/1").out
    return json.loads(out)[0]


@verbs.check
def q_counters_count(guest):
    """`rdma statistic` and sysfs show the requests that the HCA has received, and errors of none that went well."""
    between_hcas(guest, "ib_write_bw -n 200")
    between_hcas(guest, "ib_read_bw -n 200")
    between_hcas(guest, "ib_atomic_bw -n 200")
    before = hardware_counters(guest, "mlx5_0")
    for name in ("rx_write_requests", "rx_read_requests", "rx_atomic_requests"):
        if before[name] < 200:
            raise Failure(f"{name}: {before}")
    for name in ("packet_seq_err", "resp_remote_access_errors", "req_remote_access_errors"):
        if before[name] != 0:
            raise Failure(f"{name}: {before}")
    between_hcas(guest, "ib_write_bw -n 200")
    after = hardware_counters(guest, "mlx5_0")
    if after["rx_write_requests"] < before["rx_write_requests"] + 200:
        raise Failure(f"200 writes and more are not counted: {before['rx_write_requests']}, {after['rx_write_requests']}")
    sysfs = int(guest.run("cat /sys/class/infiniband/mlx5_0/ports/1/hw_counters/rx_write_requests").out)
    if sysfs < after["rx_write_requests"]:
        raise Failure(f"sysfs {sysfs}, rdma {after}")


# A QP of its own set: its counts while it lives, its share of the port's when it is gone.
COUNTED_QP = """
set -e
rdma statistic qp set link mlx5_0/1 auto type on
ib_write_bw -d mlx5_0 -p {port} -D 12 >/dev/null 2>&1 & server=$!
for i in $(seq 100); do ss -Hltn "sport = :{port}" | grep -q . && break; sleep 0.1; done
ib_write_bw -d mlx5_1 -p {port} -D 12 localhost >/dev/null 2>&1 & client=$!
for i in $(seq 40); do
  rdma -j statistic qp show link mlx5_0/1 >/tmp/qp
  grep -q '"rx_write_requests":[1-9]' /tmp/qp && break
  sleep 0.5
done
cat /tmp/qp
wait $client || true
wait $server || true
rdma statistic qp set link mlx5_0/1 auto off
"""


@verbs.check
def a_qp_has_counters_of_its_own(guest):
    """`rdma statistic qp`: automatic mode gives the QPs of a type a counter set, which counts them alone."""
    out = guest.run(COUNTED_QP.format(port=next(ports)), timeout=120).out
    sets = json.loads(out)
    if not any(counted.get("rx_write_requests", 0) > 0 for counted in sets):
        raise Failure(out)


@verbs.check
def no_command_fails(guest):
    """None of the commands that the driver has given so far was refused by the device (debugfs of mlx5_core)."""
    out = guest.run("mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug; "
                    "cd /sys/kernel/debug/mlx5; grep -rv '^0$' --include=failed --include=failed_mbox_status . || true").out
    if out:
        raise Failure(out)


@verbs.check
@mapped.check
def data_path_is_silent(guest):
    """After all that the kernel log has no complaint."""
    expect_no_complaints(guest)


def two_guests(fabric):
    forwarded = free_port()
    server = fabric.guest("alice", hcas=1, options=("--forward", f"{forwarded}:18515"))
    client = fabric.guest("bob", hcas=1)
    for guest in (server, client):
        wait_for_ports(guest, 1)
    yield fabric, server, client, forwarded


pairs = Group("pairs", two_guests)


def between_guests(guests, command, seconds=60):
    """Server in one guest; the client in the other reaches its TCP port through this machine."""
    _, server, client, forwarded = guests
    serving = server.start(f"timeout {seconds} {command} -p 18515")
    try:
        wait_until(seconds, "the server listens",
                   lambda: server.run("ss -Hltn 'sport = :18515'").out.strip() or serving.poll() is not None)
        output = client.run(f"timeout {seconds} {command} -p {forwarded} 10.0.2.2", timeout=seconds + 20).out
        out, err = serving.communicate(timeout=seconds)
        if serving.returncode != 0:
            raise Failure(f"server of {command}: status {serving.returncode}\n{out}{err}")
        return output
    finally:
        if serving.poll() is None:
            serving.kill()
            serving.communicate()


@pairs.check
def guests_write_bw_all_sizes(guests):
    """`ib_write_bw -a` between two guests: 2 bytes to 8 MiB."""
    out = between_guests(guests, "ib_write_bw -a -n 20 -t 16", seconds=200)
    if not re.search(r"^\s*8388608\s", out, re.M):
        raise Failure(out)


def add_pair_checks():
    for name in ("rc_pingpong", "ud_pingpong", "write_bw", "read_bw", "send_bw", "write_lat"):
        command = {**PINGPONGS, **PERFTESTS}[name]

        def application(guests, command=command):
            between_guests(guests, command)
        application.__name__ = f"guests_{name}"
        application.__doc__ = f"`{command}` between two guests."
        pairs.check(application)


add_pair_checks()


def with_host(guests, provider, command):
    """The server is a host application under `softhca run`, the client runs in a guest."""
    fabric, _, client, _ = guests
    port = free_port()
    server = fabric.start("alpha", provider, [*command.split(), "-p", str(port)])
    try:
        wait_until(30, "the host's server listens", lambda: _listens(port) or server.poll() is not None)
        client.run(f"timeout 60 {command} -p {port} 10.0.2.2", timeout=90)
        output, _ = server.communicate(timeout=60)
        if server.returncode != 0:
            raise Failure(f"host: {command}: status {server.returncode}\n{output}")
    finally:
        if server.poll() is None:
            server.kill()
            print("    host's server: " + server.communicate()[0])


def _listens(port):
    from virtual_hosts import is_listening
    return is_listening(port)


def add_host_checks():
    for provider in ("softhca", "mlx5"):
        for name in ("rc_pingpong", "ud_pingpong", "srq_pingpong"):
            command = PINGPONGS[name]

            def application(guests, command=command, provider=provider):
                with_host(guests, provider, command)
            application.__name__ = f"host_{provider}_{name}"
            application.__doc__ = f"`{command}` between a guest and a host application (provider {provider})."
            pairs.check(application)


add_host_checks()


@pairs.check
def host_write_bw(guests):
    """`ib_write_bw` between a guest and a host application, each with its Debian's perftest."""
    with_host(guests, "softhca", "ib_write_bw -n 200")


@pairs.check
def guests_are_silent(guests):
    """Neither guest's kernel log has a complaint."""
    for guest in guests[1:3]:
        expect_no_complaints(guest)
