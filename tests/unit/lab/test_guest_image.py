# SPDX-License-Identifier: Apache-2.0
"""What the guest's disk is made of."""
from __future__ import annotations

import lzma
import pathlib
import shutil
import subprocess
import tempfile
import unittest
from unittest import mock

from lab import guest
from lab.errors import LabError


class ArchiveTest(unittest.TestCase):

    @unittest.skipUnless(shutil.which('cpio'), 'needs cpio')
    def test_cpio_unpacks_it(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            data = guest.archive({'init': b'program', 'modules/00.ko': b'123'})
            subprocess.run(['cpio', '-i', '--quiet'], input=data, cwd=name,
                           check=True)
            folder = pathlib.Path(name)
            self.assertEqual(b'program', (folder / 'init').read_bytes())
            self.assertEqual(b'123', (folder / 'modules/00.ko').read_bytes())
            self.assertTrue((folder / 'init').stat().st_mode & 0o111)
            self.assertTrue((folder / 'dev').is_dir())

    def test_everything_is_aligned(self) -> None:
        for size in range(5):
            data = guest.archive({'a' * size or 'b': b'x' * size})
            self.assertEqual(0, len(data) % 4)
            self.assertEqual(0, data.rindex(b'070701') % 4)


class BuildTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.cache = pathlib.Path(folder, 'cache')

    def test_it_is_built_once(self) -> None:
        def make(folder: pathlib.Path) -> pathlib.Path:
            (folder / 'disk').write_text('image')
            return folder / 'disk'

        with mock.patch('lab.guest._build', side_effect=make) as build:
            image = guest.build(self.cache)
            self.assertEqual(image, guest.build(self.cache))
        self.assertEqual('image', image.read_text())
        self.assertEqual(1, build.call_count)

    def test_a_failed_build_leaves_nothing(self) -> None:
        with mock.patch('lab.guest._build', side_effect=LabError('no')), \
                self.assertRaises(LabError):
            guest.build(self.cache)
        self.assertEqual(
            ['guest.lock'], [path.name for path in self.cache.iterdir()])

    def test_a_machine_without_such_kernels(self) -> None:
        with mock.patch('lab.guest.run') as run, \
                self.assertRaisesRegex(LabError, 'no kernel for the guest'):
            run.return_value.stdout = ''
            guest.build(self.cache)


class ModuleTest(unittest.TestCase):

    def test_modules_are_found_plain_compressed_or_not(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / 'kernel').mkdir()
            (folder / 'kernel/virtio.ko').write_bytes(b'plain')
            (folder / 'kernel/evdev.ko.xz').write_bytes(
                lzma.compress(b'compressed'))
            (folder / 'kernel/button.ko.zst').write_bytes(b'?')
            self.assertEqual([b'plain'], guest._module(folder, 'virtio'))
            self.assertEqual([b'compressed'], guest._module(folder, 'evdev'))
            self.assertEqual([], guest._module(folder, 'virtio_blk'))
            self.assertRaises(LabError, guest._module, folder, 'button')
