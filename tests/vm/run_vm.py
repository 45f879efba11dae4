#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Boots guests with `softhca vm` and runs checks in them.

  run_vm.py --softhca build/bin/softhca                    every group
  run_vm.py --softhca build/bin/softhca --group driver     one group, its guests booted once
  run_vm.py ... --group verbs --only rc_pingpong write_bw  some of its checks
  run_vm.py --list                                         names

Ends with status 77 (skipped) where guests cannot be built: no mmdebstrap, no network."""
import argparse
import subprocess
import sys

import checks_door  # noqa: F401  (each registers its groups)
import checks_driver  # noqa: F401
import checks_fabric  # noqa: F401
import checks_hostile  # noqa: F401
import checks_lifecycle  # noqa: F401
import checks_matrix  # noqa: F401
import checks_storage  # noqa: F401
import checks_verbs  # noqa: F401
from check import GROUPS, run_group
from guests import Failure, GuestFabric

SKIPPED = 77


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--softhca")
    parser.add_argument("--group", choices=sorted(GROUPS), action="append")
    parser.add_argument("--only", nargs="+", default=(), metavar="CHECK")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="show every command in a guest")
    arguments = parser.parse_args()
    if arguments.list or not arguments.softhca:
        for group in GROUPS.values():
            for check in group.checks:
                print(f"{group.name:<10} {check.__name__:<34} {(check.__doc__ or '').splitlines()[0]}")
        return 0
    built = subprocess.run([arguments.softhca, "vm", "--build-only"], stdin=subprocess.DEVNULL)
    if built.returncode != 0:
        print("skipped: no guest can be built on this machine")
        return SKIPPED
    failed = 0
    for name in arguments.group or GROUPS:
        try:
            with GuestFabric(arguments.softhca, arguments.verbose) as fabric:
                failed += run_group(GROUPS[name], fabric, arguments.only)
        except Failure as failure:
            print(f"{name}: FAILED: {failure}")
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
