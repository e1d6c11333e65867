# SPDX-License-Identifier: Apache-2.0
"""How long the writes of a server take while its volume moves, over time.

The server is live-migrated, so it writes before and after: its volume is
attached elsewhere, hydrates and is swapped, and a snapshot is made of it, by
which it is cut and hydrates once more.
"""
from __future__ import annotations

import bisect
import statistics
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence

from lab import chart, figures, fio
from lab.attached import AttachedVolume
from lab.figures import Aim, Figure
from lab.lab import Lab, LabNode
from lab.measure import Bench, ahead
from lab.processes import wait_for

# From the end of a write to the next, in microseconds. A rate would have
# those that waited followed by many at once, which are typical of nothing.
PAUSE = 2000
# Seconds of a point of the picture.
_BUCKET = 0.25
# Seconds in which nothing happens, before, between and behind.
_CALM, _QUICK_CALM = 10, 4
# Seconds before and behind a swap that are told as that: it is noticed later;
# and of the log's clock.
_BEFORE, _BEHIND, _TICK = 3.0, 1.0, 0.001
_LOG = '/var/tmp/bench-latency'
_REST = 'at rest'
# In ms; what no server may notice.
_AIMS = {'attach': Aim(100, most=True), 'swap': Aim(20, most=True),
         'snapshot': Aim(100, most=True),
         'swap of the cut': Aim(20, most=True)}
_LIMITS = {
    'attach': 'the control plane, which the first write on the new node waits '
              'for',
    'swap': 'a flush of the volume and a change of tables, while which '
            'writes wait',
    'snapshot': 'a flush of the volume and a change of tables, while which '
                'writes wait',
    'swap of the cut': 'a flush of the volume and a change of tables, while '
                       'which writes wait'}
# When a write ended, and how long it took: seconds and ms.
Write = tuple[float, float]


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """The figures; the picture is of the first round."""
    bench = Timeline(lab, _QUICK_CALM if quick else _CALM)
    rounds = []
    for number in range(times):
        say(f'latency, {number + 1} of {times}')
        rounds.append(bench.round())
    return made_of(rounds)


class Timeline:
    """Measures in ``lab``; nothing happens for ``calm`` seconds each time."""

    def __init__(self, lab: Lab, calm: float) -> None:
        self._lab = lab
        self._bench = Bench(lab)
        self._calm = calm
        self._events: dict[str, float] = {}

    def round(self) -> tuple[list[Write], dict[str, float]]:
        """All writes, and when what happened; in seconds of one clock."""
        lab, server = self._lab, str(uuid.uuid4())
        self._events = {}
        volume, at = self._bench.filled(1)
        self._bench.detach(at)
        at = self._bench.attach(volume, 1, server)
        with self._running(at) as load:
            time.sleep(self._calm)
            self._event('attach')
            there = lab.attach_at_once(volume, 2, server)
            lab.complete(there.id)
            # As QEMU does, whose guest does not run any more.
            with at.node.hold(at.path):
                load.end()
                writes = self._writes(at.node)
                running = self._running(there)
                wait_for('the first write', lambda: running.ended() or (
                    self._column(volume, 'host').startswith(
                        f'{there.node.name}@')), 300, 0.1)
        with running as load:
            lab.detach_volume(at.id)
            self._copied(volume)
            self._event('swap')
            time.sleep(self._calm)
            snapshot = self._snapshot(volume)
            self._copied(volume)
            self._event('swap of the cut')
            time.sleep(self._calm)
            load.end()
        after = self._writes(there.node)
        # Its first write is what moves it.
        self._events['moved'] = after[0][0]
        writes += after
        self._end(volume, snapshot, there)
        begin = writes[0][0]
        return ([(at - begin, took) for at, took in writes],
                {name: at - begin for name, at in self._events.items()})

    def _event(self, name: str) -> None:
        self._events[name] = time.time()

    @staticmethod
    def _running(at: AttachedVolume) -> fio.Running:
        return fio.Running(at.node, fio.command(
            at.path, *fio.SYNC, *fio.for_seconds(3600),
            f'--thinktime={PAUSE}', f'--write_lat_log={_LOG}',
            '--per_job_logs=0', '--log_unix_epoch=1'))

    def _copied(self, volume: str) -> None:
        """Wait until a volume depends on no other LV."""
        wait_for('the end of the hydration', lambda: 'from=' not in (
            self._column(volume, 'provider_id')), 600, 0.1)

    def _column(self, volume: str, name: str) -> str:
        """What the database says; the node, whose writes are timed, is not
        asked.
        """
        found = self._lab.sql(
            f"SELECT {name} FROM volumes WHERE id = '{volume}'")
        return str(found[0][0])

    def _snapshot(self, volume: str) -> str:
        self._event('snapshot')
        snapshot = self._lab.create_snapshot(volume)
        self._event('cut')
        return snapshot

    def _end(self, volume: str, snapshot: str, at: AttachedVolume) -> None:
        self._lab.delete_snapshot(snapshot)
        self._bench.detach(at)
        self._lab.delete_volume(volume)

    def _writes(self, node: LabNode) -> list[Write]:
        """What the load on a node has logged, by the clock of here."""
        lead = ahead(node)
        text = node.run(f'cat {_LOG}_lat.log; rm {_LOG}_*.log').stdout
        return [(at - lead, took) for at, took in parse(text)]


def parse(log: str) -> Iterator[Write]:
    """The lines of a log of latencies: ms since the epoch, ns, and more."""
    for line in log.splitlines():
        at, took, *_ = line.split(',')
        yield int(at) / 1e3, int(took) / 1e6


def phases(writes: Sequence[Write], events: Mapping[str, float]
           ) -> dict[str, list[float]]:
    """What writes took, in ms, by what was going on when they ended.

    :param events: when it was asked for the attachment, when the first write
        on the new node ended, and so on
    """
    swap, cut = events['swap'], events['swap of the cut']
    begins = [
        (_REST, 0.0), ('attach', events['attach']),
        ('hydration', events['moved'] + _TICK),
        ('swap', swap - _BEFORE), (_REST, swap + _BEHIND),
        ('snapshot', events['snapshot']),
        ('hydration of the cut', events['cut']),
        ('swap of the cut', cut - _BEFORE), (_REST, cut + _BEHIND)]
    # What is short is within what surrounds it.
    for number in range(1, len(begins)):
        name, begin = begins[number]
        begins[number] = name, max(begin, begins[number - 1][1])
    found: dict[str, list[float]] = {name: [] for name, _ in begins}
    places = [begin for _, begin in begins]
    for at, took in writes:
        name, _ = begins[max(0, bisect.bisect_right(places, at) - 1)]
        found[name].append(took)
    return found


def buckets(writes: Sequence[Write]) -> dict[str, list[float]]:
    """The median and the longest of what ended in each quarter second."""
    grouped: dict[int, list[float]] = {}
    for at, took in writes:
        grouped.setdefault(int(at / _BUCKET), []).append(took)
    return {'seconds': [number * _BUCKET for number in sorted(grouped)],
            'typical': [statistics.median(grouped[number])
                        for number in sorted(grouped)],
            'longest': [max(grouped[number]) for number in sorted(grouped)]}


def made_of(rounds: Sequence[tuple[list[Write], dict[str, float]]]
            ) -> list[Figure]:
    """Of each phase the longest write, and the typical one by one at rest."""
    found: list[Figure] = []
    each = [phases(*one) for one in rounds]
    rest = [statistics.median(one[_REST]) for one in each]
    for name in each[0]:
        took = [one[name] for one in each if one[name]]
        if not took:
            continue
        longest = [max(one) for one in took]
        found.append(Figure(
            f'longest write, {name}', statistics.median(longest), 'ms',
            f'{figures.span(longest)} ms', _AIMS.get(name),
            {'longest': longest}, limits=_LIMITS.get(name, '')))
        if name != _REST and len(took) == len(rounds):
            found.append(figures.ratio(
                f'typical write, {name}', name, _REST,
                {name: list(map(statistics.median, took)), _REST: rest},
                'ms'))
    for number, (writes, events) in enumerate(rounds, 1):
        found.append(Figure(
            f'longest write of all, round {number}',
            max(took for _, took in writes), 'ms', samples={
                **buckets(writes),
                **{f'event {name}': [at] for name, at in events.items()}}))
    return found


def draw(found: Sequence[Figure], title: str) -> str:
    """The picture of the first round, an SVG."""
    samples = next(figure.samples for figure in found
                   if 'seconds' in figure.samples)
    return chart.curves(
        [chart.Curve(name, list(zip(samples['seconds'], samples[name])))
         for name in ('longest', 'typical')],
        title, chart.Axis('seconds'),
        chart.Axis('a 4 KiB write, in ms', log=True),
        [(at, name.removeprefix('event '))
         for name, (at, *_) in samples.items() if name.startswith('event ')])
