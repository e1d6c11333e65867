# SPDX-License-Identifier: Apache-2.0
"""tools/record: a run of tools/demo as a picture that moves.

Made here because of what there is for it termtosvg is no longer kept,
svg-term needs Node.js, and termsvg is a download of its own; all of them store
whole screens.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import pty
import subprocess
import sys
from collections.abc import Sequence

from lab import animation, entry, recording
from lab.errors import LabError
from lab.show import WIDTH
from lab.virtualenv import CHECKOUT

_PROGRAM = 'tools/record'
_DEMO = 'tools/demo'
LOG = CHECKOUT / 'doc/results/demo.cast'
PICTURE = CHECKOUT / 'doc/source/images/demo.svg'
# In seconds.
_PAUSE = 1.0
_PROMPT = recording.Event(0.0, f'# {_DEMO}\r\n')
_TITLE = (f'A run of {_DEMO}. Pauses are cut to {_PAUSE:g} s; the seconds at '
          'the right are real.')


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description=f'Run {_DEMO}, record it in '
        f'{LOG.relative_to(CHECKOUT)} (asciicast v2), and make '
        f'{PICTURE.relative_to(CHECKOUT)} of that. A run that fails leaves '
        'both as they were.')
    parser.add_argument('--again', action='store_true',
                        help='run nothing: make the picture of the record '
                        'that is there')
    return parser.parse_args()


def picture(log: str) -> str:
    """The picture of a record; ValueError if that is none."""
    events = recording.shorten(recording.load(log), _PAUSE)
    return animation.draw(recording.lines([_PROMPT, *events]), _TITLE, WIDTH)


def run(command: Sequence[str | pathlib.Path]) -> list[recording.Event]:
    """What a command has written to its terminal; LabError if it failed."""
    master, slave = pty.openpty()
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                 stdout=slave)
    finally:
        os.close(slave)
    found = []
    try:
        for event in recording.record(master):
            sys.stdout.write(event.text.replace('\r\n', '\n'))
            sys.stdout.flush()
            found.append(event)
    finally:
        if sys.exc_info()[0]:
            child.terminate()
        child.wait()
        os.close(master)
    if child.returncode:
        raise LabError(f'{command[0]} ended with {child.returncode}; nothing '
                       'was changed')
    return found


def _record(args: argparse.Namespace) -> int:
    if not args.again:
        log = recording.dump(run([CHECKOUT / _DEMO]), _DEMO, WIDTH,
                             animation.ROWS)
        # Before it is kept: it may have what cannot be drawn.
        picture(log)
        LOG.write_text(log)
    PICTURE.write_text(picture(LOG.read_text()))
    return 0


def main() -> int:
    """The command's exit status."""
    args = _arguments()
    return entry.guard(_PROGRAM, lambda: _record(args))


if __name__ == '__main__':
    sys.exit(main())
