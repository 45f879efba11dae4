# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The applications that must run unmodified, their option variants, and the selection of what is run.

A case is (tool, options). It is run over the factors provider x placement x MTU: the whole product under --all,
else a set in which every pair of factor values meets at least once and every case meets every provider."""
import itertools
from dataclasses import dataclass

PROVIDERS = ("softhca", "mlx5")
PLACEMENTS = ("two-hosts", "one-host")
MTUS = (256, 512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Case:
    tool: str
    options: tuple
    family: str  # "pingpong" or "perftest"
    mtu_option: str = "-m"
    max_mtu_only: bool = False  # the sizes of this case need the largest MTU (unreliable datagrams)

    def mtus(self):
        return MTUS[-1:] if self.max_mtu_only else MTUS

    def name(self):
        return " ".join((self.tool, *self.options))


def _pingpong():
    rc = [(), ("-e",), ("-c",), ("-e", "-c"), ("-s", "1", "-c"), ("-s", "1048576", "-n", "50", "-c"),
          ("-r", "1", "-n", "200"), ("-r", "8192",), ("-s", "65536", "-e", "-c", "-n", "200")]
    for options in rc:
        yield Case("ibv_rc_pingpong", options, "pingpong")
    for options in [(), ("-e",), ("-s", "1"), ("-s", "1048576", "-n", "50"), ("-r", "8192")]:
        yield Case("ibv_uc_pingpong", options, "pingpong")
    for options in [(), ("-e",), ("-s", "1"), ("-s", "2048")]:
        yield Case("ibv_ud_pingpong", options, "pingpong", mtu_option="", max_mtu_only=True)


def _perftest():
    def cases(tool, variants):
        for options in variants:
            yield Case(tool, tuple(options.split()), "perftest")

    # Events: ib_write_bw refuses them, and the latency tests of this version do not wait for what an event was about
    # (they arm before they poll, and post again when a poll finds nothing), so that their send queue overruns;
    # ib_send_lat also takes its sends for answers (linux-rdma/perftest pull request 127).
    common_bw = ["-a -n 10", "-s 65536 -n 500", "-s 65536 -n 300 -q 8", "-s 65536 -n 300 -b", "-s 8192 -D 3"]
    events = ["-s 4096 -n 500 -e"]
    yield from cases("ib_write_bw", common_bw + ["-s 64 -n 2000 -I 64", "-s 65536 -n 300 -c UC",
                                                 "-s 2 -n 2000 -q 16", "-s 65536 -n 300 -c XRC"])
    yield from cases("ib_read_bw", common_bw + events)
    yield from cases("ib_send_bw", common_bw + events + ["-s 64 -n 2000 -I 64", "-s 4096 -n 500 --use-srq -q 4",
                                                "-s 65536 -n 300 -c UC", "-s 4096 -n 300 -c XRC"])
    yield Case("ib_send_bw", ("-s", "2048", "-n", "500", "-c", "UD"), "perftest", max_mtu_only=True)
    yield Case("ib_send_bw", ("-a", "-n", "10", "-c", "UD"), "perftest", max_mtu_only=True)
    yield from cases("ib_atomic_bw", ["-n 500 -A FETCH_AND_ADD", "-n 500 -A CMP_AND_SWAP", "-n 300 -q 8", "-n 300 -b",
                                      "-n 300 -e", "-D 3"])
    yield from cases("ib_write_lat", ["-a -n 10", "-s 8 -n 500", "-s 64 -n 300 -I 64", "-s 64 -n 300 -c UC"])
    yield from cases("ib_read_lat", ["-a -n 10", "-s 8 -n 500"])
    yield from cases("ib_send_lat", ["-a -n 10", "-s 8 -n 500", "-s 64 -n 300 -I 64",
                                     "-s 64 -n 300 --use-srq", "-s 64 -n 300 -c UC", "-s 64 -n 300 -c XRC"])
    yield Case("ib_send_lat", ("-s", "64", "-n", "300", "-c", "UD"), "perftest", max_mtu_only=True)


CASES = tuple(itertools.chain(_pingpong(), _perftest()))


def whole_product(provider):
    for case, placement in itertools.product(CASES, PLACEMENTS):
        for mtu in case.mtus():
            yield case, provider, placement, mtu


def pairwise(provider):
    """Every case once for this provider; placement and MTU chosen so that (tool, placement), (tool, MTU) and
    (placement, MTU) pairs not met yet come first."""
    met = set()
    for number, case in enumerate(CASES):
        choices = itertools.product(PLACEMENTS, case.mtus())

        def news(choice):
            placement, mtu = choice
            pairs = {(case.tool, placement), (case.tool, mtu), (placement, mtu)}
            return len(pairs - met)

        # Ties are broken by turns, and for each provider differently, so that between them more of the product is seen.
        ordered = sorted(choices)
        turn = (number * 3 + PROVIDERS.index(provider)) % len(ordered)
        placement, mtu = max(ordered[turn:] + ordered[:turn], key=news)
        met |= {(case.tool, placement), (case.tool, mtu), (placement, mtu)}
        yield case, provider, placement, mtu
