# SPDX-License-Identifier: Apache-2.0

from unittest import mock

from oslotest import base

from cinder_dmclone import exceptions
from cinder_dmclone.host.iscsi import exporter

IQN = 'iqn.2010-10.org.openstack:dmclone-0123456789abcdef0123456789abcdef'
EXPORT = exporter.Export(
    IQN, '/dev/mapper/dmclone-serve-x', 'serial', False,
    (exporter.Grant('iqn.2026-01.org.example:a', 'user', 'secret'),))


class ExporterTest(base.BaseTestCase):

    def setUp(self):
        super().setUp()
        self.lio = self.enterContext(mock.patch(
            'cinder_dmclone.host.iscsi.exporter.lio', autospec=True))
        self.lio.CHANGE_SECONDS = 30
        self.exporter = exporter.Exporter('127.0.0.1', 3260)

    def test_portal(self):
        self.assertEqual('127.0.0.1:3260', self.exporter.portal)
        self.assertEqual('[fd00::1]:3260',
                         exporter.Exporter('fd00::1', 3260).portal)

    def test_check(self):
        self.exporter.check()
        self.lio.load.assert_called_once_with()

    def test_check_address(self):
        # Reserved for documentation: on no machine.
        error = self.assertRaises(
            exceptions.TargetUnusable,
            exporter.Exporter('192.0.2.1', 3260).check)
        self.assertIn('192.0.2.1', str(error))
        self.lio.load.assert_not_called()

    def test_load_needs_no_network(self):
        """At boot the address may not be there yet."""
        exporter.Exporter('192.0.2.1', 3260).load()
        self.lio.load.assert_called_once_with()

    def test_check_module(self):
        self.lio.load.side_effect = exceptions.CommandFailed(
            command='modprobe iscsi_target_mod', code=1, stderr='not found')
        error = self.assertRaises(exceptions.TargetUnusable,
                                  self.exporter.check)
        self.assertIn('modprobe', str(error))

    def test_list(self):
        self.lio.list_exports.return_value = (
            {'iqn': IQN, 'device': '/dev/x', 'readonly': True,
             'serial': 's', 'initiators': ('a', 'b'), 'enabled': True,
             'sessions': ('a',)},)
        self.assertEqual(
            {IQN: exporter.ExportState(IQN, '/dev/x', True, 's',
                                       frozenset('ab'), True,
                                       frozenset('a'))},
            self.exporter.list())

    def test_ensure(self):
        self.exporter.ensure(EXPORT)
        self.lio.ensure.assert_called_once_with(
            IQN, EXPORT.device, 'serial', False,
            [('iqn.2026-01.org.example:a', 'user', 'secret')],
            '127.0.0.1', 3260)

    def test_stuck(self):
        for name, arguments in (('ensure', (EXPORT,)), ('remove', (IQN,)),
                                ('revoke', (IQN, 'a'))):
            getattr(self.lio, name).side_effect = (
                exceptions.CommandTimeout(command=name, seconds=30))
            self.assertRaises(exceptions.TargetUnusable,
                              getattr(self.exporter, name), *arguments)

    def test_secret_is_not_shown(self):
        self.assertNotIn('secret', repr(EXPORT))
