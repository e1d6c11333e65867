# SPDX-License-Identifier: Apache-2.0
"""Volumes that os-brick and servers encrypt: the driver moves what they wrote.
"""
from __future__ import annotations

import hashlib
import pathlib
import random
import tempfile
import typing

from lab import config, install
from tests.functional import environment
from tests.functional import test_snapshots

if typing.TYPE_CHECKING:
    from lab.attached import AttachedVolume

TYPE = 'encrypted'
# A node has little room for an image.
SIZE = 64 << 20
# What cryptsetup calls the device that it makes of a volume here.
OPENED = 'opened'
_READ = f'''
set -e
printf %s {config.KEY} | cryptsetup open --type luks --key-file=- $1 {OPENED}
trap 'cryptsetup close {OPENED}' EXIT
head -c {SIZE} /dev/mapper/{OPENED} | md5sum
'''
# As luks.py of os-brick's encryptors does with the path that it is given.
_REPLACE = f'ln --symbolic --force /dev/mapper/{OPENED} $1'


@environment.only_long
class EncryptionTest(test_snapshots.SnapshotTestCase):

    def setUp(self) -> None:
        super().setUp()
        install.ensure_packages(['cryptsetup-bin', 'qemu-utils'])
        known = self.lab.cinder('GET', '/types')['volume_types']
        if TYPE not in [found['name'] for found in known]:
            self.lab.create_encrypted_type(TYPE)

    def encrypted(self, node: int) -> tuple[str, str]:
        """A volume that Cinder encrypts an image to; id, MD5 of the image."""
        with tempfile.NamedTemporaryFile() as file:
            path = pathlib.Path(file.name)
            path.write_bytes(random.randbytes(SIZE))
            image = str(self.lab.openstack(
                'image', 'create', '--disk-format', 'raw', '--file',
                file.name, self.id())['id'])
            self.addCleanup(self.lab.openstack, 'image', 'delete', image)
            found = hashlib.md5(path.read_bytes()).hexdigest()
        volume = self.lab.create_volume(1, node, wait=False, imageRef=image,
                                        volume_type=TYPE)
        self.volumes.append(volume)
        self.lab.wait_volume(volume, 'available')
        return volume, found

    def read(self, at: AttachedVolume) -> str:
        """MD5 of so much as the image has, decrypted."""
        return self._script(at, _READ).split()[0]

    @staticmethod
    def _script(at: AttachedVolume, text: str) -> str:
        return at.node.run(['sh', '-c', text, 'sh', at.path]).stdout

    def test_an_image_that_moves(self) -> None:
        """Its volume, its snapshot and their clones are the same inside."""
        volume, image = self.encrypted(1)
        # Where os-brick had the path lead to went with the connection.
        self.assertEqual('', self.node1.run(
            'ls /run/cinder-dmclone; ls /dev/mapper | grep crypt',
            check=False).stdout)
        at = self.attach(volume, self.node2)
        self.assertEqual(image, self.read(at))
        snapshot = self.snapshot(volume)
        for source in {'snapshot_id': snapshot}, {'source_volid': volume}:
            born = self.born(**source)
            there = self.attach(born, self.node1)
            self.assertEqual(image, self.read(there))
            self.wait_complete(born)
            self.assertEqual(image, self.read(there))
        self.wait_complete(volume)
        self.assertEqual(image, self.read(at))

    def test_a_path_that_was_replaced(self) -> None:
        """Nobody follows it: the driver works with devices by number."""
        volume, image = self.encrypted(1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        self._script(at, _REPLACE)
        self.release(at, self.node1)
        self.wait_complete(volume)
        self.detach(at)
        at = self.attach(volume, self.node2)
        self.assertEqual(image, self.read(at))
