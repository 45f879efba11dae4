#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`softhca ctl link NAME down|up`: the port's state, its events, and what becomes of traffic."""
import sys
import time

from harness import EXIT_NOT_RUNNING, Failure, Flow, eventually, expect, run_cases


def ibstat(fabric, host):
    return fabric.done("run", "--host", host, "--", "ibstat")


def what_tools_see(fabric, provider):
    for name in ("alpha", "beta"):
        fabric.done("up", name)
    fabric.done("ctl", "link", "alpha", "down")
    text = ibstat(fabric, "alpha")
    expect("State: Down" in text and "Physical state: LinkUp" not in text, f"ibstat of a pulled cable\n{text}")
    text = fabric.done("run", "--host", "alpha", "--provider", provider, "--", "ibv_devinfo")
    expect("PORT_DOWN" in text, f"ibv_devinfo of a pulled cable\n{text}")
    expect("State: Active" in ibstat(fabric, "beta"), "the other host's port stays")
    port = fabric.host("alpha")["port"]
    expect((port["state"], port["link"]) == ("DOWN", "down"), f"status of a pulled cable: {port}")
    fabric.done("ctl", "link", "alpha", "down")
    fabric.done("ctl", "link", "alpha", "up")
    eventually("the port is ACTIVE again", 2, lambda: fabric.host("alpha")["port"]["state"] == "ACTIVE")
    text = ibstat(fabric, "alpha")
    expect("State: Active" in text and "Physical state: LinkUp" in text, f"ibstat of a plugged cable\n{text}")
    result = fabric.cli("ctl", "link", "gamma", "down")
    expect(result.returncode == EXIT_NOT_RUNNING and "alpha, beta" in result.stderr, f"{result.returncode} {result.stderr}")
    fabric.done("down", "--all")


def traffic_resumes_in_time(fabric, provider):
    # 4.096 us * 2^19 = 2.1 s, seven times.
    flow = Flow(fabric, provider, options=("--timeout", "17", "--retry-count", "7"))
    lid = fabric.host("alpha")["port"]["lid"]
    fabric.done("ctl", "link", "alpha", "down")
    flow.server.wait_line("event port error", 2)

    unplugged = "the cable of alpha is unplugged"
    stalls = []

    def says_why():
        stalls[:] = [qp.get("stall", "") for qp in fabric.host("beta")["device"]["qps"]]
        return any(unplugged in stall for stall in stalls)

    try:
        eventually("status names the cable that the client's QP waits for", 3, says_why)
    except Failure as failure:
        raise Failure(f"{failure}: {stalls}") from None
    text = fabric.done("status")
    expect(unplugged in text, f"the table says why a QP waits\n{text}")
    fabric.done("ctl", "link", "alpha", "up")
    flow.server.wait_line("event port active", 2)
    flow.goes_on()
    expect(fabric.host("alpha")["port"]["lid"] == lid, "the port has its LID again")
    flow.end()


def own_link_down(fabric, provider):
    flow = Flow(fabric, provider, options=("--timeout", "17", "--retry-count", "7"))
    fabric.done("ctl", "link", "beta", "down")
    flow.client.wait_line("event port error", 2)
    eventually("status names the cable of the QP's own port", 2, lambda: any(
        "the cable of beta is unplugged" in qp.get("stall", "") for qp in fabric.host("beta")["device"]["qps"]))
    fabric.done("ctl", "link", "beta", "up")
    flow.client.wait_line("event port active", 2)
    flow.end()


def retries_run_out(fabric, provider):
    flow = Flow(fabric, provider, options=("--timeout", "13", "--retry-count", "2"))
    fabric.done("ctl", "link", "alpha", "down")
    flow.client.wait_line("status 12", 4)
    flow.client.succeed()
    fabric.done("ctl", "link", "alpha", "up")
    again = Flow(fabric, provider)
    again.end()


def a_flapping_link(fabric, provider):
    flow = Flow(fabric, provider, options=("--timeout", "14", "--retry-count", "7"))
    for _ in range(5):
        fabric.done("ctl", "link", "alpha", "down")
        time.sleep(0.02)
        fabric.done("ctl", "link", "alpha", "up")
    flow.end()


sys.exit(run_cases(__doc__, [traffic_resumes_in_time, own_link_down, retries_run_out], takes_provider=True,
                   once=[what_tools_see, a_flapping_link]))
