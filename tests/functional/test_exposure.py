# SPDX-License-Identifier: Apache-2.0
"""What can be seen of a volume while it moves, and what cannot."""
from __future__ import annotations

from lab.lab import LabNode
from tests.functional import base
from tests.functional import faults

MARKER = 'old blocks of another tenant '
FILE_SYSTEM = '11112222-3333-4444-5555-666677778888'


class ExposureTest(base.FunctionalTest):
    """Node 2 hydrates from node 1."""

    def test_old_blocks_of_the_disk_are_never_readable(self) -> None:
        """H12: no discard makes a region look copied on a thick LV."""
        # Where the next LV of node 2 comes to lie, and its metadata.
        mib = (base.GIB >> 20) + 76
        self.node2.run(f'lvcreate -qq -y -Wn -L {mib}M -n filler '
                       'cinder-volumes')
        self.node2.run(
            f'yes "{MARKER}" | dd of=/dev/cinder-volumes/filler bs=1M '
            f'count={mib} iflag=fullblock oflag=direct; '
            'lvremove -qq -y cinder-volumes/filler',
            timeout=base.LONG_SECONDS)
        volume, image = self.filled(self.node1)
        self.freeze(self.node2, faults.COPYING)
        at = self.attach(volume, self.node2)
        self.wait_frozen(self.node2)
        lv = self.row(volume).lv
        under = self.node2.run(
            f'dd if=/dev/cinder-volumes/volume-{lv} bs=1M skip=100 count=1 '
            'iflag=direct', check=False).stdout
        self.assertIn(MARKER, under, 'the LV does not lie on old blocks')
        refused = self.node2.run(['blkdiscard', '-o', '0', '-l', '1048576',
                                  at.path], check=False)
        self.assertNotEqual(0, refused.code)
        self.assertEqual('', image.difference(at))
        self.assert_hydrating(at)
        self.thaw(self.node2)
        self.wait_complete(volume)
        self.assert_holds(image, at)

    def test_sources_are_neither_written_nor_scanned(self) -> None:
        """H25, H27: not by a kernel, nor does a host look for what is there.

        No probe may find the file system on any device of the volume.
        """
        volume = self.volume(self.node1)
        at = self.attach(volume, self.node1)
        self.node1.run(f'mkfs.ext4 -q -U {FILE_SYSTEM} {at.path}')
        self.assert_unseen(self.node1)
        self.detach(at)
        at = self.attach_slowly(volume, self.node1, self.node2)
        lv = self.row(volume).lv
        found = self.node2.run(
            f'blockdev --getro /dev/mapper/dmclone-source-{lv}; '
            'blockdev --getro /dev/sd?').stdout.split()
        self.assertEqual(['1', '1'], found)
        loan = self.node1.run('blockdev --getro /dev/mapper/dmclone-loan-*')
        self.assertEqual('1', loan.stdout.strip())
        target = '/sys/kernel/config/target'
        backstore = self.node1.run(f'cat {target}/core/iblock_*/*/info')
        self.assertIn('readonly: 1', backstore.stdout)
        protected = self.node1.run(
            f'cat {target}/iscsi/iqn*/tpgt_1/acls/*/lun_0/write_protect')
        self.assertEqual('1', protected.stdout.strip())
        for node in self.lab.nodes:
            self.assert_unseen(node)
        self.release(at, self.node1)
        self.wait_complete(volume)
        self.assert_unseen(self.node2)

    def assert_unseen(self, node: LabNode) -> None:
        """No file system of the volume may be known to the host."""
        found = node.run(
            'udevadm trigger --settle --subsystem-match=block; '
            'for path in /sys/block/sd* /sys/block/dm-*; do '
            '[ ! -e $path ] || udevadm info --query=property $path | '
            'grep -E "^(ID_FS_|DEVNAME)"; done; '
            'ls /dev/disk/by-uuid 2>/dev/null', check=False).stdout
        self.assertIn('DEVNAME=', found)
        self.assertNotIn('ID_FS_', found, node)
        self.assertNotIn(FILE_SYSTEM, found, node)
