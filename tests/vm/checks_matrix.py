# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The matrix {our provider, stock libmlx5} x {kernel-shim, stock kernel}: the same applications in all four, as a table
of what this run saw."""
from pathlib import Path

from check import Group
from checks_driver import one_guest_two_hcas, wait_for_ports
from checks_verbs import PERFTESTS, PINGPONGS, between_hcas
from guests import Failure, free_port
from virtual_hosts import BOUND_LINE, run_pair as run_host_pair

PROVIDER_FILE = "libsofthca-rdmav34.so"
IN_GUEST = f"/opt/softhca/lib/{PROVIDER_FILE}"
# How a command of a guest gets our provider, though perftest links libmlx5 (docs/vm.md).
WITH_OURS = f"env LD_PRELOAD={IN_GUEST} SOFTHCA_PROVIDER_TRACE=1"

APPLICATIONS = {
    "rc_pingpong": PINGPONGS["rc_pingpong"],
    "rc_pingpong_events": PINGPONGS["rc_pingpong_events"],
    "uc_pingpong": PINGPONGS["uc_pingpong"],
    "ud_pingpong": PINGPONGS["ud_pingpong"],
    "write_bw_all_sizes": PERFTESTS["write_bw_all_sizes"],
    "read_bw": PERFTESTS["read_bw"],
    "send_bw": PERFTESTS["send_bw"],
    "send_lat": PERFTESTS["send_lat"],
}
PROVIDERS = {"softhca": "ours", "mlx5": "libmlx5"}
KERNELS = ("kernel-shim", "stock kernel")
COLUMNS = [(kernel, provider) for kernel in KERNELS for provider in PROVIDERS]


def copy_in(fabric):
    """Options of `softhca vm` that put our provider into the guest."""
    library = Path(fabric.softhca).resolve().parent.parent / "lib" / PROVIDER_FILE
    return "--copy-in", f"{library}:{IN_GUEST}"


class Matrix:
    def __init__(self, fabric, guest):
        self.fabric, self.guest = fabric, guest
        self.seen = {}
        self.versions = {"kernel-shim": "host", "stock kernel": guest.run("uname -r").out.strip()}

    def print(self):
        """The table; a cell that was not run in this run is empty."""
        rows = [""] + [f"{kernel}, {PROVIDERS[provider]}" for kernel, provider in COLUMNS]
        width = [max(len(command) for command in APPLICATIONS.values()) + 2] + [len(title) + 2 for title in rows[1:]]
        line = "  " + "".join(text.ljust(space) for text, space in zip(rows, width))
        print(f"matrix (stock kernel: {self.versions['stock kernel']}):\n{line.rstrip()}")
        for name, command in APPLICATIONS.items():
            cells = [command] + [self.seen.get((name, *column), "") for column in COLUMNS]
            print(("  " + "".join(text.ljust(space) for text, space in zip(cells, width))).rstrip())


def guest_and_hosts(fabric):
    for guest in one_guest_two_hcas(fabric, options=copy_in(fabric)):
        wait_for_ports(guest)
        matrix = Matrix(fabric, guest)
        try:
            yield matrix
        finally:
            matrix.print()


matrix = Group("matrix", guest_and_hosts)


def expect_provider(guest_output, provider):
    """Both ends were bound to our provider, or none."""
    wanted = 2 if provider == "softhca" else 0
    if guest_output.count(BOUND_LINE["softhca"]) < wanted or not wanted and BOUND_LINE["softhca"] in guest_output:
        raise Failure(f"not bound to provider {provider}:\n{guest_output}")


def run_cell(matrix, command, kernel, provider):
    if kernel == "stock kernel":
        out = between_hcas(matrix.guest, command, prefix=WITH_OURS if provider == "softhca" else "env")
        expect_provider(out, provider)
        return
    port = free_port()
    words = [*command.split(), "-p", str(port)]
    run_host_pair(matrix.fabric, provider, "two-hosts", words, [*words, "127.0.0.1"], port)


def add_cells():
    for kernel, provider in COLUMNS:
        for name, command in APPLICATIONS.items():
            def cell(matrix, place=(name, kernel, provider), command=command):
                matrix.seen[place] = "FAIL"
                run_cell(matrix, command, *place[1:])
                matrix.seen[place] = "ok"
            cell.__name__ = f"{kernel.replace('-', '_').replace(' ', '_')}_{provider}_{name}"
            cell.__doc__ = f"`{command}` through {PROVIDERS[provider]} on the {kernel}."
            matrix.check(cell)


add_cells()


@matrix.check
def both_providers_talk_to_each_other(matrix):
    """A server on our provider, its client on libmlx5, in one guest."""
    out = between_hcas(matrix.guest, PINGPONGS["rc_pingpong"], prefix=WITH_OURS, client_prefix="env")
    if out.count(BOUND_LINE["softhca"]) != 1:
        raise Failure(out)


@matrix.check
def a_driver_file_is_enough_without_libmlx5(matrix):
    """Programs that do not link libmlx5 get our provider by a file in /etc/libibverbs.d that names it."""
    guest = matrix.guest
    guest.run(f"cp /etc/libibverbs.d/mlx5.driver /root/ && "
              f"echo driver {IN_GUEST.removesuffix('-rdmav34.so')} > /etc/libibverbs.d/mlx5.driver")
    try:
        out = guest.run("SOFTHCA_PROVIDER_TRACE=1 ibv_devinfo").text
    finally:
        guest.run("mv /root/mlx5.driver /etc/libibverbs.d/")
    if BOUND_LINE["softhca"] not in out or "PORT_ACTIVE" not in out:
        raise Failure(out)
