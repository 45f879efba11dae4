#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Any user, and containers: no privilege is needed, no system call that container run times withhold."""
import os
import stat
import sys

from harness import Skip, as_user, can_run, expect, pingpong, run_cases

NOBODY, SOMEBODY_ELSE = 65534, 65533


def become_nobody(fabric):
    if os.geteuid() == 0:
        fabric.give_to(NOBODY)


def an_unprivileged_user(fabric):
    become_nobody(fabric)
    for provider in ("softhca", "mlx5"):
        pingpong(fabric, provider)
    output = fabric.done("doctor")
    expect("Softhca works here" in output, output)


def files_are_of_their_user_alone(fabric):
    become_nobody(fabric)
    fabric.done("up", "alpha")
    for path in fabric.folder.rglob("*"):
        if "sys" in path.relative_to(fabric.folder).parts or path.is_symlink():
            continue
        status = path.lstat()
        expect(status.st_uid == fabric.folder.stat().st_uid, f"{path} belongs to {status.st_uid}")
        expect(not status.st_mode & 0o077 or not stat.S_ISSOCK(status.st_mode), f"{path}: {stat.filemode(status.st_mode)}")
        expect(not stat.S_ISDIR(status.st_mode) or not status.st_mode & 0o077 or "dev" in path.parts,
               f"{path}: {stat.filemode(status.st_mode)}")
    if os.geteuid() == 0:
        own, fabric.prefix = fabric.prefix, as_user(SOMEBODY_ELSE)
        result = fabric.cli("status", "--fabric", "default")
        expect(result.returncode != 0 and "ermission" in result.stderr, f"another user: {result.returncode} {result.stderr}")
        result = fabric.cli("run", "--host", "alpha", "--", "true")
        expect(result.returncode == 1 and "SOFTHCA_RUNTIME_DIR" in result.stderr, f"another user: {result.stderr}")
        fabric.prefix = own
    fabric.done("down", "alpha")


def a_user_namespace(fabric):
    become_nobody(fabric)
    if not can_run(*fabric.prefix, "unshare", "-r", "true"):
        raise Skip("user namespaces are not allowed")
    fabric.prefix = [*fabric.prefix, "unshare", "-r"]
    for provider in ("softhca", "mlx5"):
        pingpong(fabric, provider)


def a_confined_container(fabric):
    become_nobody(fabric)
    fabric.prefix = [*fabric.prefix, str(fabric.bin / "softhca_lifetime_confine")]
    for provider in ("softhca", "mlx5"):
        pingpong(fabric, provider)
    output = fabric.done("doctor")
    expect("note     userfaultfd" in output, f"doctor says what is lost\n{output}")


def a_confined_container_with_its_own_names(fabric):
    """Process, network, IPC and mount namespaces of its own, a small /dev/shm, all confined."""
    script = "mount -t tmpfs -o size=64k none /dev/shm && ip link set lo up 2>/dev/null; exec \"$@\""
    namespaces = ["unshare", "-r", "-p", "-f", "-i", "-m", "--mount-proc", "--kill-child"]
    if not can_run(*namespaces, "true"):
        raise Skip("namespaces are not allowed")
    # All in one container: the daemons live in its process namespace, and end with it.
    softhca = [str(fabric.bin / "softhca_lifetime_confine"), *fabric.command("run", "--host")]
    run = " ".join(softhca)
    pair = (f"{run} alpha -- ibv_rc_pingpong -p 18999 -c -e -n 50 & sleep 1.5; "
            f"{run} beta -- ibv_rc_pingpong -p 18999 -c -e -n 50 127.0.0.1 && wait $!")
    fabric.prefix = [*namespaces, "sh", "-c", script, "sh", "sh", "-c", pair]
    output = fabric.done()
    expect(output.count("50 iters in") == 2, output)
    # Its daemons were killed with it; what they left is replaced.
    fabric.prefix = []
    for name in ("alpha", "beta"):
        fabric.done("run", "--host", name, "--", "true")


sys.exit(run_cases(__doc__, [an_unprivileged_user, files_are_of_their_user_alone, a_user_namespace,
                             a_confined_container, a_confined_container_with_its_own_names]))
