# SPDX-License-Identifier: Apache-2.0
"""What is built can be installed where there is nothing else, and works."""

from __future__ import annotations

import email.message
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import typing
import unittest
import zipfile

from packaging import requirements

from tests.unit import test_packaging

ROOT = test_packaging.ROOT
VERSION = '1.2.3'
# What of the tree is built.
SOURCES = ('cinder_dmclone', 'dkms', 'etc', 'LICENSE', 'README.md',
           'pyproject.toml', 'requirements.txt', 'setup.cfg', 'setup.py',
           'test-requirements.txt')
# As pip calls the backend that pyproject.toml names, without pip, which would
# download the backend first.
BUILD = 'import sys; from pbr import build; build.{}(sys.argv[1])'
LINK = re.compile(r'\[[^]]*]\(([^)]*)\)')
GIT = ('git', '-c', 'user.name=a', '-c', 'user.email=a@b', '-c',
       'init.defaultBranch=main', '-c', 'safe.directory=*')


def run(*words: str | pathlib.Path, cwd: pathlib.Path,
        **variables: str) -> str:
    """What a command has said; its failure is the test's."""
    done = subprocess.run(
        words, cwd=cwd, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, env={**os.environ, **variables})
    if done.returncode:
        raise AssertionError(f'{words} failed:\n{done.stdout}')
    return done.stdout


def copy_sources(directory: pathlib.Path) -> None:
    """Copy the tree; pbr takes from git what belongs to it."""
    directory.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, directory / name,
                            ignore=shutil.ignore_patterns('__pycache__'))
        else:
            shutil.copy(ROOT / name, directory)


def build(kind: str, source: pathlib.Path, target: pathlib.Path,
          **variables: str) -> pathlib.Path:
    """Build a ``wheel`` or an ``sdist``; the file that it is."""
    target.mkdir()
    run(sys.executable, '-c', BUILD.format(f'build_{kind}'), target,
        cwd=source, **variables)
    made, = target.iterdir()
    return made


class WheelTestCase(unittest.TestCase):

    path: typing.ClassVar[pathlib.Path]
    directory: typing.ClassVar[pathlib.Path]
    wheel: typing.ClassVar[zipfile.ZipFile]
    files: typing.ClassVar[set[str]]
    metadata: typing.ClassVar[email.message.Message]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        directory = pathlib.Path(cls.enterClassContext(
            tempfile.TemporaryDirectory()))
        source = directory / 'source'
        copy_sources(source)
        # Without git, as packages of distributions are built.
        cls.path = build('wheel', source, directory / 'wheel',
                         PBR_VERSION=VERSION)
        cls.directory = directory
        cls.wheel = cls.enterClassContext(zipfile.ZipFile(cls.path))
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
                    self.metadata.get_all('Requires-Dist', []))
        return {one.name.lower() for one in found if one.marker is None or
                one.marker.evaluate({'extra': extra})}

    def test_cinder_is_required_by_the_extra_alone(self) -> None:
        """Otherwise pip replaces the one that runs by the newest release."""
        self.assertNotIn('cinder', self.required())
        self.assertEqual({'cinder'},
                         self.required('cinder') - self.required())

    def test_metadata_is_what_an_index_shows(self) -> None:
        self.assertEqual(
            ['the cinder-dmclone authors', 'Apache-2.0',
             ['cinder', 'test'], 'text/markdown'],
            [self.metadata['Author'], self.metadata['License-Expression']
             or self.metadata['License'],
             self.metadata.get_all('Provides-Extra'),
             self.metadata['Description-Content-Type']])
        self.assertIn('Environment :: OpenStack',
                      self.metadata.get_all('Classifier', []))

    def test_description_can_be_read_where_nothing_else_is(self) -> None:
        """An index has neither the pictures nor the pages of the README."""
        text = self.metadata.get_payload()
        assert isinstance(text, str)
        readme = (ROOT / 'README.md').read_text()
        self.assertTrue(text.startswith(readme.splitlines()[0]))
        self.assertIn('![', readme)
        self.assertNotIn('![', text)
        self.assertNotIn('.svg', text)
        self.assertEqual([], [target for target in LINK.findall(text)
                              if not target.startswith('https://')])
        # The source distribution has them.
        for page in LINK.findall(readme):
            self.assertTrue((ROOT / page).is_file(), page)
            if page.endswith('.rst'):
                self.assertIn(f'`{page}`', text)

    def test_everything_else_is_required(self) -> None:
        lines = (ROOT / 'requirements.txt').read_text().splitlines()
        self.assertEqual(
            {requirements.Requirement(line.partition('#')[0]).name.lower()
             for line in lines if not line.startswith('#')},
            self.required())

    def test_modules_of_the_driver_and_no_others_are_there(self) -> None:
        self.assertEqual(
            {str(path.relative_to(ROOT)) for path in
             test_packaging.python_files('cinder_dmclone')},
            {name for name in self.files if name.endswith('.py')})

    def test_data_files_are_there(self) -> None:
        self.assertEqual(
            {str(path.relative_to(ROOT)): path.read_text()
             for path in test_packaging.data_files()},
            {name: self.wheel.read(name).decode() for name in self.files
             if name.startswith('cinder_dmclone/')
             and not name.endswith('.py')})
        for target, source in test_packaging.prefix_files():
            name = pathlib.PurePath(source).name
            self.assertEqual((ROOT / source).read_text(),
                             self.read(f'data/data/{target}/{name}'))

    def test_entry_points_are_there(self) -> None:
        built = test_packaging.parser()
        built.read_string(self.read('dist-info/entry_points.txt'))
        ours = test_packaging.setup_cfg()['entry_points']
        self.assertEqual(set(ours), set(built.sections()))
        for group, text in ours.items():
            self.assertEqual(
                dict(line.split(' = ') for line in text.strip().split('\n')),
                dict(built[group]))

    def test_wheel_from_the_sdist_is_the_same(self) -> None:
        tree = self.directory / 'tree'
        copy_sources(tree)
        for words in (('init', '-q'), ('add', '-A'),
                      ('commit', '-qm', 'all'), ('tag', '-am', '', VERSION)):
            run(*GIT, *words, cwd=tree)
        # The version is that of the tag.
        sdist = build('sdist', tree, self.directory / 'sdist')
        shutil.unpack_archive(sdist, self.directory / 'unpacked')
        unpacked, = (self.directory / 'unpacked').iterdir()
        again = build('wheel', unpacked, self.directory / 'again')
        self.assertEqual(self.path.name, again.name)
        with zipfile.ZipFile(again) as wheel:
            self.assertEqual(self.files, set(wheel.namelist())
                             - {f'cinder_dmclone-{VERSION}.dist-info/'
                                'pbr.json'})

    def test_command_works_where_nothing_else_is_installed(
            self) -> None:
        """On a host whose Cinder is in a container."""
        place, root = self.directory / 'venv', self.directory / 'root'
        run(sys.executable, '-m', 'venv', '--without-pip', place,
            cwd=self.directory)
        run(sys.executable, '-m', 'pip', '--python', place / 'bin/python',
            'install', '--no-deps', '--no-index', self.path,
            cwd=self.directory)
        rules = root / 'usr/lib/udev/rules.d'
        rules.mkdir(parents=True)
        (rules / '55-dm.rules').touch()

        def call(*words: str) -> str:
            return run(place / 'bin/cinder-dmclone', *words,
                       cwd=self.directory)

        self.assertEqual(VERSION, call('--version').strip())
        self.assertEqual(6, call('install-files', '--root', str(root)).count(
            'installed '))
        self.assertEqual(5, call('install-files', '--check', '--root',
                                 str(root)).count('unchanged '))
        unit = root / 'etc/systemd/system/cinder-dmclone.service'
        self.assertIn(f'ExecStart={place}/bin/cinder-dmclone activate',
                      unit.read_text())
        with self.assertRaisesRegex(AssertionError,
                                    'activate needs what cinder-volume has'):
            call('activate')
