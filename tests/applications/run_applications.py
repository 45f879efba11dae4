#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Debian's unmodified verbs applications on virtual hosts, through our provider or stock libmlx5.

  run_applications.py --softhca PATH --provider softhca|mlx5 [--group info|pingpong|perftest] [--all] [--only TEXT]
"""
import argparse
import os
import re
import sys
import time

import cases
from virtual_hosts import Fabric, Failure, free_port, run_pair


def check_info(fabric, provider):
    """The tools that only look: each must show what a ConnectX shows."""
    def devices():
        output = fabric.run("alpha", provider, ["ibv_devices"], must_bind=False)
        if not re.search(r"^\s+mlx5_0\s+[0-9a-f]{16}$", output, re.M):
            raise Failure(f"ibv_devices lists no mlx5_0 with a GUID\n{output}")

    def devinfo():
        output = fabric.run("alpha", provider, ["ibv_devinfo", "-v"])
        for wanted in (r"hca_id:\s+mlx5_0", r"transport:\s+InfiniBand \(0\)", r"vendor_id:\s+0x02c9", r"vendor_part_id:\s+4121",
                       r"state:\s+PORT_ACTIVE \(4\)", r"link_layer:\s+InfiniBand", r"max_mtu:\s+4096 \(5\)", r"atomic_cap:\s+ATOMIC_HCA \(1\)",
                       r"GID\[\s*0\]:\s+fe80:"):
            if not re.search(wanted, output):
                raise Failure(f"ibv_devinfo -v does not show {wanted}\n{output}")
        if re.search(r"port_lid:\s+0$", output, re.M):
            raise Failure(f"the port has no LID\n{output}")

    def ibstat():
        output = fabric.run("alpha", provider, ["ibstat"], must_bind=False)
        for wanted in (r"CA 'mlx5_0'", r"CA type: MT4119|CA type: MT4121", r"State: Active", r"Physical state: LinkUp",
                       r"Link layer: InfiniBand", r"Rate: 100"):
            if not re.search(wanted, output):
                raise Failure(f"ibstat does not show {wanted}\n{output}")

    def ibstatus():
        output = fabric.run("alpha", provider, ["ibstatus"], must_bind=False)
        for wanted in (r"Infiniband device 'mlx5_0' port 1 status", r"state:\s+4: ACTIVE", r"phys state:\s+5: LinkUp",
                       r"link_layer:\s+InfiniBand"):
            if not re.search(wanted, output):
                raise Failure(f"ibstatus does not show {wanted}\n{output}")

    return [("ibv_devices", devices), ("ibv_devinfo -v", devinfo), ("ibstat", ibstat), ("ibstatus", ibstatus)]


def run_case(fabric, case, provider, placement, mtu):
    port = free_port()
    if case.family == "pingpong":
        command = [case.tool, "-p", str(port), *case.options]
        if case.mtu_option:
            command += [case.mtu_option, str(mtu)]
    else:
        command = [case.tool, "-F", "-p", str(port), *case.options]
        if not case.max_mtu_only:
            command += ["-m", str(mtu)]
    _, output = run_pair(fabric, provider, placement, command, [*command, "127.0.0.1"], port)
    if case.family == "pingpong":
        if not re.search(r"\d+ bytes in [\d.]+ seconds", output):
            raise Failure(f"no result line\n{output}")
        if "invalid data" in output:
            raise Failure(f"the payload check of the tool failed\n{output}")
        return
    rows = [line for line in output.splitlines() if re.match(r"^\s*\d+\s+\d+\s+[\d.]+", line)]
    if not rows:
        raise Failure(f"no result table\n{output}")
    # The smallest sizes of a slow run may round to 0.00 MB/s; the largest may not.
    if float(rows[-1].split()[3 if "_bw" in case.tool else 2]) <= 0:
        raise Failure(f"a result of zero\n{output}")
    if "Completion with error" in output or "Problems" in output:
        raise Failure(f"the tool reported an error\n{output}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--softhca", required=True, help="the softhca program")
    parser.add_argument("--provider", required=True, choices=cases.PROVIDERS)
    parser.add_argument("--group", choices=("info", "pingpong", "perftest"))
    parser.add_argument("--all", action="store_true", default=bool(os.environ.get("SOFTHCA_TEST_ALL")),
                        help="the whole product of the options (also by SOFTHCA_TEST_ALL=1)")
    parser.add_argument("--only", default="", help="only cases whose name contains this text")
    arguments = parser.parse_args()

    failures, count = [], 0

    def attempt(name, action):
        nonlocal count
        if arguments.only not in name:
            return
        count += 1
        start = time.monotonic()
        try:
            action()
            print(f"ok    {name}  ({time.monotonic() - start:.1f} s)", flush=True)
        except Failure as failure:
            failures.append(name)
            print(f"FAIL  {name}: {failure}", flush=True)

    with Fabric(arguments.softhca) as fabric:
        if arguments.group in (None, "info"):
            for name, action in check_info(fabric, arguments.provider):
                attempt(name, action)
        select = cases.whole_product if arguments.all else cases.pairwise
        for case, provider, placement, mtu in select(arguments.provider):
            if arguments.group in (None, case.family):
                attempt(f"{case.name()} [{placement}, mtu {mtu}]",
                        lambda c=case, p=placement, m=mtu: run_case(fabric, c, arguments.provider, p, m))
        if not fabric.wait_until_empty(5):
            failures.append("fabric ends with its last member")
            print("FAIL  emulator or daemon processes stayed behind")

    print(f"{arguments.provider}: {count - len(failures)} of {count} applications passed")
    return 1 if failures or count == 0 else 0


sys.exit(main())
