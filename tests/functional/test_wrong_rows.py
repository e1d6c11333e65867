# SPDX-License-Identifier: Apache-2.0
"""Rows and tags do not fit together, and an operator says which are right."""
from __future__ import annotations

import typing
import uuid

from lab import look
from lab.agent import Result
from tests.functional import environment
from tests.functional import test_snapshots
from tests.functional.test_recovery import said

if typing.TYPE_CHECKING:
    from lab.lab import LabNode


@environment.only_long
class WrongRowsTest(test_snapshots.SnapshotTestCase):

    def ask(self, node: LabNode, *words: str) -> Result:
        return node.volume.cli(words[0], *words[1:], check=False)

    def plan(self, node: LabNode, *words: str) -> str:
        """What would be done; nothing was changed."""
        found = self.ask(node, *words)
        self.assertEqual(0, found.code, found.stderr)
        self.assertIn('Nothing was changed.', found.stdout)
        return found.stdout

    def done(self, node: LabNode, *words: str) -> None:
        found = self.ask(node, *words, '--yes')
        self.assertEqual(0, found.code, found.stderr)
        self.assertIn('Done.', found.stdout.splitlines()[-1])

    def tags(self, node: LabNode, lv: str) -> str:
        return str(look.volumes(node)[f'volume-{lv}'])

    def test_a_snapshot_that_was_purged(self) -> None:
        volume, image = self.filled(self.node1)
        snapshot = self.snapshot(volume)
        refused = self.ask(self.node1, 'release', volume, '--force', '--yes')
        self.assertIn('as its row says', said(refused))
        # What ``cinder-manage db purge`` leaves of one whose node was away.
        self.lab.sql(f"delete from snapshots where id = '{snapshot}'")
        plan = self.plan(self.node1, 'release', volume, '--force')
        self.assertIn(f'is no more snapshot {snapshot}', plan)
        self.assertIn(f'gives up: snapshot {snapshot} of volume {volume}',
                      plan)
        self.assertIn(snapshot, self.tags(self.node1, volume))
        self.done(self.node1, 'release', volume, '--force')
        self.assertNotIn(snapshot, self.tags(self.node1, volume))
        at = self.attach(volume, self.node1)
        # It is written where it is: nothing was cut.
        self.assertEqual(volume, at.lv)
        self.assert_holds(image, at)

    def test_what_was_forgotten_and_is_needed(self) -> None:
        volume, image = self.filled(self.node1)
        tag = f'dmclone.1.forgotten/{volume}'
        self.node1.run(['lvchange', '--addtag', tag,
                        f'{look.GROUP}/volume-{volume}'])
        self.assertIn('the row of volume', self.plan(
            self.node1, 'forget', volume, '--undo'))
        self.done(self.node1, 'forget', volume, '--undo')
        self.assertNotIn(tag, self.tags(self.node1, volume))
        self.assertIn('nobody has decided that it is forgotten', said(self.ask(
            self.node1, 'forget', volume, '--undo', '--yes')))
        self.assert_holds(image, self.attach(volume, self.node1))

    def test_rows_that_are_put_right(self) -> None:
        volume, image = self.filled(self.node1)
        other = self.volume(self.node1)
        snapshot = self.snapshot(volume)
        self.node1.volume.stop()
        rows = [self.row(found) for found in (volume, other)]
        self.two_name_one(volume, other)
        self.another_host(volume)
        self.assertEqual(rows, [self.row(found) for found in (volume, other)])
        self.another_snapshot(volume, snapshot)
        self.start_services(self.node1)
        self.assert_holds(image, self.attach(volume, self.node1))
        self.attach(other, self.node1)

    def adopted(self, lv: str, why: str) -> None:
        self.assertIn(why, self.plan(self.node1, 'adopt', lv))
        self.done(self.node1, 'adopt', lv)

    def two_name_one(self, volume: str, other: str) -> None:
        self.lab.sql(f"update volumes set _name_id = '{volume}' "
                     f"where id = '{other}'")
        self.adopted(volume, f'Volume {other} is nowhere')
        self.assertIn('as the row says', said(self.ask(
            self.node1, 'adopt', volume, '--yes')))
        self.adopted(other, f'Volume {other} becomes node1@dmclone/{other}')

    def another_host(self, volume: str) -> None:
        """As a retype with ``--migration-policy on-demand`` leaves it.

        cinder-volume of the other node works.
        """
        self.lab.sql("update volumes set host = replace(host, 'node1@', "
                     f"'node2@') where id = '{volume}'")
        self.adopted(volume, f'The row says node2@dmclone/{volume}')

    def another_snapshot(self, volume: str, snapshot: str) -> None:
        place = f'node2@dmclone/{uuid.uuid4()}'
        self.lab.sql(f"update snapshots set provider_id = '1;at={place}' "
                     f"where id = '{snapshot}'")
        self.adopted(volume, f'Snapshot {snapshot} becomes node1@dmclone/'
                     f'{volume}. The row says {place}')
