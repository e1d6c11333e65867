# SPDX-License-Identifier: Apache-2.0
"""A node whose volumes are thin, beside one whose are not."""
from __future__ import annotations

import copy
import typing
import uuid

from lab import look
from tests.functional import base
from tests.functional import environment
from tests.functional import faults
from tests.functional import test_snapshots

if typing.TYPE_CHECKING:
    from lab.attached import AttachedVolume
    from lab.lab import LabNode

GROUP = look.GROUP
POOL = f'{GROUP}-pool'
BLOCKS = base.GIB // 4096
# Of the pools, in blocks.
CHUNK = (64 << 10) // 4096

# How many blocks of a device are not zero.
_NOT_ZERO = r'''
import sys
zeros, count = bytes(4096), 0
with open(sys.argv[1], 'rb') as device:
    while piece := device.read(1 << 20):
        if piece.strip(b'\0'):
            count += sum(piece[at:at + 4096] != zeros
                         for at in range(0, len(piece), 4096))
print(count)
'''


class ThinTestCase(test_snapshots.SnapshotTestCase):
    """Node 1 has a pool, node 2 has none."""

    # How large the pool is, in GiB of the lab's.
    pool = 12
    # How many nodes have one.
    count = 1

    def setUp(self) -> None:
        super().setUp()
        self.thin = self.lab.nodes[:self.count]
        self.addCleanup(self._make_thick)
        for node in self.thin:
            node.run(f'lvcreate -qy --type thin-pool -n {POOL} -c 64k -Zy '
                     f'-L {self.pool * self.gib}b {GROUP}')
        self._start_thin()

    def _start_thin(self) -> None:
        """Start cinder-volume where there are pools, with thin volumes."""
        self.restart_services(*self.thin, change=lambda node: (
            base.set_options(node, dmclone_lvm_type='thin')))

    def _make_thick(self) -> None:
        self.remove_volumes()
        try:
            self.wait('end of all volumes', lambda: not [
                name for node in self.thin for name in look.volumes(node)
                if name.startswith('volume-')])
        finally:
            for node in self.thin:
                node.volume.kill()
                node.run(f'lvremove -qfy {GROUP}/{POOL}', check=False)
            self.start_services(*self.thin)

    def column(self, node: LabNode, name: str, column: str) -> str:
        """What LVM says of an LV."""
        return node.run(['lvs', '--devices', node.disk, '--noheadings',
                         '--units', 'b', '--nosuffix', '-o', column,
                         f'{GROUP}/{name}']).stdout.strip()

    def layout(self, volume: str, node: LabNode) -> str:
        """The form of a volume's LV on a node."""
        return self.column(node, f'volume-{self.row(volume).lv}', 'lv_layout')

    def used(self) -> float:
        """Percent of the pool's data."""
        return float(self.column(self.node1, POOL, 'data_percent'))


class ThinTest(ThinTestCase):

    def test_there_and_back(self) -> None:
        """It is right in either form; nothing is left of it in the pool."""
        self.assertEqual(0, self.used())
        volume, image = self.filled(self.node1)
        self.assertEqual('thin,sparse', self.layout(volume, self.node1))
        self.assertAlmostEqual(100 / self.pool, self.used(), delta=0.5)
        at = self.attach(volume, self.node2)
        self.assertEqual('linear', self.layout(volume, self.node2))
        image.write(at, 5, 40, BLOCKS // 41)
        self.wait_complete(volume)
        self.assert_holds(image, at)
        # The lender has let go of all of it.
        self.wait('the room of the lender', lambda: self.used() == 0)
        self.detach(at)
        at = self.attach(volume, self.node1)
        self.assertEqual('thin,sparse', self.layout(volume, self.node1))
        image.write(at, 7, 24, BLOCKS // 25)
        self.assert_holds(image, at)
        self.wait_complete(volume)
        self.assert_holds(image, at)
        self.detach(at)
        self.remove_volumes()
        self.wait('the end of all data', lambda: self.used() == 0)

    @environment.only_long
    def test_a_snapshot_a_clone_and_growth(self) -> None:
        volume, image = self.filled(self.node1)
        at = self.attach(volume, self.node1)
        then = copy.deepcopy(image)
        snapshot = self.snapshot(volume)
        image.write(at, 7, 24, BLOCKS // 25)
        born = self.born(snapshot_id=snapshot)
        clone = self.born(source_volid=volume)
        there = self.attach(born, self.node1)
        self.assert_holds(then, there)
        for each in (volume, born, clone):
            self.wait_complete(each)
            self.assertEqual('thin,sparse', self.layout(each, self.node1))
        self.assert_holds(then, there)
        self.assert_holds(image, at)
        self.assert_holds(image, self.attach(clone, self.node1))
        self.detach(at)
        self.lab.wait_volume(volume, 'available')
        self.lab.extend_volume(volume, 2)
        self.assertEqual(2, self.row(volume).size)
        at = self.attach(volume, self.node1)
        tail = self.image()
        tail.write(at, BLOCKS, 64)
        tail.write(at, 2 * BLOCKS - 16, 16)
        self.assert_holds(image, at)
        self.assertEqual('', tail.blocks_difference(at))
        self.detach(at)
        self.delete_snapshot(snapshot)
        self.remove_volumes()
        self.wait('the end of all data', lambda: self.used() == 0)

    @environment.only_long
    def test_after_a_reboot(self) -> None:
        volume, image = self.filled(self.node2)
        at = self.attach_slowly(volume, self.node2, self.node1, crawl=True)
        image.write(at, 9, 20, BLOCKS // 21)
        self.assert_hydrating(at)
        self.node1.reboot()
        self._start_thin()
        self.wait(at.path, lambda: self.node1.run(
            ['test', '-e', at.path], check=False).code == 0)
        self.release(at, self.node2)
        self.wait_complete(volume)
        self.assert_holds(image, at)


class HolesTest(ThinTestCase):
    """Both nodes have a pool."""

    count = 2
    # Parts of a volume that are written: together 5 percent of it.
    parts = 10
    part = BLOCKS // 200 // CHUNK * CHUNK

    @environment.only_long
    def test_holes_do_not_move(self) -> None:
        volume, image = self._sparse()
        sent = self._sent(self.node1)
        at = self.attach(volume, self.node2)
        # To read it now would fetch what is read once more.
        self.wait_complete(volume)
        sent = self._sent(self.node1) - sent
        print(f'{self.id()}: {sent} bytes crossed the network for a volume '
              f'of {self.gib}, {100 * sent / self.gib:.1f} percent')
        self.assertLess(sent, self.gib * 7 // 100)
        self.assertGreater(sent, self.parts * self.part * 4096)
        self.assert_sparse(image, at, 0)
        self.assert_takes(at, self.parts * self.part)
        # Into the middle of each hole.
        image.write(at, BLOCKS // self.parts // 2, self.parts,
                    BLOCKS // self.parts)
        self.assert_sparse(image, at, self.parts)
        self.assert_takes(at, self.parts * (self.part + CHUNK))
        self.detach(at)
        at = self.attach(volume, self.node1)
        image.write(at, BLOCKS - 5, 5)
        self.assert_sparse(image, at, self.parts + 5)
        self.wait_complete(volume)
        self.assert_sparse(image, at, self.parts + 5)
        self.assert_takes(at, self.parts * (self.part + CHUNK) + CHUNK)

    @environment.only_long
    def test_copies_on_a_node_and_a_reboot(self) -> None:
        """Of a snapshot, of a volume, and where its server goes on."""
        volume, image = self._sparse()
        snapshot = self.snapshot(volume)
        at = self.attach(volume, self.node1)
        for one in (at, self.attach(self.born(snapshot_id=snapshot),
                                    self.node1)):
            self.assert_sparse(image, one, 0)
            self.wait_complete(one.volume)
            self.assert_sparse(image, one, 0)
            self.assert_takes(one, self.parts * self.part)
        self.detach(at)
        self.freeze(self.node2, faults.COPYING)
        at = self.attach(volume, self.node2)
        self.wait_frozen(self.node2)
        self.node2.reboot()
        self.disarm(self.node2)
        self._start_thin()
        self.wait(at.path, lambda: self.node2.run(
            ['test', '-e', at.path], check=False).code == 0)
        self.assert_sparse(image, at, 0)
        self.wait_complete(volume)
        self.assert_sparse(image, at, 0)
        self.assert_takes(at, self.parts * self.part)

    @environment.only_long
    def test_a_live_migration_copies_everything(self) -> None:
        """Which is right, for its server writes all the while."""
        volume, image = self._sparse()
        server = str(uuid.uuid4())
        at = self.attach(volume, self.node1,
                         self.lab.reserve(volume, server))
        there = self.lab.attach_at_once(volume, self.node2.number, server)
        self.lab.complete(there.id)
        image.write(at, BLOCKS // self.parts // 2, self.parts,
                    BLOCKS // self.parts)
        image.write(there, BLOCKS - 5, 5)
        self.detach(at)
        self.assert_sparse(image, there, self.parts + 5)
        self.wait_complete(volume)
        self.assert_sparse(image, there, self.parts + 5)
        self.assert_takes(there, BLOCKS)

    @environment.only_long
    def test_what_a_server_discards(self) -> None:
        """It goes back to the pool, and does not move.

        While it hydrates it stays, and comes through the same device later.
        """
        part = (64 << 20) // 4096
        volume = self.volume(self.node1)
        at = self.attach(volume, self.node1)
        kept, gone = self.image(), self.image()
        self.assertIs(True, self._told(at).get('discard'))
        kept.write(at, 0, part)
        gone.write(at, part, part)
        self.assert_takes(at, 2 * part)
        self.assertEqual('', self._discard(at, part, part))
        self.assert_takes(at, part)
        self.assertEqual('', kept.blocks_difference(at))
        self.assertEqual(part, self._not_zero(at))
        self.detach(at)
        at = self.attach_slowly(volume, self.node1, self.node2)
        with self.node2.hold(at.path):
            self.assertIs(True, self._told(at).get('discard'))
            self.assertIn('not supported', self._discard(at, 0, part))
            self.assert_hydrating(at)
            self.assertEqual('', kept.blocks_difference(at))
            self.release(at, self.node1)
            self.wait_complete(volume)
            self.assert_takes(at, part)
            self.assertEqual('', kept.blocks_difference(at))
            self.assertEqual('', self._discard(at, 0, part // 2))
            self.assert_takes(at, part - part // 2)
            self.assertEqual(part - part // 2, self._not_zero(at))

    @staticmethod
    def _discard(at: AttachedVolume, first: int, count: int) -> str:
        """Discard blocks; why that is refused, or empty."""
        result = at.node.run(
            ['blkdiscard', '--force', '--offset', str(first * 4096),
             '--length', str(count * 4096), at.path], check=False)
        return result.stderr.strip() if result.code else ''

    def _told(self, at: AttachedVolume) -> dict[str, typing.Any]:
        """What Cinder has told Nova of the device."""
        found = self.lab.cinder('GET', f'/attachments/{at.id}')
        return dict(found['attachment']['connection_info'])

    def _sparse(self) -> tuple[str, base.Image]:
        """A detached volume on node 1, of which little was written."""
        volume = self.volume(self.node1)
        at = self.attach(volume, self.node1)
        image = self.image()
        for part in range(self.parts):
            image.write(at, part * (BLOCKS // self.parts) // CHUNK * CHUNK,
                        self.part)
        self.assert_takes(at, self.parts * self.part)
        self.detach(at)
        return volume, image

    def assert_sparse(self, image: base.Image, at: AttachedVolume,
                      more: int) -> None:
        """It has what was written, and zeros everywhere else.

        :param more: blocks beside those of ``_sparse``
        """
        self.assertEqual('', image.blocks_difference(at))
        self.assertEqual(self.parts * self.part + more, self._not_zero(at))

    @staticmethod
    def _not_zero(at: AttachedVolume) -> int:
        """How many blocks of it are not zero."""
        return int(at.node.run(['python3', '-c', _NOT_ZERO, at.path],
                               timeout=base.LONG_SECONDS).stdout)

    def assert_takes(self, at: AttachedVolume, blocks: int) -> None:
        """It takes so much of its pool."""
        percent = self.column(at.node, f'volume-{self.row(at.volume).lv}',
                              'data_percent')
        self.assertAlmostEqual(100 * blocks / BLOCKS, float(percent),
                               delta=0.02)

    def _sent(self, node: LabNode) -> int:
        """Bytes that a node has sent, to whomever."""
        return sum(map(int, node.run(
            'cat /sys/class/net/vec*/statistics/tx_bytes').stdout.split()))


class FullPoolTest(ThinTestCase):

    pool = 4

    @environment.only_long
    def test_a_pool_that_is_too_full(self) -> None:
        volume, image = self.filled(self.node2)
        filler = f'{GROUP}/filler'
        self.addCleanup(self.node1.run, f'lvremove -qfy {filler}',
                        check=False)
        size = self.pool * self.gib
        self.node1.run(f'lvcreate -qy -V {size}b --thinpool {POOL} -n filler '
                       f'{GROUP}')
        self._fill(0, size * 85 // 100)
        attachment = self.lab.reserve(volume)
        error = self.error_of(lambda: self.lab.connect(attachment, 1))
        self.assertIn('is too full for anything new: 85 percent', error)
        self.wait('the report', lambda: self._free() == 0)
        refused = self.lab.create_volume(1, node=1, wait=False)
        self.volumes.append(refused)
        self.assertEqual('error', self.lab.wait_volume(refused, 'error'))
        self._fill(size * 85 // 100, size * 96 // 100)
        log = self.node1.volume.log
        self.wait('the alarm', lambda: 'is nearly full: 96 percent of its data'
                  in log.read_text(errors='replace'))
        self.node1.run(f'lvremove -qfy {filler}')
        self.wait('the room', lambda: self._free() > 0)
        # The same attachment can be tried again.
        at = self.attach(volume, self.node1, attachment)
        self.assert_holds(image, at)
        self.wait_complete(volume)
        self.detach(at)

    def _fill(self, first: int, end: int) -> None:
        """Write the operator's LV from one byte to another."""
        self.node1.run(
            f'dd if=/dev/zero of=/dev/{GROUP}/filler bs=1M '
            f'seek={first >> 20} count={(end - first) >> 20} oflag=direct '
            'status=none')

    def _free(self) -> float:
        """GiB that node 1 reports to be free."""
        pool, = [pool for pool in self.lab.cinder(
            'GET', '/scheduler-stats/get_pools?detail=True')['pools']
            if pool['name'].startswith('node1@')]
        return float(pool['capabilities']['free_capacity_gb'])
