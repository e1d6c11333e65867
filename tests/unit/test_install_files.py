# SPDX-License-Identifier: Apache-2.0
"""One command puts a node's files in place, or says why it does not."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import shutil
import stat
import subprocess
import sys
from unittest import mock

from cinder_dmclone import cli
from cinder_dmclone.cli import install_files
from tests.unit import base

FILTER = 'etc/cinder/rootwrap.d/cinder-dmclone.filters'
RULE = 'etc/udev/rules.d/56-cinder-dmclone.rules'
MODULES = 'etc/modules-load.d/cinder-dmclone.conf'
MULTIPATH = 'etc/multipath/conf.d/cinder-dmclone.conf'
UNIT = 'etc/systemd/system/cinder-dmclone.service'
ENABLED = ('etc/systemd/system/multi-user.target.wants/'
           'cinder-dmclone.service')
ALL = [FILTER, RULE, MODULES, MULTIPATH, ENABLED, UNIT]


class Case(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.folder())
        self.write('usr/lib/udev/rules.d/55-dm.rules')

    def write(self, place: str, text: str = '') -> pathlib.Path:
        path = self.root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def call(self, *words: str) -> tuple[int, list[str], str]:
        """Status, what was done to which file, and what else was said."""
        out, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), (
                contextlib.redirect_stderr(error)):
            code = cli.main(['install-files', '--root', str(self.root),
                             *words])
        return (code, out.getvalue().replace(f'{self.root}/', '').splitlines(),
                error.getvalue())

    def install(self, *words: str) -> list[str]:
        code, lines, error = self.call(*words)
        self.assertEqual((0, ''), (code, error))
        return lines

    def tree(self) -> dict[str, tuple[int, str | bytes]]:
        return {str(path.relative_to(self.root)): (
            path.lstat().st_mode, os.readlink(path) if path.is_symlink()
            else path.read_bytes() if path.is_file() else b'')
            for path in self.root.rglob('*')}

    def refused(self, *words: str) -> str:
        """What is said when nothing was changed."""
        before = self.tree()
        code, lines, error = self.call(*words)
        self.assertEqual((2, []), (code, lines))
        self.assertEqual(before, self.tree())
        self.assertEqual(1, error.count('\n'), error)
        self.assertIn('Nothing was changed', error)
        return error


class InstallTest(Case):

    def test_all_is_installed_once(self) -> None:
        self.assertEqual([f'installed {place}' for place in ALL],
                         self.install())
        for place in ALL[:4]:
            found = (self.root / place).lstat()
            self.assertEqual(stat.S_IFREG | 0o644, found.st_mode, place)
        before = self.tree()
        self.assertEqual([f'unchanged {place}' for place in ALL
                          if place != ENABLED], self.install())
        self.assertEqual(before, self.tree())

    def test_umask_of_the_caller_does_not_matter(self) -> None:
        self.addCleanup(os.umask, os.umask(0o077))
        self.install()
        found = self.root / FILTER
        self.assertEqual((0o644, 0o755), (
            stat.S_IMODE(found.stat().st_mode),
            stat.S_IMODE(found.parent.stat().st_mode)))

    def test_check_changes_nothing_and_tells_what_is_missing(self) -> None:
        before = self.tree()
        self.assertEqual((1, [f'missing {place}' for place in ALL], ''),
                         self.call('--check'))
        self.assertEqual(before, self.tree())
        self.install()
        self.assertEqual(0, self.call('--check')[0])

    def test_check_tells_each_kind_of_drift(self) -> None:
        self.install()
        (self.root / FILTER).chmod(0o666)
        self.write(RULE, 'something else')
        (self.root / MODULES).unlink()
        before = self.tree()
        code, lines, _ = self.call('--check')
        self.assertEqual(1, code)
        self.assertEqual(
            [f'different {FILTER}', f'different {RULE}',
             f'missing {MODULES}', f'unchanged {MULTIPATH}',
             f'unchanged {UNIT}'], lines)
        self.assertEqual(before, self.tree())

    def test_what_an_operator_changed_is_kept(self) -> None:
        self.install()
        self.write(FILTER, 'a row of my own')
        kept = FILTER.replace('cinder-dmclone.f', '.cinder-dmclone.f')
        self.assertIn(f'changed {FILTER} (what it was: {kept}.old)',
                      self.install())
        self.assertEqual('a row of my own',
                         (self.root / f'{kept}.old').read_text())
        self.write(FILTER, 'another one')
        self.install()
        self.assertEqual('another one',
                         (self.root / f'{kept}.old').read_text())

    def test_a_unit_that_was_disabled_stays_so(self) -> None:
        self.install()
        (self.root / ENABLED).unlink()
        self.write(UNIT, 'of an earlier release')
        self.install()
        self.assertFalse((self.root / ENABLED).is_symlink())

    def test_an_installation_that_was_interrupted_is_completed(self) -> None:
        self.write(RULE.replace('56-', '.56-') + '.new', 'half of i')
        link = self.root / ENABLED
        link.parent.mkdir(parents=True)
        link.symlink_to(f'/{UNIT}')
        self.assertEqual(
            [f'unchanged {place}' if place == ENABLED
             else f'installed {place}' for place in ALL], self.install())
        self.assertEqual([], list(self.root.rglob('*.new')))

    def test_filter_only(self) -> None:
        """For a container: it has no udev."""
        (self.root / 'usr/lib/udev/rules.d/55-dm.rules').unlink()
        self.assertEqual([f'installed {FILTER}'],
                         self.install('--rootwrap-only'))
        self.assertEqual([f'unchanged {FILTER}'],
                         self.install('--rootwrap-only', '--check'))


class NumberTest(Case):

    def rules(self) -> list[str]:
        return sorted(path.name for path in
                      (self.root / 'etc/udev/rules.d').iterdir())

    def test_where_the_device_mapper_has_the_number_of_upstream(self) -> None:
        (self.root / 'usr/lib/udev/rules.d/55-dm.rules').unlink()
        self.write('usr/lib/udev/rules.d/10-dm.rules')
        self.install()
        self.assertEqual(['11-cinder-dmclone.rules'], self.rules())

    def test_a_rule_under_another_number_goes(self) -> None:
        old = RULE.replace('56-', '11-')
        self.write(old, 'an earlier one')
        self.assertIn(f'left over {old}', self.call('--check')[1])
        self.assertIn(f'removed {old}', self.install())
        self.assertEqual(['56-cinder-dmclone.rules'], self.rules())

    def test_one_of_a_package_is_named(self) -> None:
        self.write('usr/local/lib/udev/rules.d/11-cinder-dmclone.rules')
        self.install()
        code, lines, _ = self.call('--check')
        self.assertEqual(0, code)
        self.assertIn('left alone usr/local/lib/udev/rules.d/'
                      '11-cinder-dmclone.rules', lines)

    def test_rules_of_the_builder_are_not_those_of_the_image(self) -> None:
        elsewhere = pathlib.Path(self.folder())
        (elsewhere / 'udev/rules.d').mkdir(parents=True)
        (elsewhere / 'udev/rules.d/10-dm.rules').touch()
        (self.root / 'lib').symlink_to(elsewhere)
        self.install()
        self.assertEqual(['56-cinder-dmclone.rules'], self.rules())


class CommandTest(Case):

    def test_unit_has_the_path_of_the_command(self) -> None:
        inside = str(self.root / 'opt/venv/bin/cinder-dmclone')
        for called, wanted in ((inside, '/opt/venv/bin/cinder-dmclone'),
                               ('/opt/x/cinder-dmclone',
                                '/opt/x/cinder-dmclone')):
            with mock.patch.object(sys, 'argv', [called]):
                self.install()
            text = (self.root / UNIT).read_text()
            self.assertIn(f'\nExecStart={wanted} activate\n', text)
            self.assertRegex(
                text, f'(?m)^ExecStop=.* {wanted} deactivate --unused\'$')


class RefusalTest(Case):

    def test_root_that_is_not_there(self) -> None:
        self.root = self.root / 'nosuch'
        self.assertIn(f'{self.root}: there is no such directory',
                      self.refused())

    def test_device_mapper_without_rules(self) -> None:
        (self.root / 'usr/lib/udev/rules.d/55-dm.rules').unlink()
        self.assertIn('install dmsetup', self.refused())

    def test_a_place_that_cannot_be_written(self) -> None:
        """It is the third of five: nothing is left of the first two."""
        self.write('etc/modules-load.d', 'no directory')
        self.assertIn('modules-load.d', self.refused())

    def test_a_disk_that_is_full(self) -> None:
        real = os.fsync

        def fsync(handle: int) -> None:
            if 'multipath' in os.readlink(f'/proc/self/fd/{handle}'):
                raise OSError(28, 'No space left on device', 'multipath')
            real(handle)

        with mock.patch.object(os, 'fsync', fsync):
            self.assertIn('No space left on device', self.refused())

    def test_somebody_without_rights(self) -> None:
        with mock.patch.object(pathlib.Path, 'mkdir', side_effect=(
                PermissionError(13, 'Permission denied', '/etc/x'))):
            self.assertIn('/etc/x: Permission denied; run it as root',
                          self.refused())

    def test_a_unit_that_is_masked(self) -> None:
        (self.root / UNIT).parent.mkdir(parents=True)
        (self.root / UNIT).symlink_to('/dev/null')
        self.assertIn('is no regular file: move it away', self.refused())

    def test_a_link_out_of_the_image(self) -> None:
        elsewhere = self.folder()
        (self.root / 'etc/multipath').parent.mkdir()
        (self.root / 'etc/multipath').symlink_to(elsewhere)
        self.assertIn('leads out of', self.refused())
        self.assertEqual([], os.listdir(elsewhere))

    def test_a_failure_half_way_is_told(self) -> None:
        real = pathlib.Path.replace

        def replace(path: pathlib.Path, target: pathlib.Path) -> None:
            if 'modules-load' in str(path):
                raise OSError(5, 'Input/output error', str(path))
            real(path, target)

        with mock.patch.object(pathlib.Path, 'replace', replace):
            code, _, error = self.call()
        self.assertEqual(2, code)
        self.assertIn('Some files are new already: run it again', error)
        self.assertIn(f'unchanged {RULE}', self.install())


class ReloadTest(Case):
    """Who reads the files is told, where it runs."""

    def reload(self, code: int = 0) -> tuple[int, list[str], str]:
        self.write('run/udev/control')
        self.write('run/multipathd.pid')
        calls = []

        def run(words: tuple[str, ...], **options: object
                ) -> subprocess.CompletedProcess[str]:
            calls.append(' '.join(words))
            return subprocess.CompletedProcess(words, code, 'no\nway')

        error = io.StringIO()
        with mock.patch.object(subprocess, 'run', run), (
                mock.patch.object(shutil, 'which', str)), (
                contextlib.redirect_stderr(error)):
            return install_files._reload(self.root), calls, error.getvalue()

    def test_those_that_run(self) -> None:
        self.assertEqual(
            (0, ['udevadm control --reload', 'multipathd reconfigure'], ''),
            self.reload())

    def test_one_that_refuses(self) -> None:
        code, _, error = self.reload(1)
        self.assertEqual(2, code)
        self.assertIn('"udevadm control --reload" failed: no way', error)

    def test_an_image_has_none(self) -> None:
        with mock.patch.object(install_files, '_reload') as reload:
            self.install()
        reload.assert_not_called()
