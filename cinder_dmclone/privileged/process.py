# SPDX-License-Identifier: Apache-2.0
"""Run a command, never for longer than its time. Only used as root."""

from __future__ import annotations

import dataclasses
import os
import select
import shlex
import signal
import subprocess
import threading
from typing import IO, Sequence

from cinder_dmclone import exceptions

# How long a killed child may take to disappear before it is left alone.
_GRACE_SECONDS = 0.2
_STDERR_LIMIT = 1000


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a command has ended, and what it wrote."""

    status: int
    output: bytes
    errors: bytes


def run(argv: Sequence[str], timeout: float, input: str | None = None) -> str:
    """Run a command and return what it wrote to its standard output.

    At the timeout the command and its children are killed. One that does not
    even die (it waits for a disk in the kernel) is left behind; the caller is
    told in time either way.

    :param timeout: seconds
    :param input: text for its standard input, which is empty otherwise
    :raises CommandFailed: if it could not be started or its status is not 0
    :raises CommandTimeout: if it did not end in time
    """
    done = outcome(argv, timeout, input)
    if done.status:
        raise exceptions.CommandFailed(
            command=shlex.join(argv), code=done.status,
            stderr=done.errors[-_STDERR_LIMIT:].decode(
                errors='replace').strip())
    return done.output.decode(errors='replace')


def outcome(argv: Sequence[str], timeout: float,
            input: str | None = None) -> Outcome:
    """Like ``run``, for commands whose status says too little.

    :raises CommandFailed: if it could not be started
    """
    # Files rather than pipes: nothing has to be pumped, and a daemon that
    # the command leaves behind cannot keep this call waiting for an end of
    # file.
    with _memory_file() as stdin, _memory_file() as stdout, \
            _memory_file() as stderr:
        stdin.write((input or '').encode())
        stdin.seek(0)
        try:
            child = subprocess.Popen(
                argv, stdin=stdin, stdout=stdout, stderr=stderr,
                env=_environment(), start_new_session=True)
        except OSError as error:
            raise exceptions.CommandFailed(
                command=shlex.join(argv), code=127, stderr=error) from error
        if not _ends(child, timeout):
            kill(child)
            raise exceptions.CommandTimeout(
                command=shlex.join(argv), seconds=timeout)
        return Outcome(child.returncode, _content(stdout), _content(stderr))


def _memory_file() -> IO[bytes]:
    return open(os.memfd_create('dmclone'), 'w+b', buffering=0)


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


def _environment() -> dict[str, str]:
    # LVM complains about descriptors that it inherits from nobody's fault,
    # and errors are told by their English text.
    return dict(os.environ, LC_ALL='C', LVM_SUPPRESS_FD_WARNINGS='1',
                PATH=os.environ.get('PATH', '') + ':/usr/sbin:/sbin')


def _ends(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a child; Popen.wait() with a timeout polls up to 50 ms late."""
    pidfd = os.pidfd_open(child.pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        ended = bool(poll.poll(seconds * 1000))
    finally:
        os.close(pidfd)
    if ended:
        child.wait()
    return ended


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kill a child with a session of its own, and what it started.

    One that does not die (it waits in the kernel) is left behind.
    """
    if child.poll() is not None:
        return
    os.killpg(child.pid, signal.SIGKILL)
    if not _ends(child, _GRACE_SECONDS):
        # Reaped whenever it dies.
        threading.Thread(target=child.wait, daemon=True).start()
