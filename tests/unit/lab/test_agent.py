# SPDX-License-Identifier: Apache-2.0
"""The agent and its client, over the loopback interface."""
from __future__ import annotations

import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from typing import ClassVar

from lab import agent, processes
from lab.errors import CommandError, LabError


def _free_port() -> int:
    with socket.create_server(('127.0.0.1', 0)) as server:
        return int(server.getsockname()[1])


@unittest.skipUnless(shutil.which('gcc'), 'needs gcc')
class AgentTest(unittest.TestCase):

    port: ClassVar[int]

    @classmethod
    def setUpClass(cls) -> None:
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.port = _free_port()
        process = subprocess.Popen(
            [agent.build(pathlib.Path(directory.name)), '127.0.0.1',
             str(cls.port)])
        cls.addClassCleanup(process.wait)
        cls.addClassCleanup(process.kill)
        deadline = time.monotonic() + 30
        while True:
            try:
                cls._connect(1).close()
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    @classmethod
    def _connect(cls, timeout: float) -> socket.socket:
        return socket.create_connection(('127.0.0.1', cls.port), timeout)

    def _run(self, *argv: str, check: bool = True, timeout: float = 60,
             input: bytes | None = None) -> agent.Result:
        return agent.run_command(self._connect, list(argv), check, timeout,
                                 input)

    def test_streams_and_status_are_kept_apart(self) -> None:
        result = self._run('sh', '-c', 'echo out; echo err >&2; exit 3',
                           check=False)
        self.assertEqual(agent.Result('out\n', 'err\n', 3), result)

    def test_failure_raises_with_its_message(self) -> None:
        with self.assertRaisesRegex(CommandError, 'exit status 1: why'):
            self._run('sh', '-c', 'echo why >&2; exit 1')

    def test_missing_command_is_status_127(self) -> None:
        self.assertEqual(127, self._run('/no/such', check=False).code)

    def test_signal_is_status_128_and_more(self) -> None:
        result = self._run('sh', '-c', 'kill -9 $$', check=False)
        self.assertEqual(137, result.code)

    def test_empty_and_odd_words_arrive_unchanged(self) -> None:
        result = self._run('printf', '[%s]', '', 'a b', '\n', 'ä')
        self.assertEqual('[][a b][\n][ä]', result.stdout)

    def test_more_input_than_a_pipe_holds_is_echoed(self) -> None:
        data = b'0123456789abcdef' * (1 << 17)
        self.assertEqual(data.decode(), self._run('cat', input=data).stdout)

    def test_input_that_nobody_reads_does_no_harm(self) -> None:
        self.assertEqual(0, self._run('true', input=b'x' * (1 << 22)).code)

    def test_daemon_left_behind_is_not_waited_for(self) -> None:
        result = self._run('sh', '-c', 'sleep 30 & echo $!', timeout=20)
        self._run('kill', result.stdout.strip())

    def test_timeout_kills_the_whole_group(self) -> None:
        command = agent.Command(self._connect, [
            'sh', '-c', 'echo $$; sleep 60 & sleep 60'])
        while '\n' not in command.output():
            command.poll()
        group = command.output().strip()
        with self.assertRaises(TimeoutError):
            command.wait(timeout=0.1)
        deadline = time.monotonic() + 30
        while self._run('pgrep', '-g', group, check=False).code == 0:
            self.assertLess(time.monotonic(), deadline)

    def test_who_waits_looks_out(self) -> None:
        def killed() -> None:
            raise LabError('the kernel has killed it')
        processes.watch(killed)
        self.addCleanup(processes.unwatch, killed)
        with self.assertRaisesRegex(LabError, 'the kernel has killed it'):
            self._run('sleep', '60')

    def test_poll_says_none_while_it_runs(self) -> None:
        with agent.Command(self._connect, ['sleep', '60']) as command:
            self.assertIsNone(command.poll())

    def test_no_agent_is_a_plain_error(self) -> None:
        def refused(timeout: float) -> socket.socket:
            raise ConnectionRefusedError('refused')
        with self.assertRaisesRegex(LabError, 'true: the node does not'):
            agent.Command(refused, ['true'])
