# SPDX-License-Identifier: Apache-2.0
"""What some work costs: programs the nodes run, statements they send."""
from __future__ import annotations

import base64
import collections
import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Sequence

from lab.errors import LabError
from lab.lab import Lab
from lab.network import mgmt_address
from lab.processes import wait_for

_FILE = '/run/acct'
_SWITCH = 'import ctypes, sys; sys.exit(ctypes.CDLL(None).acct({}))'
# A program that only measurements run in a node.
_OWN = 'test'
# struct acct in the kernel's include/uapi/linux/acct.h: its size, and where
# the program's name is.
_RECORD = 64
_NAME = slice(36, 53)
# In the first byte: forked, but ran no program.
_AFORK = 1

_HEARTBEAT = re.compile(r'\b(?:FROM|UPDATE|INTO) services\b')
_STATEMENT = re.compile(r'(?:SET STATEMENT .* FOR )?'
                        r'(?:SELECT|INSERT|UPDATE|DELETE)\b(?! 1$)')


def programs(records: bytes) -> collections.Counter[str]:
    """How often which program ran, from the kernel's process accounting.

    Threads, kernel threads and forks that run no program do not count.
    """
    found: collections.Counter[str] = collections.Counter()
    for start in range(0, len(records) - _RECORD + 1, _RECORD):
        record = records[start:start + _RECORD]
        if not record[0] & _AFORK:
            name = record[_NAME].partition(b'\0')[0]
            found[name.decode(errors='replace')] += 1
    return found


@dataclasses.dataclass(frozen=True)
class Statements:
    """SQL statements: those of services reporting that they live, others.

    A report reads its service's row and writes it; who reads services without
    writing is another. What SQLAlchemy adds around them (COMMIT, ROLLBACK,
    SELECT 1) does not count.
    """

    heartbeat: int
    other: int

    @classmethod
    def count(cls, texts: Sequence[str], services: int = 1) -> Statements:
        """
        :param services: how many report; each may be between its two
        """
        real = [text for text in texts if _STATEMENT.match(text.strip())]
        beats = [text for text in real if _HEARTBEAT.search(text)]
        reads = sum(text.strip().startswith('SELECT') for text in beats)
        writes = len(beats) - reads
        heartbeat = writes + min(reads, writes + services)
        return cls(heartbeat, len(real) - heartbeat)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What some work cost on all nodes together."""

    seconds: float
    programs: collections.Counter[str]
    statements: Statements

    @property
    def nothing(self) -> bool:
        """Whether no program ran, and nothing was asked."""
        return not self.programs and not self.statements.other

    def most(self) -> str:
        """The five programs that ran most."""
        return ', '.join(f'{name} {times}' for name, times
                         in self.programs.most_common(5))


@contextlib.contextmanager
def _accounted(lab: Lab, found: collections.Counter[str]) -> Iterator[None]:
    """Add the programs that end meanwhile to ``found``."""
    for node in lab.nodes:
        node.run(f': >{_FILE}')
        node.run(['python3', '-c', _SWITCH.format(f'{_FILE.encode()!r}')])
    try:
        yield
    finally:
        for node in lab.nodes:
            node.run(['python3', '-c', _SWITCH.format(None)])
    for node in lab.nodes:
        text = node.run(['base64', _FILE]).stdout
        ran = programs(base64.b64decode(text))
        # What switched it on, and off.
        ran['python3'] -= 2
        ran.pop(_OWN, None)
        found.update(+ran)


@contextlib.contextmanager
def _logged(lab: Lab, found: list[str]) -> Iterator[None]:
    """Add the statements that the nodes send meanwhile to ``found``."""
    lab.sql("SET GLOBAL log_output = 'TABLE'")
    lab.sql('TRUNCATE mysql.general_log')
    lab.sql('SET GLOBAL general_log = ON')
    try:
        yield
    finally:
        lab.sql('SET GLOBAL general_log = OFF')
    for node in lab.nodes:
        found += [row[0] for row in lab.sql(
            'SELECT CONVERT(argument USING utf8mb4) '
            "FROM mysql.general_log WHERE command_type = 'Query' "
            f"AND user_host LIKE '%[{mgmt_address(node.number)}]'")]


def cost(lab: Lab, work: Callable[[], object]) -> Cost:
    """What all nodes did during ``work``."""
    ran: collections.Counter[str] = collections.Counter()
    sent: list[str] = []
    with _accounted(lab, ran), _logged(lab, sent):
        begin = time.monotonic()
        work()
        seconds = time.monotonic() - begin
    return Cost(seconds, ran, Statements.count(sent, len(lab.nodes)))


def idle(lab: Lab, seconds: float) -> Cost:
    """What all nodes do in so long when nobody wants anything of them.

    Raises LabError if none of them even says that it is alive.
    """
    found = cost(lab, lambda: time.sleep(seconds))
    if not found.statements.heartbeat:
        raise LabError(f'no node has reported for {seconds:g} s')
    return found


def wait_quiet(lab: Lab, seconds: float) -> None:
    """Wait until no node has done anything for so long.

    The driver looks once more when Cinder asks for statistics after a change:
    every minute, unless a lab has it otherwise.
    """
    wait_for('the nodes to be quiet', lambda: idle(lab, seconds).nothing)
