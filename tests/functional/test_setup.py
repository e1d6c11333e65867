# SPDX-License-Identifier: Apache-2.0
"""A node says what it lacks: all at once, one line each."""
from __future__ import annotations

import re

from lab import FAULTY_DRIVER, LabError, look
from lab.volume import DRIVER
from tests.functional import base
from tests.functional import environment

CONF = '/etc/cinder/cinder.conf'
CHECKED = '/etc/cinder/checked.conf'
RULE = '/etc/udev/rules.d/56-cinder-dmclone.rules'
NO_MODULES = '/etc/modprobe.d/no-modules.conf'
IMAGE = '/tmp/small.img'
SMALL = 'small'
GROUP = look.GROUP
WELL = 'Nothing is missing.'


class SetupTest(base.FunctionalTest):
    """``cinder-dmclone check`` on node 2, beside the running service."""

    def problems(self, **options: object) -> list[str]:
        """What the check says, with options of the backend changed."""
        text = self.node2.read(CONF).replace(FAULTY_DRIVER, DRIVER)
        head, section, backend = text.partition('[dmclone]\n')
        for name, value in options.items():
            backend = re.sub(f'(?m)^{name} = .*\n', '', backend)
            backend = f'{name} = {value}\n' + backend
        self.node2.write(CHECKED, head + section + backend)
        self.addCleanup(self.node2.run, f'rm -f {CHECKED}')
        done = self.node2.volume.run_cli('--config-file', CHECKED, 'check')
        # What only an operator can decide is no problem.
        lines = [line for line in done.stdout.splitlines()
                 if not line.startswith('note: ')]
        if lines == [WELL]:
            lines.clear()
        self.assertEqual(int(bool(lines)), done.code, done)
        return lines

    def undo(self, command: str) -> None:
        """Run a command on the node afterwards, whatever happens."""
        self.addCleanup(self.node2.run, command)

    def test_a_complete_node(self) -> None:
        self.assertEqual([], self.problems())

    def test_everything_that_is_missing_is_said_at_once(self) -> None:
        reload = 'udevadm control --reload'
        self.undo(f'mv {RULE}.away {RULE}; {reload}')
        self.node2.run(f'mv {RULE} {RULE}.away; {reload}')
        self.undo('pidof iscsid || iscsid')
        self.node2.run('kill $(pidof iscsid); while pidof iscsid; do '
                       'sleep 0.1; done')
        self.undo(f'rm -f {NO_MODULES}; modprobe -a dm-clone '
                  'dm-multipath dm-round-robin')
        self.node2.write(NO_MODULES, 'install dm-clone /bin/false\n'
                         'install dm-multipath /bin/false\n')
        self.node2.run('rmmod dm-clone dm-round-robin dm-multipath')
        found = self.problems(
            volume_group='nosuch', dmclone_metadata_volume_group='nometa',
            target_ip_address='10.99.1.77', dmclone_region_size_kib=48)
        for words in (
                'nosuch (volume_group) cannot be read: Volume group "nosuch" '
                'not found',
                'nometa (dmclone_metadata_volume_group) cannot be read: '
                'Volume group "nometa" not found',
                'no device-mapper target "clone"',
                'no device-mapper target "multipath"',
                '10.99.1.77 is not an address of this node',
                'iscsid is not running',
                'rule of cinder-dmclone is not in effect',
                'dmclone_region_size_kib = 48 is not a power of two'):
            self.assertEqual(1, len([line for line in found
                                     if words in line]), (words, found))
        self.assertEqual(8, len(found), found)

    @environment.only_long
    def test_a_volume_group_that_is_too_small(self) -> None:
        self.undo(f'vgremove -qy {SMALL}; losetup -D; rm -f {IMAGE}')
        # One extent of 4 MiB is left.
        self.node2.run(
            f'modprobe loop; truncate -s 8M {IMAGE} && '
            f'disk=$(losetup --find --show {IMAGE}) && '
            f'vgcreate -qy {SMALL} "$disk"')
        found = self.problems(volume_group=SMALL,
                              dmclone_metadata_volume_group=SMALL)
        self.assertEqual(2, len(found), found)
        for option, line in zip(
                ('volume_group', 'dmclone_metadata_volume_group'), found,
                strict=True):
            self.assertIn(f'{SMALL} ({option}) is too small', line)

    @environment.only_long
    def test_a_thin_pool_that_cannot_be_used(self) -> None:
        """What is printed makes it one that can."""
        pool = f'{GROUP}/{GROUP}-pool'
        self.undo(f'lvremove -qfy {pool}')
        found, = self.problems(dmclone_lvm_type='thin')
        self.assertIn(f'has no thin pool {GROUP}-pool', found)
        self.node2.run(found.rpartition(': ')[2])
        self.assertEqual([], self.problems(dmclone_lvm_type='thin'))
        for spoil, words in (
                (f'lvchange --zero n {pool}', 'does not zero new blocks'),
                (f'lvchange --activate n {pool}', 'is not active')):
            self.node2.run(spoil)
            found, = self.problems(dmclone_lvm_type='thin')
            self.assertIn(words, found)
            self.node2.run(found.rpartition(': ')[2])
        self.assertEqual([], self.problems(dmclone_lvm_type='thin'))
        self.node2.run(f'lvremove -qfy {pool}; '
                       f'lvcreate -qy -l 1 -n {GROUP}-pool {GROUP}')
        found, = self.problems(dmclone_lvm_type='thin')
        self.assertIn(f'{pool} is no thin pool', found)

    @environment.only_long
    def test_a_service_that_cannot_start_says_why(self) -> None:
        self.node2.volume.stop()
        self.undo('pidof iscsid || iscsid')
        self.node2.run('kill $(pidof iscsid); while pidof iscsid; do '
                       'sleep 0.1; done')
        error = self.assertRaises(LabError, self.node2.volume.start, True)
        self.assertIn('failed to initialize', str(error))
        self.assertIn('iscsid is not running', self.node2.volume.new_log())
        self.node2.volume.stop()
