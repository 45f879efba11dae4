# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Runs one module of rdma-core's Python tests as they are, and says of each test how it ended, one JSON object a
line on the descriptor given; a `start` without an end tells the caller which test took the process with it.

  run_module.py FOLDER MODULE RESULT_FD [SKIP_UNTIL]
"""
import json
import os
import sys
import unittest


def main():
    folder, module, descriptor, after = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    sys.argv[1:] = ["--dev", "mlx5_0"]
    sys.path.insert(0, folder)
    from args_parser import parser  # rdma-core's own
    parser.parse_args()

    def say(**event):
        os.write(descriptor, (json.dumps(event) + "\n").encode())

    class Result(unittest.TestResult):
        def startTest(self, test):
            super().startTest(test)
            say(test=test.id(), outcome="start")

        def addSuccess(self, test):
            say(test=test.id(), outcome="ok")

        def addSkip(self, test, reason):
            say(test=test.id(), outcome="skipped", why=reason)

        def addFailure(self, test, err):
            say(test=test.id(), outcome="failed", why=self._exc_info_to_string(err, test))

        def addError(self, test, err):
            say(test=str(getattr(test, "id", lambda: test)()), outcome="failed", why=self._exc_info_to_string(err, test))

        def addExpectedFailure(self, test, err):
            say(test=test.id(), outcome="ok")

        def addSubTest(self, test, subtest, err):
            if err is not None:
                say(test=test.id(), outcome="failed", why=self._exc_info_to_string(err, test))

    def flatten(suite):
        for item in suite:
            if isinstance(item, unittest.TestSuite):
                yield from flatten(item)
            else:
                yield item

    import importlib
    import types
    # The package's own __init__ imports every module; one is wanted.
    package = types.ModuleType("tests")
    package.__path__ = [os.path.join(folder, "tests")]
    sys.modules["tests"] = package
    # The suite's helpers import each other in a circle that closes only when this one comes first, as it does when
    # all modules are loaded in order.
    importlib.import_module("tests.utils")
    loaded = importlib.import_module("tests." + module)
    tests = list(flatten(unittest.defaultTestLoader.loadTestsFromModule(loaded)))
    if after:
        names = [t.id() for t in tests]
        tests = tests[names.index(after[0]) + 1:]
    unittest.TestSuite(tests).run(Result())
    say(test="", outcome="end")


main()
