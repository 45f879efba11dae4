#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""rdma-core's own Python test suite, unmodified, on a virtual host.

No test may fail, crash or hang; each skip is listed with its reason, and the reason must be one that
allowed_skips.txt knows (a regular expression a line, with why it is right for this device).

  run_pyverbs.py --softhca PATH --provider softhca|mlx5 [--module test_cq]... [--list-skips]
"""
import argparse
import collections
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "applications"))
from virtual_hosts import Fabric, end_group  # noqa: E402

SUITE = Path("/usr/share/doc/rdma-core/tests")
DEBIAN_PYTHON = "/usr/bin/python3"  # pyverbs is built for it, whatever python3 comes first in PATH
SECONDS_PER_MODULE = 300


def unpack(folder):
    """The suite as its authors lay it out: modules in a package, helpers importable from above it."""
    package = folder / "tests"
    package.mkdir()
    for source in SUITE.iterdir():
        if source.suffix == ".gz":
            (package / source.stem).write_bytes(gzip.decompress(source.read_bytes()))
        else:
            shutil.copy(source, package / source.name)
    shutil.copy(package / "args_parser.py", folder / "args_parser.py")
    return sorted(p.stem for p in package.glob("test_*.py"))


def run_module(fabric, softhca, provider, folder, module):
    """Outcomes of one module: {test: (outcome, why)}; a test that ends its process counts as crashed and the run
    goes on behind it."""
    outcomes, after = {}, []
    while True:
        read_end, write_end = os.pipe()
        argv = [softhca, "run", "--host", "alpha", "--provider", provider, "--", DEBIAN_PYTHON, str(HERE / "run_module.py"),
                str(folder), module, str(write_end), *after]
        process = subprocess.Popen(argv, env=fabric.environment, pass_fds=[write_end], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, start_new_session=True)
        os.close(write_end)
        try:
            output, _ = process.communicate(timeout=SECONDS_PER_MODULE)
            ended = f"exit status {process.returncode}"
        except subprocess.TimeoutExpired:
            end_group(process)
            output, _ = process.communicate()
            ended = f"hung for {SECONDS_PER_MODULE} s"
        with os.fdopen(read_end) as events:
            lines = [json.loads(line) for line in events]
        running = None
        for event in lines:
            if event["outcome"] == "start":
                running = event["test"]
            elif event["test"]:
                # A failure is not undone by what the same test says later.
                if outcomes.get(event["test"], ("",))[0] != "failed":
                    outcomes[event["test"]] = (event["outcome"], event.get("why", ""))
                running = None if event["test"] == running else running
        if lines and lines[-1]["outcome"] == "end":
            return outcomes
        if running is None:
            outcomes[f"{module} (whole module)"] = ("failed", f"{ended}\n{output[-3000:]}")
            return outcomes
        outcomes[running] = ("failed", f"took the process with it: {ended}\n{output[-3000:]}")
        after = [running]


def allowed_skips():
    rules = []
    for line in (HERE / "allowed_skips.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            rules.append(re.compile(line.split(" ## ")[0].strip()))
    return rules


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--softhca", required=True)
    parser.add_argument("--provider", required=True, choices=("softhca", "mlx5"))
    parser.add_argument("--module", action="append", help="only this module (may be repeated)")
    parser.add_argument("--list-skips", action="store_true", help="every skipped test, not only a line per reason")
    arguments = parser.parse_args()
    if not SUITE.is_dir():
        print("run_pyverbs: the package rdma-core brings the suite; install it (scripts/setup test)", file=sys.stderr)
        return 2

    rules, counts, problems = allowed_skips(), collections.Counter(), []
    skips = collections.defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="softhca-pyverbs-") as name, Fabric(arguments.softhca) as fabric:
        modules = unpack(Path(name))
        for module in arguments.module or modules:
            for test, (outcome, why) in run_module(fabric, arguments.softhca, arguments.provider, Path(name), module).items():
                counts[outcome] += 1
                if outcome == "skipped":
                    skips[why].append(test)
                    if not any(rule.search(f"{test}: {why}") for rule in rules):
                        problems.append(f"{test}: a skip for a reason that is not in allowed_skips.txt: {why}")
                elif outcome == "failed":
                    problems.append(f"{test}: {why}")
    for why, tests in sorted(skips.items(), key=lambda item: -len(item[1])):
        print(f"skipped {len(tests):3}: {why}")
        if arguments.list_skips:
            for test in tests:
                print(f"             {test}")
    for problem in problems:
        print(f"FAIL {problem}")
    print(f"{arguments.provider}: {counts['ok']} ok, {counts['skipped']} skipped, {counts['failed']} failed, "
          f"{len(problems) - counts['failed']} skipped for no good reason")
    return 1 if problems or counts["ok"] == 0 else 0


sys.exit(main())
