# SPDX-License-Identifier: Apache-2.0
"""Processes of a lab: started in groups, found again from disk, ended."""
from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import subprocess
import time
import typing
from collections.abc import Callable, Mapping, Sequence

from lab.errors import CommandError, LabError

# What asks a program to end; a terminal, a shell, a supervisor sends it.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# prctl(2)
_SET_CHILD_SUBREAPER = 36
_T = typing.TypeVar('_T')
_watches: list[Callable[[], object]] = []


def run(*argv: str, check: bool = True, input: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 600) -> subprocess.CompletedProcess[str]:
    """Run a command of the host and return its output as text.

    Raises CommandError if it fails (unless ``check`` is false).
    """
    result = subprocess.run(
        argv, input=input, env=env, timeout=timeout, text=True,
        stdin=subprocess.DEVNULL if input is None else None,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if check and result.returncode:
        raise CommandError(' '.join(argv), result.returncode,
                           result.stderr or result.stdout)
    return result


def wait_for(what: str, condition: Callable[[], _T],
             timeout: float = 600, interval: float = 0.1) -> _T:
    """Return the first true value of ``condition()``.

    Raises LabError after ``timeout`` seconds, or what look_out() raises.
    """
    deadline = time.monotonic() + timeout
    while True:
        # A machine that stood still gets one more look.
        late = time.monotonic() > deadline
        value = condition()
        if value:
            return value
        look_out()
        if late:
            raise LabError(f'{what}: not within {timeout:.0f} s')
        time.sleep(interval)


def watch(check: Callable[[], object]) -> None:
    """Let whoever waits call this often; it raises LabError to end that."""
    _watches.append(check)


def unwatch(check: Callable[[], object]) -> None:
    """Undo watch()."""
    if check in _watches:
        _watches.remove(check)


def look_out() -> None:
    """Raise LabError if something is known that makes waiting vain."""
    for check in list(_watches):
        check()


def _stat(pid: int | str) -> list[str] | None:
    """Fields of /proc/PID/stat from the third (state) on."""
    try:
        text = pathlib.Path('/proc', str(pid), 'stat').read_text()
    except (OSError, UnicodeDecodeError):
        return None
    return text.rpartition(')')[2].split()


def _alive(stat: list[str]) -> bool:
    # A process with a dead first thread still has its sockets while other
    # threads end.
    return stat[0] not in 'ZX' or int(stat[17]) > 1


def alive(pid: int) -> bool:
    """Whether there is the process, and not only its exit status."""
    stat = _stat(pid)
    return stat is not None and _alive(stat)


def adopt() -> None:
    """Become the parent of descendants whose own parent has ended."""
    if ctypes.CDLL(None, use_errno=True).prctl(
            _SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def wait_as_parent(child: subprocess.Popen[str]) -> None:
    """Wait for the only child that was started, and bury adopted ones."""
    try:
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            if ended is None or ended.si_pid == child.pid:
                break
            os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        # Another thread has ended them all.
        pass
    child.wait()


def descendants() -> list[int]:
    """Living processes that this one has started, and theirs.

    In whatever session.  Those whose parent has ended count after adopt().
    """
    children: dict[int, list[int]] = {}
    for entry in filter(str.isdigit, os.listdir('/proc')):
        stat = _stat(entry)
        if stat and _alive(stat):
            children.setdefault(int(stat[1]), []).append(int(entry))
    found: list[int] = []
    below = children.get(os.getpid(), [])
    while below:
        found += below
        below = [pid for parent in below for pid in children.get(parent, [])]
    return found


def end_descendants(grace: float) -> None:
    """Ask all descendants to end, kill them after ``grace`` seconds.

    Nobody may wait for a child any more.
    """
    _signal(signal.SIGTERM)
    try:
        wait_for('end', _none_left, grace, 0.05)
    except LabError:
        def killed() -> bool:
            # Again and again: one may be forking while it is killed.
            _signal(signal.SIGKILL)
            return _none_left()
        wait_for('end of all processes that were started', killed)


def _signal(number: int) -> None:
    for pid in descendants():
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def _none_left() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    return not descendants()


class Group:
    """One process group (its leader and all it started), kept in a file.

    The file holds the leader's pid and start time, so that the group can be
    ended by another process later without ever hitting a stranger that got
    the same number.
    """

    def __init__(self, pid_file: pathlib.Path) -> None:
        self.pid_file = pid_file
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self, argv: Sequence[str], log: pathlib.Path,
              env: Mapping[str, str] | None = None,
              cwd: pathlib.Path = pathlib.Path('/')) -> None:
        """Start a group leader whose output is appended to ``log``.

        :param cwd: not the checkout, which others than root may not enter
        """
        with log.open('ab') as out:
            self._popen = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, env=env, cwd=cwd,
                start_new_session=True)
        stat = _stat(self._popen.pid)
        started = stat[19] if stat else '0'
        self.pid_file.write_text(f'{self._popen.pid} {started}\n')

    def leader(self) -> int | None:
        """The leader's pid, if it is alive."""
        pid, started = self._recorded()
        stat = _stat(pid) if pid else None
        if stat and stat[19] == started and _alive(stat):
            return pid
        return None

    def _recorded(self) -> tuple[int, str]:
        try:
            pid, started = self.pid_file.read_text().split()
        except (OSError, ValueError):
            return 0, ''
        return int(pid), started

    def _reap(self) -> None:
        if self._popen is not None:
            self._popen.poll()

    def members(self) -> list[int]:
        """Pids of the group that are alive."""
        self._reap()
        pid, started = self._recorded()
        if not pid:
            return []
        stat = _stat(pid)
        if stat and stat[19] != started:
            return []
        found = []
        for entry in os.listdir('/proc'):
            if not entry.isdigit():
                continue
            fields = _stat(entry)
            if (fields and _alive(fields) and int(fields[2]) == pid
                    and int(fields[19]) >= int(started)):
                found.append(int(entry))
        return found

    def signal(self, number: int) -> None:
        """Send a signal to the group, if it is ours and alive."""
        if self.members():
            try:
                os.killpg(self._recorded()[0], number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        """kill -9 the group and wait until none of it is left."""
        self.signal(signal.SIGKILL)
        wait_for(f'end of {self.pid_file.stem}',
                 lambda: not self.members(), interval=0.02)
        self._reap()
        self.pid_file.unlink(missing_ok=True)

    def terminate(self, timeout: float = 300) -> None:
        """Ask the leader to end, kill the group if it does not.

        A database that is killed has lost its last second.
        """
        pid = self.leader()
        if pid:
            os.kill(pid, signal.SIGTERM)
            try:
                wait_for('end', lambda: not self.members(), timeout, 0.05)
            except LabError:
                pass
        self.kill()
