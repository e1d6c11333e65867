# SPDX-License-Identifier: Apache-2.0
"""What builds dm-clone where the kernel has none takes the right files."""
from __future__ import annotations

import os
import pathlib
import subprocess
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECIPE = ROOT / 'dkms'
KERNEL = '6.1.0-56-amd64'
# A part of what linux-source-6.1 has.
WANTED = {'dm-clone-metadata.c', 'dm-clone-metadata.h', 'dm-clone-target.c',
          'dm.h', 'dm-stats.h', 'persistent-data/dm-bitset.h'}
OTHERS = {'dm-cache-target.c', 'dm-vdo/encodings.h', 'md.h', 'Makefile',
          'persistent-data/dm-bitset.c'}


class TakeSourceTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.sources = pathlib.Path(folder, 'src')
        self.build = pathlib.Path(folder, 'build')
        self.sources.mkdir()
        self.build.mkdir()

    def archive(self, series: str) -> None:
        """As Debian packs the source of a series."""
        top = self.sources / f'linux-source-{series}'
        for name in WANTED | OTHERS:
            path = top / 'drivers/md' / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'{series} {name}')
        with tarfile.open(f'{top}.tar.xz', 'w:xz') as file:
            file.add(top, top.name)

    def take(self, version: str) -> subprocess.CompletedProcess[str]:
        """Run it as dkms does."""
        return subprocess.run(
            [RECIPE / 'take-source', version], cwd=self.build, text=True,
            capture_output=True,
            env={**os.environ, 'SOURCES': str(self.sources)})

    def taken(self) -> dict[str, str]:
        """What is there to be built."""
        return {str(path.relative_to(self.build)): path.read_text()
                for path in self.build.rglob('*') if path.is_file()}

    def test_only_what_is_built_is_taken(self) -> None:
        for series in ('6.1', '6.12'):
            self.archive(series)
        self.assertEqual(0, self.take(KERNEL).returncode)
        self.assertEqual({name: f'6.1 {name}' for name in WANTED},
                         self.taken())

    def test_of_the_series_of_the_kernel(self) -> None:
        """Debian 13 has another form of the version."""
        for series in ('6.1', '6.12'):
            self.archive(series)
        self.assertEqual(0, self.take('6.12.48+deb13-cloud-amd64').returncode)
        self.assertEqual({name: f'6.12 {name}' for name in WANTED},
                         self.taken())

    def test_a_missing_package_is_named(self) -> None:
        self.archive('6.12')
        result = self.take(KERNEL)
        self.assertEqual(1, result.returncode)
        self.assertEqual(
            f'take-source: {self.sources}/linux-source-6.1.tar.xz is missing:'
            ' install the package linux-source-6.1\n', result.stderr)
        self.assertEqual({}, self.taken())

    def test_no_version(self) -> None:
        result = self.take('amd64')
        self.assertEqual(1, result.returncode)
        self.assertIn('amd64 is no version of a kernel', result.stderr)


class RecipeTest(unittest.TestCase):

    def test_the_modules_parts_are_those_that_are_taken(self) -> None:
        text = (RECIPE / 'Makefile').read_text()
        parts = {name.removesuffix('.c') + '.o' for name in WANTED
                 if name.endswith('.c')}
        objects = text.partition('dm-clone-y := ')[2].partition('\n')[0]
        self.assertEqual(parts, set(objects.split()))

    def test_the_script_that_dkms_runs_is_there(self) -> None:
        lines = dict(line.split('=', 1) for line in
                     (RECIPE / 'dkms.conf').read_text().splitlines()
                     if '=' in line and line[0] != '#')
        program = lines['PRE_BUILD'].strip('"').split()[0]
        self.assertTrue(os.access(RECIPE / program, os.X_OK))
