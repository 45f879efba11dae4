# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Curves over message size for `bench/run --plot`: two panels, drawn by gnuplot as SVG."""
import statistics
import subprocess
from dataclasses import dataclass, field

SIZES = (8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 8 << 20)
BANDWIDTH, LATENCY = "bandwidth, GB/s", "half a round trip, us"
# A latency of megabytes is a bandwidth.
MOST_FOR_LATENCY = 256 << 10

SCRIPT = """
set terminal svg size 900,900 dynamic background "white" font "sans,13"
set output "{path}"
set multiplot layout 2,1
set logscale x 2
set logscale y 10
set grid
set xlabel "message, bytes"
set format x "%.0b%BB"
set key outside right top
"""


@dataclass
class Curve:
    """`measure(size)` gives one value; `values` are the medians of its samples, by size."""
    panel: str
    name: str
    measure: object
    samples: dict = field(default_factory=dict)

    def takes(self, size):
        return self.panel == BANDWIDTH or size <= MOST_FOR_LATENCY

    def values(self):
        return {size: statistics.median(samples) for size, samples in sorted(self.samples.items())}


def curves(bench, ucx, memcpy, tcp):
    """What is drawn. `ucx(transports, test, size, iterations)`, `memcpy(size)` and `tcp(size)` are bench/run's."""
    def ucx_count(size):
        return max(50, min(20000, (1 << 30) // size)) // bench.scale

    result = [Curve(BANDWIDTH, f"{tool}, {name}", lambda size, t=tool, p=provider: bench.bandwidth(t, size, p))
              for tool, provider, name in (("ib_write_bw", "softhca", "ours"), ("ib_read_bw", "softhca", "ours"),
                                           ("ib_send_bw", "softhca", "ours"), ("ib_write_bw", "mlx5", "libmlx5"))]
    result += [
        Curve(BANDWIDTH, "UCX posix,cma", lambda size: ucx("posix,cma", "tag_bw", size, ucx_count(size))[1]),
        Curve(BANDWIDTH, "memcpy", memcpy),
    ]
    result += [Curve(LATENCY, f"{tool}, ours", lambda size, t=tool: bench.latency(t, size=size))
               for tool in ("ib_write_lat", "ib_read_lat", "ib_send_lat")]
    result += [
        Curve(LATENCY, "UCX posix,cma", lambda size: ucx("posix,cma", "tag_lat", size, ucx_count(size))[0]),
        Curve(LATENCY, "busy TCP", tcp),
    ]
    return result


def draw(path, drawn):
    """Writes the SVG."""
    script = SCRIPT.format(path=str(path).replace("\\", "\\\\").replace('"', '\\"'))
    for panel in (BANDWIDTH, LATENCY):
        with_data = [curve for curve in drawn if curve.panel == panel and curve.samples]
        if not with_data:
            continue
        script += f'set ylabel "{panel}"\n'
        script += "plot " + ", ".join(f'"-" using 1:2 with linespoints title "{curve.name}" noenhanced' for curve in with_data) + "\n"
        for curve in with_data:
            script += "".join(f"{size} {value}\n" for size, value in curve.values().items()) + "e\n"
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
