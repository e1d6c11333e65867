# SPDX-License-Identifier: Apache-2.0
"""os-brick makes the path of an encrypted volume lead elsewhere."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import typing
from unittest import mock

import ddt
from os_brick import encryptors
from oslotest import base

from cinder_dmclone.privileged import links

NAME = 'dmclone-front-a-11111111-2222-3333-4444-555555555555'
DEVICE = f'/dev/mapper/{NAME}'
LINK = NAME.removeprefix('dmclone-')
DECRYPTED = f'/dev/mapper/crypt-{LINK}'


@ddt.ddt
class LinksTest(base.BaseTestCase):
    """os-brick as Nova and Cinder use it; only cryptsetup is not run."""

    def setUp(self) -> None:
        super().setUp()
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.folder = pathlib.Path(folder, 'links')
        self.enterContext(mock.patch.object(links, 'FOLDER', self.folder))
        self.opened: list[str] = []

    def execute(self, *argv: str, **options: typing.Any) -> tuple[str, str]:
        if argv[0] == 'cryptsetup':
            self.opened += [word for word in map(str, argv) if '/' in word]
        else:
            # Nothing of this machine.
            self.assertEqual(self.folder, pathlib.Path(argv[-1]).parent)
            subprocess.run(argv, check=True)
        return '', ''

    def encrypt(self, path: str, provider: str) -> None:
        """Put encryption on a device, by the path that users were given."""
        key = mock.Mock(**{'get_encoded.return_value': b'secret'})
        # ``cryptsetup status`` succeeds for a device that it did not make.
        self.enterContext(mock.patch.object(
            os.path, 'exists', lambda path: path == DEVICE))
        encryptors.get_volume_encryptor(
            'sudo', {'driver_volume_type': 'local',
                     'data': {'device_path': path}},
            mock.Mock(**{'get.return_value': key}), self.execute,
            control_location='front-end', provider=provider,
        ).attach_volume(None, cipher='aes', key_size=256)

    @ddt.data('luks', 'luks2', 'plain')
    def test_whoever_comes_next_has_the_device_and_not_what_was_in_it(
            self, provider: str) -> None:
        for _ in range(2):
            path = links.make(NAME)
            self.assertEqual(DEVICE, os.readlink(path))
            self.encrypt(path, provider)
            self.assertEqual(DECRYPTED, os.readlink(path))
        self.assertEqual(2 * [DEVICE], self.opened)
        # It has replaced nothing but the link.
        self.assertEqual([path], [str(found) for found
                                  in self.folder.iterdir()])

    def test_nothing_is_left(self) -> None:
        self.encrypt(links.make(NAME), 'luks')
        links.drop(NAME)
        links.drop(NAME)
        self.assertEqual([], list(self.folder.iterdir()))

    def test_a_make_that_died(self) -> None:
        """Its draft is no obstacle."""
        links.make(NAME)
        (self.folder / f'.{LINK}').symlink_to('/dev/null')
        self.assertEqual(DEVICE, os.readlink(links.make(NAME)))
        self.assertEqual([LINK], os.listdir(self.folder))
