# SPDX-License-Identifier: Apache-2.0

import array
import errno
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import unittest
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import syscaller
from cinder_dmclone.privileged import syscalls
from lab import processes


class SyscallsTest(unittest.TestCase):
    """Children that really run; the calls need no privilege."""

    def setUp(self) -> None:
        self.spare: list[syscalls._Child] = []
        self.enterContext(mock.patch.object(syscalls, '_spare', self.spare))
        self.addCleanup(self._end)

    def _end(self) -> None:
        for child in self.spare:
            child.end()

    def _terminal(self) -> str:
        for file in (ours := pty.openpty()):
            self.addCleanup(os.close, file)
        return os.ttyname(ours[1])

    def test_ioctl(self) -> None:
        path = self._terminal()
        # Rows and columns may have any value, so that of a space too.
        size = array.array('H', [0x2020, 80, 0, 0]).tobytes()
        syscalls.ioctl(path, termios.TIOCSWINSZ, size, 'x', 60)
        self.assertEqual(size, syscalls.ioctl(
            path, termios.TIOCGWINSZ, bytes(len(size)), 'x', 60))

    def test_ioctl_fails(self) -> None:
        with self.assertRaises(OSError) as raised:
            syscalls.ioctl('/dev/null', termios.TIOCGWINSZ, bytes(8), 'x',
                           60)
        self.assertEqual(errno.ENOTTY, raised.exception.errno)

    def test_fsync(self) -> None:
        with tempfile.NamedTemporaryFile() as file:
            syscalls.fsync(file.name, 60)

    def test_fsync_fails(self) -> None:
        with self.assertRaisesRegex(exceptions.CommandFailed,
                                    'fsync /no/such'):
            syscalls.fsync('/no/such', 60)

    def test_read(self) -> None:
        """In any order, of any number, of bytes that are like words."""
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(0x2020 * 4096)
            os.pwrite(file.fileno(), b'far', 0x200f * 4096)
            os.pwrite(file.fileno(), b'near', 4096)
            found = syscalls.read(
                file.name, [0x200f * 4096, *[0] * 100, 4096], 60)
            self.assertEqual(102 * 4096, len(found))
            self.assertEqual((b'far', b'near'),
                             (found[:3], found[101 * 4096:][:4]))
            with self.assertRaisesRegex(exceptions.CommandFailed, 'it ends'):
                syscalls.read(file.name, [0x2020 * 4096], 60)
        with self.assertRaisesRegex(exceptions.CommandFailed,
                                    'read /no/such'):
            syscalls.read('/no/such', [0], 60)

    def test_discard(self) -> None:
        """Each range once, in as many messages as it takes."""
        calls: list[tuple[bytes, ...]] = []

        def call(message: bytes, what: str, seconds: float) -> bytes:
            verb, path, ranges = message.split(b' ', 2)
            self.assertEqual((b'discard', b'/dev/x', 'discard /dev/x', 60),
                             (verb, path, what, seconds))
            self.assertLess(len(message), 200000)
            with mock.patch.object(fcntl, 'ioctl', lambda *found: (
                    calls.append(found[1:]))), (
                    mock.patch.object(os, 'open', return_value=7)), (
                    mock.patch.object(os, 'close')):
                self.assertEqual(b'0 ', syscaller.answer(message))
            return b''
        ranges = [(number << 20, 0x2020) for number in range(20000)]
        with mock.patch.object(syscalls, '_call', call):
            syscalls.discard('/dev/x', ranges, 60)
        # BLKDISCARD of linux/fs.h, _IO(0x12, 119).
        self.assertEqual([(0x12 << 8 | 119, struct.pack('=QQ', *one))
                          for one in ranges], calls)

    def test_discard_fails(self) -> None:
        with self.assertRaisesRegex(exceptions.CommandFailed,
                                    'discard /dev/null'):
            syscalls.discard('/dev/null', [(0, 4096)], 60)

    def test_one_child_for_many_calls(self) -> None:
        for _ in range(3):
            with self.assertRaises(exceptions.CommandFailed):
                syscalls.fsync('/no/such', 60)
        self.assertEqual(1, len(self.spare))

    def test_calls_do_not_wait_for_each_other(self) -> None:
        busy = [syscalls._take() for _ in range(4)]
        for child in busy:
            self.assertEqual(b'0 ', child.call(b'fsync /tmp', 'x', 60))
        for child in busy:
            syscalls._give_back(child)
        self.assertEqual([True, True, False, False],
                         [child.alive for child in busy])

    def test_a_call_that_waits_is_killed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, 'fifo')
            os.mkfifo(fifo)
            child = syscalls._take()
            syscalls._give_back(child)
            # Nobody ever opens its other end.
            with self.assertRaisesRegex(exceptions.CommandTimeout, fifo):
                syscalls.fsync(fifo, 0.2)
        self.assertEqual(-signal.SIGKILL, child._process.wait(60))
        self.assertEqual([], self.spare)

    def test_a_child_that_has_died_is_replaced(self) -> None:
        child = syscalls._take()
        syscalls._give_back(child)
        os.kill(child._process.pid, signal.SIGKILL)
        child._process.wait()
        syscalls.fsync('/tmp', 60)
        self.assertEqual(1, len(self.spare))
        self.assertIsNot(child, self.spare[0])

    def test_a_child_that_dies_in_a_call(self) -> None:
        child = syscalls._take()
        os.kill(child._process.pid, signal.SIGSTOP)
        # A signal arrives when it likes: it could still read the message.
        os.waitid(os.P_PID, child._process.pid, os.WSTOPPED)
        thread = threading.Thread(target=self._kill_after_send, args=(child,))
        thread.start()
        with self.assertRaisesRegex(exceptions.CommandFailed, 'reset'):
            child.call(b'fsync /tmp', 'x', 60)
        thread.join()

    @staticmethod
    def _kill_after_send(child: syscalls._Child) -> None:
        # Its message waits in the socket: it was sent.
        count = array.array('i', [0])

        def sent() -> bool:
            fcntl.ioctl(child._socket, termios.TIOCOUTQ, count)
            return bool(count[0])
        processes.wait_for('a message', sent, interval=0.01)
        os.kill(child._process.pid, signal.SIGKILL)

    def test_nothing_can_be_sent(self) -> None:
        child = syscalls._take()
        child._socket.shutdown(socket.SHUT_WR)
        with self.assertRaises(exceptions.CommandFailed):
            child.call(b'fsync /tmp', 'x', 60)
        # On a busy machine not within the time that it is given. By itself, if
        # it saw first that nothing comes any more.
        self.assertIn(child._process.wait(60), (0, -signal.SIGKILL))

    def test_no_program(self) -> None:
        with mock.patch.object(subprocess, 'Popen',
                               side_effect=FileNotFoundError):
            with self.assertRaises(exceptions.CommandFailed):
                syscalls.fsync('/tmp', 60)

    def test_children_die_with_their_parent(self) -> None:
        """Also in the middle of a call, which end of file does not end."""
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, 'fifo')
            os.mkfifo(fifo)
            script = (
                'import sys; from cinder_dmclone.privileged import syscalls;'
                'child = syscalls._take(); syscalls._give_back(child);'
                'print(child._process.pid, flush=True);'
                f'syscalls.fsync({fifo!r}, 600)')
            with subprocess.Popen([sys.executable, '-c', script], text=True,
                                  stdout=subprocess.PIPE) as parent:
                assert parent.stdout
                waits = os.pidfd_open(int(parent.stdout.readline()))
                parent.kill()
            self.addCleanup(os.close, waits)
            with select.epoll() as poll:
                poll.register(waits)
                self.assertTrue(poll.poll(60))


class SyscallerTest(unittest.TestCase):
    """What the child does, in this process."""

    def test_answers_until_the_end_of_file(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX,
                                         socket.SOCK_SEQPACKET)
        with ours, theirs:
            ours.send(b'fsync /no/such')
            ours.send(b'fsync /tmp')
            ours.send(b'ioctl %d /dev/null 1234' % termios.TIOCGWINSZ)
            ours.shutdown(socket.SHUT_WR)
            syscaller.main(theirs.fileno())
            self.assertEqual(
                [b'ready', b'%d ' % errno.ENOENT, b'0 ',
                 b'%d ' % errno.ENOTTY], [ours.recv(99) for _ in range(4)])

    def test_an_ioctl_in_place(self) -> None:
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        self.addCleanup(os.close, theirs)
        size = array.array('H', [24, 80, 0, 0]).tobytes()
        path = os.ttyname(theirs).encode()
        self.assertEqual(b'0 ' + size, syscaller.answer(
            b'ioctl %d %s %s' % (termios.TIOCSWINSZ, path, size)))
