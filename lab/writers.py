# SPDX-License-Identifier: Apache-2.0
"""Servers of one node that write at once, each to a volume of its own.

Volumes of this driver, at rest on their node, beside those of Cinder's LVM
driver, which are on the other node. All that is written is durable when the
write has ended, or at least past every cache of the node.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence

from lab import figures, fio
from lab.figures import Aim, Figure
from lab.fio import Load
from lab.lab import Lab, LabNode
from lab.peers import LVM, OURS, Connected, Driver, alternating

COUNTS, _QUICK_COUNTS = (1, 4, 8), (1, 4)
# The node of the servers and of our volumes, and that of the other driver's.
_NODE, _OTHER = 2, 1
# What a dd writes: size of a block, blocks, flags.
DD = {
    'dd of 1 MiB, sync': (1 << 20, 100, 'direct,sync'),
    'dd of 1 MiB': (1 << 20, 100, 'direct'),
    'dd of 4 KiB, sync': (4 << 10, 25600, 'direct,sync'),
    'dd of 4 KiB': (4 << 10, 25600, 'direct'),
}
# The size of what a loop writes, with O_DIRECT and O_SYNC, one after another.
LOOPS = {'loop of 4 KiB': 4 << 10, 'loop of 1 MiB': 1 << 20}
# Seconds of a loop, and the part of what dd writes; each also quickly.
_SECONDS, _QUICK_SECONDS = 10, 2
_QUICK_PART = 20
# Bytes of each volume that are written: they are on the disk before.
_AREA = 128 << 20
_UNIT = 'MB a second'
_LIMITS = ('the processor and the disk of the node, which all its servers '
           'share')
# Each dd has a file for what it says: lines of several could mix.
_DD = '''
folder=$(mktemp -d)
size=$1 count=$2 flags=$3; shift 3
begin=$(date +%s.%N)
for path; do
    dd if=/dev/zero of="$path" bs=$size count=$count oflag=$flags \\
        2>"$folder/${path##*/}" &
done
wait
echo "$begin $(date +%s.%N)"
cat "$folder"/*
rm -r "$folder"
'''


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """The figures, of servers on node 2."""
    return Writers(lab, quick, say).run(times)


class Writers:
    """Measures in ``lab``, whose nodes have both backends."""

    def __init__(self, lab: Lab, quick: bool,
                 say: Callable[[str], object]) -> None:
        self._lab = lab
        self._node = lab.nodes[_NODE - 1]
        self._say = say
        self._seconds = _QUICK_SECONDS if quick else _SECONDS
        self._part = _QUICK_PART if quick else 1
        self._counts = _QUICK_COUNTS if quick else COUNTS
        self._drivers = [Driver(lab, name) for name in (OURS, LVM)]

    def run(self, times: int) -> list[Figure]:
        """The figures of so many rounds."""
        lab = self._lab
        lab.unlimited()
        lab.create_type(LVM, LVM)
        volumes, at = self._volumes()
        paths = {name: [each.path for each in found]
                 for name, found in at.items()}
        samples: Samples = {}
        for number in range(times):
            for count in self._counts:
                self._say(f'{count} servers, {number + 1} of {times}')
                for case in (*DD, *LOOPS):
                    found = samples.setdefault((case, count),
                                               {OURS: [], LVM: []})
                    for driver in alternating(self._drivers, number):
                        name = driver.name
                        found[name].append(
                            self._write(case, paths[name][:count]))
        for driver in self._drivers:
            for each in at[driver.name]:
                driver.disconnect(each)
        for volume in volumes:
            lab.wait_volume(volume, 'available')
            lab.delete_volume(volume)
        return made_of(samples)

    def _volumes(self) -> tuple[list[str], dict[str, list[Connected]]]:
        """As many of each driver as there are servers, and their devices."""
        volumes: list[str] = []
        at: dict[str, list[Connected]] = {OURS: [], LVM: []}
        for number in range(max(self._counts)):
            self._say(f'volumes, {number + 1} of {max(self._counts)}')
            for driver, home in zip(self._drivers, (_NODE, _OTHER)):
                volume = self._lab.create_volume(
                    1, home, backend=driver.name, volume_type=driver.name)
                found, _ = driver.connect(volume, _NODE)
                self._node.run(
                    f'dd if=/dev/zero of={found.path} bs=1M '
                    f'count={_AREA >> 20} oflag=direct', timeout=300)
                volumes.append(volume)
                at[driver.name].append(found)
        return volumes, at

    def _write(self, case: str, paths: Sequence[str]) -> float:
        """MB/s of all servers together."""
        if case in DD:
            size, count, flags = DD[case]
            return dd(self._node, paths, size,
                      max(1, count // self._part), flags)
        return loop(self._node, paths, LOOPS[case], self._seconds)


def dd(node: LabNode, paths: Sequence[str], size: int, count: int,
       flags: str) -> float:
    """MB/s of a dd to each device at once, together."""
    said = node.run(['sh', '-c', _DD, 'sh', str(size), str(count), flags,
                     *paths], timeout=1800).stdout
    ends = [line for line in said.splitlines() if 'copied,' in line]
    if len(ends) != len(paths):
        raise ValueError(f'not the ends of {len(paths)} dd: {said!r}')
    # The rates of single ones are not of the same time.
    begin, end = map(float, said.splitlines()[0].split())
    return len(paths) * size * count / (end - begin) / 1e6


def loop(node: LabNode, paths: Sequence[str], size: int,
         seconds: float) -> float:
    """MB/s of a program for each device that writes zeros again and again."""
    said = node.run(fio.command(
        paths, *fio.SYNC, '--sync=1', '--zero_buffers',
        *fio.for_seconds(seconds), f'--size={_AREA}', kind='write',
        size=str(size)), timeout=seconds + 300)
    return size * sum(load.rate for load in Load.parse_all(said.stdout)) / 1e6


# MB/s of all servers together, by case and their number, by driver.
Samples = dict[tuple[str, int], dict[str, list[float]]]


def made_of(samples: Samples) -> list[Figure]:
    """Ours by the other's; and what many write, all together, by one."""
    found = [figures.ratio(f'{case}, {_servers(count)}', OURS, LVM, both,
                           _UNIT, Aim(1), _LIMITS)
             for (case, count), both in samples.items()]
    for (case, count), both in samples.items():
        if count == 1:
            continue
        for name in OURS, LVM:
            many, one = _servers(count), _servers(1)
            found.append(figures.ratio(
                f'{case}, {name}, {count} by 1', many, one,
                {many: both[name], one: samples[case, 1][name]}, _UNIT,
                Aim(1) if name == OURS else None, _LIMITS))
    return found


def _servers(count: int) -> str:
    return f'{count} server{"s" if count > 1 else ""}'
