# SPDX-License-Identifier: Apache-2.0
"""The daemon itself, without a right of root's: it dies, or does not start."""

from __future__ import annotations

from concurrent import futures
import contextlib
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading
import typing
from unittest import mock

import ddt
from oslo_config import cfg

from cinder_dmclone import exceptions
from cinder_dmclone import privileged
from cinder_dmclone.privileged import lvm
from lab import processes
from tests.unit import base
from tests.unit.privileged import late
from tests.unit import test_packaging

_PROGRAM = 'from oslo_privsep import daemon; daemon.helper_main()'
# What both kinds of calls are about; there is none.
GROUP = 'dmclone-test-helper'


def identity() -> None:
    lvm.backup_identity(GROUP)


def report() -> None:
    """Which the daemon refuses before it does anything."""
    try:
        lvm.report(f'{GROUP}/x')
    except ValueError:
        return
    raise AssertionError('it was asked for')


def begin(call: typing.Callable[[], None]) -> futures.Future[None]:
    """Call in a thread that nobody has to wait for."""
    asked: futures.Future[None] = futures.Future()

    def put() -> None:
        try:
            call()
            asked.set_result(None)
        except Exception as error:
            asked.set_exception(error)
    threading.Thread(target=put, daemon=True).start()
    return asked


class DaemonTestCase(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.config = pathlib.Path(self.folder()) / 'privsep.conf'
        self.configure('capabilities =')
        self.set_command('env', f'PYTHONPATH={test_packaging.ROOT}',
                         sys.executable, '-W', 'ignore', '-c', _PROGRAM,
                         '--config-file', str(self.config))
        self.addCleanup(privileged.context.stop)

    def configure(self, *lines: str) -> None:
        self.config.write_text('\n'.join([f'[{privileged.SECTION}]', *lines]))

    def set_command(self, *words: str) -> None:
        cfg.CONF.set_override('helper_command', shlex.join(words),
                              privileged.SECTION)
        self.addCleanup(cfg.CONF.clear_override, 'helper_command',
                        privileged.SECTION)

    def daemons(self) -> list[int]:
        return _with(self.config)


def _with(config: pathlib.Path, *others: int) -> list[int]:
    """Helpers with this configuration.

    :param others: what else has it among its words
    """
    return [pid for path in pathlib.Path('/proc').glob('[0-9]*/cmdline')
            if str(config).encode() in _read(path)
            and (pid := int(path.parent.name)) not in others]


def _read(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b''  # the process has just ended


@ddt.ddt
class KilledTest(DaemonTestCase):

    def setUp(self) -> None:
        super().setUp()
        privileged.ready()
        self.daemon, = self.daemons()
        assert privileged.context.channel is not None
        self.channel = privileged.context.channel

    def kill(self) -> None:
        os.kill(self.daemon, signal.SIGKILL)
        self.channel.reader_thread.join()

    def wait_for_request(self) -> None:
        """Until one was sent."""
        def sent() -> bool:
            with self.channel.lock:
                return bool(self.channel.outstanding_msgs)
        processes.wait_for('a request', sent, interval=0.01)

    @ddt.data(identity, report)
    def test_a_request_that_was_not_read(
            self, call: typing.Callable[[], None]) -> None:
        """Who made it is told, and alone knows whether to make it again."""
        os.kill(self.daemon, signal.SIGSTOP)
        asked = begin(call)
        self.wait_for_request()
        self.kill()
        self.assertFalse(self.channel.running)
        with self.assertRaisesRegex(
                exceptions.HelperEnded, '(backup_identity|report), which may '
                'be done or not: Premature eof'):
            asked.result()
        call()
        self.assertNotIn(self.daemon, self.daemons())

    def test_who_finds_it_dead_late_stops_no_other(self) -> None:
        """Another thread has started a new one since."""
        self.kill()
        started: list[typing.Any] = []

        class Dead:
            close = self.channel.close

            @property
            def running(self) -> bool:
                if not started:
                    started.append(None)
                    begin(privileged.ready).result()
                    started.append(privileged.context.channel)
                return False
        with mock.patch.object(privileged.context, 'channel', Dead()):
            identity()
            self.assertIs(started[1], privileged.context.channel)
            privileged.context.stop()


class LateTest(base.TestCase):
    """A helper that finds a request later than it was made."""

    def setUp(self) -> None:
        super().setUp()
        folder = pathlib.Path(self.folder())
        self.made, self.config = folder / 'made', folder / 'privsep.conf'
        self.config.write_text(f'[{late.SECTION}]\ncapabilities =\n')
        environment = f'PYTHONPATH={test_packaging.ROOT}'
        command = shlex.join([
            'env', environment, sys.executable, '-W', 'ignore', '-c',
            _PROGRAM, '--config-file', str(self.config)])
        self.client = subprocess.Popen(
            ['env', environment, sys.executable, '-W', 'ignore', '-c',
             'import sys; from tests.unit.privileged import late; '
             'late.main(*sys.argv[1:])', command, str(self.made)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.client.communicate)
        self.addCleanup(self.client.kill)
        self.assertEqual('started', self.said())
        self.daemon, = _with(self.config, self.client.pid)
        os.kill(self.daemon, signal.SIGSTOP)
        self.addCleanup(self.go_on)
        assert self.client.stdin
        self.client.stdin.write('\n')
        self.client.stdin.flush()
        self.assertEqual('asked', self.said())

    def said(self) -> str:
        assert self.client.stdout
        return self.client.stdout.readline().strip()

    def go_on(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.daemon, signal.SIGCONT)

    def test_who_has_asked_waits(self) -> None:
        self.go_on()
        self.assertEqual('answered', self.said())
        self.assertTrue(self.made.exists())

    def test_who_has_asked_was_killed(self) -> None:
        """Another process may have decided something else since."""
        self.client.kill()
        self.client.wait()
        self.go_on()
        processes.wait_for('the end of the helper', lambda: (
            self.daemon not in _with(self.config)))
        self.assertFalse(self.made.exists())


class NotStartedTest(DaemonTestCase):

    def assert_not_started(self, why: str) -> None:
        for call in privileged.ready, identity, report:
            with self.assertRaisesRegex(
                    exceptions.HelperNotStarted, f'does not start .*: {why}'):
                call()

    def test_a_command_that_fails(self) -> None:
        self.set_command('false')
        self.assert_not_started('.*exited non-zero')

    def test_a_command_that_is_not_there(self) -> None:
        self.set_command('/nonexistent/helper')
        self.assert_not_started('.*No such file')

    def test_a_daemon_that_dies_before_it_listens(self) -> None:
        """Another call tries again."""
        self.configure('capabilities =', f'user = {GROUP}')
        self.assert_not_started('.*failed to start')
        self.configure('capabilities =')
        identity()
