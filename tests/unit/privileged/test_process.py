# SPDX-License-Identifier: Apache-2.0

import os
import signal
import subprocess
import sys
import threading
import unittest
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import process


class RunTest(unittest.TestCase):

    def test_output(self) -> None:
        self.assertEqual('a b\n', process.run(['echo', 'a b'], 10))

    def test_input(self) -> None:
        self.assertEqual('0 8 error', process.run(['cat'], 10, '0 8 error'))
        self.assertEqual('', process.run(['cat'], 10))

    def test_much_input_and_output(self) -> None:
        text = 'x' * (1 << 20)
        self.assertEqual(text, process.run(['cat'], 10, text))

    def test_english(self) -> None:
        with mock.patch.dict(os.environ, LC_ALL='de_DE.UTF-8'):
            self.assertEqual('C\n', process.run(
                ['sh', '-c', 'echo $LC_ALL'], 10))

    def test_failure(self) -> None:
        with self.assertRaisesRegex(exceptions.CommandFailed,
                                    'status 3: no$'):
            process.run(['sh', '-c', 'echo no >&2; exit 3'], 10)

    def test_no_such_command(self) -> None:
        with self.assertRaisesRegex(exceptions.CommandFailed, '127'):
            process.run(['/no/such/command'], 10)

    def test_timeout_kills_the_command_and_its_children(self) -> None:
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        script = (f'import os, subprocess, sys; os.set_blocking({write}, 1); '
                  f'subprocess.run(["sleep", "60"], pass_fds=[{write}])')
        popen = subprocess.Popen
        with mock.patch.object(
                subprocess, 'Popen',
                lambda *a, **k: popen(*a, pass_fds=[write], **k)):
            with self.assertRaises(exceptions.CommandTimeout):
                process.run([sys.executable, '-c', script], 0.5)
        os.close(write)
        # End of file: nobody holds the other end any more.
        self.assertEqual(b'', os.read(read, 1))

    def test_a_child_that_does_not_die_is_left_behind(self) -> None:
        # Stopped instead of killed it stays, as one does that the kernel
        # does not let go.
        killpg = os.killpg
        with mock.patch.object(
                os, 'killpg',
                lambda group, number: killpg(group, signal.SIGSTOP)), \
                mock.patch.object(threading, 'Thread') as thread:
            with self.assertRaises(exceptions.CommandTimeout):
                process.run(['sleep', '60'], 0.1)
        reap = thread.call_args.kwargs['target']
        killpg(reap.__self__.pid, signal.SIGKILL)
        self.assertEqual(-signal.SIGKILL, reap())

    def test_a_daemon_does_not_hold_up_the_call(self) -> None:
        output = process.run(['sh', '-c', 'sleep 60 & echo $!'], 10)
        os.kill(int(output), signal.SIGKILL)
