# SPDX-License-Identifier: Apache-2.0
"""The lab of a test process: started once, removed whatever happens.

DMCLONE_LAB names a lab that is up already (started with lab.FAULTY_DRIVER)
and is left up. DMCLONE_LONG=1 (tools/test --long) runs every crash point
instead of the most dangerous ones, on volumes of full size, and the tests that
take long for what they show.
"""
from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pathlib
import re
import select
import shutil
import signal
import sys
import threading
from collections.abc import Callable

import testtools

from lab import FAULTY_DRIVER, Lab, logs, remains
from lab.errors import LabError, LabInUse
from lab.lab import LabNode
from lab.look import META_GROUP
from lab.node import Size
from lab.processes import ENDING

LONG = bool(os.environ.get('DMCLONE_LONG'))
_GIVEN = os.environ.get('DMCLONE_LAB')
# What a GiB of Cinder's has in the lab, see lab/faulty.py. Copying and
# comparing takes most of the processor's time, and an eighth shows the same.
FULL_GIB = 1 << 30
GIB = FULL_GIB if LONG or _GIVEN else FULL_GIB >> 3
LOGS = pathlib.Path('/var/tmp/cinder-dmclone-functional')
only_long = testtools.skipUnless(LONG, 'only with tools/test --long')
# How often Cinder asks for statistics; every minute by default.
STATS_SECONDS = 15
# As while an operator goes from one to the other. A service on eventlet wakes
# up a hundred times a second for nothing (wait_interval of oslo.service).
NATIVE = (2, 4)
_LAST_LINES = 15
_TROUBLE = re.compile(r' (WARNING|ERROR|CRITICAL) (?!oslo.privsep)')


@functools.cache
def lab(volatile: bool = False, driver: str = FAULTY_DRIVER,
        nodes: int = 2, metadata: bool = False,
        native: tuple[int, ...] = NATIVE) -> Lab:
    """The lab of this process.

    :param volatile: its disks lose what was not flushed, see lab.disk
    :param metadata: that of clones has a disk of its own
    :param native: numbers of the nodes that do not run on eventlet
    """
    if _GIVEN:
        found = Lab.attach(_GIVEN)
    else:
        kind = 'power' if volatile else 'functional'
        group = {'dmclone_metadata_volume_group': META_GROUP}
        found = start(lambda number: Lab(
            f'{kind}-{number}', nodes, driver=driver, native=native,
            size=Size(volatile=volatile, metadata=metadata),
            backend={'volume_clear': 'none', 'lab_gib': gib(volatile),
                     **(group if metadata else {})},
            default={'rpc_response_timeout': 100,
                     'backend_stats_polling_interval': STATS_SECONDS}))
    return found


def gib(volatile: bool = False) -> int:
    """What a GiB has in a lab.

    A power cut has to find something that is still being copied; a quarter
    is enough for that.
    """
    if _GIVEN:
        return FULL_GIB
    return FULL_GIB >> 2 if volatile else GIB


def start(make: Callable[[int], Lab], number: int = 1) -> Lab:
    """A lab of this process alone; test processes run side by side.

    :param make: gives a lab (not started) a name with a number
    """
    leave_nothing()
    found = make(number)
    try:
        found.start()
    except LabInUse:
        return start(make, number + 1)
    atexit.register(_stop, found)
    return found


def switch_on(found: Lab) -> None:
    """Make the control plane and every node run, and reachable."""
    for service in found.services:
        if not service.running():
            service.start()
    for node in found.nodes:
        if not node.running():
            node.start()
            node.wait_booted()
        node.heal()


@functools.cache
def leave_nothing() -> None:
    """From now on let no end of this process leave anything.

    It also ends with the tools/test that has started it.
    """
    for number in ENDING:
        signal.signal(number, _terminate)
    runner = os.environ.get('DMCLONE_RUNNER')
    if runner:
        threading.Thread(target=_follow, args=(int(runner),),
                         daemon=True).start()


def _follow(runner: int) -> None:
    """Wait for the end of a process, then ask this one to end."""
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(runner)
        select.select([pidfd], [], [])
        os.close(pidfd)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def _terminate(number: int, frame: object) -> None:
    # An exception would be one more failure of the test, whose cleaning up
    # takes minutes.
    remains.become_remover(128 + number)


def _stop(found: Lab) -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    found.stop()


def keep_logs(test: testtools.TestCase, states: str, found: Lab) -> None:
    """Collect what is needed to understand a failure.

    All of it goes to LOGS, the end of it to the test's details.
    """
    place = collect_logs(test.id(), states, found)
    for path in sorted(place.iterdir()):
        lines = path.read_text(errors='replace').splitlines()
        if path.name.endswith('-cinder-volume.log'):
            lines = [line for line in lines if _TROUBLE.search(line)]
        elif not path.name.endswith('-dmesg.txt'):
            continue
        test.addDetail(str(path), testtools.content.text_content(
            '\n'.join(lines[-_LAST_LINES:])))


def collect_logs(name: str, states: str, found: Lab) -> pathlib.Path:
    """Put all logs, and what a checker saw, into a directory of LOGS."""
    place = LOGS / name.removeprefix('tests.functional.')
    shutil.rmtree(place, ignore_errors=True)
    logs.collect(found.directory, place)
    (place / 'state.txt').write_text(states)
    for node in filter(LabNode.running, found.nodes):
        try:
            text = node.run('dmesg', check=False).stdout
        except (LabError, OSError) as error:
            text = repr(error)
        (place / f'{node.name}-dmesg.txt').write_text(text)
    print(f'logs of {name}: {place}', file=sys.stderr)
    return place
