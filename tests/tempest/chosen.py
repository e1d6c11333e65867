# SPDX-License-Identifier: Apache-2.0
"""Which of tempest's tests are run, and what is expected of them.

The lists have a regular expression a line, which is searched in the names of
tests; what follows a ``#`` is the reason.
"""
from __future__ import annotations

import pathlib
import re
import unittest
from collections.abc import Container, Iterable, Iterator, Mapping

_HERE = pathlib.Path(__file__).parent
# Tests that cannot pass, and why.
EXCLUDED = _HERE / 'exclude.txt'
# Tests that reach the driver, all others are of Cinder's API alone.
DRIVER = _HERE / 'driver.txt'


def read(path: pathlib.Path) -> dict[str, str]:
    """The reasons of a list by their regular expressions.

    :raises ValueError: if a line has no reason
    """
    found = {}
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith('#'):
            continue
        expression, _, reason = line.partition('#')
        if not reason.strip():
            raise ValueError(f'{path.name}: no reason: {line}')
        found[expression.strip()] = reason.strip()
    return found


def cases(tests: Iterable[unittest.TestCase | unittest.TestSuite]
          ) -> Iterator[unittest.TestCase]:
    """All tests in suites of suites."""
    for test in tests:
        if isinstance(test, unittest.TestSuite):
            yield from cases(test)
        else:
            yield test


class Choice:
    """Tests by what the lists say of them.

    :raises ValueError: if nothing has a name that a list has
    """

    def __init__(self, tests: Iterable[unittest.TestCase],
                 excluded: Mapping[str, str],
                 driver: Mapping[str, str]) -> None:
        names = {test.id(): test for test in tests}
        self._names = names
        self._excluded = {name: reason for expression, reason
                          in excluded.items()
                          for name in _matching(expression, names)}
        self._driver = {name for expression in driver
                        for name in _matching(expression, names)}

    def short(self) -> list[unittest.TestCase]:
        """Those that reach the driver and can pass."""
        return [test for name, test in self._names.items()
                if name in self._driver and name not in self._excluded]

    def long(self) -> list[unittest.TestCase]:
        """All; those that cannot pass have to fail."""
        return self._expected(self._names)

    def reaching(self) -> list[unittest.TestCase]:
        """Those that reach the driver, in the same way."""
        return self._expected(self._driver)

    def _expected(self, names: Container[str]) -> list[unittest.TestCase]:
        return [Impossible(test, self._excluded[name])
                if name in self._excluded else test
                for name, test in self._names.items() if name in names]


def _matching(expression: str, names: Iterable[str]) -> list[str]:
    found = [name for name in names if re.search(expression, name)]
    if not found:
        raise ValueError(f'no test is called {expression}')
    return found


class Impossible(unittest.TestCase):
    """A test that is excluded, under its own name: it fails, or this does."""

    def __init__(self, test: unittest.TestCase, reason: str) -> None:
        super().__init__('run_test')
        self._test = test
        self._reason = reason

    def id(self) -> str:
        return self._test.id()

    def run_test(self) -> None:
        """Run the test, with the fixtures of its class."""
        result = unittest.TestResult()
        unittest.TestSuite([self._test]).run(result)
        if result.skipped:
            self.skipTest(result.skipped[0][1])
        self.assertFalse(
            result.wasSuccessful(),
            f'passes, so that it need not be in {EXCLUDED.name}, where it '
            f'stands because of: {self._reason}')
