# SPDX-License-Identifier: Apache-2.0
"""Volumes become images of Glance's, and images become volumes."""
from __future__ import annotations

import hashlib
import pathlib
import random
import tempfile

from lab import install
from lab.processes import run
from lab.lab import LabNode
from tests.functional import base
from tests.functional import environment

# A node has little room for an image that it converts.
SIZE = 64 << 20


class ImageTestCase(base.FunctionalTest):
    """Every byte of the one is compared with the other."""

    def setUp(self) -> None:
        super().setUp()
        # Cinder looks at images with it, and converts them.
        install.ensure_packages(['qemu-utils'])
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.folder = pathlib.Path(folder)

    def created(self, *words: str) -> str:
        """A new image in Glance; its id."""
        image = str(self.lab.openstack('image', 'create', *words,
                                       self.id())['id'])
        self.addCleanup(self.lab.openstack, 'image', 'delete', image)
        return image

    def qcow2(self) -> tuple[str, str]:
        """An image with random data; its id, and their MD5."""
        raw, image = self.folder / 'raw', self.folder / 'image'
        data = random.randbytes(SIZE)
        raw.write_bytes(data)
        run('qemu-img', 'convert', '-O', 'qcow2', str(raw), str(image))
        return (self.created('--disk-format', 'qcow2', '--file', str(image)),
                hashlib.md5(data).hexdigest())

    def volume_of(self, image: str, number: int, gib: int = 1) -> str:
        """A new volume of an image, on a node."""
        volume = self.lab.create_volume(gib, number, wait=False,
                                        imageRef=image)
        self.volumes.append(volume)
        self.lab.wait_volume(volume, 'available')
        return volume

    def beginning(self, volume: str, number: int) -> str:
        """MD5 of as much of a volume as an image has, read on a node."""
        at = self.attach(volume, self.lab.nodes[number - 1])
        found = at.node.run(f'head -c {SIZE} {at.path} | md5sum').stdout
        return str(found.split()[0])


@environment.only_long
class ImageTest(ImageTestCase):
    """Without Cinder's cache of images."""

    def test_a_volume_of_an_image(self) -> None:
        """The image is of another format than the volume."""
        name, checksum = self.qcow2()
        volume = self.volume_of(name, 2)
        self.assertEqual('node2', self.row(volume).node)
        self.assertEqual(checksum, self.beginning(volume, 2))

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


@environment.only_long
class CacheTest(ImageTestCase):
    """Cinder keeps a volume of each image, and clones it."""

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(self.restart_services, *self.lab.nodes)
        tenant = {f'cinder_internal_tenant_{kind}_id':
                  self.lab.openstack(kind, 'show', name)['id']
                  for kind, name in (('project', 'service'),
                                     ('user', 'cinder'))}

        def caches(node: LabNode) -> None:
            base.set_options(node, 'DEFAULT', **tenant)
            base.set_options(node, image_volume_cache_enabled='true')
        self.restart_services(*self.lab.nodes, change=caches)

    def test_an_image_is_downloaded_once(self) -> None:
        """On the first node; unless that does not answer."""
        image, checksum = self.qcow2()
        # Cinder caches it in the image's size, and grows the volume then.
        first = self.volume_of(image, 1, gib=2)
        (cached, home), = self.lab.sql(
            'select volume_id, host from image_volume_cache_entries')
        self.volumes.append(cached)
        self.assertEqual('node1@dmclone#dmclone', home)
        self.assertEqual((1, 2),
                         (self.row(cached).size, self.row(first).size))
        second = self.volume_of(image, 2)
        self.assertEqual('node2', self.row(second).node)
        begins = (f'Volume {second} begins as node1@dmclone/'
                  f'{self.row(cached).lv}')
        self.assertIn(begins, self.node2.volume.new_log())
        self.node1.partition()
        # It hydrates still, or does no longer.
        third = self.volume_of(image, 2)
        self.assertNotIn(f'Volume {third} begins',
                         self.node2.volume.new_log())
        self.assertEqual(checksum, self.beginning(third, 2))
        self.node1.heal()
        self.lab.delete_volume(cached)
        self.assertEqual([checksum] * 2, [self.beginning(first, 1),
                                          self.beginning(second, 2)])
