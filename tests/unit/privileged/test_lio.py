# SPDX-License-Identifier: Apache-2.0

import os
import pathlib
import shutil
import tempfile
from typing import Callable
from unittest import mock

import ddt
from oslotest import base

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import lio
from tests.unit.privileged import configfs

LV = '11111111-2222-3333-4444-555555555555'
BORROWER = 'aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee'
MARK = 'dmclone-0123456789abcdef0123456789abcdef'
IQN = f'iqn.2010-10.org.openstack:{MARK}'
DEVICE = f'/dev/mapper/dmclone-loan-{LV}-{BORROWER}'
OTHER = f'/dev/mapper/dmclone-serve-{LV}'
INITIATOR = 'iqn.2026-01.org.example:borrower'
SECRET = 'a-very-secret-one'

TPG = f'iscsi/{IQN}/tpgt_1'
HBA = f'core/iblock_{(1 << 20) + 0x0123456}'
STORAGE = f'{HBA}/{MARK}@iqn.2010-10.org.openstack:'
ACL = f'{TPG}/acls/{INITIATOR}'

# Before 2.2 rtslib makes an error of its own of whatever a mkdir raises.
DEATHS = (configfs.Died, exceptions.TargetUnusable)


def _unlink(folder: pathlib.Path) -> None:
    for path in folder.iterdir():
        if path.is_symlink():
            path.unlink()


# States that a crash or somebody's hand leaves, made from a whole export.
BROKEN: dict[str, Callable[[configfs.Configfs], object]] = {
    'disabled': lambda fs: fs.set(f'{TPG}/enable', '0'),
    'storage object of another device': lambda fs: fs.set(
        f'{STORAGE}/info',
        (fs.root / STORAGE / 'info').read_text().replace('Minor: 7',
                                                         'Minor: 8')),
    'storage object disabled': lambda fs: fs.set(f'{STORAGE}/enable', '0'),
    'storage object of another path': lambda fs: fs.set(
        f'{STORAGE}/udev_path', OTHER),
    'another serial': lambda fs: fs.set(
        f'{STORAGE}/wwn/vpd_unit_serial',
        f'T10 VPD Unit Serial Number: {BORROWER}'),
    'discards allowed': lambda fs: fs.set(
        f'{STORAGE}/attrib/emulate_tpu', '1'),
    'writable': lambda fs: fs.set(f'{ACL}/lun_0/write_protect', '0'),
    'mapped LUN without link': lambda fs: _unlink(fs.root / ACL / 'lun_0'),
    'LUN without link, still mapped': lambda fs: _unlink(
        fs.root / TPG / 'lun/lun_0'),
    'second LUN': lambda fs: (fs.root / TPG / 'lun/lun_1').mkdir(),
    'foreign initiator': lambda fs: (
        fs.root / TPG / 'acls/iqn.2026-01.org.example:other').mkdir(),
    'other user': lambda fs: fs.set(f'{ACL}/auth/userid', 'other'),
    'other password': lambda fs: fs.set(f'{ACL}/auth/password', 'other'),
    'no portal': lambda fs: (fs.root / TPG / 'np/192.0.2.1:3260').rmdir(),
    'other portal': lambda fs: (fs.root / TPG / 'np/192.0.2.9:3260').mkdir(),
    'no authentication': lambda fs: fs.set(
        f'{TPG}/attrib/authentication', '0'),
    'shown to all': lambda fs: fs.set(
        f'{TPG}/attrib/demo_mode_discovery', '1'),
    'open to all': lambda fs: fs.set(f'{TPG}/attrib/generate_node_acls', '1'),
}


@ddt.ddt
class LioTest(base.BaseTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.fs = self.useFixture(configfs.Configfs())
        self.fs.devices = {DEVICE: (253, 7), OTHER: (253, 8)}

    def ensure(self, device: str = DEVICE, readonly: bool = True,
               initiator: str = INITIATOR, password: str = SECRET) -> None:
        lio.ensure(IQN, device, LV, readonly,
                   [(initiator, 'user', password)], '192.0.2.1', 3260)

    def read(self, path: str) -> str:
        return (self.fs.root / path).read_text()

    def link(self, path: str) -> str:
        links = [entry for entry in (self.fs.root / path).iterdir()
                 if entry.is_symlink()]
        return str(links[0].resolve().relative_to(self.fs.root.resolve()))

    def test_export_is_complete(self) -> None:
        self.ensure()
        self.assertIn('readonly: 1', self.read(f'{STORAGE}/info'))
        self.assertIn('Minor: 7', self.read(f'{STORAGE}/info'))
        self.assertEqual(DEVICE, self.read(f'{STORAGE}/udev_path'))
        self.assertIn(LV, self.read(f'{STORAGE}/wwn/vpd_unit_serial'))
        self.assertEqual('1', self.read(
            f'{STORAGE}/attrib/emulate_model_alias'))
        self.assertEqual('0', self.read(f'{STORAGE}/attrib/emulate_tpu'))
        self.assertEqual('0', self.read(f'{STORAGE}/attrib/emulate_tpws'))
        self.assertEqual(STORAGE, self.link(f'{TPG}/lun/lun_0'))
        self.assertEqual(f'{TPG}/lun/lun_0', self.link(f'{ACL}/lun_0'))
        self.assertEqual('1', self.read(f'{ACL}/lun_0/write_protect'))
        self.assertEqual('user', self.read(f'{ACL}/auth/userid'))
        self.assertEqual(SECRET, self.read(f'{ACL}/auth/password'))
        self.assertEqual(['192.0.2.1:3260'],
                         os.listdir(self.fs.root / TPG / 'np'))
        self.assertEqual('1', self.read(f'{TPG}/enable'))

    def test_product_name_starts_with_our_mark(self) -> None:
        self.assertTrue(lio.backstore_name(IQN)[:16].startswith('dmclone-'))

    def test_who_is_not_admitted_is_not_told_of_it(self) -> None:
        self.ensure()
        self.assertEqual('0', self.read(f'{TPG}/attrib/demo_mode_discovery'))

    def test_enabled_last(self) -> None:
        self.ensure()
        self.assertEqual(('write', f'{TPG}/enable'), self.fs.events[-1])
        self.assertEqual(1, self.fs.events.count(('write', f'{TPG}/enable')))

    def test_serial_is_set_before_the_lun_exists(self) -> None:
        self.ensure()
        serial = self.fs.events.index(
            ('write', f'{STORAGE}/wwn/vpd_unit_serial'))
        lun = self.fs.events.index(('mkdir', f'{TPG}/lun/lun_0'))
        self.assertLess(serial, lun)

    def test_nothing_is_touched_the_second_time(self) -> None:
        self.ensure()
        self.fs.events.clear()
        self.ensure()
        self.assertEqual([], self.fs.events)

    @ddt.data(*BROKEN)
    def test_repair(self, name: str) -> None:
        self.ensure()
        whole = self.fs.tree()
        BROKEN[name](self.fs)
        self.assertNotEqual(whole, self.fs.tree())
        self.ensure()
        self.assertEqual(whole, self.fs.tree())

    def test_every_interruption_is_repaired(self) -> None:
        """Die after each single change, then ensure again."""
        self.ensure()
        whole = self.fs.tree()
        changes = len(self.fs.events)
        lio.remove(IQN)
        for limit in range(1, changes):
            self.fs.events.clear()
            self.fs.die_after = limit
            self.assertRaises(DEATHS, self.ensure)
            self.assertEqual(limit, len(self.fs.events))
            self.fs.die_after = None
            self.ensure()
            self.assertEqual(whole, self.fs.tree(), limit)
            lio.remove(IQN)

    def test_every_interrupted_removal_is_finished(self) -> None:
        empty = self.fs.tree()
        self.ensure()
        self.fs.events.clear()
        lio.remove(IQN)
        for limit in range(1, len(self.fs.events)):
            self.ensure()
            self.fs.events.clear()
            self.fs.die_after = limit
            self.assertRaises(DEATHS, lio.remove, IQN)
            self.assertEqual(limit, len(self.fs.events))
            self.fs.die_after = None
            lio.remove(IQN)
            self.assertEqual(empty, self.fs.tree(), limit)

    def test_other_device_ends_sessions_first(self) -> None:
        self.ensure()
        self.fs.events.clear()
        self.ensure(device=OTHER, readonly=False)
        self.assertEqual(('write', f'{TPG}/enable'), self.fs.events[0])
        removed = [path for verb, path in self.fs.events if verb == 'rmdir']
        self.assertLess(removed.index(f'iscsi/{IQN}'),
                        removed.index(STORAGE))
        self.assertIn('readonly: 0', self.read(f'{STORAGE}/info'))
        self.assertEqual('0', self.read(f'{ACL}/lun_0/write_protect'))

    def test_missing_device_changes_nothing(self) -> None:
        self.ensure()
        whole = self.fs.tree()
        self.fs.devices.clear()
        self.assertRaises(exceptions.TargetUnusable, self.ensure)
        self.assertEqual(whole, self.fs.tree())

    def test_grants(self) -> None:
        lio.ensure(IQN, DEVICE, LV, True,
                   [(INITIATOR, 'user', SECRET),
                    ('iqn.2026-01.org.example:SECOND', 'user', SECRET)],
                   '192.0.2.1', 3260)
        self.assertEqual({'iqn.2026-01.org.example:borrower',
                          'iqn.2026-01.org.example:second'},
                         set(os.listdir(self.fs.root / TPG / 'acls')))
        lio.revoke(IQN, 'iqn.2026-01.org.example:Second')
        self.assertEqual([INITIATOR],
                         os.listdir(self.fs.root / TPG / 'acls'))
        lio.revoke(IQN, 'iqn.2026-01.org.example:second')

    def test_revoke_without_target(self) -> None:
        lio.revoke(IQN, INITIATOR)
        self.assertEqual([], self.fs.events)

    def test_remove(self) -> None:
        empty = self.fs.tree()
        self.ensure()
        lio.remove(IQN)
        self.assertEqual(empty, self.fs.tree())
        lio.remove(IQN)

    def test_remove_disables_first(self) -> None:
        self.ensure()
        self.fs.events.clear()
        lio.remove(IQN)
        self.assertEqual(('write', f'{TPG}/enable'), self.fs.events[0])

    def removed_beside(self, looks: Callable[[int], object]) -> list[float]:
        """Times at which a removal waits while somebody is to log in."""
        waits: list[float] = []
        other = IQN[:-1] + '0'
        clock = mock.patch('time.monotonic', autospec=True,
                           side_effect=lambda: sum(waits))

        def sleep(seconds: float) -> None:
            looks(len(waits))
            waits.append(seconds)

        with clock, mock.patch('time.sleep', sleep), \
                mock.patch.dict(lio._expected, clear=True):
            self.ensure()
            # There is nothing that could be interrupted.
            lio.remove(other)
            self.assertEqual([], waits)
            (self.fs.root / 'iscsi' / other).mkdir()
            lio.remove(other)
        return waits

    def test_remove_lets_others_log_in(self) -> None:
        def login(number: int) -> None:
            self.assertEqual('1', self.read(f'{TPG}/enable'))
            if number == 2:
                self.fs.set(f'{ACL}/info', 'InitiatorName: ' + INITIATOR)

        self.assertEqual(3, len(self.removed_beside(login)))

    def test_remove_does_not_wait_for_who_never_logs_in(self) -> None:
        waits = self.removed_beside(lambda number: None)
        self.assertAlmostEqual(lio.LOGIN_SECONDS, sum(waits), delta=0.1)

    def test_remove_does_not_wait_for_its_own(self) -> None:
        with mock.patch('time.sleep', autospec=True) as sleep, \
                mock.patch.dict(lio._expected, clear=True):
            self.ensure()
            lio.remove(IQN)
        sleep.assert_not_called()

    def test_removal_repeated_when_another_target_vanishes(self) -> None:
        self.ensure()
        path = 'rtslib_fb.tcm.StorageObject._gen_attached_luns'
        with mock.patch(path, autospec=True,
                        side_effect=[FileNotFoundError, iter(())]), \
                mock.patch('time.sleep', autospec=True):
            lio.remove(IQN)
        self.assertFalse((self.fs.root / HBA).exists())

    def test_storage_objects_are_looked_up_by_text(self) -> None:
        """Before 2.2 rtslib cannot take a path to pieces."""
        find = lio._rtslib().tcm.StorageObject.so_from_path
        with mock.patch('rtslib_fb.tcm.StorageObject.so_from_path',
                        side_effect=find) as looked_up:
            self.ensure()
            lio.remove(IQN)
        self.assertEqual({str}, {type(call.args[0])
                                 for call in looked_up.call_args_list})

    def test_foreign_objects_survive(self) -> None:
        for path in ('core/iblock_0', 'core/iblock_0/volume-1',
                     'iscsi/iqn.2010-10.org.openstack:volume-1'):
            (self.fs.root / path).mkdir()
        before = self.fs.tree()
        self.ensure()
        self.assertEqual([IQN], [state['iqn'] for state
                                 in lio.list_exports()])
        lio.remove(IQN)
        self.assertEqual(before, self.fs.tree())

    def test_number_taken_by_another(self) -> None:
        (self.fs.root / HBA).mkdir()
        (self.fs.root / HBA / 'foreign').mkdir()
        self.ensure()
        self.assertEqual('1', self.read(f'{TPG}/enable'))
        lio.remove(IQN)
        self.assertTrue((self.fs.root / HBA / 'foreign').exists())

    def test_list(self) -> None:
        self.assertEqual([], lio.list_exports())
        self.ensure()
        self.fs.set(f'{ACL}/info', 'InitiatorName: ' + INITIATOR)
        self.assertEqual(
            [{'iqn': IQN, 'device': DEVICE, 'serial': LV,
              'initiators': [INITIATOR], 'enabled': True,
              'sessions': [INITIATOR]}], lio.list_exports())

    def test_list_of_one(self) -> None:
        self.ensure()
        for part, iqns, listed in ((LV, [], [IQN]), ('other', [], []),
                                   ('other', [IQN], [IQN])):
            self.assertEqual(listed, [
                state['iqn'] for state in lio.list_exports(part, iqns)])

    def test_list_shows_halves(self) -> None:
        self.ensure()
        state = lio.list_exports()[0]
        target = self.fs.root / 'iscsi' / IQN
        lio._rtslib().Target(lio._rtslib().FabricModule('iscsi'),
                             IQN).delete()
        only_storage = lio.list_exports()
        self.assertEqual([{**state, 'enabled': False, 'initiators': []}],
                         only_storage)
        lio.remove(IQN)
        target.mkdir()
        self.assertEqual([(IQN, '', False)],
                         [(half['iqn'], half['device'], half['enabled'])
                          for half in lio.list_exports()])

    def test_errors_cross_privsep_without_the_secret(self) -> None:
        def refuse(path: pathlib.Path, text: str, *_args: object) -> None:
            raise PermissionError(13, f'refused: {path.name}')

        with mock.patch('rtslib_fb.utils.fwrite', refuse):
            error = self.assertRaises(exceptions.TargetUnusable, self.ensure)
        self.assertNotIn(SECRET, str(error))
        again = exceptions.TargetUnusable(*error.args)
        self.assertEqual(str(error), str(again))
        self.assertNotEqual('1', self.read(f'{TPG}/enable'))

    def test_stuck_change_does_not_collect_others(self) -> None:
        with lio._LOCK, mock.patch.object(lio, 'LOCK_SECONDS', 0.01):
            self.assertRaises(exceptions.TargetUnusable, lio.remove, IQN)
            self.assertEqual([], lio.list_exports())

    @ddt.data('iqn.2010-10.org.openstack:volume-1',
              'iqn.2010-10.org.openstack:dmclone-0123456789abcdef/../x',
              f'../{IQN}', IQN + '\n', '')
    def test_foreign_names_refused(self, iqn: str) -> None:
        self.assertRaises(ValueError, lio.remove, iqn)
        self.assertRaises(ValueError, lio.revoke, iqn, INITIATOR)
        self.assertRaises(ValueError, lio.ensure, iqn, DEVICE, LV, True, [],
                          '192.0.2.1', 3260)

    @ddt.data('/dev/sda', '/dev/mapper/vg-volume', f'/dev/mapper/../{LV}',
              f'/dev/mapper/dmclone-front-ca12f31b-{LV}',
              f'/dev/mapper/dmclone-clone-{LV}', DEVICE + '\n')
    def test_only_exports_devices_made_for_it(self, device: str) -> None:
        self.assertRaises(ValueError, self.ensure, device=device)


class LoadTest(base.BaseTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.fs = self.useFixture(configfs.Configfs())
        database = pathlib.Path(self.fs.root.parent) / 'etc'
        self.enterContext(mock.patch.object(lio, 'DB_ROOT', database))
        self.run_command = self.enterContext(
            mock.patch('cinder_dmclone.privileged.process.run',
                       autospec=True))

    def test_load(self) -> None:
        lio.load()
        self.assertTrue((lio.DB_ROOT / 'pr').is_dir())
        self.assertIn(mock.call(['modprobe', 'iscsi_target_mod'],
                                timeout=mock.ANY),
                      self.run_command.mock_calls)
        lio.load()

        self.assertNotIn('mount', str(self.run_command.mock_calls))

    def test_configfs_is_mounted_if_nobody_did(self) -> None:
        target = pathlib.Path(tempfile.mkdtemp()) / 'target'
        self.addCleanup(shutil.rmtree, target.parent)

        def mounted(argv: list[str], timeout: float) -> None:
            if argv[0] == 'mount':
                self.assertEqual(str(target.parent), argv[-1])
                (target / 'iscsi').mkdir(parents=True)
                if late:
                    raise exceptions.CommandFailed(
                        command='mount', code=32, stderr='already mounted')

        for late in (False, True):
            with mock.patch.object(lio, 'CONFIGFS', target):
                self.run_command.side_effect = mounted
                lio.load()
                shutil.rmtree(target)

    def test_no_configfs(self) -> None:
        def refused(argv: list[str], timeout: float) -> None:
            if argv[0] == 'mount':
                raise exceptions.CommandFailed(
                    command='mount', code=32, stderr='permission denied')
        self.run_command.side_effect = refused
        with mock.patch.object(lio, 'CONFIGFS', pathlib.Path('/nowhere/x')):
            error = self.assertRaises(exceptions.TargetUnusable, lio.load)
        self.assertIn('/nowhere/x does not exist (Command mount failed with '
                      'status 32: permission denied): in a container /nowhere '
                      "has to be the host's", str(error))

    def test_no_rtslib(self) -> None:
        with mock.patch.dict('sys.modules', {'rtslib_fb': None}):
            error = self.assertRaises(exceptions.TargetUnusable, lio.load)
        self.assertIn('rtslib-fb', str(error))
