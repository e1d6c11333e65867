# SPDX-License-Identifier: Apache-2.0

import dataclasses
import errno
import pathlib
import tempfile
import typing
import unittest
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone import privileged
from cinder_dmclone.privileged import dm
from cinder_dmclone.privileged import dm_ioctl
from cinder_dmclone.privileged import nodes
from tests.unit.privileged import dmioctl

LV = LvUuid('11111111-2222-3333-4444-555555555555')
NAME = f'dmclone-clone-{LV}'


class Case(unittest.TestCase):

    def setUp(self) -> None:
        privileged.context.set_client_mode(False)
        self.addCleanup(privileged.context.set_client_mode, True)
        self.ioctl = dmioctl.Kernel()
        self.real_ioctl = dm_ioctl._ioctl
        self.enterContext(mock.patch(
            'cinder_dmclone.privileged.dm_ioctl._ioctl', self.ioctl))
        self.run_ = self.enterContext(mock.patch(
            'cinder_dmclone.privileged.process.run', return_value=''))
        self.ready = self.enterContext(mock.patch(
            'cinder_dmclone.privileged.nodes.ready',
            side_effect=lambda path, devnum='': path))
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.links = pathlib.Path(folder) / 'links'
        self.enterContext(mock.patch(
            'cinder_dmclone.privileged.links.FOLDER', self.links))

    def _argv(self) -> list[list[str]]:
        return [call.args[0] for call in self.run_.call_args_list]


class DiscardTest(Case):

    def test_discard(self) -> None:
        with mock.patch(
                'cinder_dmclone.privileged.syscalls.discard') as discard:
            dm.discard(NAME, [(0, 4096), (8192, 512)])
            discard.assert_called_once_with(
                f'/dev/mapper/{NAME}', [(0, 4096), (8192, 512)], dm._SECONDS)
            self.assertRaises(ValueError, dm.discard, 'vg-lv', [(0, 4096)])
        self.assertEqual(1, discard.call_count)


class DmTest(Case):

    def test_our_names_are_accepted(self) -> None:
        for name in (names.front('node-1.example.org', LV),
                     names.loan(LV, LV), names.serve(LV),
                     names.local_io(LV), names.clone(LV), names.source(LV)):
            dm.remove(str(name))
        self.assertEqual(6, self.run_.call_count)

    def test_other_names_are_refused(self) -> None:
        for name in ('sda', 'vg-lv', '--all', 'dmclone-', 'dmclone-a/b',
                     'dmclone-a b', 'dmclone-' + 'x' * 130, ''):
            for call in (lambda: dm.create(name, '', False),
                         lambda: dm.load(name, '', False),
                         lambda: dm.exchange(name, '', False, False),
                         lambda: dm.resume(name), lambda: dm.activate(name),
                         lambda: dm.remove(name), lambda: dm.link(name),
                         lambda: dm.message(name, ('fail_if_no_path',)),
                         lambda: dm.status(name, False),
                         lambda: dm.hide_discards(name)):
                self.assertRaises(ValueError, call)
        self.run_.assert_not_called()

    def test_create(self) -> None:
        dm.create(NAME, '0 8 error', True)
        self.run_.assert_called_once_with(
            ['dmsetup', 'create', NAME, '--uuid',
             f'CINDER-DMCLONE-clone-{LV}', '--readonly'], mock.ANY,
            '0 8 error')
        self.ready.assert_called_once_with(f'/dev/mapper/{NAME}')

    def test_activate_waits_for_the_node(self) -> None:
        dm.activate(NAME)
        self.ready.assert_called_once_with(f'/dev/mapper/{NAME}')

    def test_inspect_asks_for_ours_only(self) -> None:
        self.ioctl.names = [NAME, 'vg-lv', 'dmclone-gone']
        self.ioctl.tables[NAME] = '0 8 linear 1:1 0\n8 8 error'
        self.assertEqual(
            [(NAME, '254:7', 3, False, True,
              False, '0 8 linear 1:1 0\n8 8 error', '')], dm.inspect())
        self.assertEqual(dm.inspect(), dm.inspect(NAME))

    def test_inspect_asks_for_those_of_one_lv_only(self) -> None:
        other = NAME.replace(LV, LV[::-1])
        self.ioctl.names = [NAME, other]
        self.ioctl.tables = {NAME: '0 8 error', other: '0 8 error'}
        found, = dm.inspect(None, LV)
        self.assertEqual(NAME, dm.Found(*found).name)

    def test_inspect_one_that_is_absent(self) -> None:
        self.assertEqual([], dm.inspect(NAME))

    def test_inspect_fails(self) -> None:
        self.ioctl.error = errno.EACCES
        with self.assertRaises(exceptions.CommandFailed):
            dm.inspect(NAME)

    def test_long_answers(self) -> None:
        table = '\n'.join(f'{8 * n} 8 linear 254:{n} 123456'
                          for n in range(4000))
        self.ioctl.names = [f'dmclone-{n:0100}' for n in range(300)] + [NAME]
        self.ioctl.tables[NAME] = table
        self.assertEqual(table, dm.Found(*dm.inspect()[0]).table)

    def test_load(self) -> None:
        self.ioctl.tables[NAME] = ''
        table = '0 8 linear 1:1 0\n8 16 error'
        dm.load(NAME, table, True)
        self.assertEqual([(NAME, table, True)], self.ioctl.loaded)

    def test_what_is_absent_is_not_changed(self) -> None:
        for call in (lambda: dm.load(NAME, '0 8 error', False),
                     lambda: dm.resume(NAME),
                     lambda: dm.exchange(NAME, '0 8 error', False, False),
                     lambda: dm.open_count('254:9'),
                     lambda: dm.status(NAME, False),
                     lambda: dm.message(NAME, ('fail_if_no_path',))):
            self.assertRaises(exceptions.CommandFailed, call)

    def test_open_count(self) -> None:
        self.ioctl.tables[NAME] = ''
        self.assertEqual(3, dm.open_count('254:7'))
        with self.assertRaises(ValueError):
            dm.open_count('sda')

    def test_exchange_never_waits_long(self) -> None:
        self.ioctl.tables[NAME] = ''
        dm.exchange(NAME, '0 8 error', True, False)
        dm.exchange(NAME, '0 8 linear 1:1 0', False, True)
        self.assertEqual([(NAME, '0 8 error', True),
                          (NAME, '0 8 linear 1:1 0', False)],
                         self.ioctl.loaded)
        # DM_SKIP_LOCKFS_FLAG, DM_NOFLUSH_FLAG; the event is dmsetup's.
        self.assertEqual(
            [(NAME, 1 << 10, 6291456, dm.SWAP_SECONDS),
             (NAME, 1 << 10 | 1 << 11, 6291456, dm.SWAP_SECONDS)],
            self.ioctl.resumed)
        self.run_.assert_not_called()

    def test_exchange_in_a_process_that_can_be_killed(self) -> None:
        self.ioctl.tables[NAME] = ''

        def ioctl(path: str, request: int, argument: bytes, what: str,
                  seconds: float) -> bytes:
            buffer = bytearray(argument)
            self.ioctl(request, buffer, what, seconds)
            return bytes(buffer)

        def here_or_there(request: int, buffer: bytearray, what: str,
                          seconds: float | None) -> None:
            call = self.ioctl if seconds is None else self.real_ioctl
            call(request, buffer, what, seconds)
        with mock.patch('cinder_dmclone.privileged.dm_ioctl._ioctl',
                        here_or_there), \
                mock.patch('cinder_dmclone.privileged.syscalls.ioctl',
                           ioctl):
            dm.exchange(NAME, '0 8 error', False, False)
        self.assertEqual(1, len(self.ioctl.resumed))

    def test_resume_clears_first(self) -> None:
        self.ioctl.tables[NAME] = ''
        dm.resume(NAME)
        self.assertEqual([NAME], self.ioctl.cleared)
        self.assertEqual([['dmsetup', 'resume', NAME]], self._argv())

    def test_remove_never_forces(self) -> None:
        dm.remove(NAME)
        self.assertEqual([['dmsetup', 'remove', NAME]], self._argv())

    def test_remove_absent(self) -> None:
        self.run_.side_effect = exceptions.CommandFailed(
            'remove ioctl failed: No such device or address')
        dm.remove(NAME)

    def test_remove_busy(self) -> None:
        self.run_.side_effect = exceptions.CommandFailed(
            'remove ioctl failed: Device or resource busy')
        with self.assertRaises(exceptions.DeviceBusy):
            dm.remove(NAME)

    def test_remove_fails(self) -> None:
        self.run_.side_effect = exceptions.CommandFailed('other')
        with self.assertRaises(exceptions.CommandFailed):
            dm.remove(NAME)

    def test_a_link_ends_with_its_device(self) -> None:
        link = str(self.links / NAME.removeprefix('dmclone-'))
        self.assertEqual(link, dm.link(NAME))
        self.ready.assert_called_with(f'/dev/mapper/{NAME}')
        dm.remove(NAME)
        self.assertEqual([], list(self.links.iterdir()))

    def test_message(self) -> None:
        self.ioctl.tables[NAME] = ''
        dm.message(NAME, ('reinstate_path', '8:16'))
        self.assertEqual([(NAME, 'reinstate_path 8:16')],
                         self.ioctl.messages)

    def test_other_messages_are_refused(self) -> None:
        for words in (('@stats_create',), ('reinstate_path', '/dev/sda'),
                      ('hydration_threshold', '1')):
            with self.assertRaises(ValueError):
                dm.message(NAME, words)

    def test_status_flushes_only_on_demand(self) -> None:
        self.ioctl.tables[NAME] = '0 8 clone Fail'
        self.assertEqual('0 8 clone Fail', dm.status(NAME, False))
        dm.status(NAME, True)
        self.assertEqual([['dmsetup', 'status', NAME]], self._argv())

    def test_inspect_tells_the_status_of_kinds_that_have_one(self) -> None:
        for table, kept in (('0 8 clone 1:1', True), ('0 8 clone', True),
                            ('0 8 multipath 0 0 0 0', True),
                            ('0 8 linear 1:1 0', False), ('', False)):
            self.ioctl.tables[NAME] = table
            self.ioctl.states[NAME] = '0 8 state'
            found, = dm.inspect(NAME)
            self.assertEqual((table, '0 8 state' if kept else ''),
                             (dm.Found(*found).table, dm.Found(*found).status))

    def test_inspect_one_that_vanishes(self) -> None:
        self.ioctl.tables[NAME] = '0 8 clone 1:1'
        self.ioctl.states[NAME] = None
        found, = dm.inspect(NAME)
        self.assertEqual('', dm.Found(*found).status)

    def test_a_list_of_names_is_read_once(self) -> None:
        """However many devices a node has."""
        copied = 0

        class Answer(bytes):

            def __getitem__(self, key: typing.Any) -> typing.Any:
                nonlocal copied
                found = super().__getitem__(key)
                copied += len(found) if isinstance(key, slice) else 1
                return found

        self.ioctl.names = [f'{NAME}-{number}' for number in range(100)]
        reply = dm_ioctl.ask(dm_ioctl.LIST_DEVICES)
        assert reply
        reply = dataclasses.replace(reply, data=Answer(reply.data))
        with mock.patch.object(dm_ioctl, 'ask', return_value=reply):
            self.assertEqual(self.ioctl.names, dm_ioctl.names())
        self.assertLess(copied, len(reply.data))

    def test_targets_with_modules_built_in(self) -> None:
        self.run_.side_effect = exceptions.CommandFailed('modprobe')
        self.assertEqual(['clone', 'error'], dm.targets())

    def test_what_a_queue_is_told(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            queue = pathlib.Path(folder) / '254:7/queue'
            queue.mkdir(parents=True)
            self.ioctl.tables[NAME] = ''
            with mock.patch.object(nodes, 'SYSFS', pathlib.Path(folder)):
                dm.hide_discards(NAME)
                dm.count_io(NAME)
            self.assertEqual('0', (queue / 'discard_max_bytes').read_text())
            self.assertEqual('1', (queue / 'iostats').read_text())
