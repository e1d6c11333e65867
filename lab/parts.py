# SPDX-License-Identifier: Apache-2.0
"""Where the time goes that a server waits for the control plane.

The nodes have a driver that notes what it calls and how long that takes (see
lab/faulty.py). Of an attachment elsewhere and of the first write after a live
migration one node has the volume, at first, and the other gets it; one of the
two is asked, and asks the other.
"""
from __future__ import annotations

import collections
import dataclasses
import statistics
import time
import uuid
from collections.abc import (Callable, Iterable, Iterator, Mapping,
                             Sequence)

from lab import figures
from lab.figures import Figure
from lab.lab import Lab, LabNode
from lab.measure import Bench, ahead, undisturbed

LAB = {'driver': 'dmclone_faulty.TimedDriver'}
# As that has it, which needs Cinder.
TIMES = '/run/cinder/dmclone-times'
ATTACH, WRITE = 'attach elsewhere', 'first write after a live migration'
# What takes less is not told by itself, in parts of the whole.
_LEAST = 0.02
_MESSAGES, _REST = 'messages, and Python there', 'all else'
_PEERS = 'peers.'


@dataclasses.dataclass(frozen=True)
class Call:
    """What a node's driver has called.

    :ivar began: seconds of the machine's clock
    :ivar seconds: how long it took
    """

    began: float
    seconds: float
    name: str

    @classmethod
    def of(cls, line: str, lead: float) -> Call:
        """What a node has noted, whose clock is so many seconds ahead."""
        began, seconds, name = line.split(maxsplit=2)
        return cls(float(began) - lead, float(seconds), name)


@dataclasses.dataclass(frozen=True)
class Wait:
    """All of one.

    :ivar asked: calls of the node that asks the other
    :ivar other: calls of that
    """

    seconds: float
    asked: Sequence[Call]
    other: Sequence[Call]

    def parts(self, asks: str, other: str) -> dict[str, float]:
        """Seconds of each, by name; together they are the whole.

        :param asks: what to call the one node
        :param other: and the other
        """
        found: dict[str, float] = collections.defaultdict(float)
        for node, calls in (asks, self.asked), (other, self.other):
            for call in calls:
                if not call.name.startswith(_PEERS):
                    found[f'{call.name}, {node}'] += call.seconds
        there = sum(call.seconds for call in self.other)
        questions = sum(call.seconds for call in self.asked
                        if call.name.startswith(_PEERS))
        found[_MESSAGES] = questions - there
        found[_REST] = self.seconds - sum(found.values())
        return found


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """The figures; less would not be quicker."""
    waits: dict[str, list[Wait]] = {ATTACH: [], WRITE: []}
    stage = _Stage(lab)
    for number in range(times):
        say(f'parts, {number + 1} of {times}')
        with undisturbed(lab):
            stage.round(waits)
    return [*made_of(ATTACH, waits[ATTACH], 'old node', 'new node'),
            *made_of(WRITE, waits[WRITE], 'new node', 'old node')]


class _Stage:
    """Measures in ``lab``, which nobody else uses meanwhile."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._bench = Bench(lab)

    def round(self, waits: Mapping[str, list[Wait]]) -> None:
        """Measure both once, with a new volume."""
        lab, bench, server = self._lab, self._bench, str(uuid.uuid4())
        old, new = lab.nodes
        volume = lab.create_volume(1, node=1)
        attachment = lab.reserve(volume, server)
        self._forget()
        began, begin = time.time(), time.monotonic()
        at = bench.note(lab.connected(attachment, volume, 2))
        took = time.monotonic() - begin
        waits[ATTACH].append(self._wait(began, took, old, new))
        lab.complete(attachment)
        bench.settle(at)
        with bench.migrated(at, 1, server) as at:
            self._forget()
            began, took = bench.timed_write(at)
            waits[WRITE].append(self._wait(began - ahead(at.node), took,
                                           at.node, new))
        bench.detach(at)
        lab.delete_volume(volume)

    def _forget(self) -> None:
        for node in self._lab.nodes:
            node.run(f'rm -f {TIMES}')

    def _wait(self, began: float, seconds: float, asks: LabNode,
              other: LabNode) -> Wait:
        return Wait(seconds, *(
            list(within(self._noted(node), began, seconds))
            for node in (asks, other)))

    @staticmethod
    def _noted(node: LabNode) -> list[Call]:
        lead = ahead(node)
        return [Call.of(line, lead) for line in node.run(
            f'cat {TIMES} || :').stdout.splitlines()]


def within(calls: Iterable[Call], began: float,
           seconds: float) -> Iterator[Call]:
    """What of calls was made in that time."""
    for call in calls:
        first = max(call.began, began)
        left = min(call.began + call.seconds, began + seconds) - first
        if left > 0:
            yield Call(first, left, call.name)


def made_of(what: str, waits: Sequence[Wait], asks: str,
            other: str) -> list[Figure]:
    """How long it takes, and its parts, the longest first.

    :param asks: what to call the node that is asked first
    :param other: and the other
    """
    whole = [wait.seconds * 1000 for wait in waits]
    parts = [wait.parts(asks, other) for wait in waits]
    names = sorted(set().union(*parts))
    took = {name: [1000 * part.get(name, 0.0) for part in parts]
            for name in names}
    middle = {name: statistics.median(took[name]) for name in names}
    told = sorted((name for name in names
                   if middle[name] >= _LEAST * statistics.median(whole)),
                  key=lambda name: -middle[name])
    return [Figure(what, statistics.median(whole), 'ms',
                   figures.span(whole), samples={what: whole}),
            *(Figure(f'  {name}', middle[name], 'ms',
                     samples={name: took[name]}) for name in told)]
