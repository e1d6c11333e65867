# SPDX-License-Identifier: Apache-2.0

import errno
import pathlib
import tempfile
from unittest import mock

import ddt
from oslotest import base

from cinder_dmclone import exceptions
from cinder_dmclone import privileged
from cinder_dmclone.privileged import iscsi
from cinder_dmclone.privileged import process
from cinder_dmclone.sysfs import sessions
from tests.unit.iscsi import sysfs

IQN = 'iqn.2010-10.org.openstack:dmclone-0123456789abcdef0123456789abcdef'
FOREIGN = 'iqn.2010-10.org.openstack:volume-1'
PORTAL = '192.0.2.1:3260'
SECRET = 'a-very-secret-one'

# What `-o new` writes, shortened; some lines are the operator's.
NEW = '''# BEGIN RECORD 2.1.8
node.name = {iqn}
node.tpgt = 1
node.startup = automatic
node.session.auth.authmethod = None
node.session.auth.username_in = somebody
node.session.auth.password_in = else
node.session.timeo.replacement_timeout = 77
node.conn[0].timeo.login_timeout = 15
# END RECORD
'''


class Case(base.BaseTestCase):
    """iscsiadm and its records in a temporary directory."""

    def setUp(self) -> None:
        super().setUp()
        self.sysfs = self.useFixture(sysfs.Sysfs())
        privileged.context.set_client_mode(False)
        self.addCleanup(privileged.context.set_client_mode, True)
        self.root = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        self.nodes = self.root / 'var/nodes'
        self.enterContext(mock.patch.object(
            iscsi, 'NODES', (self.root / 'etc/nodes', self.nodes)))
        self.run_really = process.run
        self.process = self.enterContext(mock.patch(
            'cinder_dmclone.privileged.process.run', autospec=True,
            side_effect=self.run_or_play))
        self.fails = False

    def run_or_play(self, argv: list[str], timeout: float,
                    input: str | None = None) -> str:
        self.assertNotIn(SECRET, ' '.join(argv))
        if argv[0] != 'iscsiadm':
            return self.run_really(argv, timeout, input)
        return self.iscsiadm(argv)

    def iscsiadm(self, argv: list[str]) -> str:
        if self.fails:
            raise exceptions.CommandFailed(command=argv[0], code=8,
                                           stderr='away')
        if 'new' in argv:
            host, _colon, port = argv[argv.index('-p') + 1].rpartition(':')
            path = self.nodes / IQN / f'{host.strip("[]")},{port}'
            path.mkdir(parents=True)
            (path / 'default').write_text(NEW.format(iqn=IQN))
            (path / 'default').chmod(0o666)
            static = self.nodes.parent / 'static'
            static.mkdir(exist_ok=True)
            (static / f'{IQN},x').symlink_to(path)
        return ''

    def commands(self) -> list[str]:
        return [' '.join(call.args[0]) for call in self.process.mock_calls]

    def record(self) -> pathlib.Path:
        return self.nodes / IQN / '192.0.2.1,3260,1/default'


@ddt.ddt
class RecordTest(Case):

    def test_write(self) -> None:
        iscsi.write_record(IQN, PORTAL, 'user', SECRET)
        values = iscsi._parse(self.record().read_text())
        self.assertEqual(IQN, values['node.name'])
        self.assertEqual('user', values['node.session.auth.username'])
        self.assertEqual(SECRET, values['node.session.auth.password'])
        self.assertEqual('CHAP', values['node.session.auth.authmethod'])
        self.assertEqual('manual', values['node.startup'])
        self.assertEqual('5', values['node.conn[0].timeo.login_timeout'])
        self.assertEqual('2',
                         values['node.session.initial_login_retry_max'])
        self.assertEqual('77',
                         values['node.session.timeo.replacement_timeout'])
        self.assertNotIn('node.session.auth.password_in', values)
        self.assertEqual(0o600, self.record().stat().st_mode & 0o777)
        self.assertEqual(['nodes', 'static'], sorted(
            path.name for path in self.nodes.parent.iterdir()))

    def test_right_record_is_left_alone(self) -> None:
        iscsi.write_record(IQN, PORTAL, 'user', SECRET)
        before = self.record().stat()
        self.process.reset_mock()
        iscsi.write_record(IQN, PORTAL, 'user', SECRET)
        self.assertEqual(before.st_ino, self.record().stat().st_ino)
        self.process.assert_not_called()

    def test_other_portal_and_secret(self) -> None:
        iscsi.write_record(IQN, '192.0.2.9:3260', 'user', 'other')
        iscsi.write_record(IQN, PORTAL, 'user', SECRET)
        self.assertEqual([self.record()], iscsi._files(IQN))
        self.assertIn(SECRET, self.record().read_text())

    def test_damaged_record(self) -> None:
        iscsi.write_record(IQN, PORTAL, 'user', SECRET)
        self.record().write_text('')
        iscsi.write_record(IQN, PORTAL, 'user', SECRET)
        self.assertIn(SECRET, self.record().read_text())

    def test_ipv6(self) -> None:
        iscsi.write_record(IQN, '[fd00::1]:3260', 'user', SECRET)
        self.assertEqual(['fd00::1,3260,1'], [
            path.name for path in (self.nodes / IQN).iterdir()])
        self.process.reset_mock()
        iscsi.write_record(IQN, '[fd00::1]:3260', 'user', SECRET)
        self.process.assert_not_called()

    def test_interrupted_before_the_secret(self) -> None:
        broken = OSError(errno.EIO, 'Input/output error', 'default')
        with mock.patch.object(iscsi, '_replace', autospec=True,
                               side_effect=broken):
            error = self.assertRaises(
                exceptions.InitiatorUnusable, iscsi.write_record, IQN, PORTAL,
                'user', SECRET)
        self.assertIn('node record default: Input/output error', str(error))
        iscsi.write_record(IQN, PORTAL, 'user', SECRET)
        self.assertIn(SECRET, self.record().read_text())

    def test_record_in_an_unknown_place(self) -> None:
        with mock.patch.object(iscsi, 'NODES', (self.root / 'etc/nodes',)):
            error = self.assertRaises(
                exceptions.CommandFailed, iscsi.write_record, IQN, PORTAL,
                'user', SECRET)
        self.assertNotIn(SECRET, str(error))

    @ddt.data(('not a portal', 'user', SECRET),
              (PORTAL + '\n', 'user', SECRET),
              (PORTAL, 'us er', SECRET),
              (PORTAL, 'user', SECRET + '\nnode.startup = automatic'),
              (PORTAL, 'user', SECRET + '\n'),
              (PORTAL, 'user', ''))
    @ddt.unpack
    def test_bad_arguments(self, portal: str, user: str,
                           password: str) -> None:
        error = self.assertRaises(ValueError, iscsi.write_record, IQN,
                                  portal, user, password)
        self.assertNotIn(SECRET, str(error))

    @ddt.data(True, False)
    def test_delete(self, refused: bool) -> None:
        iscsi.write_record(IQN, PORTAL, 'user', SECRET)
        (self.nodes / FOREIGN).mkdir()
        self.fails = refused
        iscsi.delete_record(IQN)
        self.assertEqual([FOREIGN],
                         [path.name for path in self.nodes.iterdir()])
        self.assertEqual([], list((self.nodes.parent / 'static').iterdir()))
        self.process.reset_mock()
        iscsi.delete_record(IQN)
        self.process.assert_not_called()


@ddt.ddt
class SessionTest(Case):

    def test_login(self) -> None:
        iscsi.login(IQN, 13)
        self.assertEqual([f'iscsiadm -m node -T {IQN} --login'],
                         self.commands())
        self.assertEqual(13, self.process.call_args.kwargs['timeout'])

    def test_login_fails(self) -> None:
        self.fails = True
        self.assertRaises(exceptions.CommandFailed, iscsi.login, IQN, 13)

    def test_somebody_else_logged_in_first(self) -> None:
        self.fails = True
        self.sysfs.add(1, IQN)
        iscsi.login(IQN, 13)

    def test_logout_of_every_session(self) -> None:
        self.sysfs.add(1, FOREIGN)
        self.sysfs.add(2, IQN)
        self.sysfs.add(5, IQN)
        iscsi.logout(IQN, 20)
        self.assertEqual(['iscsiadm -m session -r 2 --logout',
                          'iscsiadm -m session -r 5 --logout'],
                         self.commands())

    def test_logout_of_nothing(self) -> None:
        iscsi.logout(IQN, 20)
        self.process.assert_not_called()

    def test_rescan(self) -> None:
        iscsi.rescan(IQN, 3)
        self.process.assert_not_called()
        self.sysfs.add(4, IQN)
        iscsi.rescan(IQN, 3)
        self.assertEqual(['iscsiadm -m session -r 4 --rescan'],
                         self.commands())

    def test_identity_of_another_disk(self) -> None:
        ask = self.enterContext(mock.patch(
            'cinder_dmclone.privileged.scsi.identity', autospec=True))
        self.assertRaises(exceptions.SourceMismatch, iscsi.identity, IQN,
                          '8:0', 5)
        self.sysfs.add(1, IQN, disk='sdb', devnum='8:16')
        self.assertRaises(exceptions.SourceMismatch, iscsi.identity, IQN,
                          '8:0', 5)
        ask.assert_not_called()
        iscsi.identity(IQN, '8:16', 5)
        ask.assert_called_once_with('/dev/sdb', '8:16', 5)

    def test_a_disk_that_was_given_up(self) -> None:
        self.sysfs.add(1, IQN, disk='sdb', devnum='8:16',
                       device_state='offline')
        self.assertRaises(exceptions.SourceMismatch, iscsi.set_running, IQN,
                          '8:0')
        self.process.assert_not_called()
        iscsi.set_running(IQN, '8:16')
        found, = sessions.sessions()
        assert found.disk
        self.assertEqual(sessions.LOGGED_IN, found.disk.state)

    @ddt.data(FOREIGN, '', f'../{IQN}', IQN + '\n')
    def test_foreign_names_refused(self, iqn: str) -> None:
        for function, arguments in (
                (iscsi.login, (1,)), (iscsi.logout, (1,)),
                (iscsi.rescan, (1,)), (iscsi.delete_record, ()),
                (iscsi.identity, ('8:0', 1)),
                (iscsi.set_running, ('8:0',)),
                (iscsi.write_record, (PORTAL, 'user', SECRET))):
            self.assertRaises(ValueError, function, iqn, *arguments)
        self.process.assert_not_called()


@ddt.ddt
class InitiatorTest(Case):

    @ddt.data('# x\nInitiatorName=iqn.1993-08.org.debian:01:ABC\n',
              '  InitiatorName = iqn.1993-08.org.debian:01:abc')
    def test_name(self, text: str) -> None:
        path = self.root / 'name'
        path.write_text(text)
        with mock.patch.object(iscsi, 'INITIATOR', path):
            self.assertEqual('iqn.1993-08.org.debian:01:abc',
                             iscsi.initiator_name())

    @ddt.data(None, '', '# InitiatorName=iqn.x\n', 'InitiatorName=\n')
    def test_no_name(self, text: str | None) -> None:
        path = self.root / 'name'
        if text is not None:
            path.write_text(text)
        with mock.patch.object(iscsi, 'INITIATOR', path):
            self.assertRaises(exceptions.InitiatorUnusable,
                              iscsi.initiator_name)
