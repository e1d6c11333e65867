# SPDX-License-Identifier: Apache-2.0
"""Statements by kind, those on which the server spends most time first."""
from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from lab.figures import number
from lab.fleet import Statement

# A kind is cut after so many characters.
_WIDTH = 62


@dataclasses.dataclass(frozen=True)
class Kind:
    """Statements that differ in values only, or hardly.

    :ivar share: of the server's time for all statements, of any kind
    :ivar seconds: of all its calls
    :ivar waited: of these, until it had its locks
    :ivar rows: examined, by all calls
    :ivar most: examined, by one call
    """

    name: str
    share: float
    calls: int
    seconds: float
    waited: float
    rows: int
    most: int

    def __str__(self) -> str:
        locked = self.waited / self.seconds if self.seconds else 0.0
        return (f'{self.share:>7.1%}{self.calls:>7}'
                f'{number(1000 * self.seconds / self.calls):>8}'
                f'{number(self.rows / self.calls):>7}{self.most:>7}'
                f'{locked:>7.1%}  {self.name}')


HEADING = (f'{"rank":>4}{"time":>7}{"calls":>7}{"ms":>8}{"rows":>7}{"most":>7}'
           f'{"locks":>7}')


def name(shape: str) -> str:
    """What a statement does, in a line: ``Statement.shape`` without columns.

    How many values are in a list is left out.
    """
    shape = ' '.join(shape.split()).replace('IN (?)', 'IN (?..)')
    if found := re.match(r'UPDATE (\w+) SET (.*?) WHERE ', shape):
        columns = re.findall(r'(\w+)=', found[2])
        return _cut(f'UPDATE {found[1]} SET {", ".join(columns)}')
    if found := re.match(r'SELECT .* FROM (\w+) WHERE (.*)', shape):
        condition = found[2].replace(f'{found[1]}.', '')
        return _cut(f'SELECT {found[1]} WHERE {condition}')
    return _cut(shape)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[:_WIDTH - 2] + '..'


def rank(statements: Iterable[Statement]) -> list[Kind]:
    """All kinds, the one with most time first."""
    kinds: dict[str, list[Statement]] = {}
    for one in statements:
        kinds.setdefault(name(one.shape), []).append(one)
    total = sum(one.seconds for found in kinds.values() for one in found)
    found = [Kind(
        kind, sum(one.seconds for one in found) / total if total else 0.0,
        len(found), sum(one.seconds for one in found),
        sum(one.waited for one in found), sum(one.examined for one in found),
        max(one.examined for one in found))
        for kind, found in kinds.items()]
    return sorted(found, key=lambda kind: -kind.seconds)


def table(kinds: Sequence[Kind], most: int) -> list[str]:
    """The first kinds as lines for a person, the rest as one."""
    lines = [HEADING, *(f'{place:>4}{kind}' for place, kind
                        in enumerate(kinds[:most], 1))]
    rest = kinds[most:]
    if rest:
        lines.append(f'{"":>4}' + str(Kind(
            f'{len(rest)} others', sum(kind.share for kind in rest),
            sum(kind.calls for kind in rest),
            sum(kind.seconds for kind in rest),
            sum(kind.waited for kind in rest),
            sum(kind.rows for kind in rest),
            max(kind.most for kind in rest))))
    return lines
