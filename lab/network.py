# SPDX-License-Identifier: Apache-2.0
"""The network of a lab: a namespace with two bridges.

``mgmt`` carries commands, the control plane and its services; ``data``
carries iSCSI and is the one that gets partitioned.  All names but that of
the namespace are inside it, so labs do not meet, and nothing that listens
there can be reached from outside.
"""
from __future__ import annotations

import concurrent.futures
import ctypes
import os
import pathlib
import signal
import socket
import threading
from collections.abc import Callable
from typing import TypeVar

from lab.errors import CommandError
from lab.processes import run, wait_for

CONTROLLER = '10.99.0.254'
_CLONE_NEWNET = 0x40000000
Result = TypeVar('Result')


def mgmt_address(node: int) -> str:
    """Address of node ``node`` (from 1) in the management network."""
    return f'10.99.0.{node}'


def data_address(node: int) -> str:
    """Address of node ``node`` (from 1) in the storage network."""
    return f'10.99.1.{node}'


class Network:
    """The namespace of the lab ``name``."""

    def __init__(self, name: str) -> None:
        self.namespace = f'dmclone-lab-{name}'

    @property
    def path(self) -> pathlib.Path:
        """Where the namespace is bound while it exists."""
        return pathlib.Path('/run/netns', self.namespace)

    def argv(self, *command: str) -> list[str]:
        """A command line that runs ``command`` inside."""
        return ['ip', 'netns', 'exec', self.namespace, *command]

    def ip(self, *words: str) -> str:
        """Run ``ip`` on the namespace and return what it prints."""
        return run('ip', '-n', self.namespace, *words).stdout

    def create(self, nodes: int) -> None:
        """Make the namespace, its bridges and two taps for each node."""
        run('ip', 'netns', 'add', self.namespace)
        self.ip('link', 'set', 'lo', 'up')
        for bridge in ('mgmt', 'data'):
            self.ip('link', 'add', bridge, 'type', 'bridge')
            self.ip('link', 'set', bridge, 'up')
        self.ip('address', 'add', f'{CONTROLLER}/24', 'dev', 'mgmt')
        for node in range(1, nodes + 1):
            for bridge in ('mgmt', 'data'):
                tap = f'{bridge}{node}'
                self.ip('tuntap', 'add', tap, 'mode', 'tap')
                self.ip('link', 'set', tap, 'master', bridge, 'up')

    def partition(self, node: int) -> None:
        """Cut a node off the storage network."""
        # Taking the tap down instead would wedge the node's end of it.
        self.ip('link', 'set', f'data{node}', 'nomaster')

    def heal(self, node: int) -> None:
        """Undo partition()."""
        self.ip('link', 'set', f'data{node}', 'master', 'data')

    def pids(self) -> list[int]:
        """Every process inside."""
        try:
            out = run('ip', 'netns', 'pids', self.namespace).stdout
        except CommandError:
            if self.path.exists():
                raise
            return []
        return [int(word) for word in out.split()]

    def destroy(self) -> None:
        """Kill every process inside, then remove the namespace."""
        wait_for('end of the processes in the lab\'s network',
                 self._killed)
        if self.path.exists():
            run('ip', 'netns', 'delete', self.namespace)

    def _killed(self) -> bool:
        # Again and again: one may be forking while it is killed.
        pids = self.pids()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return not pids

    def inside(self, function: Callable[[], Result]) -> Result:
        """What a function returns, or raises, that runs inside."""
        found: concurrent.futures.Future[Result] = (
            concurrent.futures.Future())

        def enter() -> None:
            # A namespace is a property of the thread: this one ends here.
            try:
                _enter(self.path)
                found.set_result(function())
            except BaseException as exc:
                found.set_exception(exc)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        return found.result()

    def connect(self, address: str, port: int,
                timeout: float) -> socket.socket:
        """A TCP connection made inside, usable from outside.

        Raises OSError as socket.create_connection() does.
        """
        return self.inside(
            lambda: socket.create_connection((address, port), timeout))


def _enter(path: pathlib.Path) -> None:
    """Move this thread into a network namespace."""
    fd = os.open(path, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(fd, _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(fd)
