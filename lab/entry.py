# SPDX-License-Identifier: Apache-2.0
"""What the commands that use a lab of their own have in common."""
from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator

from lab import install, logs, remains, virtualenv
from lab.errors import LabError
from lab.processes import ENDING
from lab.show import Failure

if typing.TYPE_CHECKING:
    from lab.lab import Lab


def lab_name(kind: str) -> str:
    """A lab's name that two checkouts do not share."""
    return f'{kind}-{install.digest(str(virtualenv.CHECKOUT).encode())[:6]}'


def interrupt_once() -> None:
    """Let a signal that asks for the end raise KeyboardInterrupt.

    Those that follow are ignored: cleaning up is under way.
    """
    def interrupt(number: int, frame: object) -> None:
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt
    # SIGINT too: a shell starts background jobs with it ignored.
    for number in ENDING:
        signal.signal(number, interrupt)


def guard(program: str, work: Callable[[], int]) -> int:
    """The exit status of ``work``; an error is one line, no traceback.

    No lab stays but one that is to.
    """
    interrupt_once()
    try:
        try:
            return work()
        finally:
            remains.clear()
    except KeyboardInterrupt:
        # It came while nothing more was to be done, or is done already.
        remains.clear()
        print(f'{program}: interrupted', file=sys.stderr)
        return 130
    except Failure as exc:
        print(f'{program}: FAILED: {exc}', file=sys.stderr)
    except (LabError, OSError, subprocess.SubprocessError) as exc:
        print(f'{program}: {exc}', file=sys.stderr)
    return 1


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let cleaning up finish: Ctrl-C does not stop it."""
    before = [signal.signal(number, signal.SIG_IGN) for number in ENDING]
    try:
        yield
    finally:
        for number, handler in zip(ENDING, before):
            signal.signal(number, handler)


@contextlib.contextmanager
def running(lab: Lab) -> Iterator[None]:
    """A lab that is up meanwhile; its logs are kept if something fails."""
    lab.start()
    try:
        yield
    except Exception:
        with undisturbed():
            logs.keep(lab.directory)
        raise
    finally:
        with undisturbed():
            lab.stop()
