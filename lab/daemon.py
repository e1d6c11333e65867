# SPDX-License-Identifier: Apache-2.0
"""A service of OpenStack in a node: started, watched and ended."""
from __future__ import annotations

import pathlib
import re

from lab.errors import LabError
from lab.node import Node
from lab.processes import look_out, wait_for

# The leader of a session of its own, so that all the service's processes
# (but not its privileged helpers, which see it go) can be found and killed.
_START = '''
pid=$1 log=$2 venv=$3 home=$4; shift 4
cd "$home"
rm -f "$pid"
export PATH="$venv/bin:$PATH" HOME="$home"
setsid sh -c 'echo $$ >"$0"; exec "$@"' "$pid" "$@" \\
    </dev/null >>"$log" 2>&1 &
until [ -s "$pid" ]; do sleep 0.05; done
'''


class Daemon:
    """One service of one node."""

    # Its name, its directory, what it logs last when it starts and what if
    # it never will.
    program = ''
    home = ''
    up = ''
    failed: str | None = None

    def __init__(self, node: Node, venv: pathlib.Path) -> None:
        self.log = node.directory / f'{self.program}.log'
        # What messages call it.
        self.title = f'{self.program} on {node.name}'
        self._node = node
        self._venv = venv
        self._pid = f'/run/{self.program}.pid'
        self._log_start = 0

    def command(self) -> list[str]:
        """The command line."""
        raise NotImplementedError

    def install(self) -> None:
        """Write what a package and its operator put on a node."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Do what has to be done before each start."""

    def start(self, wait: bool = False) -> None:
        """Start the service; wait_up() tells when it works."""
        if self.running():
            raise LabError(f'{self.program} runs on {self._node.name}')
        self.prepare()
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._node.run(['sh', '-c', _START, 'sh', self._pid, str(self.log),
                        str(self._venv), self.home, *self.command()])
        if wait:
            self.wait_up()

    def pids(self) -> list[int]:
        """The service's processes in the node."""
        result = self._node.run(
            f'test ! -e {self._pid} || pgrep -s "$(cat {self._pid})"',
            check=False)
        # 1: there is none.
        if result.code > 1:
            raise LabError(f'{self.title}: {result.stderr.strip()}')
        return [int(pid) for pid in result.stdout.split()]

    def running(self) -> bool:
        """Whether a process of the service is alive."""
        return bool(self.pids())

    def assert_running(self) -> None:
        """Raise LabError with what the log shows if it has ended."""
        if not self.running():
            # If the kernel has killed it, the log does not show it.
            look_out()
            raise LabError(f'{self.title} ended: {self.errors()}')

    def wait_up(self, timeout: float = 600) -> None:
        """Wait until the service is initialized and listens.

        LabError says what the log shows if it ends or cannot.
        """
        def up() -> bool:
            log = self.new_log()
            if self.failed and self.failed in log:
                raise LabError(f'{self.title}: the driver failed to '
                               f'initialize: {self.errors()}')
            if self.up in log:
                return True
            self.assert_running()
            return False
        wait_for(f'{self.title} to be up (see {self.log})', up, timeout, 0.5)

    def new_log(self) -> str:
        """What the service logged since start()."""
        with self.log.open('rb') as file:
            file.seek(self._log_start)
            return file.read().decode(errors='replace')

    def errors(self) -> str:
        """The last error logged since start(), without its traceback."""
        found = re.findall(r' (?:ERROR|CRITICAL) \S+ \[.*', self.new_log())
        return found[-1].strip() if found else f'see {self.log}'

    def stop(self) -> None:
        """SIGTERM the service and wait for its end."""
        self._signal('TERM')

    def kill(self) -> None:
        """kill -9 every process of the service at once."""
        self._signal('KILL')

    def reread(self) -> None:
        """Have it read its configuration again, as far as it can."""
        self._node.run(f'pkill -HUP -F {self._pid}')

    def pause(self) -> None:
        """Let none of its processes do anything until resume()."""
        self._node.run(f'pkill -STOP -s "$(cat {self._pid})"')

    def resume(self) -> None:
        """Undo pause()."""
        self._node.run(f'pkill -CONT -s "$(cat {self._pid})"', check=False)

    def _signal(self, name: str) -> None:
        # TERM goes to the leader, which ends its workers itself.
        pid = self._pid
        who = f'-s "$(cat {pid})"' if name == 'KILL' else f'-F {pid}'
        self._node.run(f'test ! -e {pid} || pkill -{name} {who}',
                       check=False)
        wait_for(f'end of {self.title}', lambda: not self.running())
