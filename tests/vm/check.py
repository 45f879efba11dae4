# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Named checks in groups. A group's checks share the guests that its fixture boots."""
import contextlib
import time
import traceback

from guests import Failure, KnownDefect

GROUPS = {}
# Of a failure, what is printed.
MAX_LINES = 60


class Group:
    """`fixture(fabric)` yields what every check of the group is given; `after(it)` follows each check."""

    def __init__(self, name, fixture, after=lambda _: None):
        self.name, self.fixture, self.after, self.checks = name, contextlib.contextmanager(fixture), after, []
        GROUPS[name] = self

    def check(self, function):
        self.checks.append(function)
        return function


def run_group(group, fabric, only=()):
    """Runs the group's checks; prints one line each; returns how many failed."""
    failed = []
    chosen = [check for check in group.checks if not only or check.__name__ in only]
    started = time.monotonic()
    with group.fixture(fabric) as guests:
        print(f"-- {group.name}: guests up after {time.monotonic() - started:.1f} s", flush=True)
        for check in chosen:
            before = time.monotonic()
            try:
                check(guests)
                verdict = "ok"
            except Failure as failure:
                verdict = f"FAILED: {failure}"
                failed.append(check.__name__)
            except KnownDefect as defect:
                verdict = f"known defect: {defect}"
            except Exception:  # a check's own bug must not hide the others' results
                verdict = "FAILED: " + traceback.format_exc()
                failed.append(check.__name__)
            group.after(guests)
            rule = (check.__doc__ or check.__name__).strip().splitlines()[0]
            print(f"{verdict.split(':')[0]:<6} {check.__name__} ({time.monotonic() - before:.1f} s): {rule}")
            if verdict != "ok":
                details = verdict.splitlines()
                print("    " + "\n    ".join(details if len(details) <= MAX_LINES else
                                            [details[0], "...", *details[-MAX_LINES:]]))
            print(end="", flush=True)
    print(f"{group.name}: {len(chosen) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}".rstrip())
    return len(failed)
