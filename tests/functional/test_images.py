# SPDX-License-Identifier: Apache-2.0
"""Volumes become images of Glance's, and images become volumes."""
from __future__ import annotations

import hashlib
import pathlib
import random
import tempfile

from lab import install
from lab.processes import run
from tests.functional import base
from tests.functional import environment

# A node has little room for an image that it converts.
SIZE = 64 << 20


@environment.only_long
class ImageTest(base.FunctionalTest):
    """Every byte of the one is compared with the other."""

    def setUp(self) -> None:
        super().setUp()
        # Cinder looks at images with it, and converts them.
        install.ensure_packages(['qemu-utils'])
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_volume_of_an_image(self) -> None:
        """The image is of another format than the volume."""
        raw, image = self.folder / 'raw', self.folder / 'image'
        data = random.randbytes(SIZE)
        raw.write_bytes(data)
        run('qemu-img', 'convert', '-O', 'qcow2', str(raw), str(image))
        name = self.created('--disk-format', 'qcow2', '--file', str(image))
        volume = self.lab.create_volume(1, 2, wait=False, imageRef=name)
        self.volumes.append(volume)
        self.lab.wait_volume(volume, 'available')
        self.assertEqual('node2', self.row(volume).node)
        at = self.attach(volume, self.node2)
        found = at.node.run(f'head -c {SIZE} {at.path} | md5sum').stdout
        self.assertEqual(hashlib.md5(data).hexdigest(), found.split()[0])

    def created(self, *words: str) -> str:
        """A new image in Glance; its id."""
        image = str(self.lab.openstack('image', 'create', *words,
                                       self.id())['id'])
        self.addCleanup(self.lab.openstack, 'image', 'delete', image)
        return image

    def test_an_image_of_a_volume_that_hydrates(self) -> None:
        """Most of it comes from the lender."""
        volume, image = self.filled(self.node1)
        at = self.attach_slowly(volume, self.node1, self.node2)
        image.write(at, 3, 40, base.GIB // 4096 // 41)
        checksum = self.checksum(at)
        self.detach(at)
        answer = self.lab.cinder('POST', f'/volumes/{volume}/action', {
            'os-volume_upload_image': {
                'image_name': self.id(), 'disk_format': 'raw',
                'container_format': 'bare'}})
        name = answer['os-volume_upload_image']['image_id']
        self.addCleanup(self.lab.openstack, 'image', 'delete', name)
        self.lab.wait_volume(volume, 'available')
        self.assertIn(';from=', self.row(volume).provider_id)
        self.release(at, self.node1)
        saved = self.folder / 'saved'
        self.lab.openstack('image', 'save', '--file', str(saved), name)
        with saved.open('rb') as file:
            self.assertEqual(
                checksum, hashlib.file_digest(file, 'md5').hexdigest())
        self.assertEqual(base.GIB, saved.stat().st_size)
