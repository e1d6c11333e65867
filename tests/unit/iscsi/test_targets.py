# SPDX-License-Identifier: Apache-2.0

import pathlib
import socket
from unittest import mock

import fixtures
from oslotest import base

from cinder_dmclone import exceptions
from cinder_dmclone.host.iscsi import targets
from cinder_dmclone.sysfs import portals

IQN = 'iqn.2010-10.org.openstack:dmclone-0123456789abcdef0123456789abcdef'
EXPORT = targets.Export(
    IQN, '/dev/mapper/dmclone-serve-x', 'serial', False,
    (targets.Grant('iqn.2026-01.org.example:a', 'user', 'secret'),))


class TargetsTest(base.BaseTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.lio = self.enterContext(mock.patch(
            'cinder_dmclone.host.iscsi.targets.lio', autospec=True))
        self.lio.CHANGE_SECONDS = 30
        self.targets = targets.Targets('127.0.0.1', 3260)

    def test_portal(self) -> None:
        self.assertEqual('127.0.0.1:3260', self.targets.portal)
        self.assertEqual('[fd00::1]:3260',
                         targets.Targets('fd00::1', 3260).portal)

    def test_check(self) -> None:
        self.targets.check()
        self.lio.load.assert_called_once_with()

    def test_check_address(self) -> None:
        # Reserved for documentation: on no machine.
        error = self.assertRaises(
            exceptions.TargetUnusable,
            targets.Targets('192.0.2.1', 3260).check)
        self.assertIn('192.0.2.1', str(error))
        self.lio.load.assert_not_called()

    def test_check_address_that_is_a_name(self) -> None:
        """One could be bound to it, but LIO and open-iscsi take none."""
        error = self.assertRaises(exceptions.TargetUnusable,
                                  targets.Targets('localhost', 3260).check)
        self.assertIn('localhost is no IP address', str(error))
        self.lio.load.assert_not_called()

    def test_check_port(self) -> None:
        """What LIO listens at is ours, or another of its targets'."""
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.enterContext(mock.patch.object(portals, 'CONFIGFS', root))
        pause = self.enterContext(mock.patch('time.sleep'))
        for ip in ('127.0.0.1', '::1'):
            other = socket.create_server((ip, 0), family=(
                socket.AF_INET6 if ':' in ip else socket.AF_INET))
            checked = targets.Targets(ip, other.getsockname()[1])
            with other:
                error = self.assertRaises(exceptions.TargetUnusable,
                                          checked.check)
                self.assertIn(f'listens at {checked.portal}', str(error))
                portal = (root / 'iscsi/iqn.2003-01.org:x/tpgt_1/np'
                          / checked.portal)
                # It ends meanwhile, or is found to be LIO's.
                pause.side_effect = lambda _: portal.mkdir(parents=True)
                checked.check()
                pause.side_effect = None
                checked.check()
                portal.rmdir()
            checked.check()

    def test_load_needs_no_network(self) -> None:
        """At boot the address may not be there yet."""
        targets.Targets('192.0.2.1', 3260).load()
        self.lio.load.assert_called_once_with()

    def test_check_module(self) -> None:
        self.lio.load.side_effect = exceptions.CommandFailed(
            command='modprobe iscsi_target_mod', code=1, stderr='not found')
        error = self.assertRaises(exceptions.TargetUnusable,
                                  self.targets.check)
        self.assertIn('modprobe', str(error))

    def test_list(self) -> None:
        self.lio.list_exports.return_value = (
            {'iqn': IQN, 'device': '/dev/x',
             'serial': 's', 'initiators': ('a', 'b'), 'enabled': True,
             'sessions': ('a',)},)
        self.assertEqual(
            {IQN: targets.ExportState(IQN, '/dev/x', 's',
                                      frozenset('ab'), True,
                                      frozenset('a'))},
            self.targets.list())

    def test_ensure(self) -> None:
        self.targets.ensure(EXPORT)
        self.lio.ensure.assert_called_once_with(
            IQN, EXPORT.device, 'serial', False,
            [('iqn.2026-01.org.example:a', 'user', 'secret')],
            '127.0.0.1', 3260)

    def test_stuck(self) -> None:
        for name, arguments in (('ensure', (EXPORT,)), ('remove', (IQN,)),
                                ('revoke', (IQN, 'a'))):
            getattr(self.lio, name).side_effect = (
                exceptions.CommandTimeout(command=name, seconds=30))
            self.assertRaises(exceptions.TargetUnusable,
                              getattr(self.targets, name), *arguments)

    def test_secret_is_not_shown(self) -> None:
        self.assertNotIn('secret', repr(EXPORT))
