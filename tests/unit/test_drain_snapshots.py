# SPDX-License-Identifier: Apache-2.0
"""A node is drained that has snapshots."""

from __future__ import annotations

from cinder_dmclone.cli import remains
from cinder_dmclone.cli.remains import Fate
from cinder_dmclone.database.snapshots import SnapshotStore
from cinder_dmclone.location import SnapshotId
from cinder_dmclone import names
from cinder_dmclone.service import snapshots
from tests.unit import base
from tests.unit import test_drain
from tests.unit.test_drain import OTHER


class SnapshotsTest(test_drain.DrainTestCase):

    def snapshot(self) -> SnapshotId:
        snapshot = self.cloud.db.snapshot(self.volume, 'creating')
        snapshots.create(self.a.service, self.volume, snapshot)
        self.cloud.db.update_snapshot(snapshot, status='available')
        return snapshot

    def test_snapshots_move_too(self) -> None:
        found = [self.snapshot() for _ in range(3)]
        code, lines, _ = self.call(yes=False)
        self.assertIn('1 volumes and 3 snapshots move to other nodes',
                      lines[0])
        for snapshot in found:
            self.assertIn(f'moves: snapshot {snapshot} of volume '
                          f'{self.volume}, 1 GiB', lines)
        code, lines, err = self.call()
        self.assertEqual((0, ''), (code, err), lines)
        self.assertEqual({}, self.a.group.volumes)
        self.assertEqual(3, len([
            line for line in lines if line.startswith('begun: Snapshot ')]))
        self.assertTrue([line for line in lines if line.startswith(
            'waits: snapshot ') and ': it moves to ' in line])
        for snapshot in found:
            at = SnapshotStore().find([snapshot])[0].at
            assert at
            lv = self.cloud.nodes[at.node].group.volumes[names.data_lv(at.lv)]
            self.assertEqual(base.DATA,
                             [lv.read(r) for r in range(base.REGIONS)])
        self.assertEqual(2, max(self.readers))

    def test_a_snapshot_that_cannot_move(self) -> None:
        snapshot = self.snapshot()
        self.cloud.db.update_snapshot(snapshot, status='error')
        code, lines, _ = self.call()
        self.assertEqual(1, code)
        self.assertNotEqual('a@dmclone', self.cloud.row(self.volume).node)
        self.assertEqual([
            f'stays: snapshot {snapshot} of volume {self.volume}: its status '
            'is error', 'No other node needs a@dmclone. What stays is away '
            'while it is off.'], lines[-2:])
        self.cloud.db.drop_snapshot(snapshot)
        self.a.process.loop.run_once(everything=True)
        self.assertEqual(0, self.call()[0])

    def test_what_becomes_of_snapshots(self) -> None:
        snapshot = self.snapshot()
        at = f'1;at=a@dmclone/{self.lv}'
        there = f'b@dmclone/{OTHER}'
        for values, fate, why in (
                ({}, Fate.MOVES, ''),
                ({'status': 'deleting'}, Fate.WAITS, 'it is being deleted'),
                ({'provider_id': f'{at};offer={there}'}, Fate.WAITS,
                 f'it moves to {there}'),
                ({'provider_id': f'{at};offer=d@dmclone/{OTHER}'}, Fate.STAYS,
                 f'it moves to d@dmclone/{OTHER}, which is down: start it'),
                ({'provider_id': f'2;at={there}'}, Fate.WAITS,
                 f'it is {there}, and no more here'),
                ({'provider_id': f'1;at={there};offer=a@dmclone/{self.lv}'},
                 Fate.STAYS, f'it moves here from {there}; to end that: '
                 f'cinder-dmclone move-snapshot {snapshot} b@dmclone --yes'),
                ({'provider_id': 'v2;x'}, Fate.STAYS, 'Upgrade')):
            self.down.add('d@dmclone')
            self.cloud.db.update_snapshot(snapshot, **{
                'status': 'available', 'provider_id': at, **values})
            found, = (item for item in remains.look(self.a.process.world)
                      if item.what.startswith('snapshot'))
            self.assertIs(fate, found.fate, values)
            self.assertIn(why, found.why)

    def test_a_snapshot_that_hydrates_moves_afterwards(self) -> None:
        volume = self.cloud.create(self.b)
        self.cloud.attach(volume, self.a)
        self.volume = volume
        snapshot = self.snapshot()
        found, = (item for item in remains.look(self.a.process.world)
                  if item.what.startswith('snapshot'))
        self.assertEqual((Fate.WAITS, f'it hydrates from b@dmclone/{volume}'),
                         (found.fate, found.why))
        self.assertEqual(1, self.call()[0])
        self.assertNotIn('a@dmclone', str(
            SnapshotStore().find([snapshot])[0].at))
