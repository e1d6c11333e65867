# SPDX-License-Identifier: Apache-2.0

import pathlib
import tempfile
import typing
import unittest
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import device
from cinder_dmclone.host.dm import status
from cinder_dmclone.host.dm import table
from cinder_dmclone.privileged import dm
from cinder_dmclone.units import Bytes
from cinder_dmclone.units import Sectors

NAME = 'dmclone-clone-1'
LINEAR = table.Table.single(Sectors(8), table.Linear('1:1'))
OTHER = table.Table.single(Sectors(8), table.Linear('1:2'))
CLONE = table.Table.single(
    Sectors(8), table.Clone('1:1', '1:2', '1:3', Sectors(8)))
QUEUE = table.Table.single(Sectors(8), table.Multipath(None, True))
PATH = table.Table.single(Sectors(8), table.Multipath('8:0', True))


def there(live: str, name: str = NAME, opened: int = 0,
          suspended: bool = False, readonly: bool = False,
          pending: bool = False, status: str = ''
          ) -> tuple[typing.Any, ...]:
    return tuple(dm.Found(name, '254:7', opened, suspended, readonly,
                          pending, live, status))


class DeviceMapperTest(unittest.TestCase):

    def setUp(self) -> None:
        self.dm = self.enterContext(
            mock.patch.object(device, 'dm', wraps=None))
        self.dm.Found = dm.Found
        self.now = 0.0
        self.mapper = device.DeviceMapper(self._sleep, lambda: self.now)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def _there(self, live: table.Table, **fields: typing.Any) -> None:
        self.dm.inspect.return_value = [there(str(live), **fields)]

    def _calls(self) -> list[str]:
        return [call[0] for call in self.dm.method_calls
                if call[0] != 'inspect']

    def test_what_is_taken_as_copied(self) -> None:
        """The kernel is told lengths, the driver knows ends."""
        self.mapper.take_as_copied(NAME, [
            (Bytes(0), Bytes(4096)), (Bytes(1 << 40), Bytes(3 << 40))])
        self.dm.discard.assert_called_once_with(
            NAME, [(0, 4096), (1 << 40, 2 << 40)])

    def test_devices(self) -> None:
        self.dm.inspect.return_value = [
            there('0 8 linear 1:1 0\n8 8 linear 1:2 0', opened=2,
                  readonly=True), there('', 'dmclone-front-a-1')]
        self.assertEqual({
            NAME: device.Device(
                NAME, '254:7',
                table.Table.parse('0 8 linear 1:1 0\n8 8 linear 1:2 0'), 2,
                suspended=False, readonly=True),
            'dmclone-front-a-1': device.Device(
                'dmclone-front-a-1', '254:7',
                table.Table(), 0, suspended=False, readonly=False),
        }, self.mapper.devices())
        self.assertEqual(1, self.dm.inspect.call_count)

    def test_rests_on(self) -> None:
        for fields in ({}, {'suspended': True}, {'pending': True},
                       {'readonly': True}):
            self._there(LINEAR, **fields)
            found = self.mapper.devices()[NAME]
            self.assertEqual(not fields, found.rests_on(LINEAR))
            self.assertFalse(found.rests_on(table.Table()))
            self.assertEqual(fields == {'readonly': True},
                             found.rests_on(LINEAR, readonly=True))

    def test_no_devices(self) -> None:
        self.dm.inspect.return_value = []
        self.assertEqual({}, self.mapper.devices())

    def test_devnum(self) -> None:
        """The kernel's own, whatever udev has made of it."""
        self._there(LINEAR)
        self.assertEqual('254:7', self.mapper.devnum(NAME))
        self.dm.inspect.assert_called_once_with(NAME)
        self.dm.inspect.return_value = []
        with self.assertRaises(exceptions.NoSuchDevice):
            self.mapper.devnum(NAME)

    def test_writes_under_way(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            node = pathlib.Path(folder) / '254:7'
            node.mkdir()
            (node / 'inflight').write_text('       3        2\n')
            with mock.patch.object(device, 'SYSFS', node.parent):
                self.assertEqual(2, self.mapper.writes_under_way('254:7'))
                # It has just been removed.
                self.assertEqual(0, self.mapper.writes_under_way('254:8'))

    def test_a_disk_that_keeps_nothing_back(self) -> None:
        """In the kernel's words (queue_wc_show in blk-sysfs.c)."""
        with tempfile.TemporaryDirectory() as folder:
            queue = pathlib.Path(folder) / '254:7/queue'
            queue.mkdir(parents=True)
            with mock.patch.object(device, 'SYSFS', pathlib.Path(folder)):
                for text, keeps in ('write back\n', True), (
                        'write through\n', False):
                    (queue / 'write_cache').write_text(text)
                    self.assertIs(keeps, self.mapper.caches('254:7'))

    def test_apply_creates(self) -> None:
        self.dm.inspect.return_value = []
        self.mapper.apply(NAME, LINEAR, readonly=True)
        self.dm.create.assert_called_once_with(NAME, '0 8 linear 1:1 0', True)

    def test_apply_leaves_what_is_right(self) -> None:
        self._there(LINEAR)
        self.mapper.apply(NAME, LINEAR)
        self.assertEqual([], self._calls())

    def test_apply_exchanges_in_one_resume(self) -> None:
        self._there(LINEAR)
        self.mapper.apply(NAME, OTHER)
        self.assertEqual([
            mock.call.exchange(NAME, '0 8 linear 1:2 0', False, False)],
            self.dm.method_calls[1:])

    def test_apply_believes_what_has_to_change(self) -> None:
        seen = device.Device(NAME, '254:7', LINEAR, 1, False, False)
        self.mapper.apply(NAME, OTHER, seen=seen)
        self.assertEqual([mock.call.exchange(NAME, str(OTHER), False, False)],
                         self.dm.method_calls)

    def test_apply_looks_again_at_what_seems_right(self) -> None:
        for table_seen in (OTHER, table.Table()):
            self.dm.reset_mock()
            self._there(LINEAR)
            seen = device.Device(NAME, '254:7', table_seen, 1, False,
                                 False)
            self.mapper.apply(NAME, OTHER, seen=seen)
            self.assertEqual(['exchange'], self._calls())
            self.assertEqual(1, self.dm.inspect.call_count)

    def test_apply_noflush(self) -> None:
        self._there(QUEUE)
        self.mapper.apply(NAME, PATH, noflush=True)
        self.dm.exchange.assert_called_once_with(NAME, str(PATH), False,
                                                 True)

    def test_apply_changes_read_only(self) -> None:
        self._there(LINEAR)
        self.mapper.apply(NAME, LINEAR, readonly=True)
        self.dm.exchange.assert_called_once_with(NAME, str(LINEAR), True,
                                                 False)

    def test_apply_resumes(self) -> None:
        self._there(LINEAR, suspended=True)
        self.mapper.apply(NAME, LINEAR)
        self.assertEqual(['resume'], self._calls())

    def test_apply_drops_a_table_that_a_crash_left(self) -> None:
        self._there(LINEAR, pending=True)
        self.mapper.apply(NAME, LINEAR)
        self.assertEqual(['resume'], self._calls())

    def test_apply_finishes_a_creation(self) -> None:
        for pending in (True, False):
            self.dm.reset_mock()
            self._there(table.Table(), pending=pending)
            self.mapper.apply(NAME, CLONE)
            self.assertEqual(['load', 'activate'], self._calls())

    def test_apply_resumes_the_old_table_when_the_exchange_fails(self) -> None:
        for error in (exceptions.CommandTimeout, exceptions.CommandFailed):
            self.dm.reset_mock()
            self._there(LINEAR)
            self.dm.exchange.side_effect = error('x')
            with self.assertRaises(error):
                self.mapper.apply(NAME, OTHER)
            self.assertEqual(['exchange', 'resume'], self._calls())

    def test_a_source_queues_again_when_the_exchange_fails(self) -> None:
        """An interrupted suspend leaves a multipath device failing I/O."""
        self._there(QUEUE)
        self.dm.exchange.side_effect = exceptions.CommandTimeout('x')
        with self.assertRaises(exceptions.CommandTimeout):
            self.mapper.apply(NAME, table.Table.single(
                Sectors(8), table.Multipath('8:0', True)), noflush=True)
        self.dm.message.assert_called_once_with(
            NAME, ('queue_if_no_path',))

    def test_apply_never_changes_a_clone(self) -> None:
        self._there(CLONE)
        with self.assertRaises(exceptions.TableRefused):
            self.mapper.apply(NAME, LINEAR)
        self.assertEqual([], self._calls())

    def test_apply_loads_only_multipath_over_multipath(self) -> None:
        self._there(QUEUE)
        with self.assertRaises(exceptions.TableRefused):
            self.mapper.apply(NAME, LINEAR)
        self.assertEqual([], self._calls())

    def test_remove_waits_for_passing_openers(self) -> None:
        self.dm.remove.side_effect = [exceptions.DeviceBusy('x')] * 3 + [None]
        self.mapper.remove(NAME)
        self.assertEqual(4, self.dm.remove.call_count)

    def test_remove_gives_up(self) -> None:
        self.dm.remove.side_effect = exceptions.DeviceBusy('x')
        with self.assertRaises(exceptions.DeviceBusy):
            self.mapper.remove(NAME)
        self.assertEqual(5.0, self.now)

    def test_message(self) -> None:
        self.mapper.message(NAME, 'reinstate_path', '8:0')
        self.dm.message.assert_called_once_with(
            NAME, ('reinstate_path', '8:0'))

    def test_clone_status(self) -> None:
        self.dm.status.return_value = (
            '0 8 clone 8 2/1024 8 1/1 0 0 0 rw\n')
        self.assertTrue(self.mapper.clone_status(NAME, True).complete)
        self.dm.status.assert_called_once_with(NAME, True)

    def test_clone_status_of_something_else(self) -> None:
        self.dm.status.return_value = '0 8 linear \n'
        with self.assertRaises(ValueError):
            self.mapper.clone_status(NAME)

    def test_status(self) -> None:
        for line, expected in (
                ('0 8 clone Fail', status.CloneStatus(status.Mode.FAIL)),
                ('0 8 multipath 2 0 0 0 0 0', status.MultipathStatus({})),
                ('0 8 linear', None), ('', None)):
            self.dm.inspect.return_value = [there('', status=line)]
            self.assertEqual(expected, self.mapper.devices()[NAME].status)

    def test_targets(self) -> None:
        self.dm.targets.return_value = ['clone', 'linear']
        self.assertEqual({'clone', 'linear'}, self.mapper.targets())
