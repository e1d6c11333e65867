# SPDX-License-Identifier: Apache-2.0
"""Who else looks at block devices on a machine, and what they have seen."""
from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import testtools

from lab import look
from lab.node import Node
from tests.machine import opens

# The driver's own helper and what it runs, the tests' programs; from the
# kernel: the devices that are built on others, and its look for partitions.
OURS = {'python', 'python3', 'privsep-helper', 'dmsetup', 'lvm', 'dd', 'fio',
        'iscsiadm'}
KERNEL = re.compile(r'kworker/.*')
# udevd locks each disk that is no dm device, and reads nothing of it.
UDEV = {'(udev-worker)', 'systemd-udevd'}
TENANT = 'tenant'

# A group of LVM on the whole device.
GROUP = '''
set -e
pvcreate --quiet --yes --devices "$1" "$1"
vgcreate --quiet --devices "$1" tenant "$1"
lvcreate --quiet --yes -Wn -Zn --devices "$1" -L 8m -n lv tenant
vgchange --quiet --devices "$1" -an tenant
'''
# What looks at everything there is, sooner or later.
_EVERYBODY = '''
udevadm trigger --action=add --subsystem-match=block
udevadm trigger --action=change --subsystem-match=block
udevadm settle
multipathd reconfigure
udisksctl status
'''
_SAYS = '''
multipathd show maps raw format %n
udisksctl dump
ls /dev/disk/by-*/ /dev/mapper /dev
ls /sys/fs/bcache
'''


class Neighbours(testtools.TestCase):
    """multipathd, udisks, bcache, LVM, blkid of the machine ``neighbourly``.
    """

    neighbourly: Node

    @contextlib.contextmanager
    def ignored(self) -> Iterator[None]:
        """Nobody else opens, reads or names a device of ours meanwhile."""
        node = self.neighbourly
        # What was made for the test is no disk of a tenant.
        node.run('udevadm settle')
        with opens.watched(node) as found:
            self.everybody_looks()
            yield
            self.everybody_looks()
        self.assert_nobody_knows()
        mapped = opens.majors(node, 'device-mapper')
        disks = opens.majors(node, 'sd')
        self.assertEqual(set(), self.strangers(found, mapped))
        self.assertEqual(set(), self.strangers(found, disks) - UDEV)

    def everybody_looks(self) -> None:
        """Tell all that there may be something new."""
        self.neighbourly.run(_EVERYBODY, timeout=600)

    @staticmethod
    def strangers(found: opens.Opens, majors: list[int]) -> set[str]:
        """Who has opened such devices and is none of ours."""
        return {name for name in found.programs(*majors) - OURS
                if not KERNEL.fullmatch(name)}

    def assert_nobody_knows(self) -> None:
        """Nothing of the contents has a name; our devices have one each."""
        said = self.neighbourly.run(_SAYS, check=False).stdout
        self.assertNotIn(TENANT, said)
        self.assertNotIn('bcache0', said)
        devices = look.devices(self.neighbourly)
        self.assertEqual([], [name for name in devices if TENANT in name])
        for name in devices:
            self.assert_left_alone(name)

    def assert_left_alone(self, name: str) -> None:
        """What udev has written down of a device."""
        lines = self.neighbourly.run(
            ['udevadm', 'info', f'/dev/mapper/{name}']).stdout.splitlines()
        flags = {f'DM_UDEV_DISABLE_{what}_RULES_FLAG=1'
                 for what in ('OTHER', 'DISK')}
        self.assertEqual(flags, flags & {
            line.removeprefix('E: ') for line in lines}, name)
        self.assertEqual([], [line for line in lines if re.match(
            'E: (ID_FS_|ID_PART_|LVM_|UDISKS_)', line)], name)
        links = {line.removeprefix('S: ') for line in lines
                 if line.startswith('S: ')}
        if name.startswith('dmclone-'):
            self.assertEqual({f'mapper/{name}'}, links)
