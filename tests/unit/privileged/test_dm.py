# SPDX-License-Identifier: Apache-2.0

import pathlib
import tempfile
import unittest
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone import privileged
from cinder_dmclone.privileged import dm

LV = '11111111-2222-3333-4444-555555555555'
NAME = f'dmclone-clone-{LV}'


class Case(unittest.TestCase):

    def setUp(self) -> None:
        privileged.context.set_client_mode(False)
        self.addCleanup(privileged.context.set_client_mode, True)
        patcher = mock.patch('cinder_dmclone.privileged.process.run')
        self.run_ = patcher.start()
        self.run_.return_value = ''
        self.addCleanup(patcher.stop)

    def _argv(self) -> list[list[str]]:
        return [call.args[0] for call in self.run_.call_args_list]


class DmTest(Case):

    def test_our_names_are_accepted(self) -> None:
        for name in (names.front('node-1.example.org', LV),
                     names.loan(LV, LV), names.serve(LV),
                     names.local_io(LV), names.clone(LV), names.source(LV)):
            dm.remove(str(name))
        self.assertEqual(6, self.run_.call_count)
        self.assertEqual(names.UUID_PREFIX, dm.UUID_PREFIX)

    def test_other_names_are_refused(self) -> None:
        for name in ('sda', 'vg-lv', '--all', 'dmclone-', 'dmclone-a/b',
                     'dmclone-a b', 'dmclone-' + 'x' * 130, ''):
            for call in (lambda: dm.create(name, '', False),
                         lambda: dm.load(name, '', False),
                         lambda: dm.swap(name, False),
                         lambda: dm.resume(name), lambda: dm.activate(name),
                         lambda: dm.remove(name),
                         lambda: dm.message(name, ('fail_if_no_path',)),
                         lambda: dm.status(name, False),
                         lambda: dm.hide_discards(name)):
                with self.assertRaises(ValueError):
                    call()
        self.run_.assert_not_called()

    def test_create(self) -> None:
        dm.create(NAME, '0 8 error', True)
        self.run_.assert_called_once_with(
            ['dmsetup', 'create', NAME, '--uuid',
             f'CINDER-DMCLONE-clone-{LV}', '--readonly'], mock.ANY,
            '0 8 error')

    def test_inspect_asks_for_ours_only(self) -> None:
        self.run_.side_effect = ['rows', 'tables']
        self.assertEqual(('rows', 'tables'), dm.inspect())
        self.assertIn('uuid=~"^CINDER-DMCLONE-"', self._argv()[0])

    def test_inspect_one(self) -> None:
        self.run_.side_effect = ['row', 'table']
        self.assertEqual(('row', 'table'), dm.inspect(NAME))
        self.assertEqual([NAME, NAME], [argv[-1] for argv in self._argv()])

    def test_inspect_one_that_is_absent(self) -> None:
        for text in ('Device does not exist.', 'No such device or address'):
            self.run_.side_effect = exceptions.CommandFailed(text)
            self.assertEqual(('', ''), dm.inspect(NAME))

    def test_inspect_fails(self) -> None:
        self.run_.side_effect = exceptions.CommandFailed('no permission')
        with self.assertRaises(exceptions.CommandFailed):
            dm.inspect(NAME)

    def test_swap_dies_with_the_daemon_and_never_waits_long(self) -> None:
        dm.swap(NAME, True)
        argv, seconds = self.run_.call_args.args
        self.assertEqual(['setpriv', '--pdeathsig', 'KILL'], argv[:3])
        self.assertIn('--noflush', argv)
        self.assertEqual(dm.SWAP_SECONDS, seconds)
        dm.swap(NAME, False)
        self.assertNotIn('--noflush', self._argv()[1])

    def test_resume_clears_first(self) -> None:
        dm.resume(NAME)
        self.assertEqual([['dmsetup', 'clear', NAME],
                          ['dmsetup', 'resume', NAME]], self._argv())

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

    def test_message(self) -> None:
        dm.message(NAME, ('reinstate_path', '8:16'))
        self.assertEqual([['dmsetup', 'message', NAME, '0',
                           'reinstate_path', '8:16']], self._argv())

    def test_other_messages_are_refused(self) -> None:
        for words in (('@stats_create',), ('reinstate_path', '/dev/sda'),
                      ('hydration_threshold', '1')):
            with self.assertRaises(ValueError):
                dm.message(NAME, words)

    def test_status_flushes_only_on_demand(self) -> None:
        dm.status(NAME, False)
        dm.status(NAME, True)
        self.assertEqual([['dmsetup', 'status', '--noflush', NAME],
                          ['dmsetup', 'status', NAME]], self._argv())

    def test_statuses(self) -> None:
        dm.statuses()
        self.assertEqual([['dmsetup', 'status', '--noflush']], self._argv())

    def test_targets_with_modules_built_in(self) -> None:
        self.run_.side_effect = [exceptions.CommandFailed('modprobe'), 'x']
        self.assertEqual('x', dm.targets())

    def test_hide_discards(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            device = pathlib.Path(folder)
            (device / 'queue').mkdir()
            with mock.patch.object(dm.block, 'sysfs',
                                   return_value=device) as sysfs:
                dm.hide_discards(NAME)
            sysfs.assert_called_once_with(f'/dev/mapper/{NAME}')
            self.assertEqual(
                '0', (device / 'queue/discard_max_bytes').read_text())
