# SPDX-License-Identifier: Apache-2.0
"""Processes that use Cinder's database at the same time.

The module is both ends: Crew starts itself with the lab's Python, where one
process imports Cinder and forks the others, each with connections of its own.
"""
from __future__ import annotations

import importlib
import json
import multiprocessing
import pathlib
import select
import subprocess
import sys
import traceback
import typing

from lab.errors import LabError
from lab.services import environment
from lab.virtualenv import CHECKOUT

if typing.TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.synchronize import Barrier
    from multiprocessing.synchronize import Event

# What a process does (as JSON), and what came of it. Those that are ``beside``
# do it until all others have ended.
Task = dict[str, typing.Any]
Result = dict[str, typing.Any]

# So many connections go around: consecutive transactions of one process are
# on different nodes of a cluster, as those of cinder-volume's threads are.
CONNECTIONS = 3


class Crew:
    """A process that runs tasks side by side, each in a fork."""

    def __init__(self, venv: pathlib.Path, url: str,
                 log: pathlib.Path) -> None:
        self._log = log
        conf = log.with_suffix('.conf')
        # Messages to schedulers and volume managers go nowhere.
        conf.write_text('[DEFAULT]\ntransport_url = fake:/\n'
                        'service_down_time = 86400\n'
                        f'[database]\nconnection = {url}\n')
        with log.open('ab') as out:
            self._popen = subprocess.Popen(
                ['setpriv', '--pdeathsig', 'KILL', str(venv / 'bin/python'),
                 '-W', 'ignore', '-m', 'lab.crew', str(conf)],
                cwd=CHECKOUT,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out,
                env=environment(HOME=str(log.parent)), text=True)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *error: object) -> None:
        self._popen.kill()
        self._popen.communicate()

    def begin(self, tasks: list[Task]) -> None:
        """Start tasks: all begin when the last is ready."""
        assert self._popen.stdin
        self._popen.stdin.write(json.dumps(tasks) + '\n')
        self._popen.stdin.flush()

    def answered(self) -> bool:
        """Whether results() would not have to wait."""
        assert self._popen.stdout
        return bool(select.select([self._popen.stdout], [], [], 0)[0])

    def results(self) -> list[Result]:
        """Wait for the tasks; what each returned.

        :raises LabError: if one failed
        """
        assert self._popen.stdout
        line = self._popen.stdout.readline()
        if not line:
            raise LabError(f'the workers ended: {self._log.read_text()}')
        found = json.loads(line)
        for result in found:
            if 'failed' in result:
                raise LabError(result['failed'])
        return found

    def run(self, tasks: list[Task]) -> list[Result]:
        """begin() and results()."""
        self.begin(tasks)
        return self.results()


def _configure(conf: str) -> None:
    from cinder import objects
    # Registers options, which is refused once a configuration was parsed.
    objects.register_all()
    from cinder import rpc
    from oslo_config import cfg
    from sqlalchemy import orm
    cfg.CONF(['--config-file', conf], project='cinder')
    rpc.init(cfg.CONF)
    # Once, rather than in every fork.
    orm.configure_mappers()


def _child(task: Task, start: Start, answer: Connection) -> None:
    try:
        module, _, name = task['do'].partition(':')
        work = getattr(importlib.import_module(module), name)
        answer.send(work(task, start))
    except BaseException:
        start.abort()
        answer.send({'failed': traceback.format_exc()})


class Start:
    """Connects a process to the database, then waits for the others.

    :ivar over: set when all have ended but those that are ``beside``
    """

    def __init__(self, barrier: Barrier, over: Event) -> None:
        self._barrier = barrier
        self.over = over
        self.deadlocks = 0

    def abort(self) -> None:
        """Let those fail that wait for this process."""
        self._barrier.abort()

    def __call__(self) -> None:
        import sqlalchemy as sa

        from cinder_dmclone.releases import db_api
        engine = db_api.get_engine()
        sa.event.listen(engine, 'handle_error', self._count)
        held = [engine.connect() for _ in range(CONNECTIONS)]
        for one in held:
            one.close()
        self._barrier.wait(300)

    def _count(self, context: typing.Any) -> None:
        if context.original_exception.args[:1] == (1213,):
            self.deadlocks += 1


def main() -> None:
    """Run what comes in, a list of tasks a line, until there is no more."""
    _configure(sys.argv[1])
    fork = multiprocessing.get_context('fork')
    for line in sys.stdin:
        tasks = json.loads(line)
        barrier, over = fork.Barrier(len(tasks)), fork.Event()
        # Last come those that wait for the others.
        places = sorted(range(len(tasks)),
                        key=lambda place: bool(tasks[place].get('beside')))
        ends = {}
        for place in places:
            mine, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=_child, daemon=True,
                                   args=(tasks[place], Start(barrier, over),
                                         theirs))
            process.start()
            theirs.close()
            ends[place] = process, mine
        found = {}
        for place in places:
            process, mine = ends[place]
            if tasks[place].get('beside'):
                over.set()
            try:
                found[place] = mine.recv()
            except EOFError:
                found[place] = {'failed': 'a worker was killed'}
            process.join()
        print(json.dumps([found[place] for place in range(len(tasks))]),
              flush=True)


if __name__ == '__main__':
    main()
