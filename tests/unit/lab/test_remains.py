# SPDX-License-Identifier: Apache-2.0
"""What is nobody's goes, what is somebody's stays."""
from __future__ import annotations

import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from lab import remains
from lab.errors import LabInUse
from lab.processes import alive, wait_for

_CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
# A process with a lab, and with a child that does not end when asked, in a
# session of its own.
_OWNER = '''
import pathlib, signal, subprocess, sys, threading, time
from lab import remains
remains.ROOT, remains._LOCKS = map(pathlib.Path, sys.argv[1:3])
end = lambda number, frame: remains.become_remover(128 + number)
signal.signal(signal.SIGTERM, end)
claim = remains.Claim('mine')
(remains.ROOT / 'mine').mkdir()
subprocess.Popen(['sh', '-c', 'trap "" TERM; echo $$ >"$0"; sleep 60; :',
                  str(remains.ROOT / 'pid')], start_new_session=True)
print('ready', flush=True)
with threading.Lock() as held:
    time.sleep(60)
'''
# A process of stestr that has a lab: it waits for something, in C.
_WORKER = '''
import socket
from tests.functional import environment
environment.leave_nothing()
print('ready', flush=True)
pair = socket.socketpair()
pair[0].recv(1)
'''


class RemainsTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        base = pathlib.Path(folder)
        self.root, self.locks = base / 'labs', base / 'locks'
        self.root.mkdir()
        self.locks.mkdir()
        network = mock.Mock(path=base / 'nothing')
        network.pids.return_value = []
        for patch in (mock.patch.multiple(remains, ROOT=self.root,
                                          _LOCKS=self.locks),
                      mock.patch.object(remains, 'Network',
                                        return_value=network)):
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(remains._claims.clear)

    def lab(self, name: str, settings: str | None = None) -> pathlib.Path:
        path = self.root / name
        path.mkdir()
        if settings is not None:
            (path / remains.SETTINGS).write_text(settings)
        return path

    def held(self, name: str) -> subprocess.Popen[bytes]:
        """Another process has the name."""
        process = subprocess.Popen(
            ['flock', '--no-fork', self.locks / f'dmclone-lab-{name}.lock',
             'sh', '-c', 'echo; exec sleep 60'], stdout=subprocess.PIPE,
            start_new_session=True)
        assert process.stdout
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        process.stdout.readline()
        return process

    def test_what_a_killed_process_left_goes(self) -> None:
        path = self.lab('left', '{"keep": false}')
        early = self.lab('early')
        self.assertEqual(['early', 'left'], remains.sweep())
        self.assertFalse(path.exists() or early.exists())
        self.assertEqual([], list(self.locks.iterdir()))

    def test_what_is_in_use_stays(self) -> None:
        path = self.lab('used', '{"keep": false}')
        self.held('used')
        mine = self.lab('mine', '{"keep": false}')
        claim = remains.Claim('mine')
        self.assertEqual([], remains.sweep())
        self.assertTrue(path.exists() and mine.exists())
        with self.assertRaisesRegex(LabInUse, 'used is in use'):
            remains.Claim('used')
        claim.release()

    def test_what_is_to_stay_stays(self) -> None:
        for number, settings in enumerate(('{"keep": true}', '{}', '')):
            self.lab(f'kept{number}', settings)
        self.assertEqual([], remains.sweep())
        self.assertEqual(3, len(list(self.root.iterdir())))

    def test_an_end_clears_all_but_what_is_to_stay(self) -> None:
        left, kept = self.lab('left'), self.lab('kept', '{"keep": true}')
        for path in (left, kept):
            remains.Claim(path.name)
        remains.clear()
        self.assertFalse(left.exists())
        self.assertTrue(kept.exists())
        self.assertEqual([], list(self.locks.iterdir()))

    def test_a_name_is_free_after_its_release(self) -> None:
        remains.Claim('name').release()
        self.assertEqual([], remains.traces('name'))
        remains.Claim('name').release()

    def test_who_comes_second_waits_for_no_removed_lock(self) -> None:
        """The file that it has opened may be removed before it locks it."""
        first = remains.Claim('name')
        lock = fcntl.flock

        def late(*args: int) -> None:
            if first.name in remains._claims:
                first.release()
            lock(*args)
        with mock.patch.object(fcntl, 'flock', late):
            second = remains.Claim('name')
        self.assertTrue((self.locks / 'dmclone-lab-name.lock').exists())
        second.release()


class RemoverTest(unittest.TestCase):
    """A process that is asked to end, whatever it was doing."""

    def test_it_ends_its_children_and_removes_its_labs(self) -> None:
        with tempfile.TemporaryDirectory() as base:
            root, locks = pathlib.Path(base, 'labs'), pathlib.Path(base, 'l')
            root.mkdir()
            locks.mkdir()
            owner = subprocess.Popen(
                [sys.executable, '-c', _OWNER, str(root), str(locks)],
                cwd=_CHECKOUT, stdout=subprocess.PIPE, text=True)
            self.addCleanup(owner.communicate)
            self.addCleanup(owner.kill)
            assert owner.stdout
            self.assertEqual('ready\n', owner.stdout.readline())
            pid = root / 'pid'
            child = int(wait_for('the child', lambda: (
                pid.exists() and pid.read_text().strip())))
            for _ in range(2):
                owner.terminate()
            self.assertEqual(128 + 15, owner.wait(60))
            self.assertFalse((root / 'mine').exists())
            self.assertEqual([], list(locks.iterdir()))
            self.assertFalse(alive(child))

    def test_a_test_process_ends_with_who_started_the_tests(self) -> None:
        runner = subprocess.Popen(['sleep', '60'])
        worker = subprocess.Popen(
            [sys.executable, '-c', _WORKER], cwd=_CHECKOUT, text=True,
            stdout=subprocess.PIPE,
            env={**os.environ, 'DMCLONE_RUNNER': str(runner.pid)})
        for process in (worker, runner):
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
        assert worker.stdout
        self.assertEqual('ready\n', worker.stdout.readline())
        self.assertIsNone(worker.poll())
        runner.kill()
        self.assertEqual(128 + 15, worker.wait(60))
