# SPDX-License-Identifier: Apache-2.0
"""What a node with many volumes does when the node that lent them dies.

Node 2 hydrates volumes of node 1 and has lent as many to node 3.
"""
from __future__ import annotations

import concurrent.futures
import re
import statistics
import time
from collections.abc import Callable

from lab import figures, look
from lab.attached import AttachedVolume
from lab.figures import Aim, Figure
from lab.lab import Lab
from lab.processes import wait_for
from lab.show import expect

# Looks at a lender that is away are rarest from the second minute on.
_MINUTE = 60
# Requests that are under way at once while volumes are attached.
_TOGETHER = 6
# The service and what runs as root for it: ticks of each, and of its
# children that have ended (proc(5), stat: utime, stime, cutime, cstime).
_TICKS = (r'for pid in $(pgrep -f "cinder-volume|privsep"); do '
          'cat /proc/$pid/stat; done 2>/dev/null')
_TICK = 0.01

# A path that works, among those of a device (multipath_status, dm-mpath.c).
_PATH = re.compile(r' \d+:\d+ A ')

Samples = dict[str, list[float]]


class Crowd:
    """So many volumes each way in ``lab``, which has three nodes."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._lender, self._node, self._borrower = lab.nodes
        self._hydrating: list[AttachedVolume] = []

    def grow(self, count: int) -> None:
        """Have so many volumes hydrate on node 2, and on node 3."""
        more = count - len(self._hydrating)
        self._lab.unlimited()
        with concurrent.futures.ThreadPoolExecutor(_TOGETHER) as pool:
            found = [pool.submit(self._move, home)
                     for _ in range(more) for home in (1, 2)]
            for each in concurrent.futures.as_completed(found):
                each.result()
        self._hydrating += [each.result() for each in found[::2]]
        for node in (self._node, self._borrower):
            clones = [name for name in look.devices(node)
                      if name.startswith('dmclone-clone-')]
            expect(len(clones) == count,
                   f'{len(clones)} of {count} volumes hydrate on {node.name}')

    def _move(self, home: int) -> AttachedVolume:
        """Have a volume hydrate on the node that follows its home."""
        volume = self._lab.create_volume(1, node=home)
        at = self._lab.attach_volume(volume, home + 1)
        # It must not end, and costs nothing while nobody uses it.
        expect(at.brake(), f'{at.path} does not hydrate')
        return at

    def bring_back(self) -> float:
        """Switch node 1 on again; seconds until there are paths to all."""
        begin = time.monotonic()
        self._lender.start()
        self._lender.wait_booted()
        self._lender.volume.install()
        self._lender.volume.start(wait=True)
        wait_for('the paths to node 1', lambda: not self._pathless(), 600, 1)
        return time.monotonic() - begin

    def _pathless(self) -> list[str]:
        """Sources on node 2 that have no path."""
        status = look.by_device(look.dmsetup(
            self._node, 'status', '--noflush'))
        return [name for name, text in status.items()
                if name.startswith('dmclone-source-')
                and not _PATH.search(text)]

    def away(self, times: int) -> tuple[Samples, Samples]:
        """Attach with node 1 there, then without it.

        :returns: seconds of each attach as usual and with node 1 dead, by
            where the volume is; processor time (s) while node 1 is dead and
            volumes are attached, and of the minute that follows, and reports
            missed meanwhile
        """
        usual = self._attaches(times)
        self._lender.power_cut()
        cost: Samples = {}
        begin = self._reports()
        start = time.monotonic()
        before = self._processor()
        dead = self._attaches(times)
        time.sleep(max(0.0, start + _MINUTE - time.monotonic()))
        cost['attaching'] = [self._processor() - before]
        before = self._processor()
        time.sleep(_MINUTE)
        cost['minute'] = [self._processor() - before]
        due = (time.monotonic() - start) / self._interval()
        cost['missed'] = [max(0.0, due - 1 - (self._reports() - begin))]
        return ({f'usual, {where}': seconds
                 for where, seconds in usual.items()}
                | {f'dead, {where}': seconds
                   for where, seconds in dead.items()}, cost)

    def _attaches(self, times: int) -> Samples:
        samples: Samples = {'at home': [], 'elsewhere': []}
        for _ in range(times):
            for (where, seconds), home in zip(samples.items(), (2, 3)):
                volume = self._lab.create_volume(1, node=home)
                attachment = self._lab.reserve(volume)
                begin = time.monotonic()
                at = self._lab.connected(attachment, volume, 2)
                seconds.append(time.monotonic() - begin)
                self._lab.complete(attachment)
                self._lab.detach_volume(at.id)
                self._lab.wait_volume(volume, 'available')
                self._lab.delete_volume(volume)
        return samples

    def _processor(self) -> float:
        lines = self._node.run(_TICKS, check=False).stdout.splitlines()
        return _TICK * sum(
            int(word) for line in lines
            for word in line.rpartition(')')[2].split()[11:15])

    def _reports(self) -> int:
        return int(self._lab.sql(
            'SELECT report_count FROM services WHERE host = '
            f"'{self._node.volume.host}'")[0][0])

    def _interval(self) -> float:
        """Seconds from one report to the next."""
        found = self._node.run(
            "sed -n 's/^report_interval = //p' /etc/cinder/cinder.conf")
        return float(found.stdout)


def measure(lab: Lab, counts: tuple[int, int], times: int,
            tell: Callable[[str], object]) -> list[Figure]:
    """The figures with a few volumes each way, and with many."""
    crowd = Crowd(lab)
    costs: dict[int, Samples] = {}
    found: list[Figure] = []
    for count in counts:
        tell(f'{count} volumes each way')
        crowd.grow(count)
        tell('node 1 dies')
        samples, costs[count] = crowd.away(times)
        tell('node 1 comes back')
        back = crowd.bring_back()
        found += _attach(count, samples)
        found.append(Figure(
            f'reports missed, {count} volumes', costs[count]['missed'][0],
            aim=Aim(1, most=True)))
        found.append(Figure(f'paths back, {count} volumes', back, 's'))
    few, many = counts
    return found + [
        figures.ratio(f'processor time, {what}, {many} by {few}',
                      str(many), str(few),
                      {str(count): costs[count][key] for count in counts},
                      's', Aim(many / few, most=True))
        for what, key in (('attaching', 'attaching'),
                          ('second minute', 'minute'))]


def _attach(count: int, samples: Samples) -> list[Figure]:
    return [
        Figure(f'attach {where}, lender dead, {count}',
               round(statistics.median(samples[f'dead, {where}'])
                     / statistics.median(samples[f'usual, {where}']), 2),
               note=f'usual {_middle(samples[f"usual, {where}"])} s, dead '
                    f'{_middle(samples[f"dead, {where}"])} s, worst '
                    f'{figures.number(max(samples[f"dead, {where}"]))} s',
               aim=Aim(1.5, most=True),
               samples={key: value for key, value in samples.items()
                        if key.endswith(where)})
        for where in ('at home', 'elsewhere')]


def _middle(samples: list[float]) -> str:
    return figures.number(statistics.median(samples))
