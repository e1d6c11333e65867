# SPDX-License-Identifier: Apache-2.0
"""The results of tools/bench --races, for a person and for a file."""
from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from typing import Any

from lab.figures import number

_WIDE = 42


@dataclasses.dataclass(frozen=True)
class Line:
    """One way in one case; times in seconds."""

    case: str
    way: str
    acquire: list[float]
    release: list[float]
    deadlocks: int
    lost: int
    total: float

    def __str__(self) -> str:
        times = ''.join(
            f'{number(1000 * value):>8}' for step in (
                self.acquire, self.release)
            for value in (statistics.median(step), max(step)))
        return (f'{self.way:<{_WIDE}}{times}{self.deadlocks:>10}'
                f'{self.lost:>6}{self.total:>8.1f}')

    def as_json(self) -> dict[str, Any]:
        """The line for a file."""
        return {**dataclasses.asdict(self), **{
            step: [round(value, 5) for value in getattr(self, step)]
            for step in ('acquire', 'release')}}


@dataclasses.dataclass(frozen=True)
class Stop:
    """What became of a rival while the holder was stopped.

    :ivar waited: in seconds
    :ivar lost: how many changes the holder overwrote
    """

    way: str
    waited: float
    lost: int

    def __str__(self) -> str:
        return f'{self.way:<{_WIDE}}{self.waited:>8.1f}{self.lost:>6}'


@dataclasses.dataclass(frozen=True)
class Table:
    """All results of one database."""

    database: str
    lines: list[Line]
    stops: list[Stop]

    def text(self) -> str:
        """For a person."""
        found = []
        for case in dict.fromkeys(line.case for line in self.lines):
            found += [_heading(f'{self.database}, {case}'),
                      *(str(line) for line in self.lines
                        if line.case == case), '']
        about = f'{self.database}, the holder is stopped'
        found += [f'{about:<{_WIDE}}{"waited":>8}{"lost":>6}',
                  f'{"":<{_WIDE}}{"s":>8}', *map(str, self.stops), '']
        return '\n'.join(found)


def _heading(about: str) -> str:
    return (f'{about:<{_WIDE}}{"acquire":>8}{"most":>8}{"release":>8}'
            f'{"most":>8}{"deadlocks":>10}{"lost":>6}{"total":>8}\n'
            f'{"":<{_WIDE}}{"ms":>8}{"ms":>8}{"ms":>8}{"ms":>8}'
            f'{"":>16}{"s":>8}')


def report(tables: Sequence[Table], **about: Any) -> str:
    """All results as JSON."""
    return json.dumps({**about, 'databases': [
        {'database': table.database,
         'lines': [line.as_json() for line in table.lines],
         'stopped': [dataclasses.asdict(stop) for stop in table.stops]}
        for table in tables]}) + '\n'
