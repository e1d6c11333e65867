# SPDX-License-Identifier: Apache-2.0
"""What a server gets of its disk before the volume has arrived.

Against a bare LV, by where the lender is, by the disk of the metadata and by
the size of regions. Nothing is copied in the background meanwhile, as a mix
of both would depend on how far that is: only what the server does counts.
What is left is then copied by itself, and that is measured too.
"""
from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence

from lab import figures, fio, look
from lab.attached import AttachedVolume
from lab.figures import Aim, Figure
from lab.fio import Load
from lab.lab import Lab, LabNode
from lab.measure import Bench
from lab.node import Size
from lab.processes import wait_for
from lab.show import expect

SIZE = Size(memory_mib=1024, disk_gib=500, metadata=True)
# Where the metadata is, and the volume group there.
SAME, SECOND, ZRAM = 'same disk', 'second disk', 'zram'
GROUPS = {SAME: look.GROUP, SECOND: look.META_GROUP, ZRAM: 'bench-zram'}
# In KiB.
REGIONS = (4, 16, 64, 256)
REMOTE, LOCAL, REST, BARE = 'remote', 'local', 'front at rest', 'bare LV'


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a row is of, in words of fio.

    :ivar pattern: how the blocks follow each other
    :ivar direction: under which its results are
    :ivar unit: of its rate
    """

    pattern: str
    direction: str
    block: str
    unit: str

    @property
    def large(self) -> bool:
        return self.unit == _MIBS


_BLOCKS, _MIBS = '4 KiB blocks a second', 'MiB a second'
# Reads are first: writes make regions arrive, and large ones as many as there
# are: they have a quarter of the volume.
ROWS = {'reads': Kind('randread', 'read', '4k', _BLOCKS),
        'large reads': Kind('read', 'read', '1m', _MIBS),
        'writes': Kind('randwrite', 'write', '4k', _BLOCKS),
        'large writes': Kind('write', 'write', '1m', _MIBS)}
# What each size of regions is compared with: the least that they have where
# the lender is on the same node (cinder_dmclone/stack/clones.py).
_BASE = 64
# As the article has it that proposed dm-clone for this; its shares of a bare
# LV are the aims.
_FIO = ('--ioengine=libaio', '--sync=1', '--invalidate=1', '--iodepth=1')
_AIMS = {('writes', SAME): 0.38, ('writes', SECOND): 0.9,
         ('writes', ZRAM): 0.9, ('reads', LOCAL): 0.97,
         ('reads', REMOTE): 0.3}
_COMMIT = 'a commit of the metadata with each write'
_LIMITS = {
    'writes': f'{_COMMIT}, and the region around it, which has to arrive '
              'before',
    'reads': 'the lender, of which all is read that has not arrived'}
# Of KiB, by default: a write has all of such a region, and nothing has to
# arrive.
_WHOLE = 4
_SCRATCH = 'bench-bare'
# LVM has to be told of such disks (lvm.conf(5), devices/types).
_ZRAM = '''
modprobe zram && echo 256M >/sys/block/zram0/disksize &&
mkdir -p /etc/lvm &&
echo 'devices { types = [ "zram", 16 ] }' >/etc/lvm/lvmlocal.conf &&
pvcreate --quiet --yes /dev/zram0 && vgcreate --quiet bench-zram /dev/zram0
'''
# Seconds around the rows of a case, and for each GiB; about, in the lab.
_AROUND, _COPYING = 60, 40


@dataclasses.dataclass(frozen=True)
class Case:
    """How both nodes are set up.

    :ivar medium: where the metadata is, one of GROUPS
    :ivar region: in KiB
    """

    medium: str
    region: int

    def __str__(self) -> str:
        return f'{self.medium}, {self.region} KiB'

    @property
    def here(self) -> bool:
        """Whether a lender on the same node has such regions."""
        return self.region >= _BASE

    @property
    def devices(self) -> int:
        """What its rows are of.

        A clone with its lender elsewhere, the volume at rest, a bare LV, and
        a clone with its lender here.
        """
        return 3 + self.here


@dataclasses.dataclass(frozen=True)
class Row:
    """One measurement of a clone, and of a bare LV beside it.

    :ivar hydrated: percent of the volume that had arrived before and after
    """

    load: Load
    bare: Load
    hydrated: tuple[float, float]


@dataclasses.dataclass
class Found:
    """All measurements.

    :ivar rows: by the kind of a row, and case and lender of the clone or REST
    :ivar rates: of each case how fast the rest was copied from elsewhere, in
        MiB a second
    """

    rows: dict[tuple[str, str], list[Row]] = dataclasses.field(
        default_factory=dict)
    rates: dict[Case, list[float]] = dataclasses.field(default_factory=dict)


def cases(media: Sequence[str], quick: bool) -> list[Case]:
    """What is measured; quickly some sizes of regions on one medium only."""
    if quick:
        return [Case(medium, region) for medium in media
                for region in REGIONS
                if region in (_WHOLE, _BASE) or medium == SAME]
    return [Case(medium, region) for medium in media for region in REGIONS]


def forecast(wanted: Sequence[Case], times: int, seconds: int, gib: int
             ) -> str:
    """What these cases will take, in words."""
    count = len(wanted)
    rows = times * len(ROWS) * sum(case.devices for case in wanted)
    minutes = round((rows * seconds + count * times * (
        _AROUND + _COPYING * gib)) / 60)
    return (f'{rows} rows of up to {seconds} s each in {count} cases and '
            f'{times} rounds, about {minutes // 60} h {minutes % 60:02} min')


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """The figures; with the article's sizes, or with small ones."""
    gib, seconds = (1, 3) if quick else (5, 60)
    bench = Hydrating(lab, gib, seconds, say)
    wanted = cases(bench.prepare(), quick)
    say(forecast(wanted, times, seconds, gib))
    return made_of(bench.run(wanted, times))


class Hydrating:
    """Measures with volumes of ``gib`` GiB, each row for ``seconds``."""

    def __init__(self, lab: Lab, gib: int, seconds: int,
                 say: Callable[[str], object]) -> None:
        self._lab = lab
        self._bench = Bench(lab)
        self._gib = gib
        self._seconds = seconds
        self._say = say

    def prepare(self) -> list[str]:
        """Make groups for metadata, and LVs to compare with; the media."""
        media = [SAME, SECOND]
        for node in self._lab.nodes:
            node.run(f'lvcreate --quiet --yes -n {_SCRATCH} -L {self._gib}g '
                     f'{look.GROUP}')
            node.run(f'dd if=/dev/zero of=/dev/{look.GROUP}/{_SCRATCH} bs=1M '
                     f'count={self._gib << 10} oflag=direct', timeout=900)
        if self._lab.nodes[0].run('modprobe zram', check=False).code:
            self._say('no zram: the kernel does not have it')
            return media
        for node in self._lab.nodes:
            node.run(_ZRAM)
        return [*media, ZRAM]

    def run(self, wanted: Sequence[Case], times: int) -> Found:
        """All of so many rounds."""
        found = Found()
        volume, at = self._bench.filled(self._gib)
        self._bench.detach(at)
        there = 2
        for number in range(times):
            # What is first changes from round to round.
            for case in wanted if number % 2 == 0 else wanted[::-1]:
                self._say(f'{case}, {number + 1} of {times}')
                self._set_up(case)
                self._case(case, volume, there, found)
                there = 3 - there
        self._lab.delete_volume(volume)
        return found

    def _set_up(self, case: Case) -> None:
        for node in self._lab.nodes:
            node.volume.kill()
            node.volume.choose(
                dmclone_region_size_kib=case.region,
                dmclone_metadata_volume_group=GROUPS[case.medium])
            node.volume.start()
        for node in self._lab.nodes:
            node.volume.wait_up()

    def _case(self, case: Case, volume: str, number: int,
              found: Found) -> None:
        """All rows of a volume that comes to node ``number``."""
        bench, node = self._bench, self._lab.nodes[number - 1]
        path = f'/dev/{look.GROUP}/{_SCRATCH}'
        bare = {name: self._load(node, path, name) for name in ROWS}
        with bench.braked(number):
            at = bench.attach(volume, number)
        self._rows(at, f'{REMOTE}, {case}', bare, found)
        found.rates.setdefault(case, []).append(self._rest(at))
        bench.settle(at)
        self._rows(at, REST, bare, found)
        bench.detach(at)
        if case.here:
            self._lent_here(case, volume, at, bare, found)

    def _lent_here(self, case: Case, volume: str, at: AttachedVolume,
                   bare: dict[str, Load], found: Found) -> None:
        """Rows of a volume that is made of one on the same node."""
        bench, number = self._bench, at.node.number
        with bench.braked(number):
            born = self._lab.create_volume(self._gib, number,
                                           source_volid=volume)
        local = bench.attach(born, number)
        self._rows(local, f'{LOCAL}, {case}', bare, found)
        bench.detach(local)
        self._lab.delete_volume(born)
        wait_for('the end of the loan', lambda: not any(
            tag.startswith('dmclone.1.lent') for tag in
            look.volumes(at.node)[f'volume-{at.lv}']), 600, 0.5)

    def _rows(self, at: AttachedVolume, what: str, bare: dict[str, Load],
              found: Found) -> None:
        for name in ROWS:
            before = _hydrated(at)
            # A clone that has arrived is not what was asked for.
            expect((before < 100) != (what == REST),
                   f'{at.path} has arrived to {before:.0f} percent')
            load = self._load(at.node, at.path, name)
            found.rows.setdefault((name, what), []).append(
                Row(load, bare[name], (before, _hydrated(at))))

    def _load(self, node: LabNode, path: str, name: str) -> Load:
        kind = ROWS[name]
        out = node.run(fio.command(
            path, *_FIO, f'--runtime={self._seconds}',
            *((f'--size={self._gib << 8}m',) if kind.large else ()),
            kind=kind.pattern, size=kind.block), timeout=self._seconds + 300)
        return Load.parse(out.stdout, kind.direction)

    def _rest(self, at: AttachedVolume) -> float:
        """Let the rest be copied; MiB a second."""
        status = at.status()
        expect(status, f'{at.path} has arrived')
        assert status
        begin = time.monotonic()
        self._bench.release(at)
        wait_for('hydration', lambda: _hydrated(at) == 100, 900, 0.05)
        return (status.size - status.copied) / (1 << 20) / (
            time.monotonic() - begin)


def _hydrated(at: AttachedVolume) -> float:
    """Percent of a volume that has arrived."""
    status = at.status()
    return 100 * status.copied / status.size if status else 100.0


def made_of(found: Found) -> list[Figure]:
    """A ratio of each row to the bare LV beside it, and of each rate."""
    return [*(_ratio(name, what, rows)
              for (name, what), rows in sorted(found.rows.items())),
            *(_by_base(case, found.rates) for case in found.rates
              if case.region != _BASE)]


def _by_base(case: Case, rates: dict[Case, list[float]]) -> Figure:
    base = Case(case.medium, _BASE)
    return figures.ratio(
        f'hydration, {case}', str(case), str(base),
        {str(one): rates[one] for one in (case, base)}, _MIBS)


def _ratio(name: str, what: str, rows: Sequence[Row]) -> Figure:
    above = REST if what == REST else 'clone'
    before, after = (statistics.median(row.hydrated[index] for row in rows)
                     for index in (0, 1))
    aim, limits = _aim(name, what), _LIMITS.get(name, '')
    if name == 'writes' and what.endswith(f', {_WHOLE} KiB'):
        limits = _COMMIT
    found = figures.ratio(
        f'{name}, {what}', above, BARE, {
            above: [row.load.rate for row in rows],
            BARE: [row.bare.rate for row in rows],
            'ms, 99 % within': [row.load.late for row in rows],
            'percent before': [row.hydrated[0] for row in rows],
            'percent after': [row.hydrated[1] for row in rows]},
        ROWS[name].unit, Aim(aim) if aim else None, limits)
    if what == REST:
        return found
    return dataclasses.replace(
        found, note=f'arrived: {figures.number(before)}, then '
                    f'{figures.number(after)} %; {found.note}')


def _aim(name: str, what: str) -> float | None:
    lender, _, rest = what.partition(', ')
    medium = rest.partition(', ')[0]
    return _AIMS.get((name, lender), _AIMS.get((name, medium)))
