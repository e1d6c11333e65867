# SPDX-License-Identifier: Apache-2.0
"""Many small volumes that move at once, beside a large one."""
from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lab import figures, fio
from lab.attached import AttachedVolume
from lab.figures import Aim, Figure
from lab.lab import Lab
from lab.measure import Bench, copying, scratch, source_disk
from lab.peers import alternating
from lab.processes import wait_for
from lab.show import expect

# How many of a GiB, and so the size of the large one.
COUNT, _QUICK_COUNT = 8, 2
# Of a look at many, which do not all begin at once; and before it.
_SECONDS, _QUICK_SECONDS, _BEGIN = 8.0, 3.0, 2.0
_RATES = ('hydration', 'best', 'one by fio', 'all by fio')


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """How fast many arrive, against the best copy, and a large one."""
    count = _QUICK_COUNT if quick else COUNT
    seconds = _QUICK_SECONDS if quick else _SECONDS
    lab.unlimited()
    bench = Bench(lab)
    say('filling the volumes')
    many, large = f'{count} of 1 GiB', f'1 of {count} GiB'
    volumes = {many: [bench.filled(1)[1] for _ in range(count)],
               large: [bench.filled(count)[1]]}
    rates: dict[str, list[float]] = {name: [] for name in _RATES}
    took: dict[str, list[float]] = {name: [] for name in volumes}
    for number in range(times):
        for name in alternating(list(volumes), number):
            say(f'{name}, {number + 1} of {times}')
            moved = volumes[name] = _moved(bench, volumes[name])
            if name == many:
                _copy(moved, rates, seconds)
            begin = time.monotonic()
            for at in moved:
                at.widen()
            if name == many:
                time.sleep(_BEGIN)
                rates['hydration'].append(copying(
                    moved[0].node, *(at.clone for at in moved),
                    seconds=seconds))
            for at in moved:
                bench.settle(at)
            took[name].append(time.monotonic() - begin)
    return [figures.ratio(f'hydration of {count} against the best copy',
                          'hydration', 'best', rates, 'MiB/s', Aim(0.95)),
            figures.ratio('until nothing needs the other node', many, large,
                          took, 's')]


def _moved(bench: Bench, volumes: Sequence[AttachedVolume]
           ) -> list[AttachedVolume]:
    """Attach volumes on the other node, where they copy nothing yet."""
    found = []
    for old in volumes:
        bench.detach(old)
        at = bench.attach(old.volume, 3 - old.node.number)
        expect(at.brake(), f'{at.path} does not hydrate')
        wait_for('a pause of the copying', lambda: _rests(at))
        found.append(at)
    return found


def _rests(at: AttachedVolume) -> bool:
    """Whether nothing is under way."""
    status = at.status()
    return status is not None and not status.hydrating


def _copy(volumes: Sequence[AttachedVolume], rates: dict[str, list[float]],
          seconds: float) -> None:
    """Copy by fio what the volumes come from: of one, and of all."""
    node = volumes[0].node
    with scratch(node, len(volumes)) as targets:
        pairs = list(zip(map(source_disk, volumes), targets))
        found = [fio.copied(node.run(fio.copy(some, seconds)).stdout)
                 for some in (pairs[:1], pairs)]
    for name, rate in zip(('one by fio', 'all by fio'), found):
        rates[name].append(rate)
    rates['best'].append(max(found))
