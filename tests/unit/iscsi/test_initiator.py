# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import typing
from unittest import mock

import ddt
from oslotest import base

from cinder_dmclone import exceptions
from cinder_dmclone.host.iscsi import initiator
from cinder_dmclone.sysfs import sessions
from cinder_dmclone import units
from tests.unit.iscsi import sysfs

IQN = 'iqn.2010-10.org.openstack:dmclone-0123456789abcdef0123456789abcdef'
SERIAL = '11111111-2222-3333-4444-555555555555'
OTHER = IQN.replace('0123', 'aaaa')
PORTAL = '192.0.2.1:3260'
SOURCE = initiator.Source(IQN, PORTAL, SERIAL, units.Bytes(1 << 20),
                          512, 'user', 'secret')
IDENTITY = {'serial': SERIAL, 'size': 1 << 20, 'block_size': 512,
            'readonly': True}
Error = exceptions.DMCloneException
AWAY = exceptions.CommandFailed(command='iscsiadm', code=8,
                                stderr='connection timed out')


class Clock:
    """Time that passes only by sleeping; ``at`` runs things on the way."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.at: dict[float, typing.Callable[[], object]] = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for when in sorted(self.at):
            if when <= self.now - 1000:
                self.at.pop(when)()


@ddt.ddt
class InitiatorTest(base.BaseTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.sysfs = self.useFixture(sysfs.Sysfs())
        self.clock = Clock()
        self.enterContext(mock.patch(
            'cinder_dmclone.host.iscsi.initiator.time', self.clock))
        self.iscsi = self.enterContext(mock.patch(
            'cinder_dmclone.host.iscsi.initiator.iscsi', autospec=True))
        self.iscsi.identity.return_value = dict(IDENTITY)
        self.iscsi.login.side_effect = self.logged_in()
        self.initiator = initiator.Initiator()

    def logged_in(self, **session: typing.Any
                  ) -> typing.Callable[..., None]:
        return lambda *_args: self.sysfs.add(1, IQN, **session)

    def test_login(self) -> None:
        disk = self.initiator.login(SOURCE, 15)
        self.assertEqual(sessions.Disk('/dev/sda', '8:0', 'LOGGED_IN'), disk)
        self.iscsi.write_record.assert_called_once_with(
            IQN, SOURCE.portal, 'user', 'secret')
        self.iscsi.identity.assert_called_once_with(IQN, '8:0', mock.ANY)

    def test_login_again(self) -> None:
        self.sysfs.add(1, IQN)
        self.initiator.login(SOURCE, 15)
        self.iscsi.login.assert_not_called()
        self.iscsi.identity.assert_called_once_with(IQN, '8:0', mock.ANY)

    def test_login_is_never_killed_early(self) -> None:
        self.initiator.login(SOURCE, 1)
        self.iscsi.login.assert_called_once_with(IQN, initiator.LOGIN_SECONDS)

    def test_disk_comes_late(self) -> None:
        self.iscsi.login.side_effect = self.logged_in(disk=None)

        def scanned() -> None:
            self.sysfs.drop(1)
            self.sysfs.add(2, IQN)

        self.clock.at[1] = scanned
        self.assertEqual('/dev/sda', self.initiator.login(SOURCE, 15).path)
        self.iscsi.rescan.assert_not_called()

    def test_disk_missed_by_the_first_scan(self) -> None:
        self.sysfs.add(1, IQN, disk=None)

        def rescan(*_args: object) -> None:
            self.sysfs.drop(1)
            self.sysfs.add(2, IQN)

        self.iscsi.rescan.side_effect = rescan
        self.assertEqual('/dev/sda', self.initiator.login(SOURCE, 15).path)

    def test_no_disk(self) -> None:
        self.iscsi.login.side_effect = self.logged_in(disk=None)
        self.iscsi.rescan.side_effect = AWAY
        error = self.assertRaises(exceptions.LoginFailed,
                                  self.initiator.login, SOURCE, 15)
        self.assertIn('shows no disk', str(error))
        self.iscsi.rescan.assert_called_once_with(IQN, mock.ANY)
        self.assertLess(self.clock.now, 1016)

    @ddt.data(AWAY, exceptions.CommandTimeout(command='iscsiadm', seconds=1))
    def test_lender_away(self, error: Error) -> None:
        self.iscsi.login.side_effect = error
        raised = self.assertRaises(exceptions.LoginFailed,
                                   self.initiator.login, SOURCE, 15)
        self.assertIn(error.msg, str(raised))
        self.assertNotIn('secret', str(raised))

    @ddt.data(AWAY, exceptions.InitiatorUnusable(reason='node record'))
    def test_no_record(self, error: Error) -> None:
        self.iscsi.write_record.side_effect = error
        raised = self.assertRaises(exceptions.LoginFailed,
                                   self.initiator.login, SOURCE, 15)
        self.assertIn(error.msg, str(raised))
        self.iscsi.login.assert_not_called()

    def test_session_in_recovery_is_waited_for(self) -> None:
        self.sysfs.add(1, IQN, state='FAILED')
        self.clock.at[2] = lambda: self.sysfs.set(1, 'LOGGED_IN')
        disk = self.initiator.relogin(IQN, PORTAL, 15)
        self.assertEqual('LOGGED_IN', disk.state)

    def test_session_stays_in_recovery(self) -> None:
        self.sysfs.add(1, IQN, state='FAILED')
        error = self.assertRaises(exceptions.LoginFailed,
                                  self.initiator.relogin, IQN, PORTAL, 15)
        self.assertIn('FAILED', str(error))

    def test_session_ends_meanwhile(self) -> None:
        self.sysfs.add(1, IQN, state='FAILED')
        self.clock.at[2] = lambda: self.sysfs.drop(1)
        error = self.assertRaises(exceptions.LoginFailed,
                                  self.initiator.relogin, IQN, PORTAL, 15)
        self.assertIn('ended', str(error))

    def test_relogin_needs_no_secret(self) -> None:
        self.initiator.relogin(IQN, PORTAL, 15)
        self.iscsi.login.assert_called_once_with(IQN, 15)
        self.iscsi.write_record.assert_not_called()
        self.iscsi.identity.assert_not_called()

    def relogin_fails(self, iqn: str, portal: str = PORTAL) -> str:
        return str(self.assertRaises(
            exceptions.LoginFailed, self.initiator.relogin, iqn, portal, 15))

    @ddt.data(AWAY, exceptions.CommandTimeout(command='iscsiadm', seconds=1))
    def test_a_lender_that_is_away_is_asked_once_for_all(
            self, error: Error) -> None:
        self.iscsi.login.side_effect = error
        first = self.relogin_fails(IQN)
        self.assertEqual(first, self.relogin_fails(OTHER).replace(OTHER, IQN))
        self.iscsi.login.assert_called_once_with(IQN, mock.ANY)
        self.relogin_fails(OTHER, '192.0.2.2:3260')
        self.assertEqual(2, self.iscsi.login.call_count)
        self.clock.now += initiator.SILENT_SECONDS
        self.relogin_fails(OTHER)
        self.assertEqual(3, self.iscsi.login.call_count)

    def test_a_lender_that_was_away_is_asked_by_one_at_a_time(self) -> None:
        asked: list[tuple[object, ...]] = []

        def meanwhile(*_args: object) -> None:
            if asked:
                self.relogin_fails(OTHER)
            asked.append(_args)
            raise AWAY
        self.iscsi.login.side_effect = meanwhile
        for tries in (1, 2):
            self.assertEqual(tries > 1, self.initiator.silent(PORTAL))
            self.relogin_fails(IQN)
            self.assertEqual(tries, len(asked))
            self.clock.now += initiator.SILENT_SECONDS
        self.iscsi.login.side_effect = self.logged_in()
        self.initiator.relogin(IQN, PORTAL, 15)
        self.assertFalse(self.initiator.silent(PORTAL))

    @ddt.data(
        exceptions.CommandFailed(command='iscsiadm', code=24,
                                 stderr='authorization failure'),
        exceptions.NotBegun(command='login', seconds=10),
        exceptions.HelperEnded(command='login', reason='eof'))
    def test_a_lender_that_may_be_there_is_asked_for_others(
            self, error: Error) -> None:
        self.iscsi.login.side_effect = error
        self.assertIn(error.msg, self.relogin_fails(IQN))
        self.relogin_fails(OTHER)
        self.assertEqual(2, self.iscsi.login.call_count)

    @ddt.data(('serial', 'other'), ('size', 512), ('block_size', 4096),
              ('readonly', False))
    @ddt.unpack
    def test_verify(self, name: str, value: object) -> None:
        self.iscsi.identity.return_value[name] = value
        error = self.assertRaises(exceptions.SourceMismatch,
                                  self.initiator.login, SOURCE, 15)
        self.assertIn(name, str(error))

    def test_verify_outdated_size(self) -> None:
        self.iscsi.login.side_effect = self.logged_in(sectors=100)
        error = self.assertRaises(exceptions.SourceMismatch,
                                  self.initiator.login, SOURCE, 15)
        self.assertIn('51200', str(error))

    def test_a_disk_that_was_given_up(self) -> None:
        self.sysfs.add(1, IQN, device_state='offline')
        found = self.initiator.disk(IQN)
        assert found
        self.assertEqual(sessions.OFFLINE, found.state)

        def run(iqn: str, devnum: str) -> None:
            state = self.sysfs.root / f'dev/block/{devnum}/device/state'
            state.write_text('running\n')
        self.iscsi.set_running.side_effect = run
        self.assertEqual(dataclasses.replace(found, state='LOGGED_IN'),
                         self.initiator.revive(IQN, found))
        self.iscsi.set_running.assert_called_once_with(IQN, found.devnum)

    def test_logout(self) -> None:
        self.sysfs.add(1, IQN)
        self.iscsi.logout.side_effect = lambda *_args: self.sysfs.drop(1)
        self.initiator.logout(IQN)
        self.iscsi.delete_record.assert_called_once_with(IQN)

    def test_disconnect_keeps_the_way_back(self) -> None:
        self.sysfs.add(1, IQN)
        self.iscsi.logout.side_effect = lambda *_args: self.sysfs.drop(1)
        self.initiator.disconnect(IQN)
        self.iscsi.delete_record.assert_not_called()

    def test_logout_of_nothing(self) -> None:
        self.initiator.logout(IQN)
        self.iscsi.delete_record.assert_called_once_with(IQN)

    def test_logout_that_reports_an_error_but_works(self) -> None:
        self.sysfs.add(1, IQN)
        self.clock.at[1] = lambda: self.sysfs.drop(1)
        self.iscsi.logout.side_effect = AWAY
        self.initiator.logout(IQN)
        self.iscsi.delete_record.assert_called_once_with(IQN)

    def test_logout_refused(self) -> None:
        self.sysfs.add(1, IQN)
        self.iscsi.logout.side_effect = AWAY
        error = self.assertRaises(exceptions.InitiatorUnusable,
                                  self.initiator.logout, IQN)
        self.assertIn('connection timed out', str(error))
        self.iscsi.delete_record.assert_not_called()

    def test_lists(self) -> None:
        self.sysfs.add(1, IQN)
        disk = self.initiator.disk(IQN)
        assert disk
        self.assertEqual('8:0', disk.devnum)
        self.assertIsNone(self.initiator.disk(IQN.replace('0', '1')))

    @ddt.data(True, False)
    def test_check(self, running: bool) -> None:
        text = 'x @ISCSIADM_ABSTRACT_NAMESPACE\n' if running else 'x\n'
        self.iscsi.initiator_name.return_value = 'iqn.x'
        with mock.patch('pathlib.Path.read_text', autospec=True,
                        return_value=text):
            if running:
                self.initiator.check()
            else:
                self.assertRaises(exceptions.InitiatorUnusable,
                                  self.initiator.check)

    def test_check_initiator(self) -> None:
        self.iscsi.initiator_name.side_effect = exceptions.InitiatorUnusable(
            reason='none')
        self.assertRaises(exceptions.InitiatorUnusable, self.initiator.check)

    def test_secret_is_not_shown(self) -> None:
        self.assertNotIn('secret', repr(SOURCE))
