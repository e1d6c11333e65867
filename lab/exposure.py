# SPDX-License-Identifier: Apache-2.0
"""How long a volume that was attached elsewhere is on two nodes.

The loss of either costs data meanwhile. It begins with the request to attach
and ends when the old copy is released. The load of the volume's server is
told by what its disk can do: 100 % never pauses, 50 % is half of its rate.
"""
from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence

from lab import chart, figures, fio
from lab.attached import AttachedVolume
from lab.figures import Aim, Figure
from lab.lab import Lab
from lab.measure import AREA, Bench

# Percent of what the disk can do.
LOADS = (0, 50, 100)
# Who shares fairly gives the copying half.
_AIM = Aim(2, most=True)
_LIMITS = ('the kernel, which copies only while none of the server\'s I/O is '
           'under way, and the floor, beyond which the service does not press '
           'it')
# Seconds in which the disk shows what it can do.
_TRIAL = 3
_GIB = float(1 << 30)
_NOT_ENDED = 'not ended: from what was copied'


@dataclasses.dataclass(frozen=True)
class Window:
    """One exposure.

    :ivar seconds: from the request until its end, or until it was given up
    :ivar gib: copied meanwhile
    :ivar rate: the server's writes a second; 0 if it had no load
    :ivar ended: whether it was complete
    """

    seconds: float
    gib: float
    rate: float
    ended: bool

    @property
    def per_gib(self) -> float:
        """Seconds for a GiB; infinite if nothing was copied."""
        return self.seconds / self.gib if self.gib > 0 else math.inf


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """The figures; a window is given up after a minute or five a GiB."""
    gib = 1 if quick else 4
    return Exposure(lab, gib, (60 if quick else 300) * gib).run(times, say)


class Exposure:
    """Measures with a volume of ``gib`` GiB, each for ``limit`` seconds."""

    def __init__(self, lab: Lab, gib: int, limit: float) -> None:
        self._lab = lab
        self._bench = Bench(lab)
        self._gib = gib
        self._limit = limit

    def run(self, times: int, say: Callable[[str], object]) -> list[Figure]:
        """The figures of so many rounds."""
        windows: dict[int, list[Window]] = {load: [] for load in LOADS}
        volume, at = self._bench.filled(self._gib)
        for number in range(times):
            full = self._full_rate(at)
            # What is first changes from round to round.
            for load in LOADS if number % 2 == 0 else LOADS[::-1]:
                say(f'exposure at {load} %, {number + 1} of {times}')
                at, window = self._window(at, load, full)
                windows[load].append(window)
        self._bench.detach(at)
        self._lab.delete_volume(volume)
        return made_of(windows, self._gib)

    def _full_rate(self, at: AttachedVolume) -> float:
        """Writes a second of a server that never pauses, at rest."""
        self._bench.fill_area(at)
        found = at.node.run(fio.command(
            at.path, *fio.DEEP, *fio.for_seconds(_TRIAL), f'--size={AREA}'))
        return fio.Load.parse(found.stdout).rate

    def _window(self, at: AttachedVolume, load: int, full: float
                ) -> tuple[AttachedVolume, Window]:
        """Attach elsewhere under a load; nothing is copied before that."""
        bench, there = self._bench, 3 - at.node.number
        bench.detach(at)
        begin = time.monotonic()
        with bench.braked(there):
            at = bench.attach(at.volume, there)
            attach = time.monotonic() - begin
        bench.fill_area(at)
        missing = _missing(at)
        if not load:
            took, ended = self._copied(at, lambda: False)
            window = Window(attach + took, missing - _missing(at), 0, ended)
        else:
            words = fio.command(
                at.path, *fio.DEEP, f'--size={AREA}',
                # It is ended when it is not needed any more.
                *fio.for_seconds(self._limit + 600),
                *([f'--rate_iops={max(1, round(full * load / 100))}']
                  if load < 100 else []))
            with fio.Running(at.node, words) as running:
                took, ended = self._copied(at, running.ended)
                copied = missing - _missing(at)
                window = Window(attach + took, copied, running.end().rate,
                                ended)
        bench.settle(at)
        return at, window

    def _copied(self, at: AttachedVolume, lost: Callable[[], bool]
                ) -> tuple[float, bool]:
        """Let it copy; seconds until the end, and whether it came."""
        begin = time.monotonic()
        self._bench.release(at)
        while not self._bench.settled(at):
            took = time.monotonic() - begin
            if took > self._limit or lost():
                return took, False
            time.sleep(0.5)
        return time.monotonic() - begin, True


def _missing(at: AttachedVolume) -> float:
    """GiB that are not here yet."""
    status = at.status()
    return (status.size - status.copied) / _GIB if status else 0.0


def made_of(windows: dict[int, list[Window]], gib: int) -> list[Figure]:
    """The table's lines: each load, and each against none."""
    found = [_line(load, windows[load], gib) for load in windows]
    samples = {_name(load): [window.per_gib for window in windows[load]]
               for load in windows}
    idle = _name(0)
    return found + [
        figures.ratio(f'exposure, {_name(load)} by none', _name(load), idle,
                      {key: samples[key] for key in (_name(load), idle)},
                      's', _AIM, _LIMITS)
        for load in windows if load]


def _name(load: int) -> str:
    return f'{load} % load'


def _line(load: int, windows: Sequence[Window], gib: int) -> Figure:
    seconds = [window.per_gib for window in windows]
    ended = sum(window.ended for window in windows)
    words = [f'{figures.span(seconds)}, of {gib} GiB']
    if ended < len(windows):
        words.append(f'{len(windows) - ended} of {len(windows)} {_NOT_ENDED}')
    if load:
        rate = statistics.median(window.rate for window in windows)
        words.append(f'{figures.number(rate)} writes a second')
    return Figure(
        f'exposure of a GiB, {_name(load)}', statistics.median(seconds), 's',
        '; '.join(words), samples={
            f'load {load}': seconds,
            'ended': [float(window.ended) for window in windows],
            'writes': [window.rate for window in windows]})


def draw(found: Sequence[Figure], title: str) -> str:
    """The picture of the figures, an SVG."""
    points: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for figure in found:
        for name, samples in figure.samples.items():
            if name.startswith('load '):
                for seconds, ended in zip(samples, figure.samples['ended']):
                    points[bool(ended)].append((float(name[5:]), seconds))
    return chart.curves(
        [chart.Curve('until the old copy is gone', points[True]),
         chart.Curve(_NOT_ENDED, points[False])], title,
        chart.Axis('load of the server, percent of its disk'),
        chart.Axis('seconds on two nodes, for a GiB', log=True))
