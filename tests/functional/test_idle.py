# SPDX-License-Identifier: Apache-2.0
"""A node with nothing in flight costs nothing."""
from __future__ import annotations

import re
import time
import typing

from tests.functional import base

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

# Longer than the longest pause between two looks of the reconciler.
WINDOW = 70.0
# So often it is tried to see one with nothing in it.
WINDOWS = 4
# So long nothing must have happened before it is called quiet. The driver
# reads its VG once more when Cinder asks for statistics after a change: it
# does so every STATS_SECONDS (tests/functional/environment.py).
QUIET = 20.0

# How the driver's own query begins (RowStore._query); Cinder's name every
# column.
OURS = re.compile(r'SELECT volumes\.id AS \w+, volumes\.host|'
                  r'SELECT volume_attachment\.volume_id AS \w+, '
                  r'volume_attachment\.id')
# All that an idle cinder-volume does by itself: it reports that it is alive.
HEARTBEAT = re.compile(
    r'(SELECT services\.|UPDATE services SET|COMMIT|ROLLBACK|SELECT 1$|'
    r'SHOW |SET |SELECT @@|SELECT (DATABASE|VERSION)\(|$)')

# The counters of what a process has forked and reaped: minor page faults and
# processor time of its children.
_PROCESSES = '''
cd /proc
for stat in [0-9]*/stat; do
    dir=${stat%/stat}
    { read line <"$stat"; } 2>/dev/null &&
        echo "$line|$(tr '\\0' ' ' <"$dir/cmdline")"
done
'''


class IdleTest(base.FunctionalTest):
    """Counts statements at the server and forks in the kernel."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(self.lab.sql, 'set global general_log = 0')
        self.lab.sql("set global log_output = 'TABLE'")
        self.lab.sql('truncate mysql.general_log')
        self.lab.sql('set global general_log = 1')

    def statements(self, node: LabNode) -> list[str]:
        """All that a node has asked the database."""
        rows = self.lab.sql(
            'select convert(argument using utf8mb4) from mysql.general_log '
            "where command_type in ('Query', 'Execute') and user_host like "
            f"'%[{node.mgmt_address}]%' order by event_time")
        return [text.strip() for text, in rows]

    def asked(self) -> list[str]:
        """What the nodes have asked beside heartbeats."""
        return [f'{node.name}: {text}' for node in self.lab.nodes
                for text in self.statements(node)
                if not HEARTBEAT.match(text)]

    def forks(self, node: LabNode) -> dict[str, tuple[str, ...]]:
        """Counters of the driver's helper and of cinder-volume, by pid."""
        found = {}
        for line in node.run(_PROCESSES, check=False).stdout.splitlines():
            stat, _, command = line.partition('|')
            words = command.split()
            if words[:1] in (['sh'], ['sudo']):
                continue
            if any(word.endswith('/cinder-volume') for word in words) or (
                    'cinder_dmclone.privileged.context' in words):
                counters = stat.rpartition(')')[2].split()
                found[stat.split()[0]] = tuple(
                    counters[at] for at in (8, 10, 13, 14))
        return found

    def test_idle_nodes_ask_and_fork_nothing(self) -> None:
        before = self._all_forks()
        self.volume(self.node1)
        for node in self.lab.nodes:
            self.attach(self.volume(node), node)
        # A volume that has moved is at rest as any other.
        moved = self.volume(self.node1)
        at = self.attach(moved, self.node2)
        self.wait_complete(moved)
        self.detach(at)
        # Otherwise this test could not fail: work is seen on each node.
        self.assertTrue([text for text in self.asked()
                         if OURS.search(text)])
        # On a slow machine a last look may come after a quiet while.
        for _ in range(WINDOWS):
            self.wait('the nodes to be quiet', self._quiet)
            settled = self._all_forks()
            self.lab.sql('truncate mysql.general_log')
            time.sleep(WINDOW)
            asked, forked = self.asked(), self._all_forks()
            if not asked and forked == settled:
                break
        self.assertEqual([], asked)
        self.assertEqual(settled, forked)
        for idle, found in zip(before, settled):
            self.assertNotEqual(idle, found)
            # cinder-volume, its worker, the helper.
            self.assertGreaterEqual(len(found), 3)
        for node in self.lab.nodes:
            # Each heartbeat reads its row and writes it; nobody else reads.
            words = [text.split()[0] for text in self.statements(node)
                     if ' services' in text]
            self.assertIn('UPDATE', words)
            self.assertLessEqual(words.count('SELECT'),
                                 words.count('UPDATE') + 1)

    def _quiet(self) -> bool:
        before = self._done()
        time.sleep(QUIET)
        return self._done() == before

    def _done(self) -> tuple[int, list[dict[str, tuple[str, ...]]]]:
        """How much was asked, and what was forked, until now."""
        return len(self.asked()), self._all_forks()

    def _all_forks(self) -> list[dict[str, tuple[str, ...]]]:
        return [self.forks(node) for node in self.lab.nodes]
