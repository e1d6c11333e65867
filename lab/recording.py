# SPDX-License-Identifier: Apache-2.0
"""What a terminal has shown, and when: an asciicast v2 file.

The format, https://docs.asciinema.org/manual/asciicast/v2/, is that of
asciinema, which plays it. The screen here knows the control characters that
``lab.show`` uses, and refuses others.
"""
from __future__ import annotations

import bisect
import codecs
import dataclasses
import itertools
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence

_BOLD, _PLAIN = '\033[1m', '\033[0m'
_TOKEN = re.compile(r'\r|\n|\033\[[01]m|[^\x00-\x1f\x7f]+')


@dataclasses.dataclass(frozen=True)
class Event:
    """What was written ``at`` so many seconds after the beginning."""

    at: float
    text: str


@dataclasses.dataclass(frozen=True)
class Version:
    """What a line says from a moment on."""

    at: float
    text: str
    bold: bool = False


Line = list[Version]


def record(file: int) -> Iterator[Event]:
    """Read the master of a pseudo-terminal until its slave is closed."""
    decode = codecs.getincrementaldecoder('utf-8')().decode
    begin = time.monotonic()
    while True:
        try:
            found = os.read(file, 65536)
        except OSError:
            # EIO: nobody has the slave any more.
            return
        if not found:
            return
        yield Event(time.monotonic() - begin, decode(found))


def dump(events: Iterable[Event], title: str, width: int,
         height: int) -> str:
    """The file."""
    header = {'version': 2, 'width': width, 'height': height, 'title': title}
    rows = ([round(event.at, 3), 'o', event.text] for event in events)
    return ''.join(f'{json.dumps(row)}\n'
                   for row in itertools.chain([header], rows))


def load(text: str) -> list[Event]:
    """What was written, from a file; ValueError if it is none."""
    header, *rows = map(json.loads, text.splitlines() or ['{}'])
    if header.get('version') != 2:
        raise ValueError('this is no asciicast v2')
    return [Event(at, what) for at, kind, what in rows if kind == 'o']


def shorten(events: Sequence[Event], longest: float) -> list[Event]:
    """The same with no pause longer than so many seconds."""
    at = before = 0.0
    found = []
    for event in events:
        at += min(event.at - before, longest)
        before = event.at
        found.append(Event(at, event.text))
    return found


def lines(events: Sequence[Event]) -> list[Line]:
    """Each line of a screen without an end, with all that it has said.

    ValueError names a control character that is not known.
    """
    # One text: a control sequence may have been read in two parts.
    text = ''.join(event.text for event in events)
    ends = list(itertools.accumulate(len(event.text) for event in events))
    found: list[Line] = [[]]
    row, column, bold, done = '', 0, False, 0
    for token in _TOKEN.finditer(text):
        if token.start() != done:
            break
        done = token.end()
        word = token[0]
        if word == '\n':
            found.append([])
            row, column = '', 0
        elif word == '\r':
            column = 0
        elif word in (_BOLD, _PLAIN):
            bold = word == _BOLD
        else:
            row = row[:column] + word + row[column + len(word):]
            column += len(word)
            at = events[bisect.bisect_left(ends, done)].at
            _say(found[-1], Version(at, row, bold))
    if done != len(text):
        raise ValueError(f'{text[done:done + 8]!r} is not known here')
    while found and not found[-1]:
        found.pop()
    return found


def _say(line: Line, version: Version) -> None:
    if line and line[-1].at == version.at:
        line.pop()
    if not line or line[-1].text != version.text:
        line.append(version)
