# SPDX-License-Identifier: Apache-2.0
"""Measurements in a lab; each returns samples, or figures made of them."""
from __future__ import annotations

import contextlib
import re
import statistics
import time
import uuid
from collections.abc import Callable, Iterator

from lab import figures, fio, look
from lab.attached import AttachedVolume, clone_status
from lab.figures import Aim, Figure
from lab.fio import Load
from lab.lab import Lab, LabNode
from lab.processes import wait_for
from lab.show import expect

_SCRATCH = 'bench-scratch'
# Seconds of a load, and of a look at a hydration: the usual, and that of one
# that is compared. Rates of two seconds differ by more than twice, and where
# the best of several is taken that is the luckiest.
_LOAD = 3
_WINDOW, LOOK = 2, 8
_CLOCK_LOOKS = 5
# Of what scratch() makes.
_SCRATCH_MIB = 1024
# Bytes that a server writes again and again.
AREA = 64 << 20
# Lets the first clone that appears copy nothing by itself, and says what it
# was allowed to.
_BRAKE = r'''
while :; do
    for clone in $(dmsetup ls | grep -o '^dmclone-clone-[0-9a-f-]*'); do
        was=$(dmsetup status --noflush $clone |
              sed -n 's/.* hydration_threshold \([0-9]*\) .*/\1/p')
        [ "$was" ] && dmsetup message $clone 0 hydration_threshold 0 &&
            echo "$was" && exit
    done
    sleep 0.05
done
'''
_FIRST_LIMITS = ('changing tables on both nodes, each with a wait for what '
                 'is under way, and the messages about it')
_WRITE = '''
import mmap, os, sys, time
block = mmap.mmap(-1, 4096)
device = os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT)
began, begin = time.time(), time.monotonic()
os.pwrite(device, block, 0)
print(began, time.monotonic() - begin)
'''


class Bench:
    """Measures in ``lab``, which nobody else uses meanwhile."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        # LVs that a volume has had.
        self._copies: dict[str, set[str]] = {}
        # What a clone that was braked is allowed to have under way.
        self._brake = ''

    # What is needed by all

    def attach(self, volume: str, number: int,
               server: str | None = None) -> AttachedVolume:
        """Attach a volume on a node (from 1)."""
        return self.note(self._lab.attach_volume(
            volume, number, self._lab.reserve(volume, server)))

    def note(self, at: AttachedVolume) -> AttachedVolume:
        """Remember a volume's LV, which settle() expects to go or to stay."""
        self._copies.setdefault(at.volume, {at.volume}).add(at.lv)
        return at

    def detach(self, at: AttachedVolume) -> None:
        """Detach a volume and wait until that is done."""
        self._lab.detach_volume(at.id)
        self._lab.wait_volume(at.volume, 'available')

    def filled(self, gib: int) -> tuple[str, AttachedVolume]:
        """A volume full of data, at home on node 1, and attached there."""
        volume = self._lab.create_volume(gib, node=1)
        at = self.attach(volume, 1)
        at.node.run(f'dd if=/dev/zero of={at.path} bs=1M '
                    f'count={gib << 10} oflag=direct', timeout=900)
        return volume, at

    def settle(self, at: AttachedVolume) -> None:
        """Wait until a relocation has left nothing but the volume."""
        wait_for('the end of the relocation', lambda: self.settled(at),
                 600, 0.5)

    def settled(self, at: AttachedVolume) -> bool:
        """Whether it has: it is complete, and its old copies are gone."""
        copies = self._copies[at.volume]
        rows = self._lab.sql('SELECT provider_id FROM volumes WHERE '
                             f"id = '{at.volume}'")
        if 'from=' in rows[0][0] or any(
                self._has(node, lv) for node in self._lab.nodes
                for lv in copies - {at.lv}):
            return False
        self._copies[at.volume] = {at.lv}
        return True

    # A relocation that waits

    @contextlib.contextmanager
    def braked(self, number: int) -> Iterator[None]:
        """Let the clone that is made on a node meanwhile copy nothing.

        What servers write still makes it copy; see release().
        """
        node = self._lab.nodes[number - 1]
        with node.popen(['sh', '-c', _BRAKE]) as brake:
            yield
            self._brake = brake.wait().stdout.strip()

    def release(self, at: AttachedVolume) -> None:
        """Let a clone copy that was braked, if it still has to."""
        look.message(at.node, at.clone, 'hydration_threshold', self._brake)

    def _has(self, node: LabNode, lv: str) -> bool:
        """Whether a node has an LV."""
        return node.run(['test', '-e', f'/dev/{look.GROUP}/volume-{lv}'],
                        check=False).code == 0

    @contextlib.contextmanager
    def paused(self, node: LabNode) -> Iterator[Callable[[], None]]:
        """Stop cinder-volume of a node, until the function is called.

        It must not end a hydration while something else is measured.
        """
        pids = ' '.join(map(str, node.volume.pids()))

        def go_on() -> None:
            node.run(f'kill -CONT {pids}')

        node.run(f'kill -STOP {pids}')
        try:
            yield go_on
        finally:
            go_on()

    # Hydration against other copies; stall at the swap

    def relocation(self, at: AttachedVolume, pairs: int,
                   samples: dict[str, list[float]]) -> None:
        """Measure on a volume that has just been attached elsewhere."""
        node = at.node
        with self.paused(node) as go_on:
            expect(at.status(), f'{at.path} does not hydrate')
            with scratch(node) as (target,):
                for number in range(pairs):
                    self._pair(at, target, number, samples)
            self._message(at, 'enable_hydration')
            wait_for('hydration', lambda: self._full(at), 600, 0.3)
            seconds, load = self._load_until(
                at, lambda: at.status() is None, after=go_on)
        samples['with'].append(load.longest)
        self.settle(at)
        end = time.monotonic() + seconds
        load = self._load_until(at, lambda: time.monotonic() > end)[1]
        samples['without'].append(load.longest)

    def _full(self, at: AttachedVolume) -> bool:
        status = at.status()
        return status is not None and status.complete

    def _message(self, at: AttachedVolume, message: str) -> None:
        at.node.run(f'dmsetup message {at.clone} 0 {message}')

    def _pair(self, at: AttachedVolume, target: str, number: int,
              samples: dict[str, list[float]]) -> None:
        """Copy the source's disk by dd and by fio, then let the clone."""
        node = at.node
        self._message(at, 'disable_hydration')
        source = source_disk(at)
        copied = node.run(
            f'dd if={source} of={target} bs=1M count={_SCRATCH_MIB} '
            f'skip={number * _SCRATCH_MIB} iflag=direct oflag=direct')
        dd = _SCRATCH_MIB / figures.dd_seconds(copied.stderr)
        deep = fio.copied(node.run(
            fio.copy([(source, target)], LOOK)).stdout)
        samples['dd'].append(dd)
        samples['fio'].append(deep)
        samples['best'].append(max(dd, deep))
        samples['hydration'].append(copying(node, at.clone, begin=True,
                                            seconds=LOOK))

    # Loads

    def fill_area(self, at: AttachedVolume) -> None:
        """Write where loads write: or they would copy that by writing."""
        at.node.run(f'dd if=/dev/zero of={at.path} bs=1M '
                    f'count={AREA >> 20} oflag=direct')

    def _load_until(self, at: AttachedVolume, done: Callable[[], bool],
                    after: Callable[[], None] = lambda: None
                    ) -> tuple[float, Load]:
        """Write until ``done``; seconds that took, and the load."""
        node, begin = at.node, time.monotonic()
        words = fio.command(at.path, *fio.SYNC, *fio.for_seconds(300))
        with fio.Running(node, words) as load:
            after()
            wait_for('the load', lambda: done() or load.ended(), 300, 0.5)
            return time.monotonic() - begin, load.end()

    def against_bare(self, at: AttachedVolume, pairs: int) -> Figure:
        """4 KiB random writes through the device and on the bare LV."""
        samples: dict[str, list[float]] = {'device': [], 'bare': []}
        paths = {'device': at.path,
                 'bare': f'/dev/{look.GROUP}/volume-{at.lv}'}
        for number in range(pairs):
            # Which one is first alternates.
            for name in sorted(paths, reverse=bool(number % 2)):
                result = at.node.run(fio.command(
                    paths[name], *fio.SYNC, *fio.for_seconds(_LOAD)))
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
                with undisturbed(self._lab):
                    volume = self._lab.create_volume(size, node=1)
                    attachment = self._lab.reserve(volume)
                    begin = time.monotonic()
                    at = self._lab.connected(attachment, volume, 2)
                    samples[name].append(time.monotonic() - begin)
                    self._lab.complete(attachment)
                    self._message(at, 'disable_hydration')
                    self.detach(at)
                    self._lab.delete_volume(volume)
        return figures.ratio('attach elsewhere, large by small', names[1],
                             names[0], samples, 's', Aim(1.1, most=True))

    # Live migration

    def first_writes(self, times: int) -> Figure:
        """The write that moves a volume whose server was live-migrated."""
        samples: dict[str, list[float]] = {'first': [], 'next': []}
        server = str(uuid.uuid4())
        volume = self._lab.create_volume(1, node=1)
        at = self.attach(volume, 1, server)
        for number in range(times):
            with self.migrated(at, 2 - number % 2, server) as at:
                for name in samples:
                    samples[name].append(1000 * self.timed_write(at)[1])
        self.detach(at)
        self._lab.delete_volume(volume)
        first, following = map(statistics.median, samples.values())
        return Figure('first write after a live migration', first, 'ms',
                      f'the next one {figures.number(following)} ms; worst '
                      f'{figures.number(max(samples["first"]))} ms',
                      Aim(100, most=True), samples,
                      limits=_FIRST_LIMITS)

    @contextlib.contextmanager
    def migrated(self, at: AttachedVolume, number: int,
                 server: str) -> Iterator[AttachedVolume]:
        """The volume of a server that has come to a node, and not written.

        It has to write meanwhile; afterwards it has its volume there alone.
        """
        with at.node.hold(at.path):
            there = self.note(self._lab.attach_at_once(
                at.volume, number, server))
            self._lab.complete(there.id)
            with there.node.hold(there.path):
                yield there
        self._lab.detach_volume(at.id)
        self.settle(there)

    def timed_write(self, at: AttachedVolume) -> tuple[float, float]:
        """When one write began, by the clock, and how many seconds it took."""
        began, took = at.node.run(
            ['python3', '-c', _WRITE, at.path]).stdout.split()
        return float(began), float(took)


def ahead(node: LabNode) -> float:
    """How many seconds a node's clock is ahead of this machine's.

    It may be behind, and they drift apart. Right to half of what the quickest
    of some looks took.
    """
    looks = []
    for _ in range(_CLOCK_LOOKS):
        before = time.time()
        there = float(node.run('date +%s.%N').stdout)
        after = time.time()
        looks.append((after - before, there - (before + after) / 2))
    return min(looks)[1]


@contextlib.contextmanager
def undisturbed(lab: Lab) -> Iterator[None]:
    """Wait until all is gone that was made meanwhile, and deleted.

    Removals take LVM's time, which is then not that of what is measured next.
    """
    def there() -> list[set[str]]:
        return [set(look.volumes(node)) for node in lab.nodes]
    before = there()
    yield
    wait_for('the end of deletions', lambda: there() == before, 600, 0.5)


@contextlib.contextmanager
def scratch(node: LabNode, count: int = 1) -> Iterator[list[str]]:
    """Paths of LVs of a GiB that a node has for a while."""
    names = [f'{look.GROUP}/{_SCRATCH}-{number}' for number in range(count)]
    try:
        for name in names:
            node.run('lvcreate --quiet --yes '
                     f'-n {name} -L {_SCRATCH_MIB}m')
        yield [f'/dev/{name}' for name in names]
    finally:
        node.run(f'lvremove --quiet --yes {" ".join(names)}')


def source_disk(at: AttachedVolume) -> str:
    """The disk that came over the network, of a volume that hydrates."""
    table = at.node.run(f'dmsetup table dmclone-source-{at.lv}').stdout
    match = re.search(r' (\d+:\d+) 1', table)
    expect(match, f'no path in {table}')
    assert match
    return f'/dev/block/{match[1]}'


def copying(node: LabNode, *clones: str, begin: bool = False,
            seconds: float = _WINDOW) -> float:
    """MiB/s that clones copy now, together; ``begin`` lets them, first."""
    first = ''.join(f'dmsetup message {clone} 0 enable_hydration; '
                    for clone in clones if begin)
    looks = ''.join(f'dmsetup status --noflush {clone}; ' for clone in clones)
    out = node.run(f'look() {{ {looks}date +%s.%N; }}; look; {first}'
                   f'sleep {seconds:g}; look').stdout.splitlines()
    middle = len(out) // 2
    done = 0
    for before, after in zip(map(clone_status, out[:middle - 1]),
                             map(clone_status, out[middle:-1]), strict=True):
        expect(before and after and not after.complete,
               'hydration ended while it was measured')
        assert before and after
        done += (after.hydrated - before.hydrated) * int(
            after.region_size.to_bytes())
    return done / (1 << 20) / (float(out[-1]) - float(out[middle - 1]))
