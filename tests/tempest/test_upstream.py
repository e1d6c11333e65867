# SPDX-License-Identifier: Apache-2.0
"""tempest's tests of volumes and those of Cinder's plugin, in a lab."""
from __future__ import annotations

import importlib.util
import pathlib
import tempfile
import typing
import unittest
from collections.abc import Container, Iterator

import testtools

from lab import checker, install
from lab.lab import Lab
from tests.functional import environment
from tests.tempest import chosen
from tests.tempest import settings

# Where tests of volumes are; cinder_tempest_plugin.rbac is about cinder-api's
# policies.
_FOLDERS = (('tempest', 'api/volume'), ('cinder_tempest_plugin', 'api'))


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite,
               pattern: str | None) -> unittest.TestSuite:
    """Part of unittest's protocol: the tests of this module."""
    settings.use()
    choice = chosen.Choice(_found(), chosen.read(chosen.EXCLUDED),
                           chosen.read(chosen.DRIVER))
    return InLab(choice.long() if environment.LONG else choice.short())


def _found() -> Iterator[unittest.TestCase]:
    for package, folder in _FOLDERS:
        spec = importlib.util.find_spec(package)
        assert spec and spec.origin
        top = pathlib.Path(spec.origin).parent
        # A loader keeps the top of what it has found before.
        yield from chosen.cases(unittest.TestLoader().discover(
            str(top / folder), top_level_dir=str(top.parent)))


class InLab(unittest.TestSuite):
    """Tests in the lab of this process, which starts for the first."""

    def filter_by_ids(self, names: Container[str]) -> unittest.TestSuite:
        """Part of testtools' protocol: the tests of these names."""
        tests = [test for test in chosen.cases(self) if test.id() in names]
        return InLab([*tests, LeftTest('test_nothing_is_left')]
                     if tests else [])

    def run(self, result: unittest.TestResult,
            debug: bool = False) -> unittest.TestResult:
        """Run them where the lab's services can be reached."""
        if not self.countTestCases():
            return result
        lab = environment.lab()
        _provide_image(lab)
        return lab.network.inside(
            lambda: super(InLab, self).run(result, debug))


def _provide_image(lab: Lab) -> None:
    # Cinder looks at images with it.
    install.ensure_packages(['qemu-utils'])
    if settings.IMAGE in str(lab.openstack('image', 'list')):
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(1 << 20))
        file.flush()
        lab.openstack('image', 'create', '--id', settings.IMAGE, '--public',
                      '--disk-format', 'raw', '--file', file.name, 'zeros')


class LeftTest(testtools.TestCase):
    """The last one of each lab."""

    def test_nothing_is_left(self) -> None:
        lab = environment.lab()
        self.addOnException(self._keep_logs)
        look = checker.Checker(lab, environment.gib())
        self.states = look
        self.assertEqual([], look.check(), 'left behind')
        for table in ('volumes', 'snapshots'):
            self.assertEqual([], lab.sql(
                f'select id, status from {table} where deleted = 0'), table)

    def _keep_logs(self, info: typing.Any) -> None:
        environment.keep_logs(self, self.states.states, environment.lab())
