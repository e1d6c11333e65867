# SPDX-License-Identifier: Apache-2.0
"""What a tenant writes is nothing to the host's own services.

A volume holds what they look for: physical volumes and file systems with
names, bcache, partitions. It moves with all of them running. The evidence is
what the kernel, udev and they themselves say.
"""
from __future__ import annotations

from tests.machine import base
from tests.machine import neighbours
from tests.machine import opens

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


class NeighboursTest(neighbours.Neighbours, base.MachineTest):
    """multipathd, udisks, bcache, LVM, blkid."""

    def setUp(self) -> None:
        super().setUp()
        self.neighbourly = self.node

    def moves(self, contents: str) -> None:
        """Nobody looks at a volume with such contents while it moves."""
        self.steps('create')
        self.node.run(['sh', '-c', contents, 'sh',
                       self.front(self.old).path])
        with self.ignored():
            self.steps('lend', 'borrow', 'seal', 'adopt', 'fence')
            self.everybody_looks()
            self.assert_nobody_knows()
            self.steps('hydrate')
            self.wait_hydrated()
            self.steps('complete', 'swap', 'release')

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
        self.moves(neighbours.GROUP)

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
