# SPDX-License-Identifier: Apache-2.0

import concurrent.futures
import dataclasses
import json
import pathlib
import tempfile
import threading
import typing
import unittest
from unittest import mock

from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm
from cinder_dmclone.sysfs import block_device
from cinder_dmclone.units import Bytes
from tests.unit import test_thin_map

# As LVM 2.03.16 prints it.
REPORT = json.dumps({'report': [{
    'vg': [{'vg_name': 'vg', 'vg_uuid': 'Z3ohjl', 'vg_seqno': '20',
            'vg_size': '107369988096', 'vg_free': '106560487424',
            'vg_extent_size': '4194304', 'vg_mda_free': '517632'}],
    'pv': [{'pv_name': '/dev/sda'}, {'pv_name': '/dev/sdb1'}],
    'lv': [{'lv_name': 'volume-1', 'lv_size': '268435456',
            'lv_tags': 'own:1,lent:n/x:2', 'lv_kernel_major': '254',
            'lv_kernel_minor': '3', 'lv_device_open': 'open',
            'lv_suspended': '', 'lv_skip_activation': '',
            'lv_layout': 'linear', 'lv_role': 'public', 'pool_lv': '',
            'lv_health_status': ''},
           {'lv_name': '_snapshot-2', 'lv_size': '268435456',
            'lv_tags': '', 'lv_kernel_major': '-1',
            'lv_kernel_minor': '-1', 'lv_device_open': '',
            'lv_suspended': '', 'lv_skip_activation': '',
            'lv_layout': 'linear',
            'lv_role': 'public,snapshot,thicksnapshot', 'pool_lv': '',
            'lv_health_status': ''},
           {'lv_name': '[pool_tmeta]', 'lv_size': '4194304',
            'lv_tags': '', 'lv_kernel_major': '-1',
            'lv_kernel_minor': '-1', 'lv_device_open': '',
            'lv_suspended': '', 'lv_skip_activation': '',
            'lv_layout': 'linear', 'lv_role': 'private,thin,pool,metadata',
            'pool_lv': '',
            'lv_health_status': ''},
           {'lv_name': 'pool', 'lv_size': '1073741824',
            'lv_tags': '', 'lv_kernel_major': '254',
            'lv_kernel_minor': '9', 'lv_device_open': '',
            'lv_suspended': '', 'lv_skip_activation': '',
            'lv_layout': 'thin,pool', 'lv_role': 'private', 'pool_lv': '',
            'lv_health_status': ''},
           {'lv_name': 'volume-3', 'lv_size': '4294967296',
            'lv_tags': '', 'lv_kernel_major': '254',
            'lv_kernel_minor': '10', 'lv_device_open': '',
            'lv_suspended': 'suspended', 'lv_skip_activation': '',
            'lv_layout': 'thin,sparse', 'lv_role': 'public',
            'pool_lv': 'pool', 'lv_health_status': 'partial'}],
    'pvseg': [{}], 'seg': [{}]}]})


class VolumeGroupTestCase(unittest.TestCase):

    def setUp(self) -> None:
        self.lvm, self.block = (
            self.enterContext(mock.patch.object(lvm, name))
            for name in ('lvm', 'block'))
        self.devnums: dict[str, str | None] = {'/dev/vg/volume-1': '254:3'}
        self.enterContext(mock.patch.object(lvm, '_devnum', self.devnums.get))
        self.lvm.report.return_value = REPORT
        self.lvm.report_patiently.return_value = REPORT
        self.lvm.backup_identity.return_value = None
        self.kernel = self.enterContext(mock.patch.object(lvm, 'thin'))
        self.kernel.suspended.return_value = []
        self.order = mock.Mock()
        self.order.attach_mock(self.kernel.drop_tables, 'drop_tables')
        self.order.attach_mock(self.lvm.activate, 'activate')
        self.now = 0.0
        self.group = lvm.VolumeGroup('vg', lambda: self.now)


class VolumeGroupTest(VolumeGroupTestCase):

    def test_report(self) -> None:
        with mock.patch.object(block_device, 'block_size',
                               side_effect=[512, 4096]):
            report = self.group.report()
        self.assertEqual(
            ('vg', 'Z3ohjl', 107369988096, 106560487424, 4194304, 4096,
             ('/dev/sda', '/dev/sdb1'), 517632),
            (report.name, report.uuid, report.size, report.free,
             report.extent_size, report.block_size, report.disks,
             report.mda_free))
        self.assertEqual({
            'volume-1': lvm.LogicalVolume(
                'volume-1', '/dev/vg/volume-1', Bytes(268435456),
                frozenset(['own:1', 'lent:n/x:2']), '254:3', open=True,
                plain=True),
            '_snapshot-2': lvm.LogicalVolume(
                '_snapshot-2', '/dev/vg/_snapshot-2', Bytes(268435456),
                frozenset(), None, open=False, plain=False),
            'volume-3': lvm.LogicalVolume(
                'volume-3', '/dev/vg/volume-3', Bytes(4294967296),
                frozenset(), '254:10', open=False, plain=True, pool='pool',
                suspended=True, health='partial'),
        }, report.lvs)
        self.assertEqual({'pool'}, report.pools)

    def test_token_equals_while_nothing_changed(self) -> None:
        token = self.group.report().token
        self.lvm.backup_identity.return_value = ('Z3ohjl', 20)
        self.assertEqual(token, self.group.changed_token())
        for other in (('Z3ohjl', 21), ('other', 20), None):
            self.lvm.backup_identity.return_value = other
            self.assertNotEqual(token, self.group.changed_token())

    def test_a_report_is_kept_while_nothing_changes(self) -> None:
        self.lvm.backup_identity.return_value = ('Z3ohjl', 20)
        events: list[tuple[int, typing.Callable[[], None]]] = [
            (1, lambda: None), (1, lambda: None),
            (2, lambda: self.group.retag('volume-1', add=['a'])),
            (3, self._another_change), (4, self._another_change),
            (5, self._time_passes)]
        for calls, happens in events:
            happens()
            self.group.report()
            self.assertEqual(calls, self.lvm.report.call_count)

    def test_who_can_wait_has_a_report_made_patiently(self) -> None:
        self.lvm.report_patiently.return_value = REPORT
        self.group.report(patient=True)
        self.lvm.report_patiently.assert_called_once_with('vg')
        self.lvm.report.assert_not_called()

    def test_volumes_that_are_activated_or_not_make_a_report_old(
            self) -> None:
        self.lvm.backup_identity.return_value = ('Z3ohjl', 20)
        self.group.report()
        for calls, devnum in ((2, None), (3, '254:4'), (3, '254:4')):
            self.devnums['/dev/vg/volume-1'] = devnum
            self.group.report()
            self.assertEqual(calls, self.lvm.report.call_count)

    def test_a_report_that_misses_an_activation_is_not_kept(self) -> None:
        self.lvm.backup_identity.return_value = ('Z3ohjl', 20)
        self.devnums['/dev/vg/_snapshot-2'] = '254:5'
        self.group.report()
        self.group.report()
        self.assertEqual(2, self.lvm.report.call_count)

    def _another_change(self) -> None:
        self.lvm.backup_identity.return_value = ('Z3ohjl', 21)

    def _time_passes(self) -> None:
        self.lvm.backup_identity.return_value = ('Z3ohjl', 20)
        self.group.report()
        self.now += lvm.KEPT_SECONDS[False]

    def test_a_report_during_a_change_is_not_kept(self) -> None:
        self.group.flush()
        self._time_passes()

        def change(group: str) -> str:
            self.lvm.report.side_effect = None
            self.group.retag('volume-1', add=['a'])
            return REPORT
        self.lvm.report.side_effect = change
        self.group.report()
        self.group.report()
        self.assertEqual(3, self.lvm.report.call_count)

    def test_create(self) -> None:
        self.group.create('volume-1', Bytes(4096), ['own:1'])
        self.lvm.create.assert_called_once_with(
            'vg', 'volume-1', 4096, ('own:1',), '')
        self.lvm.zero.assert_not_called()

    def test_create_zeroed(self) -> None:
        self.group.create('dmclone-meta-1', Bytes(4096), [], metadata=True)
        self.lvm.zero.assert_called_once_with('vg', 'dmclone-meta-1')

    def test_create_in_a_pool(self) -> None:
        """But never what the metadata of a clone is in."""
        group = lvm.VolumeGroup('vg', pool='pool')
        group.create('volume-1', Bytes(4096), [])
        group.create('dmclone-meta-1', Bytes(4096), [], metadata=True)
        self.assertEqual(
            [('volume-1', 'pool'), ('dmclone-meta-1', '')],
            [(call.args[1], call.args[4])
             for call in self.lvm.create.call_args_list])

    def test_what_the_kernel_says_of_a_pool(self) -> None:
        group = lvm.VolumeGroup('vg', pool='pool')
        kernel = self.kernel
        kernel.pool.return_value = (
            '0 8192 thin-pool 254:0 254:1 128 0 0',
            '0 8192 thin-pool 1 9/1024 16/64 - rw discard_passdown '
            'queue_if_no_space - 1024')
        self.assertEqual((Bytes(4 << 20), Bytes(1 << 20)),
                         (group.usage().size, group.usage().used))
        kernel.pool.assert_called_with('vg', 'pool')
        kernel.pool.return_value = None
        with self.assertRaisesRegex(exceptions.PoolUnusable,
                                    'lvchange --activate y vg/pool'):
            group.usage()
        kernel.status.return_value = '0 8192 thin 4096 8191'
        for name, taken in (('volume-3', 2 << 20), ('_snapshot-2', None)):
            self.assertEqual(taken, group.mapped(group.report().lvs[name]))

    def interrupted(self, name: str, kernel: list[str],
                    skip: str = '') -> lvm.Report:
        """The report when one LV alone is suspended for LVM."""
        found = json.loads(REPORT)
        for row in found['report'][0]['lv']:
            row['lv_suspended'] = 'suspended' * (row['lv_name'] == name)
            row['lv_skip_activation'] = skip
        self.lvm.report.return_value = json.dumps(found)
        self.lvm.report_patiently.return_value = json.dumps(found)
        self.kernel.suspended.return_value = kernel
        return lvm.VolumeGroup('vg').report()

    def test_a_pool_that_lvm_has_left_suspended(self) -> None:
        """With what is above it: an LV in it, or its own."""
        for name in ('volume-3', 'pool'):
            report = self.interrupted(name, ['vg-pool-tpool'])
            self.assertEqual({'pool'}, report.interrupted)
            self.assertEqual(['volume-3'], [
                lv.name for lv in report.lvs.values() if lv.suspended])
            self.kernel.suspended.assert_called_with('vg', 'pool')

    def test_a_pool_that_it_has_not(self) -> None:
        for name, kernel, skip, waits in (
                ('volume-3', [], '', True),
                ('[pool_tmeta]', ['vg-pool_tmeta'], '', False),
                ('volume-3', ['vg-pool-tpool'], 'skip activation', True),
                ('volume-1', ['vg-pool-tpool'], '', False)):
            report = self.interrupted(name, kernel, skip)
            self.assertEqual((frozenset(), waits, bool(skip)),
                             (report.interrupted,
                              report.lvs['volume-3'].suspended,
                              report.lvs['volume-3'].skipped), name)

    def test_it_goes_on_as_lvm_has_it_recorded(self) -> None:
        """Tables of a change that was not may not be what is below."""
        self.interrupted('volume-3', ['vg-pool-tpool'])
        self.group.activate()
        self.assertEqual(
            [mock.call.drop_tables('vg', 'pool'), mock.call.activate('vg')],
            [call for call in self.order.mock_calls
             if call[0] in ('drop_tables', 'activate')])

    def test_who_activates_waits_for_lvm(self) -> None:
        """A start does not fail as LVM is busy with a removal."""
        self.group.activate()
        self.lvm.report_patiently.assert_called_once_with('vg')
        self.lvm.report.assert_not_called()

    def test_what_is_suspended_by_hand_keeps_its_tables(self) -> None:
        self.interrupted('', ['vg-pool-tpool'])
        self.group.activate()
        self.kernel.drop_tables.assert_not_called()

    def test_a_pool_that_waits_is_asked_nothing_more(self) -> None:
        """LVM may have been at work: its report comes after that."""
        group = lvm.VolumeGroup('vg', pool='pool')
        for name, after, words in (
                ('volume-3', ['vg-pool-tpool'], 'LVM was killed'),
                ('', ['vg-pool-tpool'], 'dmsetup resume vg-pool-tpool')):
            self.interrupted(name, after)
            with self.assertRaisesRegex(exceptions.PoolSuspended, words):
                group.usage()
        self.kernel.pool.assert_not_called()
        self.kernel.suspended.side_effect = [['vg-pool-tpool'], []]
        group.require_running()

    def test_retag(self) -> None:
        self.group.retag('volume-1', add=['a'], remove=['b'])
        self.lvm.retag.assert_called_once_with(
            'vg', 'volume-1', ('a',), ('b',))

    def test_what_is_but_blocks_of_disks(self) -> None:
        """As LVM 2.03.16 prints them; thin snapshots need nothing."""
        row = json.loads(REPORT)['report'][0]['lv'][0]
        for layout, role, plain in (
                ('linear', 'public', True), ('striped', 'public', True),
                ('linear', 'public,origin,thickorigin', False),
                ('thin,sparse', 'public', True),
                ('thin,sparse', 'public,snapshot,thinsnapshot', True),
                ('thin,sparse', 'public,origin,thinorigin,multithinorigin',
                 True),
                ('thin,sparse', 'public,origin,thinorigin,snapshot,'
                 'thinsnapshot', True),
                ('thin,sparse', 'public,origin,thickorigin', False),
                ('thin,sparse', 'public,origin,extthinorigin', False),
                ('linear', 'public,snapshot,thicksnapshot', False),
                ('thin,pool', 'private', False),
                ('raid,raid1', 'public', False)):
            self.assertEqual(plain, lvm.LogicalVolume.parse('vg', {
                **row, 'lv_layout': layout, 'lv_role': role}).plain)

    def test_snapshot(self) -> None:
        self.group.snapshot('volume-1', 'volume-3', ['snap:1'])
        self.lvm.snapshot.assert_called_once_with(
            'vg', 'volume-1', 'volume-3', ('snap:1',))

    def test_rename(self) -> None:
        self.group.rename('data', 'volume-1')
        self.lvm.rename.assert_called_once_with('vg', 'data', 'volume-1')

    def test_what_lvm_has_lost(self) -> None:
        """As LVM 2.03.16 and 2.03.35 say it after a power cut."""
        for said in (
                'WARNING: bad metadata text on /dev/sda in mda1\n'
                'WARNING: repair VG metadata on /dev/sda with vgck\n'
                'Volume group "vg" not found',
                'WARNING: Bad metadata text on /dev/sda in mda1.\n'
                'WARNING: Repair VG metadata on /dev/sda with vgck\n'
                'Volume group "vg" not found'):
            for command in (self.lvm.report, self.lvm.activate):
                command.side_effect = exceptions.CommandFailed(
                    command='lvm', code=5, stderr=said)
            for call in (self.group.report, self.group.activate):
                with self.assertRaisesRegex(
                        exceptions.GroupLost, 'group vg is not found.* on '
                        '/dev/sda cannot be read'):
                    call()

    def test_what_never_was_there_is_not_lost(self) -> None:
        self.lvm.report.side_effect = exceptions.CommandFailed(
            command='lvm', code=5, stderr='Volume group "vg" not found')
        with self.assertRaises(exceptions.CommandFailed):
            self.group.report()

    def test_a_change_begins_when_the_last_one_is_durable(self) -> None:
        """Also the one of a process that was killed before its flush."""
        order = mock.MagicMock()
        order.attach_mock(self.block.flush, 'flush')
        order.attach_mock(self.lvm.remove, 'remove')
        order.attach_mock(self.lvm.retag, 'retag')
        self.group._changing = order.changing
        self.group.remove('volume-1')
        self.group.remove('volume-2')
        self.group.flush()
        self.group.retag('volume-3', add=['a'])
        begin, end = 'changing.__enter__', 'changing.__exit__'
        self.assertEqual(
            [begin, 'flush', 'remove', end, begin, 'flush', 'remove', end,
             'flush', begin, 'retag', end],
            [call[0] for call in order.mock_calls])

    def test_who_waits_for_a_long_removal_is_told(self) -> None:
        """It is told in time, and nothing was changed."""
        begun, end = threading.Event(), threading.Event()
        self.addCleanup(end.set)

        def remove(*_: str) -> None:
            begun.set()
            end.wait()
        self.lvm.remove.side_effect = remove
        self.enterContext(mock.patch.object(deadlines, 'TURN_SECONDS', 0.01))
        group = self.group
        with concurrent.futures.ThreadPoolExecutor() as pool:
            removal = pool.submit(group.remove, 'volume-1')
            begun.wait()
            with self.assertRaisesRegex(exceptions.NotBegun,
                                        'group vg was not begun'):
                group.retag('volume-3', add=['a'])
            self.lvm.retag.assert_not_called()
            end.set()
            removal.result()
        group.retag('volume-3', add=['a'])
        self.lvm.retag.assert_called_once()

    def test_a_disk_that_is_missing_is_not_flushed(self) -> None:
        """LVM removes LVs without it; the others have the metadata."""
        self.lvm.report.return_value = REPORT.replace('/dev/sda', '[unknown]')
        self.group.remove('volume-1')
        self.block.flush.assert_called_once_with(('/dev/sdb1',))

    def test_flush_needs_one_report_at_most(self) -> None:
        self.group.flush()
        self.group.report()
        self.group.flush()
        self.assertEqual([mock.call(('/dev/sda', '/dev/sdb1'))] * 2,
                         self.block.flush.call_args_list)
        self.assertEqual(2, self.lvm.report.call_count)


class BlockSizeTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.sys = pathlib.Path(folder)
        self.enterContext(mock.patch.object(
            block_device, 'folder', return_value=self.sys / '8:1'))

    def test_disk(self) -> None:
        (self.sys / '8:1/queue').mkdir(parents=True)
        (self.sys / '8:1/queue/logical_block_size').write_text('4096\n')
        self.assertEqual(4096, block_device.block_size('/dev/sda'))

    def test_partition(self) -> None:
        (self.sys / 'disk/queue').mkdir(parents=True)
        (self.sys / 'disk/queue/logical_block_size').write_text('4096\n')
        (self.sys / 'disk/part').mkdir()
        (self.sys / 'disk/part/partition').write_text('1\n')
        (self.sys / '8:1').symlink_to('disk/part')
        self.assertEqual(4096, block_device.block_size('/dev/sda1'))

    def test_missing(self) -> None:
        self.assertEqual(512, block_device.block_size('[unknown]'))


class AllocatedTest(unittest.TestCase):
    """What is asked of the kernel and of the disk; see test_thin_map."""

    def setUp(self) -> None:
        self.now = 0.0
        self.pool = test_thin_map.Pool({7: [0, 1, 5]})
        self.thin = self.enterContext(mock.patch.object(lvm, 'thin'))
        self.thin.metadata.side_effect = self.read
        self.thin.table.return_value = test_thin_map.table(7)
        self.thin.status.return_value = test_thin_map.status(3)
        self.group = lvm.VolumeGroup('vg', lambda: self.now)
        self.lv = lvm.LogicalVolume(
            'volume-3', '/dev/vg/volume-3', Bytes(1 << 30), frozenset(),
            '254:10', False, True, 'pool')

    def read(self, group: str, pool: str, numbers: list[int]) -> bytes:
        self.assertEqual(('vg', 'pool'), (group, pool))
        self.now += 1
        return self.pool.read(numbers)

    def test_of_a_volume(self) -> None:
        chunk = test_thin_map.CHUNK
        self.assertEqual([(0, 2 * chunk), (5 * chunk, 6 * chunk)],
                         self.group.allocated(self.lv, 60))
        for asked in (self.thin.table, self.thin.status):
            asked.assert_called_once_with('254:10')

    def test_one_that_takes_too_long(self) -> None:
        with self.assertRaisesRegex(exceptions.CommandTimeout, 'volume-3'):
            self.group.allocated(self.lv, 2)
        self.assertLess(self.now, 5)

    def test_one_that_is_not_active_or_not_thin(self) -> None:
        for change in ({'devnum': None}, {'pool': ''}):
            with self.assertRaises(ValueError):
                self.group.allocated(
                    dataclasses.replace(self.lv, **change), 60)
        self.assertEqual(0, self.pool.reads)
