# SPDX-License-Identifier: Apache-2.0
"""A volume hydrates while its server writes: both rates, and what waits."""
from __future__ import annotations

import contextlib
import statistics
import time

from lab import figures, fio
from lab.attached import AttachedVolume
from lab.figures import Aim, Figure
from lab.fio import Load
from lab.lab import Lab
from lab.measure import AREA, Bench, copying
from lab.show import expect

_SECONDS = 10
# So long the service may take to see what hydrates, and to find how much has
# to be under way; and how long the rate is looked at after that.
_SETTLES, _LOOK = 4, 5
# What servers do meanwhile: with pauses of less than a millisecond, and with
# none.
LOADS = {
    '1000 writes/s': (*fio.SYNC, '--rate_iops=1000'),
    'writes at depth 1': fio.SYNC,
    'writes at depth 32': fio.DEEP,
}
# How it hydrates: by the kernel alone, or with the service at work and so
# many MiB a second as its floor.
ALONE = 'alone'
FLOORS = {'floor 10': 10, 'floor 50': 50}
_RATE_LIMITS = ('the kernel, which begins a copy only while no write is under '
                'way')
_LATE_LIMITS = ('copies that a write meets and waits for; the least takes as '
                'long as several writes')


def measure(bench: Bench, lab: Lab, times: int) -> list[Figure]:
    """Rates of hydration beside loads, and what their writes take."""
    ways = [ALONE, *FLOORS]
    rates: dict[str, dict[str, list[float]]] = {
        load: {way: [] for way in ways} for load in LOADS}
    took: dict[str, dict[str, list[Load]]] = {
        load: {way: [] for way in ways} for load in LOADS}
    volume, at = bench.filled(12)
    for number in range(times):
        bench.detach(at)
        at = bench.attach(volume, 2 - number % 2)
        bench.fill_area(at)
        for load in LOADS:
            # Which one is first changes.
            turn = number % len(ways)
            for way in ways[turn:] + ways[:turn]:
                rate, found = _beside(bench, lab, at, load, way)
                rates[load][way].append(rate)
                took[load][way].append(found)
        bench.settle(at)
    bench.detach(at)
    lab.delete_volume(volume)
    return [figure for load in LOADS for way in FLOORS
            for figure in _figures(load, way, rates[load], took[load])]


def _beside(bench: Bench, lab: Lab, at: AttachedVolume, load: str,
            way: str) -> tuple[float, Load]:
    node = at.node
    words = (*LOADS[load], *fio.for_seconds(_SECONDS), f'--size={AREA}')
    with contextlib.ExitStack() as stack:
        if way == ALONE:
            stack.enter_context(bench.paused(node))
            expect(at.widen(), f'{at.path} does not hydrate')
        else:
            node.volume.choose(dmclone_hydration_floor_mib=FLOORS[way])
            node.volume.reread()
        running = stack.enter_context(
            fio.Running(node, fio.command(at.path, *words)))
        time.sleep(_SETTLES)
        rate = copying(at.node, at.clone, seconds=_LOOK)
        return rate, running.wait()


def _figures(load: str, way: str, rates: dict[str, list[float]],
             took: dict[str, list[Load]]) -> list[Figure]:
    rate = statistics.median(rates[way])
    alone = figures.number(statistics.median(rates[ALONE]))
    return [
        Figure(f'hydration beside {load}, {way}', rate, 'MiB/s',
               f'by the kernel alone {alone} MiB/s; least '
               f'{figures.number(min(rates[way]))}', Aim(FLOORS[way]),
               {key: rates[key] for key in (way, ALONE)},
               limits=_RATE_LIMITS),
        figures.ratio(f'half of {load} within, {way}', way, ALONE,
                      {key: [one.typical for one in took[key]]
                       for key in (way, ALONE)}, 'ms'),
        figures.ratio(f'99 % of {load} within, {way}', way, ALONE,
                      {key: [one.late for one in took[key]]
                       for key in (way, ALONE)}, 'ms',
                      Aim(2, most=True), _LATE_LIMITS)]
