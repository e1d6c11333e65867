# SPDX-License-Identifier: Apache-2.0
"""A snapshot moves to another node, and holds what it held."""
from __future__ import annotations

import copy
import typing

from lab import look
from tests.functional import environment
from tests.functional import test_recovery
from tests.functional import test_snapshots

if typing.TYPE_CHECKING:
    from lab.agent import Result
    from lab.lab import LabNode

BLOCKS = test_snapshots.BLOCKS


@environment.only_long
class SnapshotMoveTest(test_snapshots.SnapshotTestCase):
    """Node 1 has a snapshot of a volume that has gone to node 2."""

    nodes = 3

    @property
    def node3(self) -> LabNode:
        return self.lab.nodes[2]

    def move(self, snapshot: str, peer: str, *words: str) -> Result:
        """Run the command on node 2; its result."""
        return self.node2.volume.cli('move-snapshot', snapshot, peer, *words,
                                     check=False)

    def at(self, snapshot: str) -> str:
        """Where it is, as its row says; nothing if there is none."""
        found = self.lab.sql('select provider_id from snapshots where '
                             f"id = '{snapshot}'")
        return ''.join(row.partition('at=')[2] for row, in found)

    def wait_moved(self, snapshot: str, node: LabNode) -> None:
        self.wait(f'move of snapshot {snapshot} to {node.name}', lambda: (
            self.at(snapshot).startswith(f'{node.name}@dmclone/')
            and ';' not in self.at(snapshot)))

    def test_it_leaves_nothing_behind(self) -> None:
        volume, image = self.filled(self.node1)
        then = copy.deepcopy(image)
        snapshot = self.snapshot(volume)
        there = self.attach(volume, self.node2)
        image.write(there, 3, 40, BLOCKS // 41)
        self.wait_complete(volume)
        lv = f'volume-{volume}'
        self.assertEqual({lv}, set(look.volumes(self.node1)))
        plan = self.move(snapshot, 'node3')
        self.assertEqual(0, plan.code, plan.stderr)
        self.assertIn(f'is copied from node1@dmclone/{volume} to '
                      'node3@dmclone', plan.stdout)
        self.assertTrue(self.at(snapshot).startswith('node1@'))
        done = self.move(snapshot, 'node3', '--yes')
        self.assertEqual((0, plan.stdout.splitlines()[0]),
                         (done.code, done.stdout.splitlines()[0]),
                         done.stderr)
        # It can be used all the while.
        early = self.born(snapshot_id=snapshot)
        self.wait_moved(snapshot, self.node3)
        self.wait_complete(early)
        self.wait('end of what node 1 had',
                  lambda: not look.volumes(self.node1))
        born = self.born(snapshot_id=snapshot)
        for one in (early, born):
            at = self.attach(one, self.node1)
            self.assert_holds(then, at)
            self.wait_complete(one)
            self.assert_holds(then, at)
            self.detach(at)
        self.assert_holds(image, there)
        self.assert_refused(snapshot, 'node3', 'it is there')
        self.delete_snapshot(snapshot)
        self.wait('end of what node 3 had',
                  lambda: not look.volumes(self.node3))

    def assert_refused(self, snapshot: str, peer: str, why: str,
                       code: int = 1) -> None:
        """One line says why, and the row is as it was."""
        before = self.at(snapshot)
        found = self.move(snapshot, peer, '--yes')
        self.assertEqual((code, ''), (found.code, found.stdout), found.stderr)
        self.assertIn(why, test_recovery.said(found))
        self.assertIn('Nothing was changed', test_recovery.said(found))
        self.assertEqual(before, self.at(snapshot))

    def test_nodes_that_die_meanwhile(self) -> None:
        """Both lose their power while it is copied, and it goes on."""
        volume, image = self.filled(self.node1)
        snapshot = self.snapshot(volume)
        self.assert_refused('x', 'node3', 'the database has no snapshot x', 2)
        self.assert_refused(snapshot, 'node9', 'node9@dmclone is down, or '
                            'there is no such node')
        done = self.move(snapshot, 'node3', '--yes')
        self.assertEqual(0, done.code, done.stderr)
        both = self.node3, self.node1
        for node in both:
            node.power_cut()
        for node in both:
            node.start()
        for node in both:
            node.wait_booted()
        self.start_services(*both)
        self.wait_moved(snapshot, self.node3)
        self.assert_holds(image, self.attach(
            self.born(snapshot_id=snapshot), self.node2))
        self.assert_holds(image, self.attach(volume, self.node1))
        self.delete_snapshot(snapshot)
