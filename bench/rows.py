# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Rows of bench/run's table: what is measured, beside what, and how it is printed."""
import statistics
from dataclasses import dataclass, field


@dataclass
class Row:
    """One line of the table: `ours` against `theirs`, whose ratio must be at most or at least `target`."""
    number: int
    name: str
    unit: str
    ours: object
    theirs_name: str
    theirs: object  # None: the target is for the figure itself.
    relation: str   # "<=" or ">="
    target: float
    samples: list = field(default_factory=list)
    base_samples: list = field(default_factory=list)


def shared(function):
    """A baseline that several rows use is taken once per round."""
    cache = {}

    def taken(round_number):
        if round_number not in cache:
            cache[round_number] = function()
        return cache[round_number]
    return taken


def part(function, index):
    """One of the figures that a shared measurement gives."""
    def taken(round_number):
        return function(round_number)[index]
    return taken


def take(function, round_number):
    """Baselines that are shared want the number of the round."""
    return function(round_number) if function.__name__ == "taken" else function()


def median(values):
    return statistics.median(values) if values else None


def table(rows):
    lines = ["| # | what | ours | theirs | ratio | target | spread of ours | |", "| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in rows:
        ours, theirs = median(row.samples), median(row.base_samples)
        if ours is None or (row.theirs and theirs is None):
            lines.append(f"| {row.number} | {row.name} | not measured | | | | | short |")
            continue
        value = ours / theirs if row.theirs else ours
        met = value <= row.target if row.relation == "<=" else value >= row.target
        base = f"{row.theirs_name} {theirs:.3g} {row.unit}" if row.theirs else ""
        ratio = f"{value:.3g}" if row.theirs else ""
        spread = f"{min(row.samples):.3g}..{max(row.samples):.3g}"
        lines.append(f"| {row.number} | {row.name} | {ours:.3g} {row.unit} | {base} | {ratio} | {row.relation} {row.target:g} | "
                     f"{spread} | {'met' if met else 'short'} |")
    return "\n".join(lines)
