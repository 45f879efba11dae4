#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`softhca doctor` says what lacks, what that costs and how to get it; its exit status is 1 when nothing can work."""
import os
import resource
import sys
from pathlib import Path

from harness import EXIT_FAILED, Skip, as_user, can_run, expect, pingpong, run_cases


def examine(fabric, *words, status=0, problem=None, **run):
    """Output of doctor, which must hold `words` and end with `status`; `problem`: subject of a PROBLEM line."""
    result = fabric.cli("doctor", **run)
    expect(result.returncode == status, f"doctor: exit status {result.returncode}\n{result.stdout}{result.stderr}")
    expect(("Softhca works here" in result.stdout) == (status == 0), f"the last line says the same\n{result.stdout}")
    for word in words:
        expect(word in result.stdout, f"doctor does not say '{word}'\n{result.stdout}")
    if problem:
        lines = [line for line in result.stdout.splitlines() if line.startswith("PROBLEM")]
        expect(len(lines) == 1 and problem in lines[0], f"one problem: {problem}\n{result.stdout}")
    for line, behind in zip(result.stdout.splitlines(), result.stdout.splitlines()[1:]):
        expect(not line.startswith(("note", "PROBLEM")) or "costs: " in behind, f"every lack has its cost\n{result.stdout}")
    return result.stdout


def limited(**limits):
    def apply():
        for name, value in limits.items():
            which = getattr(resource, name)
            resource.setrlimit(which, (value, resource.getrlimit(which)[1]))
    return apply


def in_mount_namespace(fabric, commands):
    """Commands of the fabric then run behind `commands` in a mount namespace of their own."""
    if not can_run("unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"):
        raise Skip("mount namespaces are not allowed")
    fabric.prefix = ["unshare", "-m", "sh", "-c", f"{commands} && exec \"$@\"", "sh"]


def here(fabric):
    text = examine(fabric, "ok       runtime folder", "ok       libraries", "rdma-core", "sealed memfd")
    expect("PROBLEM" not in text, text)


def small_limits(fabric):
    examine(fabric, "note     RLIMIT_MEMLOCK", "note     RLIMIT_NOFILE", "note     RLIMIT_FSIZE", "ulimit -n", "ulimit -f unlimited",
            preexec_fn=limited(RLIMIT_MEMLOCK=0, RLIMIT_NOFILE=64, RLIMIT_FSIZE=1 << 20))


def works_with_small_limits(fabric):
    for provider in ("softhca", "mlx5"):
        pingpong(fabric, provider, preexec_fn=limited(RLIMIT_MEMLOCK=0, RLIMIT_NOFILE=64))


def small_shared_memory_folder(fabric):
    in_mount_namespace(fabric, "mount -t tmpfs -o size=64k none /dev/shm")
    examine(fabric, "/dev/shm               64 KiB free")
    pingpong(fabric, "softhca", options=("-c", "-e", "-n", "20", "-s", "1048576"))


def no_libibverbs(fabric):
    library = next(Path("/usr/lib").rglob("libibverbs.so.1"), None)
    if library is None:
        raise Skip("libibverbs is not under /usr/lib")
    in_mount_namespace(fabric, f"mount --bind /dev/null {library.resolve()}")
    examine(fabric, "apt-get install libibverbs1", status=EXIT_FAILED, problem="libibverbs")


def no_libmlx5(fabric):
    library = next(Path("/usr/lib").rglob("libmlx5.so.1"), None)
    if library is None:
        raise Skip("libmlx5 is not under /usr/lib")
    in_mount_namespace(fabric, f"mount --bind /dev/null {library.resolve()}")
    examine(fabric, "note     libmlx5", "apt-get install ibverbs-providers")


def no_applications(fabric):
    examine(fabric, "apt-get install perftest", "apt-get install ibverbs-utils", "apt-get install infiniband-diags",
            env=dict(fabric.environment, PATH="/nonexistent"))


def runtime_folders(fabric):
    def in_folder(path):
        return dict(fabric.environment, SOFTHCA_RUNTIME_DIR=str(path))

    examine(fabric, "set SOFTHCA_RUNTIME_DIR", status=EXIT_FAILED, problem="runtime folder", env=in_folder("/proc/softhca"))
    open_folder = fabric.folder / "open"
    open_folder.mkdir()
    open_folder.chmod(0o755)
    examine(fabric, "chmod 700", status=EXIT_FAILED, problem="runtime folder", env=in_folder(open_folder))
    file = fabric.folder / "file"
    file.write_text("")
    examine(fabric, "is not a directory", status=EXIT_FAILED, problem="runtime folder", env=in_folder(file))
    link = fabric.folder / "link"
    link.symlink_to("/tmp")
    examine(fabric, "is not a directory", status=EXIT_FAILED, problem="runtime folder", env=in_folder(link))
    made = fabric.folder / "new" / "deep"
    examine(fabric, str(made), env=in_folder(made))
    expect(made.stat().st_mode & 0o777 == 0o700, "a runtime folder is made for its user alone")
    result = fabric.cli("run", "--", "true", env=in_folder("/proc/softhca"))
    expect(result.returncode == EXIT_FAILED and "doctor" in result.stderr, f"run refers to doctor\n{result.stderr}")


def folder_of_another_user(fabric):
    if os.geteuid() != 0:
        raise Skip("only root can become another user")
    fabric.prefix = as_user(65534)
    theirs = fabric.folder / "theirs"
    fabric.folder.chmod(0o755)
    theirs.mkdir(mode=0o700)
    examine(fabric, "belongs to another user", status=EXIT_FAILED, problem="runtime folder",
            env=dict(fabric.environment, SOFTHCA_RUNTIME_DIR=str(theirs)))


def no_environment(fabric):
    """Neither HOME nor XDG_RUNTIME_DIR nor PATH, as under a service manager: a folder in /tmp by user number."""
    folder = Path(f"/tmp/softhca-{os.geteuid()}")
    existed = folder.exists()
    examine(fabric, str(folder), env={})
    # A user's folder that is not there, or not the user's, is not used either.
    examine(fabric, str(folder), env={"XDG_RUNTIME_DIR": "/nonexistent"})
    examine(fabric, str(folder), env={"XDG_RUNTIME_DIR": "/tmp" if os.geteuid() != 0 else "relative"})
    examine(fabric, f"{fabric.folder}/softhca", env={"XDG_RUNTIME_DIR": str(fabric.folder)})
    if not existed:
        folder.rmdir()


def a_long_runtime_folder(fabric):
    folder = fabric.folder / ("long-name-" * 12) / ("and-one-more-" * 8)
    folder.mkdir(parents=True, mode=0o700)
    fabric.use_folder(folder)
    examine(fabric, str(folder))
    for provider in ("softhca", "mlx5"):
        pingpong(fabric, provider)


def refused_system_calls(fabric):
    fabric.prefix = [str(fabric.bin / "softhca_lifetime_confine")]
    examine(fabric, "note     userfaultfd", "seccomp profile", "seccomp                a filter is active")


sys.exit(run_cases(__doc__, [here, small_limits, works_with_small_limits, small_shared_memory_folder, no_libibverbs,
                             no_libmlx5, no_applications, runtime_folders, folder_of_another_user, no_environment,
                             a_long_runtime_folder, refused_system_calls]))
