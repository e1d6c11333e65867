# SPDX-License-Identifier: Apache-2.0
"""A privileged call that begins late, or never ends."""

from __future__ import annotations

import importlib
import socket
import threading
import time
import types
import typing
from unittest import mock

import ddt
from oslo_privsep import comm
from oslo_privsep import daemon

from cinder_dmclone import exceptions
from cinder_dmclone import privileged
from cinder_dmclone.privileged import helper
from cinder_dmclone.privileged import iscsi
from cinder_dmclone.privileged import lio
from cinder_dmclone.privileged import lvm
from tests.unit import base

IQN = 'iqn.2010-10.org.openstack:dmclone-0123456789abcdef0123456789abcdef'
LV = '11111111-2222-3333-4444-555555555555'
NAME = f'volume-{LV}'

CALLS: tuple[tuple[typing.Any, ...], ...] = (
    (lio.load,),
    (lio.ensure, IQN, f'/dev/mapper/dmclone-serve-{LV}', LV, False, [],
     '192.0.2.1', 3260),
    (lio.remove, IQN),
    (lio.revoke, IQN, 'iqn.a'),
    (iscsi.write_record, IQN, '192.0.2.1:3260', 'user', 'secret'),
    (iscsi.delete_record, IQN),
    (iscsi.login, IQN, 13.0),
    (iscsi.rescan, IQN, 3.0),
    (iscsi.logout, IQN, 20.0),
    (iscsi.identity, IQN, '8:0', 10.0),
    (iscsi.set_running, IQN, '8:0'),
    (lvm.report, 'vg'),
    (lvm.report_patiently, 'vg'),
    (lvm.host_scan,),
    (lvm.create, 'vg', NAME, 4096, ()),
    (lvm.snapshot, 'vg', NAME, NAME, ()),
    (lvm.remove, 'vg', NAME),
    (lvm.retag, 'vg', NAME, ('own',), ()),
    (lvm.rename, 'vg', 'data', NAME),
    (lvm.extend, 'vg', NAME, 4096),
    (lvm.activate, 'vg'),
    (lvm.zero, 'vg', NAME),
    (lvm.read, 'vg', NAME, 0, 4096),
    (lvm.probe, 'vg', NAME),
)
# What only reads, in no time.
READS = {lio.list_exports, iscsi.initiator_name, lvm.backup_identity}


class DaemonTestCase(base.TestCase):
    """The daemon is this process."""

    def setUp(self) -> None:
        super().setUp()
        self.now = 100.0
        self.enterContext(mock.patch.object(
            time, 'monotonic', lambda: self.now))
        self.enterContext(mock.patch.object(
            privileged.context, 'channel',
            types.SimpleNamespace(running=True, remote_call=self.remote)))

    def remote(self, name: str, arguments: typing.Any, named: typing.Any,
               timeout: float) -> typing.Any:
        """As ``oslo_privsep.daemon.Daemon._process_cmd``."""
        self.assertEqual(timeout is None, name.endswith('.ready'))
        module, _, function = name.rpartition('.')
        found = getattr(importlib.import_module(module), function)
        self.assertTrue(privileged.context.is_entrypoint(found))
        privileged.context.set_client_mode(False)
        try:
            return found(*arguments, **named)
        finally:
            privileged.context.set_client_mode(True)


class Begun(Exception):
    """The daemon carries a call out."""


@ddt.ddt
class LateTest(DaemonTestCase):

    def setUp(self) -> None:
        super().setUp()
        # Whatever a call does begins with one of these.
        self.done = mock.MagicMock(side_effect=Begun)
        self.done.mkdir = self.done
        for module, names in ((lio, ('DB_ROOT', '_check_iqn')),
                              (iscsi, ('_check',)),
                              (lvm, ('_group', '_volume', '_setting'))):
            for name in names:
                self.enterContext(mock.patch.object(module, name, self.done))
        self.queued = 0.0

    def remote(self, name: str, arguments: typing.Any, named: typing.Any,
               timeout: float) -> typing.Any:
        self.now += self.queued
        return super().remote(name, arguments, named, timeout)

    @ddt.data(*CALLS)
    @ddt.unpack
    def test_what_its_caller_has_given_up_is_not_carried_out(
            self, call: typing.Callable[..., typing.Any],
            *arguments: typing.Any) -> None:
        self.assertRaises(Begun, call, *arguments)
        self.done.reset_mock()
        self.queued = 3600
        self.assertRaises(exceptions.NotBegun, call, *arguments)
        self.assertFalse(self.done.called)

    def test_none_is_left_out(self) -> None:
        found = {value for module in (iscsi, lio, lvm)
                 for value in vars(module).values()
                 if privileged.context.is_entrypoint(value)}
        self.assertEqual({call[0] for call in CALLS} | READS, found)


class StartTest(DaemonTestCase):
    """The daemon is started by the first call, which takes long."""

    def setUp(self) -> None:
        super().setUp()
        self.run_ = self.enterContext(mock.patch.object(lvm, '_lvm'))

    def start(self) -> None:
        self.now += 3600
        privileged.context.channel = types.SimpleNamespace(
            running=True, remote_call=self.remote)

    def test_a_daemon_that_starts_is_waited_for(self) -> None:
        for channel in (None, types.SimpleNamespace(running=False)):
            self.run_.reset_mock()
            with (mock.patch.object(privileged.context, 'channel', channel),
                  mock.patch.object(privileged.context, 'start', self.start),
                  mock.patch.object(
                      privileged.context, 'stop', lambda: setattr(
                          privileged.context, 'channel', None))):
                lvm.report('vg')
            self.run_.assert_called_once()


class EndedTest(base.TestCase):
    """The daemon is killed: with a call, or before the next one."""

    def setUp(self) -> None:
        super().setUp()
        ours, self.its = socket.socketpair()
        self.addCleanup(self.its.close)
        self.addCleanup(ours.close)
        with mock.patch.object(daemon._ClientChannel, 'exchange_ping'):
            self.channel = helper.Channel(ours, privileged.context)
        self.enterContext(mock.patch.object(
            privileged.context, 'channel', self.channel))

    def assert_ended(self, reason: str) -> None:
        with self.assertRaisesRegex(
                exceptions.HelperEnded,
                f'has ended during report, .*: {reason}'):
            lvm.report('vg')

    def test_with_a_call(self) -> None:
        def end() -> None:
            self.its.recv(1 << 20)
            self.its.close()
        killed = threading.Thread(target=end)
        killed.start()
        self.assert_ended('Premature eof')
        killed.join()

    def test_before_it_is_noticed(self) -> None:
        self.its.close()
        self.channel.reader_thread.join()
        self.channel.running = True
        self.assert_ended('.*Broken pipe')

    def test_an_error_of_a_call_is_none_of_it(self) -> None:
        with mock.patch.object(self.channel, 'remote_call',
                               side_effect=OSError(5, 'Input/output error')):
            self.assertRaisesRegex(OSError, 'Input/output', lvm.report, 'vg')


class StuckTest(DaemonTestCase):

    def remote(self, *arguments: typing.Any) -> typing.Any:
        raise comm.PrivsepTimeout

    def test_a_call_without_an_answer_is_a_timeout(self) -> None:
        """Which callers know, and give back what they hold."""
        for call, *arguments in CALLS:
            self.assertRaises(exceptions.CommandTimeout, call, *arguments)


class _Impatient(threading.BoundedSemaphore):
    """Who would wait for a turn has waited for long."""

    def acquire(self, blocking: bool = True,
                timeout: float | None = None) -> bool:
        return super().acquire(blocking=False)


class TurnsTest(DaemonTestCase):
    """Lenders that are away keep nobody waiting who needs none."""

    def setUp(self) -> None:
        super().setUp()
        self.waiting = threading.Semaphore(0)
        self.over = threading.Event()
        self.addCleanup(self.over.set)
        self.enterContext(mock.patch.object(privileged, '_turns',
                                            _Impatient(2)))

    def remote(self, name: str, *arguments: typing.Any) -> typing.Any:
        if name.endswith('iscsi.login'):
            self.waiting.release()
            self.over.wait()

    def test_logins_leave_threads_to_the_rest(self) -> None:
        threads = [threading.Thread(target=iscsi.login, args=(IQN, 13.0))
                   for _ in range(2)]
        for thread in threads:
            thread.start()
            self.waiting.acquire()
        self.assertRaises(exceptions.NotBegun, iscsi.logout, IQN, 20.0)
        lvm.retag('vg', NAME, ('own',), ())
        self.over.set()
        for thread in threads:
            thread.join()
        iscsi.logout(IQN, 20.0)

    def test_there_are_threads_for_the_rest(self) -> None:
        self.assertLess(privileged.ABROAD,
                        privileged.context.conf.thread_pool_size)
