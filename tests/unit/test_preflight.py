# SPDX-License-Identifier: Apache-2.0
"""What would fail at the first relocation is said when the service starts."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import platform
import shutil
import typing
from unittest import mock

from cinder import version

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone import preflight
from cinder_dmclone.sysfs import block_device
from cinder_dmclone import units
from tests.unit import base


class SettingsTest(base.CloudTestCase):

    def problems(self, **settings: typing.Any) -> list[str]:
        host = self.a.process.world.host
        return list(preflight._check_settings(dataclasses.replace(
            host, settings=dataclasses.replace(host.settings, **settings))))

    def test_settings_that_are_right(self) -> None:
        for portal in ('192.0.2.1:3260', '[2001:db8::1]:3260', 'a:3260'):
            self.assertEqual([], self.problems(portal=portal))

    def test_target_prefix_that_no_target_can_have(self) -> None:
        for prefix in ('iqn.2010-10.org.OpenStack:', 'iqn.2010-10.org.a_b:',
                       'eui.'):
            found, = self.problems(target_prefix=prefix)
            self.assertIn(f'target_prefix = {prefix}', found)

    def test_names_that_no_volume_could_have(self) -> None:
        def problems(template: str) -> list[str]:
            with mock.patch.object(names, 'CONF', mock.Mock(
                    volume_name_template=template)):
                return self.problems()

        for template in ('volume-%s', 'v_%s'):
            self.assertEqual([], problems(template))
        for template in ('volume-%s-x', 'volume', '%s', 'v-%s-%s', 'v %s',
                         'volume-%(id)s', 'volume-%d'):
            found, = problems(template)
            self.assertIn(f'volume_name_template = {template} ', found)

    def test_what_ionice_would_not_take(self) -> None:
        for option in ('', '-c3', '-n7', '-t'):
            self.assertEqual([], self.problems(ionice=option))
        for option in ('3', '-p1', '-h', '-c3 reboot'):
            found, = self.problems(ionice=option)
            self.assertIn(f'volume_clear_ionice = {option} ', found)

    def test_address_that_is_every_node(self) -> None:
        for address in ('0.0.0.0', '[::]'):
            found, = self.problems(portal=f'{address}:3260')
            self.assertIn('target_ip_address', found)


class GroupsTest(base.CloudTestCase):

    def test_disks_with_different_blocks(self) -> None:
        host = self.a.process.world.host
        report = dataclasses.replace(host.group.report(), disks=(
            '/dev/null', '/dev/zero', '[unknown]'))
        sizes = {'/dev/null': 4096, '/dev/zero': 512, '[unknown]': 1}
        with (mock.patch.object(self.a.group, 'report',
                                lambda patient: report),
              mock.patch.object(block_device, 'block_size',
                                sizes.__getitem__)):
            found, = preflight._check_groups(host)
        self.assertIn('512 and of 4096 bytes', found)

    def test_a_group_that_is_not_found(self) -> None:
        """A command that makes one overwrites what LVM knows of the old one.
        """
        host = self.a.process.world.host

        def report(patient: bool) -> typing.Any:
            raise exceptions.CommandFailed(
                command='vgs', code=5, stderr='Volume group "x" not found')
        for known, text in (('uuid:7', 'create nothing'),
                            (None, f'vgcreate {host.group.name} DISK')):
            with (mock.patch.object(self.a.group, 'report', report),
                  mock.patch.object(self.a.group, 'changed_token',
                                    lambda known=known: known)):
                lines = list(preflight._check_groups(host))
            self.assertEqual(2, len(lines))
            for line in lines:
                self.assertIn(text, line)
                self.assertEqual(known is None, 'vgcreate' in line)


class GroupsAtWorkTest(base.CloudTestCase):
    """What is wrong with a group that cinder-volume starts with."""

    def setUp(self) -> None:
        super().setUp()
        self.host = self.a.process.world.host
        self.assertEqual([], list(preflight.group_problems(self.host)))

    def problem(self) -> str:
        found, = preflight.group_problems(self.host)
        self.assertEqual([], [line for line in preflight._check_groups(
            self.host) if line == found])
        return found

    def test_an_lv_that_lvm_has_left_suspended(self) -> None:
        name = names.data_lv(self.lv)
        self.a.group.volumes[name].suspended = True
        self.assertIn(f'All I/O of LV {name} of volume group '
                      f'{self.a.group.name} waits', self.problem())

    def test_lvm_has_little_room_for_its_description(self) -> None:
        self.a.group.mda_free = units.Bytes(preflight.LEAST_MDA)
        self.assertEqual([], list(preflight.group_problems(self.host)))
        self.a.group.mda_free = units.Bytes(preflight.LEAST_MDA - 512)
        self.assertIn('LVM can write 65024 bytes more', self.problem())

    def test_a_group_that_cannot_be_read(self) -> None:
        """That is said where it is looked for."""
        self.a.group.lost = True
        self.assertEqual([], list(preflight.group_problems(self.host)))


class UdevTest(base.CloudTestCase):
    """Records as systemd's udev writes them."""

    BEFORE = ['S:mapper/dmclone-check-x', 'I:3262344', 'E:DM_NAME=dmclone-x']
    RULE = 'E:DM_UDEV_DISABLE_OTHER_RULES_FLAG=1'

    def problems(self, record: list[str] | Exception) -> list[str]:
        probe = mock.Mock(side_effect=[record])
        with mock.patch.object(self.a.mapper, 'probe', probe):
            return list(preflight._check_udev(self.a.process.world.host))

    def test_a_rule_that_runs_in_time(self) -> None:
        self.assertEqual([], self.problems([*self.BEFORE, self.RULE]))

    def test_a_rule_that_does_not_run(self) -> None:
        """It may be installed all the same, and not be read."""
        found, = self.problems(self.BEFORE)
        self.assertIn('is not in effect', found)
        self.assertIn('cinder-dmclone install-files', found)

    def test_a_rule_that_runs_too_late(self) -> None:
        found, = self.problems([*self.BEFORE, self.RULE,
                                'S:disk/by-id/dm-name-dmclone-check-x'])
        self.assertIn('runs after the rules that read', found)

    def test_no_udev(self) -> None:
        found, = self.problems([])
        self.assertIn('start systemd-udevd', found)
        found, = self.problems(exceptions.CommandTimeout(
            command='sh -c dmsetup', seconds=10.0))
        self.assertIn('did not end within 10.0 seconds', found)


class CinderTest(base.CloudTestCase):

    def test_only_one_that_is_older_is_told(self) -> None:
        for found, told in ((None, 0), ('26.0.0', 0), ('30.1.0.dev7', 0),
                            ('25.2.1', 1), ('21.3.1', 1)):
            with mock.patch.object(
                    version, 'version_string', lambda: found) if found else (
                        contextlib.nullcontext()):
                lines = preflight.problems(self.a.process.world.host, [])
            self.assertEqual(
                [f'Cinder {found} is too old: 26 (2025.1) is the least that '
                 'this driver works with.'] * told,
                [line for line in lines if line.startswith('Cinder')])


class KernelTest(base.CloudTestCase):

    def test_a_target_that_is_missing(self) -> None:
        with mock.patch.object(self.a.mapper, 'targets', lambda: {
                'delay', 'error', 'linear', 'multipath'}):
            found, = preflight._check_kernel(self.a.process.world.host)
        self.assertIn('no device-mapper target "clone"', found)

    def test_one_that_is_too_old(self) -> None:
        for release, told in (('5.15.0-140-generic', 1), ('5.4.17-2136', 1),
                              ('5.19.0-50-generic', 0), ('6.1.0-56-amd64', 0),
                              ('7.2', 0), ('10.0.0-rc1', 0)):
            with mock.patch.object(platform, 'release', lambda: release):
                lines = preflight._check_kernel(self.a.process.world.host)
                self.assertEqual(
                    [f'The kernel {release} is too old'] * told,
                    [line.partition(':')[0] for line in lines])

    def test_one_that_lets_what_waits_fail(self) -> None:
        path = pathlib.Path(self.folder()) / 'seconds'
        with mock.patch.object(preflight, 'PATIENCE', path):
            for text, told in (('0\n', False), ('30\n', True)):
                path.write_text(text)
                lines = list(preflight._check_kernel(
                    self.a.process.world.host))
                self.assertEqual(told, any('is 30: reads' in line
                                           for line in lines), lines)


class CommandsTest(base.TestCase):

    def test_each_that_is_missing_has_its_package(self) -> None:
        with mock.patch.object(shutil, 'which', (
                lambda name, path: None if name in ('setpriv', 'lvm')
                else name)):
            self.assertEqual(
                ['The command lvm is missing: install lvm2.',
                 'The command setpriv is missing: install util-linux.'],
                list(preflight._check_commands(mock.sentinel.host)))
