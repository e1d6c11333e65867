# SPDX-License-Identifier: Apache-2.0

import ddt
from oslotest import base

from cinder_dmclone.sysfs import sessions
from tests.unit.iscsi import sysfs

IQN = 'iqn.2010-10.org.openstack:dmclone-0123456789abcdef0123456789abcdef'
OTHER = IQN.replace('0123', 'aaaa')


@ddt.ddt
class SessionsTest(base.BaseTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.sysfs = self.useFixture(sysfs.Sysfs())

    def found(self) -> sessions.Session:
        """The one that there is."""
        session = sessions.find(IQN)
        assert session
        return session

    def test_none(self) -> None:
        self.assertEqual([], sessions.sessions())
        self.assertIsNone(sessions.find(IQN))

    def test_no_initiator_module(self) -> None:
        (self.sysfs.root / 'class/iscsi_session').rmdir()
        self.assertEqual([], sessions.sessions())

    def test_only_ours(self) -> None:
        self.sysfs.add(3, 'iqn.2010-10.org.openstack:volume-1')
        self.sysfs.add(12, IQN)
        self.sysfs.add(4, OTHER, disk=None)
        self.assertEqual([(4, OTHER), (12, IQN)],
                         [(s.sid, s.iqn) for s in sessions.sessions()])

    def test_disk(self) -> None:
        self.sysfs.add(1, IQN, disk='sdq', devnum='65:0')
        session = self.found()
        self.assertEqual(sessions.Disk('/dev/sdq', '65:0', 'LOGGED_IN'),
                         session.disk)

    def test_before_its_scan(self) -> None:
        self.sysfs.add(1, IQN, disk=None)
        self.assertIsNone(self.found().disk)

    @ddt.data(('LOGGED_IN', 'running', 'LOGGED_IN'),
              ('FAILED', 'blocked', 'FAILED'),
              ('FREE', 'transport-offline', 'FREE'),
              ('LOGGED_IN', 'offline', 'offline'))
    @ddt.unpack
    def test_state(self, session: str, device: str, wanted: str) -> None:
        self.sysfs.add(1, IQN, state=session, device_state=device)
        disk = self.found().disk
        assert disk
        self.assertEqual(wanted, disk.state)

    def test_the_one_that_works_of_two(self) -> None:
        self.sysfs.add(1, IQN, state='FAILED')
        self.sysfs.add(2, IQN, disk=None)
        self.sysfs.add(3, IQN, disk='sdb', devnum='8:16')
        self.assertEqual(3, self.found().sid)

    def test_one_that_vanishes_meanwhile(self) -> None:
        self.sysfs.add(1, IQN)
        self.sysfs.add(2, OTHER)
        path = self.sysfs.root / 'class/iscsi_session/session1/state'
        path.unlink()
        self.assertEqual([OTHER], [s.iqn for s in sessions.sessions()])

    def test_one_whose_device_vanishes_meanwhile(self) -> None:
        self.sysfs.add(1, IQN)
        self.sysfs.add(2, OTHER)
        (self.sysfs.root / 'class/iscsi_session/session1/device').unlink()
        self.assertEqual([OTHER], [s.iqn for s in sessions.sessions()])
        self.assertIsNone(sessions.find(IQN))

    def test_one_whose_disk_is_being_made(self) -> None:
        """The session is there: whoever logs in waits for the disk."""
        self.sysfs.add(1, IQN, disk='sdq')
        (dev,) = self.sysfs.root.glob('**/block/sdq/dev')
        dev.unlink()
        self.assertIsNone(self.found().disk)

    def test_size(self) -> None:
        self.sysfs.add(1, IQN, sectors=3)
        disk = self.found().disk
        assert disk
        self.assertEqual(1536, sessions.size(disk))
        gone = sessions.Disk('/dev/sdz', '65:144', 'LOGGED_IN')
        self.assertIsNone(sessions.size(gone))

    @ddt.data('', 'dmclone-0123456789abcdef', 'iqn.2010-10.org.openstack:x',
              IQN + '/..', IQN + ' ', '../' + IQN, IQN + '\n',
              IQN.replace('dmclone-', 'dmclone-X'))
    def test_not_ours(self, iqn: str) -> None:
        self.assertFalse(sessions.is_ours(iqn))

    def test_ours(self) -> None:
        self.assertTrue(sessions.is_ours(IQN))
