# SPDX-License-Identifier: Apache-2.0
"""Measurements in a lab; each returns samples, or figures made of them."""
from __future__ import annotations

import contextlib
import dataclasses
import re
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from lab import figures
from lab.figures import Aim, Figure, Load
from lab.lab import Lab, LabNode
from lab.processes import wait_for
from lab.show import Hydration, expect

_GROUP = 'cinder-volumes'
_SCRATCH = 'bench-scratch'
# Seconds of a load, and of one look at a hydration.
_WINDOW = 2
_LOAD = 3
# How long one write takes, in ms.
_WRITE = '''
import mmap, os, sys, time
block = mmap.mmap(-1, 4096)
device = os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
begin = time.monotonic()
os.pwrite(device, block, 0)
print((time.monotonic() - begin) * 1000)
'''


@dataclasses.dataclass(frozen=True)
class Place:
    """A volume attached on a node; ``lv`` is the uuid of its LV there."""

    volume: str
    node: LabNode
    attachment: str
    device: str
    seconds: float

    @property
    def lv(self) -> str:
        return self.device[-36:]

    def status(self) -> Hydration | None:
        """How far it is; None when there is no clone."""
        return Hydration.of(self.node, self.lv)


class Bench:
    """Measures in ``lab``, which nobody else uses meanwhile."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        # LVs that a volume has had.
        self._copies: dict[str, set[str]] = {}

    # What is needed by all

    def attach(self, volume: str, number: int,
               server: str | None = None) -> Place:
        """Attach a volume on a node (from 1)."""
        attachment = self._lab.reserve(volume, server)
        begin = time.monotonic()
        info = self._lab.connect(attachment, number)
        return self._place(volume, number, attachment, info,
                           time.monotonic() - begin)

    def _place(self, volume: str, number: int, attachment: str,
               info: dict[str, Any], seconds: float) -> Place:
        self._lab.complete(attachment)
        place = Place(volume, self._lab.nodes[number - 1], attachment,
                      info['device_path'], seconds)
        self._copies.setdefault(volume, {volume}).add(place.lv)
        return place

    def detach(self, place: Place) -> None:
        """Detach a volume and wait until that is done."""
        self._lab.detach_volume(place.attachment)
        self._lab.wait_volume(place.volume, 'available')

    def settle(self, place: Place) -> None:
        """Wait until a relocation has left nothing but the volume."""
        def settled() -> bool:
            rows = self._lab.sql('SELECT provider_id FROM volumes WHERE '
                                 f"id = '{place.volume}'")
            return 'from=' not in rows[0][0] and not any(
                self._has(node, lv) for node, lv in before)
        before = [(node, lv) for node in self._lab.nodes
                  for lv in self._copies.pop(place.volume, ())
                  if lv != place.lv]
        wait_for('the end of the relocation', settled, 600, 0.5)
        self._copies[place.volume] = {place.lv}

    def _has(self, node: LabNode, lv: str) -> bool:
        """Whether a node has an LV."""
        return node.run(['test', '-e', f'/dev/{_GROUP}/volume-{lv}'],
                        check=False).code == 0

    @contextlib.contextmanager
    def _paused(self, node: LabNode) -> Iterator[Callable[[], None]]:
        """Stop cinder-volume of a node, until the function is called.

        It must not end a hydration while something else is measured.
        """
        pids = ' '.join(map(str, node.volume.pids()))
        node.run(f'kill -STOP {pids}')
        try:
            yield lambda: node.run(f'kill -CONT {pids}') and None
        finally:
            node.run(f'kill -CONT {pids}')

    # Hydration against dd; stall at the swap

    def relocation(self, place: Place, pairs: int,
                   samples: dict[str, list[float]]) -> None:
        """Measure on a volume that has just been attached elsewhere."""
        node = place.node
        with self._paused(node) as go_on:
            expect(place.status(), f'{place.device} does not hydrate')
            node.run(f'lvcreate --quiet --yes -n {_SCRATCH} -L 1g {_GROUP}')
            try:
                for number in range(pairs):
                    self._pair(place, number, samples)
            finally:
                node.run(f'lvremove --quiet --yes {_GROUP}/{_SCRATCH}')
            self._message(place, 'enable_hydration')
            wait_for('hydration', lambda: self._full(place), 600, 0.3)
            seconds, load = self._load_until(
                place, lambda: place.status() is None, after=go_on)
        samples['with'].append(load.longest)
        self.settle(place)
        end = time.monotonic() + seconds
        load = self._load_until(place, lambda: time.monotonic() > end)[1]
        samples['without'].append(load.longest)

    def _full(self, place: Place) -> bool:
        status = place.status()
        return status is not None and status.complete

    def _message(self, place: Place, message: str) -> None:
        place.node.run(
            f'dmsetup message dmclone-clone-{place.lv} 0 {message}')

    def _pair(self, place: Place, number: int,
              samples: dict[str, list[float]]) -> None:
        """dd from the source's disk, then the clone, each for a while."""
        node, clone = place.node, f'dmclone-clone-{place.lv}'
        self._message(place, 'disable_hydration')
        path = node.run(f'dmsetup table dmclone-source-{place.lv}').stdout
        match = re.search(r' (\d+:\d+) 1', path)
        expect(match, f'no path in {path}')
        assert match
        mib = 192
        copied = node.run(
            f'dd if=/dev/block/{match[1]} of=/dev/{_GROUP}/{_SCRATCH} bs=1M '
            f'count={mib} skip={number * mib} seek={number * mib} '
            'iflag=direct oflag=direct')
        out = node.run(
            f'look() {{ dmsetup status --noflush {clone}; date +%s.%N; }}; '
            f'look; dmsetup message {clone} 0 enable_hydration; '
            f'sleep {_WINDOW}; look').stdout.splitlines()
        before, after = Hydration.parse(out[0]), Hydration.parse(out[2])
        expect(before and after and not after.complete,
               'hydration ended while it was measured')
        assert before and after
        done = (after.done - before.done) * after.region / (1 << 20)
        samples['dd'].append(mib / figures.dd_seconds(copied.stderr))
        samples['hydration'].append(done / (float(out[3]) - float(out[1])))

    # Loads

    def _fio(self, path: str, seconds: int) -> list[str]:
        return ['fio', '--name=load', f'--filename={path}', '--direct=1',
                '--rw=randwrite', '--bs=4k', '--ioengine=psync',
                '--norandommap', '--time_based', f'--runtime={seconds}',
                '--thread', '--output-format=json']

    def _load_until(self, place: Place, done: Callable[[], bool],
                    after: Callable[[], None] = lambda: None
                    ) -> tuple[float, Load]:
        """Write until ``done``; seconds that took, and the load."""
        node, begin = place.node, time.monotonic()
        with node.popen(self._fio(place.device, 300)) as load:
            wait_for('fio', lambda: node.run('pgrep -x fio',
                                             check=False).stdout, 30)
            after()
            wait_for('the load', lambda: done() or load.poll(), 300, 0.5)
            # It prints its figures when it is interrupted.
            node.run('pkill -INT -x fio', check=False)
            result = load.wait()
        return time.monotonic() - begin, Load.parse(result.stdout)

    def against_bare(self, place: Place, pairs: int) -> Figure:
        """4 KiB random writes through the device and on the bare LV."""
        samples: dict[str, list[float]] = {'device': [], 'bare': []}
        paths = {'device': place.device,
                 'bare': f'/dev/{_GROUP}/volume-{place.lv}'}
        for number in range(pairs):
            # Which one is first alternates.
            for name in sorted(paths, reverse=bool(number % 2)):
                result = place.node.run(self._fio(paths[name], _LOAD))
                samples[name].append(Load.parse(result.stdout).rate)
        return figures.ratio('4 KiB random writes against the bare LV',
                             'device', 'bare', samples, 'writes/s',
                             Aim(0.97))

    # Time to attach

    def attach_times(self, sizes: tuple[int, int], times: int) -> Figure:
        """How long a large volume takes to attach elsewhere, by a small."""
        names = [f'{size} GiB' for size in sizes]
        samples: dict[str, list[float]] = {name: [] for name in names}
        for _ in range(times):
            for name, size in zip(names, sizes):
                volume = self._lab.create_volume(size, node=1)
                place = self.attach(volume, 2)
                self._message(place, 'disable_hydration')
                samples[name].append(place.seconds)
                self.detach(place)
                self._lab.delete_volume(volume)
        return figures.ratio('attach elsewhere, large by small', names[1],
                             names[0], samples, 's', Aim(1.1, most=True))

    # Live migration

    def first_writes(self, times: int) -> Figure:
        """The write that moves a volume whose server was live-migrated."""
        samples: dict[str, list[float]] = {'first': [], 'next': []}
        server = str(uuid.uuid4())
        volume = self._lab.create_volume(1, node=1)
        place = self.attach(volume, 1, server)
        for number in range(times):
            with place.node.hold(place.device):
                there = self._follow(place, 2 - number % 2, server)
                with there.node.hold(there.device):
                    for name in samples:
                        samples[name].append(self._write(there))
            self._lab.detach_volume(place.attachment)
            place = there
            self.settle(place)
        self.detach(place)
        self._lab.delete_volume(volume)
        first, following = map(statistics.median, samples.values())
        return Figure('first write after a live migration', first, 'ms',
                      f'the next one {figures.number(following)} ms; worst '
                      f'{figures.number(max(samples["first"]))} ms',
                      Aim(300, most=True), samples)

    def _follow(self, place: Place, number: int, server: str) -> Place:
        begin = time.monotonic()
        attachment, info = self._lab.attach_at_once(place.volume, number,
                                                    server)
        return self._place(place.volume, number, attachment, info,
                           time.monotonic() - begin)

    def _write(self, place: Place) -> float:
        return float(place.node.run(
            ['python3', '-c', _WRITE, place.device]).stdout)
