# SPDX-License-Identifier: Apache-2.0
"""What crosses the network of a thin volume, by how much of it is in use."""
from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from lab import chart, figures, look
from lab.attached import AttachedVolume
from lab.figures import Aim, Figure
from lab.lab import Lab
from lab.measure import Bench
from lab.show import expect

# Percent of the volume that was written.
SHARES = (1, 5, 25, 50, 100)
WIRE, USED = 'on the wire', 'in use'
# What was written is so many parts, with holes between them.
PARTS = 10
# Of the pools: LVM gives a volume its room in such pieces.
CHUNK = 64 << 10
_POOL = f'{look.GROUP}-pool'
_POOL_GIB = 20
_MIB = float(1 << 20)
_AIM = Aim(1.1, most=True)
_LIMITS = ('the headers of the network, and what two nodes say to one another '
           'for each relocation, whatever its size')
# Counters of the interface to the storage network: of all that a node sends.
_SENT = 'cat /sys/class/net/vec0/statistics/tx_bytes'
_WRITE = '''
for part in $(seq 0 $(($2 - 1))); do
    dd if=/dev/zero of="$1" bs=64k seek=$((part * $3)) count=$4 \\
        oflag=direct status=none || exit
done
'''


def parts(size: int, share: int) -> tuple[int, int]:
    """How far the parts of a volume are apart, and how long each is.

    :param size: of the volume, in bytes
    :param share: percent of it that is in use
    :returns: both in chunks
    """
    step = size // CHUNK // PARTS
    return step, max(1, step * share // 100)


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """The figures of volumes of 1 or 4 GiB."""
    return Holes(lab, 1 if quick else 4).run(times, say)


class Holes:
    """Measures with volumes of ``gib`` GiB."""

    def __init__(self, lab: Lab, gib: int) -> None:
        self._lab = lab
        self._bench = Bench(lab)
        self._gib = gib

    def run(self, times: int, say: Callable[[str], object]) -> list[Figure]:
        """The figures of so many rounds."""
        self._make_thin()
        samples: dict[int, dict[str, list[float]]] = {
            share: {WIRE: [], USED: []} for share in SHARES}
        for number in range(times):
            for share in SHARES:
                say(f'{share} % in use, {number + 1} of {times}')
                wire, used = self._move(share)
                samples[share][WIRE].append(wire)
                samples[share][USED].append(used)
        return made_of(samples)

    def _make_thin(self) -> None:
        """Give each node a pool, and let its volumes be in that."""
        for node in self._lab.nodes:
            node.run(f'lvcreate -qy --type thin-pool -n {_POOL} -c {CHUNK}b '
                     f'-Zy -L {_POOL_GIB}g {look.GROUP}')
            node.volume.kill()
            node.volume.choose(dmclone_lvm_type='thin')
            node.volume.start()
        for node in self._lab.nodes:
            node.volume.wait_up()

    def _move(self, share: int) -> tuple[float, float]:
        """MiB that cross the network for a volume, and MiB in use of it."""
        volume = self._lab.create_volume(self._gib, node=1)
        at = self._bench.attach(volume, 1)
        step, length = parts(self._gib << 30, share)
        at.node.run(['sh', '-c', _WRITE, 'sh', at.path, str(PARTS),
                     str(step), str(length)], timeout=900)
        used = PARTS * length * CHUNK
        self._expect_used(at, used)
        self._bench.detach(at)
        before = self._sent()
        at = self._bench.attach(volume, 2)
        self._bench.settle(at)
        wire = self._sent() - before
        self._expect_used(at, used)
        self._bench.detach(at)
        self._lab.delete_volume(volume)
        return wire / _MIB, used / _MIB

    def _sent(self) -> int:
        """Bytes that both nodes have sent on the storage network."""
        return sum(int(node.run(_SENT).stdout) for node in self._lab.nodes)

    def _expect_used(self, at: AttachedVolume, used: int) -> None:
        found = float(at.node.run([
            'lvs', '--devices', at.node.disk, '--noheadings', '-o',
            'data_percent', f'{look.GROUP}/volume-{at.lv}']).stdout)
        wanted = 100 * used / (self._gib << 30)
        expect(abs(found - wanted) < 0.05, f'{at.path} has {found} percent '
               f'of its size in the pool, not {wanted:.2f}')


def made_of(samples: dict[int, dict[str, list[float]]]) -> list[Figure]:
    """A line for each share of a volume that is in use."""
    return [
        figures.ratio(f'bytes on the wire, {share} % in use', WIRE, USED,
                      {**found, 'share': [float(share)] * len(found[WIRE])},
                      'MiB', _AIM, _LIMITS)
        for share, found in samples.items()]


def draw(found: Sequence[Figure], title: str) -> str:
    """The picture of the figures, an SVG."""
    points = {name: [point for figure in found for point in zip(
        figure.samples['share'], figure.samples[name])]
        for name in (WIRE, USED)}
    most = statistics.median(found[-1].samples[USED])
    return chart.curves(
        [*(chart.Curve(name, points[name]) for name in (WIRE, USED)),
         chart.Curve('size of the volume', [
             (share, most * 100 / found[-1].samples['share'][0])
             for share in (1.0, 100.0)])],
        title, chart.Axis('percent of the volume in use', log=True),
        chart.Axis('MiB', log=True))
