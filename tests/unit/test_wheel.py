# SPDX-License-Identifier: Apache-2.0
"""What pip finds in the package when it is built."""

from __future__ import annotations

import configparser
import email
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from packaging import requirements

from tests.unit import test_packaging

ROOT = test_packaging.ROOT
VERSION = '1.2.3'
# What of the tree is built; pbr takes some of it from git, if there is one.
SOURCES = ('cinder_dmclone', 'dkms', 'etc', 'README.md', 'pyproject.toml',
           'requirements.txt', 'setup.cfg', 'setup.py')
# As pip calls the backend that pyproject.toml names, without pip, which would
# download the backend first.
BUILD = 'import sys; from pbr import build; build.build_wheel(sys.argv[1])'


def build(directory: pathlib.Path) -> pathlib.Path:
    """The wheel of this tree, made in ``directory`` from a copy."""
    source = directory / 'source'
    source.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name,
                            ignore=shutil.ignore_patterns('__pycache__'))
        else:
            shutil.copy(ROOT / name, source)
    done = subprocess.run(
        [sys.executable, '-c', BUILD, str(directory)], cwd=source, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, 'PBR_VERSION': VERSION})
    if done.returncode:
        raise AssertionError(f'no wheel was built:\n{done.stdout}')
    wheel, = directory.glob('*.whl')
    return wheel


class WheelTestCase(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        directory = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory()))
        cls.wheel = cls.enterClassContext(zipfile.ZipFile(build(directory)))
        cls.files = set(cls.wheel.namelist())
        cls.metadata = email.message_from_string(
            cls.read('dist-info/METADATA'))

    @classmethod
    def read(cls, name: str) -> str:
        """A file of the directories that a wheel has beside its modules."""
        path = f'cinder_dmclone-{VERSION}.{name}'
        return cls.wheel.read(path).decode()

    def required(self, extra: str = '') -> set[str]:
        """The names of what pip installs beside us."""
        found = map(requirements.Requirement,
                    self.metadata.get_all('Requires-Dist'))
        return {one.name.lower() for one in found if one.marker is None or
                one.marker.evaluate({'extra': extra})}

    def test_cinder_is_required_by_the_extra_alone(self):
        """Otherwise pip replaces the one that runs by the newest release."""
        self.assertNotIn('cinder', self.required())
        self.assertEqual({'cinder'},
                         self.required('cinder') - self.required())

    def test_everything_else_is_required(self):
        lines = (ROOT / 'requirements.txt').read_text().splitlines()
        self.assertEqual(
            {requirements.Requirement(line.partition('#')[0]).name.lower()
             for line in lines if not line.startswith('#')},
            self.required())

    def test_modules_of_the_driver_and_no_others_are_there(self):
        self.assertEqual(
            {str(path.relative_to(ROOT)) for path in
             test_packaging.python_files('cinder_dmclone')},
            {name for name in self.files if name.endswith('.py')})

    def test_data_files_are_there(self):
        for target, source in test_packaging.data_files():
            name = pathlib.PurePath(source).name
            self.assertEqual((ROOT / source).read_text(),
                             self.read(f'data/data/{target}/{name}'))

    def test_entry_points_are_there(self):
        built = configparser.ConfigParser()
        built.read_string(self.read('dist-info/entry_points.txt'))
        ours = test_packaging.setup_cfg()['entry_points']
        self.assertEqual(set(ours), set(built.sections()))
        for group, text in ours.items():
            self.assertEqual(
                dict(line.split(' = ') for line in text.strip().split('\n')),
                dict(built[group]))
