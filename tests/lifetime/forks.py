#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Applications that fork while they communicate (fork.cpp)."""
import sys

from harness import Application, expect, run_cases


def run(fabric, provider, *options):
    application = Application(fabric, "alpha", provider,
                              [fabric.bin / "softhca_lifetime_fork", "--provider", provider, *options])
    output = application.succeed(60)
    expect(output.count("ok ") >= 9, f"not every case was run\n{output}")


def without_ibv_fork_init(fabric, provider):
    run(fabric, provider)


def with_ibv_fork_init(fabric, provider):
    run(fabric, provider, "--fork-init")


def asleep_on_completion_events(fabric, provider):
    run(fabric, provider, "--events")


sys.exit(run_cases(__doc__, [without_ibv_fork_init, with_ibv_fork_init, asleep_on_completion_events],
                   takes_provider=True))
