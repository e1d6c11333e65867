# SPDX-License-Identifier: Apache-2.0
"""What would fail at the first relocation is said when the service starts."""

from __future__ import annotations

import dataclasses
import types
import typing
from unittest import mock

from cinder_dmclone.host import lvm
from cinder_dmclone import preflight
from tests.unit import base


class SettingsTest(base.CloudTestCase):

    def problems(self, **settings: typing.Any) -> list[str]:
        changed = dataclasses.replace(self.a.process.world.settings,
                                      **settings)
        return list(preflight._check_settings(
            types.SimpleNamespace(settings=changed)))

    def test_settings_that_are_right(self) -> None:
        for portal in ('192.0.2.1:3260', '[2001:db8::1]:3260', 'a:3260'):
            self.assertEqual([], self.problems(portal=portal))

    def test_target_prefix_that_no_target_can_have(self) -> None:
        for prefix in ('iqn.2010-10.org.OpenStack:', 'iqn.2010-10.org.a_b:',
                       'eui.'):
            found, = self.problems(target_prefix=prefix)
            self.assertIn(f'target_prefix = {prefix}', found)

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
        with mock.patch.object(self.a.group, 'report', lambda: report), (
                mock.patch.object(lvm, 'block_size', sizes.__getitem__)):
            found, = preflight._check_groups(host)
        self.assertIn('512 and of 4096 bytes', found)


class CommandsTest(base.TestCase):

    def test_setpriv(self) -> None:
        with mock.patch.object(preflight.shutil, 'which', lambda name: None):
            found, = preflight._check_commands(mock.sentinel.host)
        self.assertIn('setpriv', found)
