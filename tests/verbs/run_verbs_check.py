#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs softhca_verbs_check on virtual hosts through one provider.

  run_verbs_check.py --softhca PATH --check PATH --provider softhca|mlx5
                     --placement two-hosts|one-host|one-process [ARGUMENTS OF softhca_verbs_check ...]
"""
import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "applications"))
from virtual_hosts import Fabric, Failure, free_port, run_pair  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--check", required=True)
    parser.add_argument("--provider", required=True, choices=("softhca", "mlx5"))
    parser.add_argument("--placement", required=True, choices=("two-hosts", "one-host", "one-process"))
    options, rest = parser.parse_known_args()
    command = [options.check, "--expect-provider", options.provider, *rest]
    try:
        with Fabric(options.softhca) as fabric:
            if options.placement == "one-process":
                output = fabric.run("alpha", options.provider, [*command, "--local"], timeout=550)
            else:
                port = str(free_port())
                output, _ = run_pair(fabric, options.provider, options.placement, [*command, "--server", port],
                                     [*command, "--client", port], int(port), timeout=550)
    except Failure as failure:
        print(failure)
        return 1
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
