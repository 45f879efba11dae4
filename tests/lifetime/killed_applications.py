#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""kill -9 of an application: what it had is gone within a second, its peer runs out of retries, others go on."""
import os
import signal
import sys

from harness import Flow, eventually, expect, pingpong, run_cases


def kill_program(fabric, application):
    """kill -9 of the process itself."""
    os.kill(application.process.pid, signal.SIGKILL)
    application.process.wait()


def objects_are_freed_and_the_peer_is_told(fabric, provider):
    for name in ("alpha", "beta"):
        fabric.done("up", name)
    before = fabric.objects("alpha")
    others = Flow(fabric, provider)
    busy = fabric.objects("alpha")
    flow = Flow(fabric, provider, options=("--timeout", "12", "--retry-count", "3"))
    both = fabric.objects("alpha")
    for kind in ("qps", "cqs", "mkeys", "pds"):
        expect(both[kind] > busy[kind] > before[kind], f"{kind} of two processes: {before} {busy} {both}")
    kill_program(fabric, flow.server)
    eventually("the objects of the killed process are gone", 1, lambda: fabric.objects("alpha") == busy)
    flow.client.wait_line("status 12", 5)
    flow.client.succeed()
    others.goes_on()
    # The other way round: the client is killed while its messages are on their way.
    flow = Flow(fabric, provider)
    kill_program(fabric, flow.client)
    eventually("the objects of the killed client are gone", 1, lambda: fabric.objects("beta")["qps"] == 1)
    flow.server.succeed()
    others.goes_on()
    pingpong(fabric, provider)
    others.end()
    eventually("all objects are gone", 1, lambda: fabric.objects("alpha") == before)
    fabric.done("down", "--all")


def a_polling_peer_is_told(fabric, provider):
    flow = Flow(fabric, provider, options=("--poll",))
    kill_program(fabric, flow.server)
    flow.client.wait_line("status 12", 5)
    flow.client.succeed()


def on_one_host(fabric, provider):
    others = Flow(fabric, provider, hosts=("alpha", "alpha"))
    flow = Flow(fabric, provider, hosts=("alpha", "alpha"))
    kill_program(fabric, flow.server)
    eventually("the QP of the killed process is gone", 1, lambda: fabric.objects("alpha")["qps"] <= 3)
    flow.client.wait_line("status 12", 5)
    flow.client.succeed()
    others.end()


def the_last_application_takes_the_host_along(fabric, provider):
    flow = Flow(fabric, provider)
    kill_program(fabric, flow.server)
    kill_program(fabric, flow.client)
    fabric.expect_gone(5)


def a_stopped_application_holds_nobody_up(fabric, provider):
    others = Flow(fabric, provider, hosts=("alpha", "alpha"))
    flow = Flow(fabric, provider)
    os.kill(flow.server.process.pid, signal.SIGSTOP)
    # One-sided operations need no processor of the target.
    flow.goes_on()
    others.goes_on()
    pingpong(fabric, provider)
    os.kill(flow.server.process.pid, signal.SIGCONT)
    flow.end()
    others.end()


sys.exit(run_cases(__doc__, [objects_are_freed_and_the_peer_is_told, a_polling_peer_is_told, on_one_host,
                             the_last_application_takes_the_host_along, a_stopped_application_holds_nobody_up],
                   takes_provider=True))
