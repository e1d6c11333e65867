# SPDX-License-Identifier: Apache-2.0
"""Locks of volumes, with real files."""

from __future__ import annotations

from concurrent import futures
import gc
import os
import pathlib
import signal
import subprocess
import sys
import unittest.mock

from cinder import coordination

from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone import locks
from tests.unit import base

VOLUME = VolumeId('70000000-0000-4000-8000-000000000001')
OTHER = VolumeId('70000000-0000-4000-8000-000000000002')
# In seconds.
SHORT, LONG = 0.05, 60
THREADS, TIMES = 8, 50


class LocksTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.files = self.folder()
        self.enterContext(unittest.mock.patch.object(
            locks.CONF, 'state_path', self.files, create=True))
        self.a, self.b = (locks.Locks(NodeName(f'{host}@dmclone'))
                          for host in 'ab')

    def test_a_node_that_asks_another_does_not_wait_for_itself(self) -> None:
        with self.a.volume(VOLUME, LONG), self.b.volume(VOLUME, LONG):
            pass

    def test_another_machine_is_not_asked(self) -> None:
        """It might lose a lock while its holder works."""
        self.enterContext(unittest.mock.patch.object(
            coordination, 'COORDINATOR', None))
        with self.a.volume(VOLUME, LONG):
            pass

    def test_one_at_a_time_on_a_node(self) -> None:
        with self.a.volume(VOLUME, LONG):
            with self.a.volume(OTHER, LONG):
                pass
            again = self.a.volume(VOLUME, SHORT)
            self.assertRaises(exceptions.VolumeLocked, again.__enter__)
        with self.a.volume(VOLUME, LONG):
            pass

    def test_one_file_for_all(self) -> None:
        """A disk that is full has room for it; deleted volumes leave none."""
        for volume in (VOLUME, OTHER):
            with self.a.volume(volume, LONG), self.b.volume(volume, LONG):
                pass
        self.assertEqual([f'dmclone-{node}@dmclone-volumes.lock'
                          for node in 'ab'], sorted(os.listdir(self.files)))

    def test_who_opens_the_file_takes_nothing_away(self) -> None:
        """Nor who closes it."""
        other = Other(self.files)
        self.addCleanup(other.end)
        with self.a.volume(VOLUME, LONG):
            path, = pathlib.Path(self.files).iterdir()
            path.read_bytes()
            with self.a.volume(OTHER, LONG):
                pass
            self.assertFalse(other.takes())

    def test_a_child_that_lives_on_keeps_nothing(self) -> None:
        """The privileged helper may be forked at any moment."""
        with self.a.volume(VOLUME, LONG):
            child = os.fork()
            if not child:
                signal.pause()
                os._exit(0)
        try:
            with self.a.volume(VOLUME, SHORT):
                pass
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def test_another_process_has_it(self) -> None:
        other = Other(self.files)
        self.addCleanup(other.end)
        with self.a.volume(VOLUME, LONG):
            self.assertFalse(other.takes())
        self.assertTrue(other.takes())
        again = self.a.volume(VOLUME, SHORT)
        self.assertRaises(exceptions.VolumeLocked, again.__enter__)
        other.lets_go()
        with self.a.volume(VOLUME, LONG):
            pass

    def test_who_waited_in_vain_takes_nothing_from_who_has_it(self) -> None:
        """His error may live for longer, and with it what he has opened."""
        other = Other(self.files)
        self.addCleanup(other.end)
        self.assertTrue(other.takes())
        try:
            with self.a.volume(VOLUME, SHORT):
                self.fail('others have it')
        except exceptions.VolumeLocked as error:
            kept = [error]
        other.lets_go()
        with self.a.volume(VOLUME, LONG):
            kept.clear()
            gc.collect()
            self.assertFalse(other.takes())

    def test_many_at_once(self) -> None:
        """No two have it."""
        inside: list[int] = []

        def work(number: int) -> None:
            for _ in range(TIMES):
                with self.a.volume(VOLUME, LONG):
                    inside.append(number)
                    self.assertEqual([number], inside)
                    inside.remove(number)

        with futures.ThreadPoolExecutor() as pool:
            list(pool.map(work, range(THREADS)))


class Other:
    """Another process of the node, which takes a lock when it is told to."""

    program = '''
import contextlib, sys
from cinder_dmclone import exceptions, locks
from cinder_dmclone.location import NodeName

locks.CONF = type('conf', (), {'state_path': sys.argv[1]})
mine = contextlib.ExitStack()
for line in sys.stdin:
    if line == 'let go\\n':
        mine.close()
        print('done', flush=True)
        continue
    try:
        mine.enter_context(
            locks.Locks(NodeName('a@dmclone')).volume(sys.argv[2], 0.0))
        print('taken', flush=True)
    except exceptions.VolumeLocked:
        print('busy', flush=True)
'''

    def __init__(self, folder: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c', self.program, folder,
             VOLUME], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True)

    def _ask(self, what: str) -> str:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f'{what}\n')
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def takes(self) -> bool:
        """Whether it gets the lock at once; it keeps it then."""
        answer = self._ask('take')
        assert answer in ('taken', 'busy'), answer
        return answer == 'taken'

    def lets_go(self) -> None:
        """Have it end what it has."""
        self._ask('let go')

    def end(self) -> None:
        """It reads no more."""
        self._process.communicate()
