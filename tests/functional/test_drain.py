# SPDX-License-Identifier: Apache-2.0
"""A node is taken out of service: what moves, what stays, and why."""
from __future__ import annotations

import concurrent.futures
import copy

from lab import look
from tests.functional import environment
from tests.functional import faults
from tests.functional import test_recovery
from tests.functional import test_snapshots
from tests.functional import test_thin

NOTHING = ('node1@dmclone has nothing any more: it may be switched off, and '
           'removed.')


class DrainTestCase(test_snapshots.SnapshotTestCase):
    """It is node 1; node 2 is the only other."""

    def drain(self, *words: str, code: int = 0) -> list[str]:
        """What the command prints."""
        found = self.node1.volume.cli('drain', *words, check=False)
        self.assertEqual(code, found.code, found.stdout + found.stderr)
        return found.stdout.splitlines()


@environment.only_long
class DrainTest(DrainTestCase):

    def rows(self) -> list[object]:
        return [self.row(volume) for volume in self.volumes]

    def test_what_can_move_does(self) -> None:
        volume, image = self.filled(self.node1)
        other = self.volume(self.node1)
        kept, content = self.filled(self.node1)
        snapshot = self.snapshot(kept)
        used = self.volume(self.node1)
        at = self.attach(used, self.node1)
        before = self.rows()
        plan = self.drain()
        stays = (f'stays: volume {used}: it has the attachment {at.id} '
                 '(node1); live-migrate its server, or detach it')
        for line in (stays, f'moves: volume {other}, 1 GiB', 'moves: '
                     f'snapshot {snapshot} of volume {kept}, 1 GiB'):
            self.assertIn(line, plan)
        self.assertEqual('Nothing was changed. With --yes it is done.',
                         plan[-1])
        self.assertEqual(before, self.rows())
        done = self.drain('--yes', '--parallel', '1', code=1)
        self.assertEqual([
            stays, 'No other node needs node1@dmclone. What stays is away '
            'while it is off.'], done[-2:])
        self.assertEqual(3, len([line for line in done
                                 if line.startswith('moved: ')]))
        for moved in (volume, other, kept):
            row = self.row(moved)
            self.assertEqual(('node2', 'available', '2'),
                             (row.node, row.status, row.provider_id))
        self.assertEqual({f'volume-{used}'}, set(look.volumes(self.node1)))
        self.detach(at)
        done = self.drain('--yes')
        self.assertEqual(NOTHING, done[-1])
        self.assertEqual(set(), set(look.volumes(self.node1)))
        self.assert_holds(image, self.attach(volume, self.node2))
        self.assert_holds(content, self.attach(
            self.born(snapshot_id=snapshot), self.node2))

    def test_it_is_stopped(self) -> None:
        """What has moved by then has; the next run moves the rest."""
        images = dict(self.filled(self.node1) for _ in range(2))

        def moved() -> int:
            return [self.row(volume).node
                    for volume in images].count('node2')
        self.freeze(self.node2, faults.COPYING)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            drain = pool.submit(self.node1.volume.cli, 'drain', '--yes',
                                '--parallel', '1', check=False)
            self.wait('the first to move', moved)
            self.wait_frozen(self.node2)
            self.node1.run(['pkill', '-INT', '-f', 'cinder-dmclone drain'])
            found = drain.result()
        self.assertEqual(2, found.code, found.stdout)
        self.assertIn('stopped; run it again', test_recovery.said(found))
        self.assertEqual(1, moved())
        self.thaw(self.node2)
        done = self.drain('--yes')
        self.assertEqual(NOTHING, done[-1])
        self.assertEqual(1, len([line for line in done
                                 if line.startswith('moved: ')]))
        for volume, image in images.items():
            self.assert_holds(image, self.attach(volume, self.node2))

    def test_nothing_moves_without_the_service(self) -> None:
        volume = self.volume(self.node1)
        self.node1.volume.kill()
        self.wait('node 1 to count as down', lambda: self.node1.volume.cli(
            'drain', check=False).code == 2)
        found = self.node1.volume.cli('drain', '--yes', check=False)
        self.assertEqual((2, ''), (found.code, found.stdout))
        self.assertIn('cinder-volume of node1@dmclone, which has to do it, is '
                      'down: start it. Nothing was changed on node1@dmclone.',
                      test_recovery.said(found))
        self.assertEqual('node1', self.row(volume).node)


@environment.only_long
class ThinDrainTest(test_thin.ThinTestCase, DrainTestCase):
    """Node 1 has a pool, node 2 has none."""

    def test_a_snapshot_that_shares_blocks(self) -> None:
        volume, image = self.filled(self.node1)
        snapshot, then = self.snapshot(volume), copy.deepcopy(image)
        at = self.attach(volume, self.node1)
        image.write(at, 7, 24, test_snapshots.BLOCKS // 25)
        self.detach(at)
        done = self.drain('--yes')
        self.assertEqual(NOTHING, done[-1])
        self.assertEqual(0, self.used())
        self.assertEqual('node2', self.row(volume).node)
        self.assert_holds(image, self.attach(volume, self.node2))
        self.assert_holds(then, self.attach(
            self.born(snapshot_id=snapshot), self.node2))
