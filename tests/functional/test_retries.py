# SPDX-License-Identifier: Apache-2.0
"""Requests that meet: retries, a detach or a delete in mid-attach."""
from __future__ import annotations

import concurrent.futures

from lab import RestError, look
from lab.attached import AttachedVolume
from tests.functional import base

# Run on the lender: interrupts logins until one has failed of that, as the
# kernel does to whoever logs in while a target goes: all targets of a portal
# share a thread (iscsit_reset_np_thread, drivers/target/iscsi/iscsi_target.c).
# A login takes some ms, so all but the signals has to be done before.
_INTERRUPT = '''
import os, signal, subprocess
log = os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)
os.lseek(log, 0, os.SEEK_END)
print('interrupts', flush=True)
threads = []
while True:
    try:
        threads = threads or subprocess.run(
            ['pgrep', '-x', 'iscsi_np'], stdout=subprocess.PIPE).stdout.split()
        for thread in threads:
            os.kill(int(thread), signal.SIGINT)
    except ProcessLookupError:
        threads = []
    try:
        while b'Login negotiation failed' not in os.read(log, 8192):
            pass
        break
    except (BlockingIOError, BrokenPipeError):
        pass  # nothing new; or the log was faster
'''


class RetriesTest(base.FunctionalTest):
    """However they interleave, one consistent state is the end."""

    def setUp(self) -> None:
        super().setUp()
        self.pool = concurrent.futures.ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)

    def lvs(self) -> list[str]:
        """LVs of both nodes that are not metadata."""
        return [name for node in self.lab.nodes for name in look.volumes(node)
                if name.startswith('volume-')]

    def test_five_attaches_at_once_are_one(self) -> None:
        volume, image = self.filled(self.node1)
        attachment = self.lab.reserve(volume)
        self.freeze(self.node1, 'peers.Prepare:before')
        calls = [self.pool.submit(self.lab.connect, attachment, 2)
                 for _ in range(5)]
        self.wait_frozen(self.node1)
        self.thaw(self.node1)
        paths, errors = set(), []
        for call in calls:
            try:
                paths.add(call.result()['device_path'])
            except RestError as error:
                errors.append(error)
        lv = self.row(volume).lv
        self.assertEqual({f'/dev/mapper/{look.front("node2", lv)}'}, paths,
                         errors)
        self.assertEqual([], errors)
        # One attempt, not five: two copies at most were ever made.
        self.assertEqual('2', self.row(volume).generation)
        self.lab.complete(attachment)
        at = AttachedVolume(attachment, volume, self.node2, paths.pop())
        self.assert_holds(image, at)

    def test_a_login_that_is_interrupted(self) -> None:
        with self.node1.popen(['python3', '-c', _INTERRUPT]) as interrupter:
            self.wait('the interrupter', lambda: (
                interrupter.poll() or interrupter.output()))
            for _ in range(10):
                volume, image = self.filled(self.node1)
                self.assert_holds(image, self.attach(volume, self.node2))
                # One may have been too fast for it.
                if interrupter.poll():
                    break
            self.assertEqual(0, interrupter.wait().code)

    def test_detach_in_the_middle_of_an_attach(self) -> None:
        volume, image = self.filled(self.node1)
        for point in ('peers.Prepare:before', 'rows.commit:before'):
            attachment = self.lab.reserve(volume)
            self.freeze(self.node1, point)
            attach = self.pool.submit(self.lab.connect, attachment, 2)
            self.wait_frozen(self.node1)
            detach = self.pool.submit(self.lab.detach_volume, attachment)
            self.wait('the detach', lambda: detach.done() or self.lab.sql(
                "select 1 from volume_attachment where deleted = 1 and "
                f"id = '{attachment}'"))
            self.thaw(self.node1)
            self.assertIsInstance(attach.exception(), RestError, point)
            detach.result()
            self.lab.wait_volume(volume, 'available')
            self.assertEqual('1', self.row(volume).provider_id)
            self.wait('end of the copy',
                      lambda: self.lvs() == [f'volume-{volume}'])
        at = self.attach(volume, self.node2)
        self.assert_holds(image, at)

    def test_delete_in_the_middle_of_an_attach(self) -> None:
        volume = self.volume(self.node1)
        attachment = self.lab.reserve(volume)
        self.freeze(self.node1, 'peers.Prepare:after')
        attach = self.pool.submit(self.lab.connect, attachment, 2)
        self.wait_frozen(self.node1)
        error = self.error_of(lambda: self.lab.delete_volume(volume))
        self.assertIn('400', error)
        # Without its attachment it may be deleted, attach or no attach.
        detach = self.pool.submit(self.lab.detach_volume, attachment)
        self.wait('the detach', lambda: self.lab.volume(volume)['status']
                  == 'available' or detach.done())
        delete = self.pool.submit(self.lab.delete_volume, volume)
        self.wait('the delete to begin', lambda: delete.done()
                  or self.row(volume).status == 'deleting')
        self.thaw(self.node1)
        self.assertIsInstance(attach.exception(), RestError)
        detach.result()
        delete.result()
        self.wait('end of the LVs', lambda: not self.lvs())
