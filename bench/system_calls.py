# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""System calls per message of a running ib_write_bw, as strace counts them."""
import json
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

from virtual_hosts import Failure, end_group, free_port, is_listening

# More than any machine sends while it is looked at.
MESSAGES = 100_000_000


def packets_sent(fabric, host):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(Path(fabric.environment["SOFTHCA_RUNTIME_DIR"]) / "default" / "control.sock"))
        connection.sendall(b'{"command": "status"}\n')
        hosts = json.loads(connection.makefile().readline())["hosts"]
    return next((entry["port"]["counters"]["xmit_packets"] for entry in hosts if entry["name"] == host), 0)


def process_with(fabric, *words):
    """The process of the fabric with these words among its arguments."""
    folder = fabric.environment["SOFTHCA_RUNTIME_DIR"].encode()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and folder in (entry / "environ").read_bytes():
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
                if arguments[0].rpartition(b"/")[2] == words[0] and all(word in arguments for word in words[1:]):
                    return int(entry.name)
        except OSError:
            continue
    raise Failure(f"no process {words}")


def counted(pids, seconds):
    """Calls of each of the processes while all are traced for so long."""
    tracers = [subprocess.Popen(["strace", "-c", "-f", "-p", str(pid)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                text=True) for pid in pids]
    time.sleep(seconds)
    for tracer in tracers:
        tracer.send_signal(signal.SIGINT)
    tables = [tracer.communicate(timeout=30)[1] for tracer in tracers]
    totals = []
    for table in tables:
        total = re.search(r"^100\.00\s+\S+\s+\S+\s+(\d+)(?:\s+\d+)?\s+total$", table, re.MULTILINE)
        if total is None and ("% time" in table or "attached" not in table):
            raise Failure(f"strace counts nothing: {table}")
        totals.append(int(total.group(1)) if total else 0)
    return totals


def per_message(fabric, seconds):
    """Calls of the engine and of the sending program for each 8-byte write."""
    port = free_port()
    command = ["ib_write_bw", "-F", "-N", "-s", "8", "-n", str(MESSAGES), "-p", str(port)]
    server = fabric.start("alpha", "softhca", command)
    client = None
    try:
        end = time.monotonic() + 20
        while not is_listening(port):
            if server.poll() is not None or time.monotonic() > end:
                raise Failure("ib_write_bw did not listen")
            time.sleep(0.02)
        before = packets_sent(fabric, "beta")
        client = fabric.start("beta", "softhca", [*command, "127.0.0.1"])
        while packets_sent(fabric, "beta") < before + 100_000:
            if client.poll() is not None or time.monotonic() > end:
                raise Failure("ib_write_bw does not send")
            time.sleep(0.1)
        pids = [process_with(fabric, b"softhca", b"emulator"), process_with(fabric, b"ib_write_bw", b"127.0.0.1")]
        before = packets_sent(fabric, "beta")
        totals = counted(pids, seconds)
        messages = packets_sent(fabric, "beta") - before
        return [total / messages for total in totals]
    finally:
        for process in (client, server):
            if process is not None:
                end_group(process)
                process.communicate()
