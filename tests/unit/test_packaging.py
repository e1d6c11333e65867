# SPDX-License-Identifier: Apache-2.0
"""What a packager takes from the tree fits the code and the system."""

from __future__ import annotations

import ast
import configparser
import fnmatch
import importlib.metadata
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import typing
import unittest

from oslo_rootwrap import wrapper

from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone import privileged
from cinder_dmclone.privileged import dm
from cinder_dmclone.privileged import lio

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ROOT / 'cinder_dmclone/files'
FILTER = FILES / 'cinder-dmclone.filters'
RULE = FILES / 'cinder-dmclone.rules'
LV = LvUuid('3b0c1f8e-6f57-4c6f-9c9b-0d7a3e4b5c6d')


def python_files(*folders: str) -> typing.Iterator[pathlib.Path]:
    """Every Python file of these folders of the tree."""
    for folder in folders:
        yield from (ROOT / folder).rglob('*.py')


def parser() -> configparser.ConfigParser:
    """Names of entry points are written as they are used."""
    made = configparser.ConfigParser()
    made.optionxform = str  # type: ignore[assignment,method-assign]
    return made


def setup_cfg() -> configparser.ConfigParser:
    """The package's metadata."""
    found = parser()
    found.read(ROOT / 'setup.cfg')
    return found


def prefix_files() -> list[tuple[str, str]]:
    """Each file below the prefix: where to, relative; where from."""
    lines = setup_cfg()['files']['data_files'].strip().split('\n')
    return [(target, str(source.relative_to(ROOT)))
            for target, pattern in (line.split(' = ') for line in lines)
            for source in sorted(ROOT.glob(pattern)) or [ROOT / pattern]]


def data_files() -> list[pathlib.Path]:
    """Each file of the package that is no module."""
    return [path for path in FILES.iterdir()
            if path.is_file() and path.suffix != '.py']


class SetupTestCase(unittest.TestCase):

    def test_files_below_the_prefix_exist(self) -> None:
        self.assertEqual({f'share/cinder-dmclone/{name}' for name in (
            'dkms', 'grafana', 'mariadb', 'nova', 'prometheus')},
                         {target for target, _ in prefix_files()})
        for _, source in prefix_files():
            self.assertTrue((ROOT / source).is_file(), source)

    def test_entry_points_can_be_loaded(self) -> None:
        groups = setup_cfg()['entry_points']
        for group in groups:
            for line in groups[group].strip().split('\n'):
                name, value = line.split(' = ')
                point = importlib.metadata.EntryPoint(name, value, group)
                self.assertTrue(callable(point.load()), line)

    def test_volumes_are_there_before_servers_are(self) -> None:
        unit = configparser.ConfigParser()
        # The last of several lines with one key is what is left here.
        lines = (FILES / 'cinder-dmclone.service').read_text()
        unit.read_string('\n'.join(
            line for line in lines.splitlines() if 'Before=' not in line))
        before = ' '.join(re.findall('(?m)^Before=(.*)', lines)).split()
        for service in ('nova-compute', 'openstack-nova-compute',
                        'devstack@n-cpu', 'kolla-nova_compute-container',
                        'cinder-volume', 'virtqemud'):
            self.assertIn(f'{service}.service', before)
        program, verb = unit['Service']['ExecStart'].split()
        self.assertIn(f'{program} = ',
                      setup_cfg()['entry_points']['console_scripts'])
        self.assertEqual('activate', verb)

    def test_nothing_waits_for_a_lender_when_the_system_ends(
            self) -> None:
        text = (FILES / 'cinder-dmclone.service').read_text()
        stop, = re.findall('(?m)^ExecStop=(.*)', text)
        shell, option, script = shlex.split(stop)
        self.assertEqual(('/bin/sh', '-c'), (shell, option))
        folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        for name, does in ('systemctl', 'echo $STATE'), (
                'cinder-dmclone', 'echo "$@"'):
            (folder / name).write_text(f'#!/bin/sh\n{does}\n')
            (folder / name).chmod(0o755)
        for state, wanted in ('running', ''), (
                'stopping', 'deactivate --unused\n'):
            done = subprocess.run(
                [shell, option, script], text=True, check=True,
                stdout=subprocess.PIPE,
                env={'PATH': f'{folder}:/usr/bin:/bin', 'STATE': state})
            self.assertEqual(wanted, done.stdout)
        # It stops first what it was started after.
        self.assertIn('blk-availability.service', ' '.join(
            re.findall('(?m)^After=(.*)', text)).split())

    def test_every_import_is_a_requirement(self) -> None:
        text = (ROOT / 'requirements.txt').read_text()
        required = {re.split('[>=]', line)[0].lower().replace('.', '_')
                    for line in text.splitlines() if line[0] != '#'}
        required = {name.replace('-', '_') for name in required}
        # The extra.
        required.add('cinder')
        abroad = set(python_files('cinder_dmclone/nova'))
        self.assertEqual(required, imported(
            *set(python_files('cinder_dmclone')) - abroad))
        # Where Nova is installed all of these are.
        self.assertEqual({'keystoneauth1', 'nova', 'oslo_config', 'oslo_log'},
                         imported(*abroad))


def imported(*paths: pathlib.Path) -> set[str]:
    """What files of the package import of other packages."""
    found = set().union(*map(imports, paths))
    return found - sys.stdlib_module_names - {'cinder_dmclone'}


def imports(path: pathlib.Path) -> set[str]:
    """The top-level packages that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition('.')[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or '').partition('.')[0])
    return found


class SourceTestCase(unittest.TestCase):

    def test_nothing_imports_eventlet(self) -> None:
        for path in python_files('cinder_dmclone', 'lab', 'tests'):
            self.assertNotIn('eventlet', imports(path), str(path))

    def test_files_are_short(self) -> None:
        long = {str(path.relative_to(ROOT)): length
                for path in python_files('cinder_dmclone', 'lab', 'tests',
                                         'tools')
                if (length := len(path.read_text().splitlines())) > 450}
        self.assertEqual({}, long)

    def test_files_carry_the_licence(self) -> None:
        bare = [str(path.relative_to(ROOT))
                for path in python_files('cinder_dmclone', 'lab', 'tests',
                                         'tools')
                if (text := path.read_text()) and
                'SPDX-License-Identifier: Apache-2.0' not in text[:200]]
        self.assertEqual([], bare)

    def test_root_is_used_in_one_package(self) -> None:
        """Only cinder_dmclone.privileged has privileged functions."""
        for path in python_files('cinder_dmclone'):
            inside = 'privileged' in path.relative_to(ROOT).parts
            if not inside:
                self.assertNotIn('.entrypoint', path.read_text(), str(path))


class ModulesTestCase(unittest.TestCase):

    def test_what_is_loaded_at_boot_is_what_the_driver_loads(self) -> None:
        lines = (FILES / 'modules-load.conf').read_text().splitlines()
        self.assertEqual([*dm.MODULES, *lio.MODULES],
                         [line for line in lines if line[0] != '#'])


class FilterTestCase(unittest.TestCase):

    def setUp(self) -> None:
        super().setUp()
        # rootwrap itself adds a filter that lets any privsep-helper through.
        folder = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        shutil.copy(FILTER, folder)
        self.filters = [one for one in wrapper.load_filters([str(folder)])
                        if one.name != 'privsep-helper']

    def allowed(self, argv: list[str]) -> bool:
        return any(one.match(argv) for one in self.filters)

    def command(self, **changed: str) -> list[str]:
        words = {'config': '/etc/cinder/cinder.conf',
                 'context': 'cinder_dmclone.privileged.context',
                 'socket': '/tmp/tmpab12_x/privsep.sock', **changed}
        return ['privsep-helper', '--config-file', words['config'],
                '--privsep_context', words['context'],
                '--privsep_sock_path', words['socket']]

    def test_our_helper_is_allowed_to_run_as_root(self) -> None:
        self.assertTrue(self.allowed(self.command()))
        self.assertEqual(['root'], [one.run_as for one in self.filters])

    def test_command_is_that_of_privsep(self) -> None:
        """The context's own command, apart from its configuration files."""
        sent = privileged.context.helper_command(
            '/tmp/tmpab12_x/privsep.sock')
        self.assertEqual(self.command()[-4:], sent[-4:])
        self.assertIn('privsep-helper', sent)

    def test_nothing_else_is_allowed(self) -> None:
        for changed in (
                {'config': '/tmp/cinder.conf'},
                {'config': '/etc/../tmp/cinder.conf'},
                {'config': '/etc/cinder/../../tmp/cinder.conf'},
                {'context': 'os_brick.privileged.default'},
                {'context': 'cinder_dmclone.privileged.context.other'},
                {'context': 'cinder_dmclone_privileged_context'},
                {'socket': '/run/privsep.sock'},
                {'socket': '/tmp/../etc/privsep.sock/x'}):
            self.assertFalse(self.allowed(self.command(**changed)), changed)
        self.assertFalse(self.allowed([*self.command(), '--help']))


class UdevRuleTestCase(unittest.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.text = '\n'.join(
            line for line in RULE.read_text().splitlines()
            if not line.startswith('#'))

    def patterns(self, key: str) -> list[str]:
        """The alternatives of every match of ``key`` in the rule."""
        matches = re.findall(rf'{re.escape(key)}[=!]="([^"]*)"', self.text)
        return [part for match in matches for part in match.split('|')]

    def matched(self, key: str, value: str) -> bool:
        return any(fnmatch.fnmatchcase(value, pattern)
                   for pattern in self.patterns(key))

    def test_every_jump_has_its_label(self) -> None:
        self.assertEqual(set(re.findall('GOTO="(.*?)"', self.text)),
                         set(re.findall('LABEL="(.*?)"', self.text)))

    def test_devices_of_ours_are_matched(self) -> None:
        self.assertTrue(self.matched(
            'ENV{DM_UUID}', f'{names.UUID_PREFIX}front-ca12f31b-{LV}'))

    def test_logical_volumes_of_ours_are_matched(self) -> None:
        for lv in (names.data_lv(LV), names.meta_lv(LV)):
            name = 'cinder--volumes-' + lv.replace('-', '--')
            self.assertTrue(self.matched('ENV{DM_NAME}', name), name)

    def test_other_logical_volumes_are_not_matched(self) -> None:
        doubled = LV.replace('-', '--')
        for name in ('system-root', 'cinder--volumes-volume--1',
                     f'cinder--volumes-volume--{doubled}-cow',
                     f'vg-snapshot--{doubled}'):
            self.assertFalse(self.matched('ENV{DM_NAME}', name), name)

    def test_imported_disks_are_left_alone_by_who_probes_any(self) -> None:
        """bcache's rule looks into what has no type, unless it is told."""
        rule, = [line for line in self.text.splitlines()
                 if line.startswith('SUBSYSTEMS=="scsi"')]
        self.assertIn('ENV{DM_UDEV_DISABLE_OTHER_RULES_FLAG}="1"', rule)

    def test_links_of_logical_volumes_are_still_made(self) -> None:
        """LVM's rule makes /dev/<vg>/<lv>, unless it is disabled."""
        rule, = [line for line in self.text.splitlines()
                 if line.startswith('ENV{DM_NAME}')]
        self.assertNotIn('SUBSYSTEM_RULES', rule)
        for flag in ('DISK', 'OTHER'):
            self.assertIn(f'ENV{{DM_UDEV_DISABLE_{flag}_RULES_FLAG}}="1"',
                          rule)
