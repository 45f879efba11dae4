#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Mistakes on the command line: a message that says what to do, the right exit status, nothing started."""
import os
import re
import shutil
import socket
import sys

from harness import EXIT_FAILED, EXIT_NOT_RUNNING, EXIT_USAGE, Skip, eventually, expect, run_cases

NAME = "letters, digits"
LONG = "x" * 300
BAD_NAMES = ("a/b", "../up", "/abs", LONG, "", ".", "..", "-x", "sp ace", "new\nline", "gr\u00fcn", "%s%n")


def refuse(fabric, arguments, status, pattern, **run):
    result = fabric.cli(*arguments, **run)
    said = f"softhca {' '.join(arguments)[:100]}: exit status {result.returncode}\n{result.stdout}{result.stderr}"
    expect(result.returncode == status, f"{said}\nexpected status {status}")
    expect(re.search(pattern, result.stderr), f"{said}\ndoes not say: {pattern}")
    expect(not re.search(r"terminate called|what\(\)|Aborted|basic_string|std::", result.stderr), f"not a message\n{said}")
    expect(len(result.stderr.splitlines()) <= 5, f"a message, not a page\n{said}")


def wrong_arguments(fabric):
    for arguments, pattern in (
            ((), "subcommand is required"),
            (("frobnicate",), "no subcommand 'frobnicate'.*softhca --help"),
            (("--frobnicate",), "no option '--frobnicate'.*softhca --help"),
            (("stauts",), "no subcommand 'stauts', did you mean 'status'.*softhca --help"),
            (("run",), "no command given.*softhca run --help"),
            (("run", "--hosst", "x", "--", "true"), "run: no option '--hosst', did you mean '--host'.*softhca run --help"),
            (("run", "--hosst=x", "--", "true"), "run: no option '--hosst', did you mean '--host'.*softhca run --help"),
            (("run", "--hosst", "x", "true"), "run: no option '--hosst', did you mean '--host'.*softhca run --help"),
            (("run", "--verbose", "--", "true"), "run: no option '--verbose'.*softhca run --help"),
            (("run", "-z", "--", "true"), "run: no option '-z'.*softhca run --help"),
            (("run", "--"), "no command given"),
            (("run", "--host"), "requir"),
            (("run", "--provider", "nonsense", "--", "true"), r"softhca.*mlx5"),
            (("run", "--provider", "", "--", "true"), r"softhca.*mlx5"),
            (("run", "ls", "-l", "/"), 'write "--" before the command'),
            (("up",), "up: host is required.*softhca up --help"),
            (("up", "--fabrik", "x", "alpha"), "up: no option '--fabrik', did you mean '--fabric'.*softhca up --help"),
            (("up", "alpha", "beta"), "up: unexpected argument 'beta'.*softhca up --help"),
            (("up", "--mapped-uars", "alpha"), "--device-only"),
            (("up", "--blue-flame", "alpha"), "--device-only"),
            (("down",), "name a host"),
            (("down", "--all", "alpha"), "exclude"),
            (("capture", "alpha"), "--write is required"),
            (("capture", "-c", "-5", "-w", "/dev/null"), "count|-5"),
            (("capture", "-c", "many", "-w", "/dev/null"), "many"),
            (("ctl",), "subcommand is required.*softhca ctl --help"),
            (("ctl", "lnk", "alpha", "down"), "ctl: no subcommand 'lnk', did you mean 'link'.*softhca ctl --help"),
            (("ctl", "link"), "ctl link: name is required.*softhca ctl link --help"),
            (("ctl", "link", "alpha"), "state is required"),
            (("ctl", "link", "alpha", "sideways"), r"up.*down"),
            (("emulator", "--idle-spin-us", "-1"), "idle-spin-us"),
            (("emulator", "--idle-spin-us", "1e99"), "idle-spin-us"),
            (("status", "--json", "extra"), "status: unexpected argument 'extra'.*softhca status --help")):
        refuse(fabric, arguments, EXIT_USAGE, pattern)


def bad_names(fabric):
    for name in BAD_NAMES:
        for arguments in (("run", "--host", name, "--", "true"), ("run", "--fabric", name, "--", "true"), ("up", name),
                          ("up", "--fabric", name, "alpha"), ("down", name), ("status", "--fabric", name),
                          ("emulator", "--fabric", name), ("host", "--host", name), ("capture", "-f", name, "-w", "/dev/null"),
                          ("ctl", "--fabric", name, "shutdown")):
            # A word that looks like an option is refused as one.
            refuse(fabric, arguments, EXIT_USAGE, NAME if not name.startswith("-") else NAME + "|help")
        if not name:
            continue  # an empty variable is none
        for variable in ("SOFTHCA_HOST", "SOFTHCA_FABRIC"):
            refuse(fabric, ("run", "--", "true"), EXIT_USAGE, NAME, env=dict(fabric.environment, **{variable: name}))
    expect(not list(fabric.folder.iterdir()), f"bad names leave nothing: {list(fabric.folder.iterdir())}")


def unknown_names(fabric):
    for arguments in (("status",), ("status", "--fabric", "nowhere"), ("down", "alpha"), ("down", "--all"),
                      ("ctl", "link", "alpha", "down"), ("ctl", "log-level"), ("capture", "-w", "/dev/null")):
        refuse(fabric, arguments, EXIT_NOT_RUNNING, r"(not|no fabric is) running.*softhca (up|run)")
    expect(not fabric.members(), "asking starts nothing")
    fabric.done("up", "alpha")
    refuse(fabric, ("status", "--fabric", "nowhere"), EXIT_NOT_RUNNING, "running: default")
    refuse(fabric, ("down", "nobody"), EXIT_NOT_RUNNING, "no host 'nobody'.*alpha")
    refuse(fabric, ("ctl", "link", "nobody", "down"), EXIT_NOT_RUNNING, "no host 'nobody'.*alpha")
    refuse(fabric, ("ctl", "link", "../" + LONG, "down"), EXIT_NOT_RUNNING, "no host.*alpha")
    refuse(fabric, ("capture", "nobody", "-w", "/dev/null"), EXIT_NOT_RUNNING, "no host 'nobody'.*alpha")
    refuse(fabric, ("ctl", "log-level", "loud"), EXIT_FAILED, "trace, debug, info")
    expect(fabric.host("alpha")["port"]["state"] == "ACTIVE", "the host has not noticed")
    fabric.done("down", "alpha")


def something_else_in_the_way(fabric):
    """What is not ours, where a socket or a lock should be, is named and left alone."""
    folder = fabric.folder / "default"
    host = folder / "hosts" / "alpha"
    host.mkdir(parents=True)
    for path in (fabric.folder, folder, host.parent, host):
        path.chmod(0o700)
    for place in (folder / "control.sock", folder / "lock", host / "kernel.sock", host / "device.sock", host / "lock"):
        place.mkdir()
        refuse(fabric, ("run", "--host", "alpha", "--", "true"), EXIT_FAILED, f"{place}.*directory.*remove it")
        place.rmdir()
        fabric.end_all()  # an emulator whose first attach failed waits for another one
        eventually("the emulator ends", 5, lambda: not fabric.members())
        (folder / "control.sock").unlink(missing_ok=True)
    place = folder / "control.sock"
    with socket.socket(socket.AF_UNIX) as alien:
        alien.bind(str(place))
        alien.listen()
        refuse(fabric, ("run", "--host", "alpha", "--", "true"), EXIT_FAILED, f"end process {os.getpid()},.*{place}")
    fabric.done("run", "--host", "alpha", "--", "true")
    fabric.expect_gone()
    if os.geteuid() == 0:
        with socket.socket(socket.AF_UNIX) as alien:
            alien.bind(str(place))
            os.chown(place, 65534, 65534)
            alien.close()
            refuse(fabric, ("run", "--host", "alpha", "--", "true"), EXIT_FAILED, f"{place} belongs to another user.*remove it")
            place.unlink()


def programs_that_no_preload_reaches(fabric):
    fabric.done("up", "alpha")
    run = ("run", "--host", "alpha", "--")
    static = str(fabric.bin / "softhca_lifetime_static")
    result = fabric.cli(*run, static)
    expect(result.returncode == 0 and "warning" in result.stderr and "linked statically" in result.stderr, result.stderr)
    script = fabric.folder / "script"
    script.write_text(f"#!{static}\n")
    script.chmod(0o700)
    result = fabric.cli(*run, str(script))
    expect(result.returncode == 0 and "interpreter" in result.stderr and "statically" in result.stderr, result.stderr)
    result = fabric.cli(*run, "true")
    expect(not result.stderr, f"nothing is to be warned of\n{result.stderr}")
    fabric.done("down", "alpha")


def setuid_programs(fabric):
    if os.geteuid() != 0:
        raise Skip("only root can make a program setuid root")
    program = fabric.folder / "setuid-true"
    shutil.copy("/bin/true", program)
    program.chmod(0o4755)
    fabric.give_to(65534)
    result = fabric.cli("run", "--", str(program))
    expect(result.returncode == 0 and "setuid" in result.stderr and "warning" in result.stderr, result.stderr)


def help_and_version(fabric):
    for arguments in (("--help",), ("run", "--help"), ("up", "--help"), ("down", "--help"), ("status", "--help"),
                      ("capture", "--help"), ("ctl", "--help"), ("ctl", "link", "--help"), ("doctor", "--help")):
        text = fabric.done(*arguments)
        expect("Usage" in text, text)
    expect(re.fullmatch(r"softhca \d+\.\d+\.\d+\n", fabric.done("--version")), "the version")


sys.exit(run_cases(__doc__, [wrong_arguments, bad_names, unknown_names, something_else_in_the_way, programs_that_no_preload_reaches, setuid_programs,
                             help_and_version]))
