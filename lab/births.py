# SPDX-License-Identifier: Apache-2.0
"""How long snapshots, and volumes made of others, take by their size."""
from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lab import figures
from lab.figures import Aim, Figure
from lab.lab import Lab
from lab.measure import Bench, undisturbed
from lab.node import Size

# Of the volumes, in GiB; what is on disk of them is what was written, hardly
# anything.
SMALL, LARGE = 1, 1024
SIZE = Size(memory_mib=1024, disk_gib=8 * LARGE)
SNAPSHOT, USED = 'snapshot', 'snapshot of a volume in use'
OF_SNAPSHOT, CLONE = 'volume from a snapshot', 'clone'
WHAT = (SNAPSHOT, USED, OF_SNAPSHOT, CLONE)
_AIM = Aim(1.1, most=True)

# Seconds of each of WHAT, by the size.
Samples = dict[str, dict[str, list[float]]]


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """The figures; quickly, of volumes that are less large."""
    sizes = (SMALL, 64 if quick else LARGE)
    lab.unlimited()
    births = Births(lab)
    for number in range(times):
        # What is first changes from round to round.
        for gib in sizes[::-1] if number % 2 else sizes:
            say(f'{gib} GiB, {number + 1} of {times}')
            with undisturbed(lab):
                births.run(gib)
    return made_of(births.samples, *map(_called, sizes))


class Births:
    """Measures in ``lab``, which nobody else uses meanwhile."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._bench = Bench(lab)
        self.samples: Samples = {what: {} for what in WHAT}

    def run(self, gib: int) -> None:
        """Measure all once with a volume of so many GiB."""
        lab = self._lab

        def timed(what: str, make: Callable[[], str]) -> str:
            begin = time.monotonic()
            made = make()
            self.samples[what].setdefault(_called(gib), []).append(
                time.monotonic() - begin)
            return made

        def born(what: str, **source: Any) -> None:
            with undisturbed(lab):
                lab.delete_volume(timed(
                    what, lambda: lab.create_volume(gib, 1, **source)))

        volume = lab.create_volume(gib, node=1)
        snapshot = timed(SNAPSHOT, lambda: lab.create_snapshot(volume))
        born(OF_SNAPSHOT, snapshot_id=snapshot)
        born(CLONE, source_volid=volume)
        lab.delete_snapshot(snapshot)
        at = self._bench.attach(volume, 1)
        with at.node.hold(at.path):
            used = timed(USED, lambda: lab.create_snapshot(volume))
        self._bench.detach(at)
        lab.delete_snapshot(used)
        lab.delete_volume(volume)


def _called(gib: int) -> str:
    return f'{gib} GiB'


def made_of(samples: Samples, small: str, large: str) -> list[Figure]:
    """How much longer each takes of a large volume."""
    return [figures.ratio(what, large, small, found, 's', _AIM)
            for what, found in samples.items()]
