# SPDX-License-Identifier: Apache-2.0
"""Whether what services use grows for ever.

A sample is taken after some steps. A service that was started again is
another one. The first samples of each do not count: caches fill.
"""
from __future__ import annotations

import dataclasses
import statistics
import typing
from collections.abc import Iterable, Sequence

if typing.TYPE_CHECKING:
    from lab.lab import LabNode

# Samples of one life that do not count, and those that must be left.
WARM_UP = 5
LEAST = 9

# Arguments: the service's pid file. Of it and of what runs as root for it.
_SCRIPT = r'''
pid=$(cat "$1" 2>/dev/null) || exit 0
memory=0 files=0
for one in $(pgrep -s "$pid"; pgrep -f "[p]rivsep-helper"); do
    set -- $(awk '/^VmRSS/ { print $2 }' "/proc/$one/status" 2>/dev/null) 0
    memory=$((memory + $1))
    files=$((files + $(ls "/proc/$one/fd" 2>/dev/null | wc -l)))
done
archive=$(ls /etc/lvm/archive 2>/dev/null | wc -l)
echo "$pid $memory $files $archive"
'''


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a node's service used after a step.

    :ivar life: its process, which changes when it is started again
    :ivar memory: in KiB
    :ivar files: how many it has open
    :ivar archive: files of LVM's archive
    :ivar log: bytes that it has logged, in all
    """

    step: int
    node: str
    life: int
    memory: int
    files: int
    archive: int
    log: int


@dataclasses.dataclass(frozen=True)
class Limit:
    """How much more may be used at the end than after the beginning.

    :ivar ratio: as a multiple
    :ivar slack: and this much beside
    """

    ratio: float
    slack: float


# Of a life: of the last third of its samples against the first.
LIMITS = {'memory': Limit(1.1, 8 << 10), 'files': Limit(1.1, 16)}
# In all: files of LVM's archive, and what a step costs of the log.
ARCHIVE = 4
LOG = Limit(2.5, 64 << 10)


def take(step: int, node: LabNode) -> Sample | None:
    """Look at a node; None if its service does not run."""
    found = node.run(['sh', '-c', _SCRIPT, 'sh',
                      '/run/cinder-volume.pid']).stdout.split()
    if len(found) < 4:
        return None
    life, memory, files, archive = map(int, found)
    return Sample(step, node.name, life, memory, files, archive,
                  node.volume.log.stat().st_size)


def verdict(samples: Iterable[Sample]) -> list[str]:
    """What grows, in words."""
    nodes: dict[str, list[Sample]] = {}
    for sample in samples:
        nodes.setdefault(sample.node, []).append(sample)
    return [text for of_node in nodes.values() for text in (
        *_lives(of_node), *_archive(of_node), *_log(of_node))]


def _lives(samples: Sequence[Sample]) -> typing.Iterator[str]:
    lives: dict[int, list[Sample]] = {}
    for sample in samples:
        lives.setdefault(sample.life, []).append(sample)
    for life in lives.values():
        for what, limit in LIMITS.items():
            values = [float(getattr(sample, what)) for sample in life]
            yield from _grown(samples[0].node, what, values, limit)


def _grown(node: str, what: str, values: Sequence[float],
           limit: Limit) -> typing.Iterator[str]:
    """Compare the last third with the first, after the warm-up."""
    values = values[WARM_UP:]
    if len(values) < LEAST:
        return
    third = len(values) // 3
    first = statistics.median(values[:third])
    last = statistics.median(values[-third:])
    if last > first * limit.ratio + limit.slack:
        yield f'{node}: {what} grew from {first:.0f} to {last:.0f}'


def _archive(samples: Sequence[Sample]) -> typing.Iterator[str]:
    first, last = samples[0].archive, samples[-1].archive
    if last > first + ARCHIVE:
        yield f'{samples[0].node}: LVM\'s archive grew from {first} to {last}'


def _log(samples: Sequence[Sample]) -> typing.Iterator[str]:
    """What steps cost must not become more."""
    values = [(after.log - before.log) / (after.step - before.step)
              for before, after in zip(samples, samples[1:])]
    yield from _grown(samples[0].node, 'log of a step', values, LOG)


def table(samples: Sequence[Sample]) -> list[str]:
    """Lines for a person: each node at its first and last sample."""
    lines = [f'{"node":<7}{"step":>6}{"MiB":>7}{"files":>7}{"archive":>9}'
             f'{"log, KiB":>10}']
    for node in dict.fromkeys(sample.node for sample in samples):
        mine = [sample for sample in samples if sample.node == node]
        lines += [f'{node:<7}{one.step:>6}{one.memory >> 10:>7}'
                  f'{one.files:>7}{one.archive:>9}{one.log >> 10:>10}'
                  for one in (mine[0], mine[-1])]
    return lines
