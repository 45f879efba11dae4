#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`softhca capture`: every packet of a link as pcapng that tshark decodes."""
import shutil
import signal
import struct
import subprocess
import sys
import time

from harness import EXIT_FAILED, EXIT_NOT_RUNNING, EXIT_USAGE, eventually, expect, pingpong, run_cases


def packets_of(file):
    """Packets of a pcapng file, which must be whole."""
    data, at, packets = file.read_bytes(), 0, 0
    while at < len(data):
        kind, length = struct.unpack_from("<II", data, at)
        expect(length % 4 == 0 and at + length <= len(data), f"a whole block at {at}")
        expect(struct.unpack_from("<I", data, at + length - 4)[0] == length, f"a block ends as it begins at {at}")
        packets += kind == 6
        at += length
    return packets


def start(fabric, *arguments):
    capture = subprocess.Popen(fabric.command("capture", *arguments), env=fabric.environment, stderr=subprocess.PIPE,
                               text=True)
    line = capture.stderr.readline()
    expect("capturing" in line, f"capture: {line}{'' if capture.poll() is None else capture.stderr.read()}")
    return capture


def end(capture):
    capture.send_signal(signal.SIGINT)
    _, text = capture.communicate(timeout=10)
    expect(capture.returncode == 0, f"capture: exit status {capture.returncode}\n{text}")
    return int(text.split("softhca: ")[-1].split()[0])


def every_packet_of_a_pingpong(fabric):
    for name in ("alpha", "beta"):
        fabric.done("up", name)
    before = fabric.host("alpha")["port"]["counters"]
    file = fabric.folder / "pingpong.pcapng"
    capture = start(fabric, "alpha", "-w", str(file))
    pingpong(fabric, "softhca", options=("-c", "-e", "-n", "50", "-s", "8192"))
    after = fabric.host("alpha")["port"]["counters"]
    counted = sum(after[name] - before[name] for name in ("xmit_packets", "rcv_packets"))
    said = end(capture)
    expect(counted >= 400, f"the port counted {counted} packets")
    expect(said == packets_of(file) and said >= counted, f"captured {said}, in the file {packets_of(file)}, counted {counted}")
    tshark = shutil.which("tshark")
    if tshark is None:
        print("tshark is not installed: the file is not decoded")
    else:
        decode = [tshark, "-r", str(file), "--disable-protocol", "rpcordma", "--disable-protocol", "infiniband.eoib"]
        decoded = subprocess.run([*decode, "-Y", "infiniband.bth"], capture_output=True, text=True, timeout=60).stdout
        expect(len(decoded.splitlines()) >= counted, f"tshark shows {len(decoded.splitlines())} of {counted} packets")
        expect("RC Acknowledge" in decoded and "RC Send" in decoded, f"tshark knows the packets\n{decoded[:1000]}")
        malformed = subprocess.run([*decode, "-Y", "_ws.malformed"], capture_output=True, text=True, timeout=60).stdout
        expect(not malformed, f"malformed packets\n{malformed[:1000]}")
    fabric.done("down", "--all")


def ends_after_a_count(fabric):
    for name in ("alpha", "beta"):
        fabric.done("up", name)
    file = fabric.folder / "count.pcapng"
    capture = start(fabric, "-c", "10", "-w", str(file))
    pingpong(fabric, "mlx5")
    _, text = capture.communicate(timeout=10)
    expect(capture.returncode == 0 and "10 packets" in text and packets_of(file) == 10, f"{packets_of(file)} packets\n{text}")
    fabric.done("down", "--all")


def a_reader_that_leaves_or_stops_holds_nobody_up(fabric):
    for name in ("alpha", "beta"):
        fabric.done("up", name)
    left = subprocess.Popen(f"exec {fabric.bin / 'softhca'} capture -w - | head -c 1000 > /dev/null", shell=True,
                            env=fabric.environment, stderr=subprocess.DEVNULL)
    stopped = start(fabric, "-w", str(fabric.folder / "stopped.pcapng"))
    stopped.send_signal(signal.SIGSTOP)
    time.sleep(0.2)
    pingpong(fabric, "softhca", options=("-c", "-e", "-n", "300", "-s", "65536"))
    expect(left.wait(10) is not None, "a capture ends with its reader")
    killed = start(fabric, "-w", str(fabric.folder / "killed.pcapng"))
    killed.kill()
    killed.communicate()
    pingpong(fabric, "softhca")
    stopped.send_signal(signal.SIGCONT)
    end(stopped)
    packets_of(fabric.folder / "stopped.pcapng")
    fabric.done("down", "--all")


def ends_with_the_fabric(fabric):
    fabric.done("up", "alpha")
    capture = start(fabric, "-w", str(fabric.folder / "end.pcapng"))
    fabric.done("down", "alpha")
    eventually("the capture ends with the fabric", 5, lambda: capture.poll() is not None)
    expect(capture.returncode == 0, f"exit status {capture.returncode}")
    capture.communicate()


def mistakes(fabric):
    file = str(fabric.folder / "mistake.pcapng")
    expect(fabric.cli("capture", "-w", file).returncode == EXIT_NOT_RUNNING, "no fabric: not running")
    fabric.done("up", "alpha")
    result = fabric.cli("capture", "gamma", "-w", file)
    expect(result.returncode == EXIT_NOT_RUNNING and "alpha" in result.stderr, f"unknown link: {result.stderr}")
    result = fabric.cli("capture", "-w", "/no/such/folder/file")
    expect(result.returncode == EXIT_FAILED and "No such file" in result.stderr, f"no folder: {result.stderr}")
    expect(fabric.cli("capture", "alpha").returncode == EXIT_USAGE, "no file: usage")
    fabric.done("down", "alpha")


sys.exit(run_cases(__doc__, [every_packet_of_a_pingpong, ends_after_a_count,
                             a_reader_that_leaves_or_stops_holds_nobody_up, ends_with_the_fabric, mistakes]))
