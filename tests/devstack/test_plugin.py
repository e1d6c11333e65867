# SPDX-License-Identifier: Apache-2.0
"""What the plugin makes of a machine on which devstack runs it."""
from __future__ import annotations

import configparser
import functools
import importlib.metadata
import pathlib
import platform
import sys
import tempfile
import typing
import unittest
from unittest import mock

import ddt
from oslo_config import cfg

from lab import config
from lab import volume
from tests.devstack import machine

GROUP = 'stack-volumes-dmclone'
RULE = 'etc/udev/rules.d/56-cinder-dmclone.rules'
FILTER = 'etc/cinder/rootwrap.d/cinder-dmclone.filters'
SYSTEMD = 'etc/systemd/system'
ENABLED = f'{SYSTEMD}/multi-user.target.wants/cinder-dmclone.service'

# How the section of a backend differs from that of a node of the lab.
OTHERWISE = {
    # devstack makes a group of this name for each backend.
    'volume_group': GROUP,
    # local.conf says it for all backends (CINDER_VOLUME_CLEAR); the value is
    # Cinder's default, which the lab has too.
    'volume_clear': 'zero',
    # lib/cinder writes it for all backends.
    'image_volume_cache_enabled': 'True',
}
# Of [DEFAULT], what follows from the backends; the rest is lib/cinder's.
OF_BACKENDS = ('enabled_backends', 'default_volume_type')


class PluginTest(unittest.TestCase):

    def run_devstack(self, *scripts: str,
                     **how: typing.Any) -> list[machine.Left]:
        """What the scripts have left; each has succeeded."""
        left = self.try_devstack(*scripts, **how)
        for one in left[1:]:
            self.assertEqual(0, one.status, one.output)
        return left

    def try_devstack(self, *scripts: str,
                     **how: typing.Any) -> list[machine.Left]:
        """What the scripts have left, whatever came of them."""
        place = tempfile.TemporaryDirectory(prefix='devstack-')
        self.addCleanup(place.cleanup)
        return machine.run(pathlib.Path(place.name), *scripts, **how)

    def assert_has(self, left: machine.Left, *files: str) -> None:
        """All of these files have to be there."""
        self.assertEqual(set(), set(files) - left.files.keys())


class CinderConfTest(PluginTest):
    """cinder.conf, and the volume groups that it names."""

    def test_a_node_is_that_of_the_lab(self) -> None:
        _, stack = self.run_devstack('stack')
        found = stack.cinder_conf
        of_lab = machine.sections(config.node(
            'node1', '10.99.0.1', machine.HOST_IP, pathlib.Path('/venv'),
            volume.DRIVER, {}, {}))
        self.assertEqual({**of_lab['dmclone'], **OTHERWISE},
                         found['dmclone'])
        for key in OF_BACKENDS:
            self.assertEqual(of_lab['DEFAULT'][key], found['DEFAULT'][key])

    def test_cinder_knows_every_key_and_value(self) -> None:
        _, stack = self.run_devstack(
            'stack', DMCLONE_METADATA_BACKING_SIZE='1G')
        conf = cfg.ConfigOpts()
        groups = stack.cinder_conf
        for group, opts in options('dmclone').items():
            if group in groups:
                conf.register_opts(opts, None if group == 'DEFAULT' else group)
        conf(['--config-file', str(stack.place / 'etc/cinder/cinder.conf')],
             default_config_dirs=[])
        for group, keys in groups.items():
            known = conf if group == 'DEFAULT' else conf[group]
            for key in keys:
                getattr(known, key)
        self.assertIn('dmclone_metadata_volume_group', groups['dmclone'])

    def test_a_metadata_group(self) -> None:
        _, stack, unstack = self.run_devstack(
            'stack', 'unstack', DMCLONE_METADATA_BACKING_SIZE='1G')
        self.assertEqual([GROUP, f'{GROUP}-metadata'], stack.groups)
        self.assertEqual(
            f'{GROUP}-metadata',
            stack.cinder_conf['dmclone']['dmclone_metadata_volume_group'])
        self.assertEqual([], unstack.groups)

    def test_an_address_of_its_own(self) -> None:
        _, stack = self.run_devstack('stack', DMCLONE_TARGET_IP='198.51.100.7')
        self.assertEqual('198.51.100.7',
                         stack.cinder_conf['dmclone']['target_ip_address'])
        self.assertEqual(machine.HOST_IP,
                         stack.cinder_conf['DEFAULT']['my_ip'])

    def test_other_backends_beside(self) -> None:
        lvm = 'lvm:lvmdriver-1'
        _, alone = self.run_devstack('stack', plugin=False)
        _, stack, unstack = self.run_devstack(
            'stack', 'unstack', CINDER_ENABLED_BACKENDS=lvm)
        found = stack.cinder_conf
        self.assertEqual('lvmdriver-1,dmclone',
                         found['DEFAULT']['enabled_backends'])
        self.assertEqual('lvmdriver-1',
                         found['DEFAULT']['default_volume_type'])
        for key, value in alone.cinder_conf['lvmdriver-1'].items():
            if key not in OTHERWISE or key == 'volume_group':
                self.assertEqual(value, found['lvmdriver-1'][key])
        self.assertEqual(GROUP, found['dmclone']['volume_group'])
        self.assertEqual([GROUP, 'stack-volumes-lvmdriver-1'], stack.groups)
        self.assertEqual([], unstack.groups)

    def test_backends_of_other_names(self) -> None:
        _, stack, unstack = self.run_devstack(
            'stack', 'unstack',
            CINDER_ENABLED_BACKENDS='dmclone:fast,dmclone:slow')
        found = stack.cinder_conf
        self.assertEqual('fast,slow', found['DEFAULT']['enabled_backends'])
        self.assertNotIn('dmclone', found)
        for name in ('fast', 'slow'):
            self.assertEqual(name, found[name]['volume_backend_name'])
            self.assertEqual(f'stack-volumes-{name}',
                             found[name]['volume_group'])
        self.assertEqual(['stack-volumes-fast', 'stack-volumes-slow'],
                         stack.groups)
        self.assertEqual([], unstack.groups)


def options(backend: str) -> dict[str, list[cfg.Opt]]:
    """What may be in each section of cinder.conf."""
    found: dict[str, list[cfg.Opt]] = {}
    for point in importlib.metadata.entry_points(group='oslo.config.opts'):
        # That of oslo.config itself is about --config-file.
        if point.name.startswith(('cinder', 'keystone', 'oslo.', 'castellan',
                                  'osprofiler')) and (
                point.name != 'oslo.config'):
            for group, opts in list_opts(point):
                name = getattr(group, 'name', group) or 'DEFAULT'
                if (name == 'backend_defaults'
                        or point.name == 'cinder_dmclone'):
                    name = backend
                found.setdefault(name, []).extend(opts)
    return found


def list_opts(point: importlib.metadata.EntryPoint
              ) -> list[tuple[typing.Any, list[cfg.Opt]]]:
    """What an entry point of oslo.config's generator says."""
    # Cinder's has all drivers; the library of one is optional.
    sys.modules['googleapiclient'] = mock.Mock()
    try:
        return point.load()()
    finally:
        del sys.modules['googleapiclient']


@functools.cache
def left_by_devstack() -> dict[str, str]:
    """The files that devstack's own clean.sh leaves."""
    with tempfile.TemporaryDirectory(prefix='devstack-') as place:
        *_, clean = machine.run(pathlib.Path(place), 'stack', 'clean',
                                plugin=False)
        return clean.files


@ddt.ddt
class MachineTest(PluginTest):
    """Everything else."""

    def test_files_of_a_node(self) -> None:
        _, stack = self.run_devstack('stack')
        self.assert_has(stack, RULE, FILTER, ENABLED)
        self.assert_has(stack, 'etc/cinder/rootwrap.d/volume.filters')
        unit = configparser.ConfigParser(strict=False)
        for name in ('service', 'service.d/devstack.conf'):
            unit.read_string(stack.files[f'{SYSTEMD}/cinder-dmclone.{name}'])
        self.assertEqual('stack', unit['Service']['User'])
        program, verb = unit['Service']['ExecStart'].split()
        self.assert_has(stack, program[program.index('stack/data'):])
        self.assertEqual('activate', verb)
        for name in ('service', 'service.d/devstack.conf'):
            self.assertIn(
                f'systemd reads /{SYSTEMD}/cinder-dmclone.{name}',
                stack.commands)

    def test_the_rule_has_the_number_of_its_system(self) -> None:
        _, stack = self.run_devstack(
            'stack', machine={'DM_RULES': '10-dm.rules'})
        self.assertEqual(
            ['etc/udev/rules.d/11-cinder-dmclone.rules'],
            [name for name in stack.files if name.endswith('dmclone.rules')])

    def test_twice_is_as_once(self) -> None:
        left = self.run_devstack('stack', 'unstack', 'unstack', 'stack',
                                 'clean', 'clean', 'stack', 'clean')
        first, second, third = (left[index] for index in (1, 4, 7))
        self.assertEqual(first.files, second.files)
        self.assertEqual(first.files, third.files)
        self.assertEqual(left[2].files, left[3].files)
        self.assertNotIn(ENABLED, left[2].files)
        for clean in left[5], left[6], left[8]:
            self.assertEqual(left_by_devstack(), clean.files)
        self.assertEqual([GROUP], first.groups)
        for after in left[2], left[3], left[5], left[8]:
            self.assertEqual([], after.groups)

    def test_former_versions_of_files_go_too(self) -> None:
        *_, clean = self.run_devstack('stack', 'unstack', 'upgrade', 'clean')
        self.assertEqual(left_by_devstack(), clean.files)

    def test_clean_does_not_need_unstack(self) -> None:
        *_, clean = self.run_devstack(
            'stack', 'clean', machine={'UNSTACK_DIES': 'True'})
        self.assertEqual(left_by_devstack(), clean.files)
        self.assertEqual([], clean.groups)

    def test_a_host_without_cinder_volume(self) -> None:
        how = {'services': 'c-api,c-sch'}
        _, stack, _, clean = self.run_devstack(
            'stack', 'unstack', 'clean', **how)
        _, without, _, _ = self.run_devstack(
            'stack', 'unstack', 'clean', plugin=False, **how)
        self.assertEqual(without.files, stack.files)
        self.assertEqual(left_by_devstack(), clean.files)
        # The type of the volumes that other hosts have.
        self.assertEqual(
            [line.replace('lvmdriver-1', 'dmclone')
             for line in without.commands], stack.commands)
        self.assertIn('volume_backend_name=dmclone', str(stack.commands))

    def test_a_subnode(self) -> None:
        _, stack = self.run_devstack(
            'stack', services='c-vol,n-cpu,placement-client',
            HOST_IP='192.0.2.12', SERVICE_HOST=machine.HOST_IP)
        self.assertEqual('192.0.2.12',
                         stack.cinder_conf['dmclone']['target_ip_address'])
        self.assert_has(stack, RULE, FILTER, ENABLED)
        self.assertFalse([line for line in stack.commands
                          if line.startswith('openstack volume type')])

    @ddt.data(('local.conf', machine.HOST_IP),
              ('local.conf.subnode', '192.0.2.12'))
    @ddt.unpack
    def test_samples(self, name: str, address: str) -> None:
        text = (machine.ROOT / f'devstack/{name}.sample').read_text()
        _, head, localrc = text.partition('[[local|localrc]]\n')
        self.assertTrue(head)
        _, stack, _ = self.run_devstack('stack', 'clean', plugin=False,
                                        local_conf=localrc)
        self.assertEqual(address,
                         stack.cinder_conf['dmclone']['target_ip_address'])

    @ddt.data('Ubuntu', 'Debian')
    def test_a_kernel_without_dm_clone(self, system: str) -> None:
        boot, stack = self.try_devstack(
            'stack', machine={'MISSING_MODULES': 'dm-clone dm-delay'},
            os_VENDOR=system)
        self.assertNotEqual(0, stack.status)
        self.assertIn(
            f'cinder-dmclone: kernel {platform.release()} has no module '
            "dm-clone, dm-delay: boot one that has, for example Ubuntu's, "
            'or see doc/source/install/kernels.rst',
            stack.output)
        self.assertEqual(boot.files, stack.files)
        self.assertEqual(system == 'Ubuntu',
                         'linux-modules-extra' in str(stack.commands))

    def test_modules_that_are_in_another_package(self) -> None:
        _, stack = self.run_devstack('stack', machine={
            'MISSING_MODULES': 'iscsi_target_mod', 'EXTRA_MODULES': 'True'})
        self.assertIn(f'linux-modules-extra-{platform.release()}',
                      str(stack.commands))
        self.assert_has(stack, RULE)

    @ddt.data(('', 'False'), ('lvm:lvmdriver-1', 'True'))
    @ddt.unpack
    def test_what_tempest_is_told(self, backends: str,
                                  expected: str) -> None:
        """Nothing, where its volumes are another backend's."""
        _, stack = self.run_devstack('stack', services='c-api,c-vol,tempest',
                                     CINDER_ENABLED_BACKENDS=backends)
        found = machine.sections(
            (stack.place / 'stack/tempest/etc/tempest.conf').read_text()
        )['volume-feature-enabled']
        self.assertEqual(expected, found['manage_snapshot'])
        self.assertEqual(expected == 'False', 'manage_volume' in found)
        self.assertNotIn('volume_revert', found)
