# SPDX-License-Identifier: Apache-2.0
"""What the commands that use a lab of their own have in common."""
from __future__ import annotations

import contextlib
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

from lab import install, virtualenv
from lab.errors import LabError
from lab.lab import Lab
from lab.show import Failure


def lab_name(kind: str) -> str:
    """A lab's name that two checkouts do not share."""
    return f'{kind}-{install.digest(str(virtualenv.CHECKOUT).encode())[:6]}'


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def guard(program: str, work: Callable[[], int]) -> int:
    """The exit status of ``work``; an error is one line, no traceback."""
    # SIGINT too: a shell starts background jobs with it ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return work()
    except KeyboardInterrupt:
        print(f'{program}: interrupted', file=sys.stderr)
        return 130
    except Failure as exc:
        print(f'{program}: FAILED: {exc}', file=sys.stderr)
    except (LabError, OSError, subprocess.SubprocessError) as exc:
        print(f'{program}: {exc}', file=sys.stderr)
    return 1


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Let cleaning up finish: a second Ctrl-C does not stop it."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before):
            signal.signal(number, handler)


def keep_logs(lab: Lab) -> None:
    """Save the logs of a lab in which something failed; say where."""
    place = pathlib.Path('/var/tmp', f'dmclone-lab-{lab.name}-logs')
    lab.collect_logs(place)
    print(f'the logs are in {place}', file=sys.stderr)
