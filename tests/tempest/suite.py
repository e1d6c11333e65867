# SPDX-License-Identifier: Apache-2.0
"""Tests of tempest's in a lab, and the look at what they leave in it."""
from __future__ import annotations

import importlib.util
import pathlib
import typing
import unittest
from collections.abc import Callable, Container, Iterable, Iterator

import testtools

from lab import checker
from lab.lab import Lab
from tests.functional import environment
from tests.tempest import chosen


def found(*folders: tuple[str, str]) -> Iterator[unittest.TestCase]:
    """The tests in these packages, each with a folder of it."""
    for package, folder in folders:
        spec = importlib.util.find_spec(package)
        assert spec and spec.origin
        top = pathlib.Path(spec.origin).parent
        # A loader keeps the top of what it has found before.
        yield from chosen.cases(unittest.TestLoader().discover(
            str(top / folder), top_level_dir=str(top.parent)))


class InLab(unittest.TestSuite):
    """Tests in the lab of this process, which starts for the first.

    :param lab: gives it, with all that they need in it
    """

    def __init__(self, tests: Iterable[unittest.TestCase],
                 lab: Callable[[], Lab]) -> None:
        super().__init__(tests)
        self._lab = lab

    def filter_by_ids(self, names: Container[str]) -> unittest.TestSuite:
        """Part of testtools' protocol: the tests of these names."""
        tests = [test for test in chosen.cases(self) if test.id() in names]
        return InLab([*tests, LeftTest(self._lab)] if tests else [],
                     self._lab)

    def run(self, result: unittest.TestResult,
            debug: bool = False) -> unittest.TestResult:
        """Run them where the lab's services can be reached."""
        if not self.countTestCases():
            return result
        return self._lab().network.inside(
            lambda: super(InLab, self).run(result, debug))


class LeftTest(testtools.TestCase):
    """The last one of each lab."""

    def __init__(self, lab: Callable[[], Lab]) -> None:
        super().__init__('test_nothing_is_left')
        self._lab = lab

    def test_nothing_is_left(self) -> None:
        lab = self._lab()
        look = checker.Checker(lab, environment.gib())
        self.addOnException(lambda info: self._keep_logs(lab, look, info))
        self.assertEqual([], look.check(), 'left behind')
        for table in ('volumes', 'snapshots'):
            self.assertEqual([], lab.sql(
                f'select id, status from {table} where deleted = 0'), table)

    def _keep_logs(self, lab: Lab, look: checker.Checker,
                   info: typing.Any) -> None:
        environment.keep_logs(self, look.states, lab)
