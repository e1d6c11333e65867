# SPDX-License-Identifier: Apache-2.0
"""A node whose volume group LVM does not find after a power cut."""
from __future__ import annotations

import typing

from lab import LabError, look, power
from tests.functional import base
from tests.functional import environment

if typing.TYPE_CHECKING:
    from lab.agent import Result
    from lab.lab import LabNode

GROUP = look.GROUP
SAID = f'Volume group {GROUP} is not found'
WHERE = "A node's volume group is not found after a power cut"

# What a cut leaves of a change that it tears: its first sector is there, and
# so is LVM's header, which points to it.
_TEAR = r'''
set -e
vgchange -q --addtag torn cinder-volumes
headers=$(pvck --dump headers "$DISK")
at=$(echo "$headers" | sed -n 's/^ *metadata text at \([0-9]*\) .*/\1/p')
size=$(echo "$headers" |
    sed -n 's/^ *mda_header_1.raw_locn\[0\].size //p')
dd if=/dev/zero of="$DISK" bs=512 seek=$((at / 512 + 1)) \
    count=$(((size - 1) / 512)) conv=notrunc oflag=direct status=none
! vgs cinder-volumes
'''


@environment.only_long
class LostGroupTest(base.FunctionalTest):

    def tear(self, node: LabNode) -> None:
        """Make LVM lose the group of a node whose service is stopped."""
        self.addCleanup(self.mend, node)
        node.run(f'DISK={node.disk}\n{_TEAR}')

    def mend(self, node: LabNode) -> None:
        """Later tests need the group, whatever happens in this one."""
        environment.switch_on(self.lab)
        power.repair(node)

    def test_it_is_said_and_comes_back(self) -> None:
        at = self.attach(self.volume(self.node1), self.node1)
        content = self.image()
        content.write(at, 0, 20, base.GIB // 4096 // 20)
        self.node1.run('sync')
        self.node1.volume.stop()
        before = self.volumes_of_lvm()
        self.tear(self.node1)
        self.node1.power_cut()
        self.node1.start()
        self.node1.wait_booted()
        self.assertRaises(LabError, self.node1.volume.start, True)
        self.node1.volume.stop()
        error = self.assertRaises(LabError, self.node1.volume.cli, 'activate')
        for text in (self.node1.volume.new_log(), str(error)):
            self.assertIn(SAID, text)
            self.assertIn(WHERE, text)
            self.assertIn(self.node1.disk, text)
        self.assertTrue(power.repair(self.node1))
        self.assertEqual(before, self.volumes_of_lvm())
        # Now there is a newer description than the one to go back to: what
        # was torn the first time.
        self.tear(self.node1)
        self.assertTrue(power.repair(self.node1))
        self.assertEqual(before, self.volumes_of_lvm())
        self.assertFalse(power.repair(self.node1))
        self.start_services(self.node1)
        power.wait_device(at)
        self.assertEqual('', content.blocks_difference(at))

    def test_a_command_mends_it(self) -> None:
        at = self.attach(self.volume(self.node1), self.node1)
        content = self.image()
        content.write(at, 0, 20, base.GIB // 4096 // 20)
        self.node1.run('sync')
        found = self.repaired(code=1)
        self.assertIn('cinder-volume works on node1@dmclone', found.stderr)
        self.node1.volume.stop()
        before = self.volumes_of_lvm()
        self.assertIn(f'LVM finds volume group {GROUP}', self.repaired(
            '--yes').stdout)
        self.tear(self.node1)
        self.node1.power_cut()
        self.node1.start()
        self.node1.wait_booted()
        disk = self.first_mib()
        plan = self.repaired().stdout.splitlines()
        self.assertRegex(plan[0], f'^Volume group {GROUP} becomes what LVM '
                         f'wrote about it on {self.node1.disk} as number')
        self.assertEqual('gives up: 1 change of the group, which was being '
                         'written', plan[1])
        self.assertEqual(disk, self.first_mib())
        self.assertEqual('Done.', self.repaired('--yes').stdout.splitlines(
            )[-1])
        self.assertEqual(before, self.volumes_of_lvm())
        # What was torn the first time is newer than what holds now.
        self.tear(self.node1)
        self.repaired('--yes')
        self.assertEqual(before, self.volumes_of_lvm())
        self.start_services(self.node1)
        power.wait_device(at)
        self.assertEqual('', content.blocks_difference(at))

    def repaired(self, *words: str, code: int = 0) -> Result:
        """What the command says of the group."""
        found = self.node1.volume.cli('repair-group', *words, GROUP,
                                      check=False)
        self.assertEqual(code, found.code, found.stdout + found.stderr)
        return found

    def first_mib(self) -> str:
        """All that LVM has written."""
        return self.node1.run(f'dd if={self.node1.disk} bs=1M count=1 '
                              'iflag=direct status=none | sha256sum').stdout

    def volumes_of_lvm(self) -> str:
        """The group and its volumes, with their tags and places."""
        return self.node1.run(
            f'vgs --noheadings -o vg_uuid,vg_tags {GROUP}; lvs --noheadings '
            f'-o lv_uuid,lv_name,lv_tags,seg_pe_ranges {GROUP}').stdout
