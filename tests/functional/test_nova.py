# SPDX-License-Identifier: Apache-2.0
"""A real server on real Nova, libvirt and QEMU, and the proof of its disk.

The guest writes and flushes numbered blocks all the time and says on its
console what was acknowledged; its disk must have all of that at every stop.
"""
from __future__ import annotations

import json
import shutil
import typing

import testtools

from lab import guest, Lab
from lab.guest.console import Console
from lab.processes import wait_for
from tests.functional import checker
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.lab import LabNode


@environment.only_long
class NovaTest(testtools.TestCase):
    """Each test has a server of its own on node 1; the lab is theirs."""

    lab: Lab

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.lab = Lab('functional-nova', nova=True,
                      backend={'volume_clear': 'none'})
        cls.addClassCleanup(cls.lab.stop)
        cls.lab.start()
        shutil.copy(guest.verify.__file__, cls.lab.directory / 'verify.py')

    def setUp(self) -> None:
        super().setUp()
        self.addOnException(
            lambda info: environment.keep_logs(self.id(), '', self.lab))
        self.said: dict[str, str] = {}
        self.volume = self.lab.create_root(node=1)
        self.server = self.lab.create_server(self.volume, node=1)
        self.addCleanup(self.remove)
        self.wait_written()

    def remove(self) -> None:
        """Nothing may be left of the server and its volume."""
        self.lab.delete_server(self.server)
        self.lab.delete_volume(self.volume)
        self.assertEqual([], checker.Checker(self.lab).check())

    def console(self) -> Console:
        """All that the guest has said, on every node."""
        for node in self.lab.nodes:
            try:
                self.said[node.name] = node.compute.console(self.server)
            except FileNotFoundError:
                continue
        return Console(*self.said.values())

    def wait_written(self, beyond: int = 0) -> int:
        """Wait until the guest has flushed something new; its number."""
        def last() -> int:
            found = self.console()
            try:
                number = found.last(found.disk('vda'))
            except KeyError:
                return 0
            return number if number > beyond else 0
        return int(wait_for('the guest to write', last, 180, 0.5))

    def node(self) -> LabNode:
        """Where the server is."""
        return self.lab.nodes[self.lab.node_of(self.server) - 1]

    def press(self, key: str) -> None:
        """Press a key of the server."""
        self.node().compute.press(self.server, key)

    def assert_intact(self) -> None:
        """Stop the guest's writes and compare its disk with what it said."""
        self.press('q')
        wait_for('the guest to stop', lambda: self.console().of('Q'), 180,
                 0.5)
        record = self.lab.directory / 'console.txt'
        record.write_text('\n'.join(self.said.values()))
        (row,) = self.lab.sql('select ifnull(_name_id, id) from volumes '
                              f"where id = '{self.volume}'")
        node = self.node()
        result = node.run(
            ['python3', str(self.lab.directory / 'verify.py'), 'check',
             f'/dev/mapper/dmclone-front-{node.name}-{row[0]}', str(record)],
            check=False, timeout=300)
        report = json.loads(result.stdout)
        self.assertEqual([], report['findings'])
        self.assertGreater(report['checked']['acknowledged'], 0)
        self.assertEqual([], self.console().of('E'))

    def wait_hydrated(self) -> None:
        """Wait until the volume has all its data where it is."""
        wait_for('the end of the hydration', lambda: ';' not in self.lab.sql(
            'select provider_id from volumes where '
            f"id = '{self.volume}'")[0][0], 240, 0.5)

    def test_live_migration_under_load(self) -> None:
        self.press('h')
        before = self.wait_written(self.wait_written())
        self.lab.live_migrate(self.server, 2)
        self.assertEqual('node2', self.node().name)
        self.wait_written(before)
        self.wait_hydrated()
        self.assert_intact()

    def test_back_while_hydrating(self) -> None:
        """A chain, with a server that writes all the time."""
        self.lab.live_migrate(self.server, 2)
        self.lab.live_migrate(self.server, 1)
        self.assertEqual('node1', self.node().name)
        self.wait_written(self.wait_written())
        self.wait_hydrated()
        self.assert_intact()

    def test_cold_migration_reverted(self) -> None:
        self.lab.migrate(self.server, 2)
        self.wait_written(self.wait_written())
        self.lab.revert(self.server)
        self.assertEqual('node1', self.node().name)
        self.wait_written(self.wait_written())
        self.wait_hydrated()
        self.assert_intact()
