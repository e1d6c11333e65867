# SPDX-License-Identifier: Apache-2.0
"""What a tenant writes is nothing to the host's own services.

A volume holds what they look for: physical volumes and file systems with
names, bcache, partitions. It moves with all of them running. The evidence is
what the kernel, udev and they themselves say.
"""
from __future__ import annotations

import re

from lab import look
from tests.machine import base
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
_GROUP = '''
set -e
pvcreate --quiet --yes --devices "$1" "$1"
vgcreate --quiet --devices "$1" tenant "$1"
lvcreate --quiet --yes -Wn -Zn --devices "$1" -L 8m -n lv tenant
vgchange --quiet --devices "$1" -an tenant
'''
# Two partitions: a file system and bcache.
_PARTITIONS = '''
set -e
cd "$(mktemp -d)"
truncate -s 8M ext4 bcache
mkfs.ext4 -q -F -L tenant ext4
make-bcache --block 512 -B bcache >/dev/null
python3 - >table <<END
import struct, sys
sys.stdout.buffer.write(bytes(446) + b''.join(
    struct.pack('<B3xB3xII', 0, 0x83, first << 11, 8 << 11)
    for first in (4, 16)) + bytes(32) + b'\\x55\\xaa')
END
for part in table,0 ext4,4 bcache,16; do
    dd if=${part%,*} of="$1" bs=1M seek=${part#*,} conv=notrunc,fsync \
        status=none
done
'''
# As the installation guide has it, for this machine.
_FILTER = '--config', 'devices/global_filter=["a|^/dev/vdb$|","r|.*|"]'
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


class NeighboursTest(base.MachineTest):
    """multipathd, udisks, bcache, LVM, blkid."""

    def moves(self, contents: str) -> None:
        """Nobody looks at a volume with such contents while it moves."""
        self.steps('create')
        self.node.run(['sh', '-c', contents, 'sh',
                       self.front(self.old).path])
        # What was made for that is no disk of a tenant.
        self.node.run('udevadm settle')
        with opens.watched(self.node) as found:
            self.everybody_looks()
            self.steps('lend', 'borrow', 'seal', 'adopt', 'fence')
            self.everybody_looks()
            self.assert_nobody_knows()
            self.steps('hydrate')
            self.wait_hydrated()
            self.steps('complete', 'swap', 'release')
            self.everybody_looks()
        self.assert_nobody_knows()
        mapped = opens.majors(self.node, 'device-mapper')
        disks = opens.majors(self.node, 'sd')
        self.assertEqual(set(), self.strangers(found, mapped))
        self.assertEqual(set(), self.strangers(found, disks) - UDEV)

    def everybody_looks(self) -> None:
        """Tell all that there may be something new."""
        self.node.run(_EVERYBODY, timeout=600)

    @staticmethod
    def strangers(found: opens.Opens, majors: list[int]) -> set[str]:
        """Who has opened such devices and is none of ours."""
        return {name for name in found.programs(*majors) - OURS
                if not KERNEL.fullmatch(name)}

    def assert_nobody_knows(self) -> None:
        """Nothing of the contents has a name; our devices have one each."""
        said = self.node.run(_SAYS, check=False).stdout
        self.assertNotIn(TENANT, said)
        self.assertNotIn('bcache0', said)
        devices = look.devices(self.node)
        self.assertEqual([], [name for name in devices if TENANT in name])
        for name in devices:
            self.assert_left_alone(name)

    def assert_left_alone(self, name: str) -> None:
        """What udev has written down of a device."""
        lines = self.node.run(
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

    def test_they_are_there(self) -> None:
        """Stock kernel, two processors, and all that the others are about."""
        self.assertEqual('2', self.node.run('nproc').stdout.strip())
        kernel = self.node.run('uname -rv').stdout
        self.assertRegex(kernel, r'-amd64 #1 SMP .* Debian 6\.1\.')
        active = self.node.run(
            ['systemctl', 'is-active', 'multipathd', 'udisks2',
             'iscsid.socket', 'systemd-udevd'], check=False).stdout.split()
        self.assertEqual(['active'] * 4, active)

    def test_a_group_of_a_tenant(self) -> None:
        self.moves(_GROUP)

    def test_partitions_of_a_tenant(self) -> None:
        self.moves(_PARTITIONS)

    def test_lvm_by_hand(self) -> None:
        """By default it reads all there is; with a filter it does not.

        So the others would be seen, too, if they looked.
        """
        self.steps('create')
        mapped = opens.majors(self.node, 'device-mapper')
        for option, readers in ((), {'pvs'}), (_FILTER, set()):
            with opens.watched(self.node) as found:
                self.node.run(['pvs', *option])
            self.assertEqual(readers, self.strangers(found, mapped))
