# SPDX-License-Identifier: Apache-2.0
"""A disk that cannot make durable what a server wrote.

The flush before a volume goes to another node is the last one that reaches its
disk there: what fails then would be lost without a word.
"""
from __future__ import annotations

import contextlib
import re
import typing
from collections.abc import Iterator

from lab import look
from tests.functional import environment
from tests.functional import test_migration

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

FAILED = 'fsync .* failed with status 5'
# Seconds that the target works, and that it does not: never, always. Reads
# pass (error_writes, drivers/md/dm-flakey.c).
_FLAKEY = '0 3600 1 error_writes'


@environment.only_long
class FlushTest(test_migration.MigrationTestCase):

    @contextlib.contextmanager
    def broken(self, node: LabNode, lv: str) -> Iterator[None]:
        """Let writes and flushes of an LV fail, not reads."""
        path = look.lvs(node, '-o', 'lv_dm_path', '-S',
                        f'lv_name=volume-{lv}').strip()
        table = (look.device(node, path, 'table') or '').strip()
        first, count, _, device, offset = table.split()
        node.run('modprobe dm-flakey')
        self.load(node, path,
                  f'{first} {count} flakey {device} {offset} {_FLAKEY}')
        try:
            yield
        finally:
            self.load(node, path, table)

    def test_an_attachment_elsewhere_is_withdrawn(self) -> None:
        volume, image = self.filled(self.node1)
        before = self.row(volume)
        attachment = self.lab.reserve(volume)
        with self.broken(self.node1, before.lv):
            self.assertRegex(self.error_of(
                lambda: self.lab.connect(attachment, self.node2.number)),
                FAILED)
            self.assertEqual((before.host, before.lv), (
                self.row(volume).host, self.row(volume).lv))
        at = self.attach(volume, self.node2, attachment)
        self.assert_holds(image, at)

    def test_a_live_migration_waits(self) -> None:
        """Its first write ends when the disk of the old node works again."""
        old, image, server = self.attached(self.node1)
        new = self.migrate(old, self.node2)
        self.hold(new)
        with contextlib.ExitStack() as stack:
            with self.broken(self.node1, old.lv):
                write = stack.enter_context(
                    self.waiting_write(new, image, 19))
                self.wait('the flush to fail', lambda: re.search(
                    FAILED, self.node1.volume.new_log()))
                self.assertFalse(self.has_moved(new))
                self.assertIsNone(write.poll())
            self.assertEqual(0, write.wait(600).code)
        self.assertTrue(self.has_moved(new))
        self.finish(old, new, server)
        self.assert_holds(image, new)
