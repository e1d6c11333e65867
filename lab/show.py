# SPDX-License-Identifier: Apache-2.0
"""Plain output for people, 79 columns wide."""
from __future__ import annotations

import contextlib
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TextIO

from cinder_dmclone.host.dm.status import CloneStatus
from cinder_dmclone.units import SECTOR

WIDTH = 79
_BAR = 30
_INDENT = '   '
_UUID = re.compile(r'([0-9a-f]{8})(?:--?[0-9a-f]{4}){3}--?[0-9a-f]{12}')


class Failure(Exception):
    """Something was not as it must be; the text is for a person."""


def expect(truth: object, otherwise: str) -> None:
    """Raise Failure with that text unless ``truth``."""
    if not truth:
        raise Failure(otherwise)


def bar(done: int, total: int) -> str:
    """A progress bar; it is full only when all is done."""
    filled = _BAR * done // total if total else _BAR
    return f'[{"#" * filled}{"." * (_BAR - filled)}]'


def percent(done: int, total: int) -> int:
    """Rounded down, so that 100 means all."""
    return 100 * done // total if total else 100


def shorten(text: str, width: int = WIDTH) -> str:
    """A line with its uuids cut to eight digits, cut to ``width``."""
    line = _UUID.sub(r'\1', text)
    return line if len(line) <= width else line[:width - 3] + '...'


def command_lines(prompt: str, argv: Sequence[str]) -> list[str]:
    """A command as one would type it, in lines that a shell continues.

    An option stays on one line with its argument.
    """
    words: list[str] = []
    option = False
    for word in argv:
        if option and not word.startswith('-'):
            words[-1] += f' {shlex.quote(word)}'
        else:
            words.append(shlex.quote(word))
        option = word.startswith('--')
    lines = [prompt]
    for word in words:
        # Room for " \" behind it.
        if lines[-1] != prompt and len(lines[-1]) + len(word) + 3 > (
                WIDTH - len(_INDENT)):
            lines[-1] += ' \\'
            lines.append(f'     {word}')
        else:
            lines[-1] += f' {word}'
    return lines


def progress(clone: CloneStatus) -> str:
    """How far a clone is: a bar with numbers."""
    done, total = int(clone.hydrated), int(clone.total)
    here, everywhere = (count * clone.region_size * SECTOR >> 20
                        for count in (done, total))
    return (f'{bar(done, total)} {percent(done, total):3d} %'
            f'  {here:5d} of {everywhere} MiB')


class Step:
    """A step while it runs; ``result`` is what its last line says."""

    def __init__(self) -> None:
        self.result = 'done'


class Console:
    """Where the output goes; bold and moving only on a terminal."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._count = 0
        self._moving = False
        self._shown = -1

    def line(self, text: str = '', indent: str = '') -> None:
        """One line."""
        if self._moving:
            self._out.write('\n')
            self._moving = False
        self._out.write(f'{indent}{text}'.rstrip() + '\n')
        self._out.flush()

    def detail(self, text: str) -> None:
        """A line of a step."""
        self.line(text, _INDENT)

    def command(self, prompt: str, *argv: str) -> None:
        """A command that is about to run."""
        for line in command_lines(prompt, argv):
            self.detail(line)

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[Step]:
        """A numbered step with its result and its time."""
        self._count += 1
        self._shown = -1
        heading = f'{self._count}. {what}'
        self.line()
        self.line(f'\033[1m{heading}\033[0m' if self._terminal else heading)
        step = Step()
        begin = time.monotonic()
        yield step
        seconds = f'{time.monotonic() - begin:.1f} s'
        room = WIDTH - len(_INDENT) - len(seconds)
        self.detail(f'{f"= {step.result} ":<{room}}{seconds}')

    def progress(self, clone: CloneStatus) -> None:
        """Show a bar: moving, or a line for each further fifth."""
        fifth = percent(clone.hydrated, clone.total) // 20
        if self._terminal:
            self._out.write(f'\r{_INDENT}{progress(clone)}')
            self._out.flush()
            self._moving = True
        elif fifth > self._shown:
            self._shown = fifth
            self.detail(progress(clone))
