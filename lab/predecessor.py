# SPDX-License-Identifier: Apache-2.0
"""This driver beside the only one before it that moves volumes with dm-clone.

That is an abandoned proof of concept (osism/cinder-driver-dm-clone). Its
device is made here as its ``_load_or_create_clone_target`` has it: regions of
4 KiB, the kernel's own limits of what is copied at a time (its options for
them cannot be set), and right on the disk that os-brick has logged in to.
"""
from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator

from lab import figures, look
from lab.agent import Result
from lab.figures import Aim, Figure
from lab.lab import Lab, LabNode
from lab.measure import LOOK, Bench, copying
from lab.peers import BACKENDS, LVM, OURS, Driver

THEIRS = 'proof of concept'
LAB = {'beside': BACKENDS}
# How long the nodes do not see each other, in seconds: open-iscsi lets a
# request fail after 120 (node.session.timeo.replacement_timeout).
OUTAGES = (25, 150)
_DEVICE, _COPY, _METADATA = 'bench-clone', 'bench-copy', 'bench-metadata'
_SECTORS = 2 << 20
# Reads the last block, which is the last to arrive; seconds that takes.
_READ = f'''
begin=$(date +%s.%N)
dd if=$1 of=/dev/null bs=4096 count=1 skip={_SECTORS // 8 - 1} iflag=direct
code=$?
echo $begin $(date +%s.%N)
exit $code
'''
# How long it may take, with the network there again.
_LIMIT = 600.0


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """How fast a volume of a GiB arrives, and what an outage does."""
    lab.create_type(LVM, LVM)
    bench = Bench(lab)
    volume, at = bench.filled(1)
    peer = Driver(lab, LVM)
    other = lab.create_volume(1, 1, backend=LVM, volume_type=LVM)
    rates: dict[str, list[float]] = {OURS: [], THEIRS: []}
    waits: dict[int, dict[str, list[float]]] = {
        away: {OURS: [], THEIRS: []} for away in OUTAGES}
    for number in range(times):
        say(f'{number + 1} of {times}')
        bench.detach(at)
        there = 2 - number % 2
        with bench.braked(there):
            at = bench.attach(volume, there)
        with _device(lab, peer, other) as node:
            reads = {OURS: (at.node, at.path),
                     THEIRS: (node, f'/dev/mapper/{_DEVICE}')}
            rates[THEIRS].append(copying(node, _DEVICE, begin=True,
                                         seconds=LOOK))
            look.message(node, _DEVICE, 'disable_hydration')
            for away, found in waits.items():
                for name, seconds in _outage(lab, reads, away).items():
                    found[name].append(seconds)
        bench.release(at)
        rates[OURS].append(copying(at.node, at.clone))
        bench.settle(at)
    bench.detach(at)
    for each in volume, other:
        lab.delete_volume(each)
    return [figures.ratio('hydration against the proof of concept', OURS,
                          THEIRS, rates, 'MiB/s'),
            *(_failed(away, found) for away, found in waits.items())]


def _failed(away: int, waits: dict[str, list[float]]) -> Figure:
    """How many reads failed; ``waits`` are below 0 for these."""
    words = {name: f'{sum(value < 0 for value in found)} failed, answered '
             f'after {figures.number(statistics.median(map(abs, found)))} s'
             for name, found in waits.items()}
    return Figure(f'reads that fail in an outage of {away} s',
                  sum(value < 0 for value in waits[OURS]),
                  note=f'of {len(waits[OURS])}: ' + '; '.join(
                      f'{name} {text}' for name, text in words.items()),
                  aim=Aim(0, most=True), samples=waits)


@contextlib.contextmanager
def _device(lab: Lab, peer: Driver, volume: str) -> Iterator[LabNode]:
    """Their device of a volume, which copies nothing yet, and its node."""
    at, _ = peer.connect(volume, 2)
    node = at.node
    try:
        for name, size in (_COPY, '1g'), (_METADATA, '4m'):
            node.run(f'lvcreate --quiet --yes -n {name} -L {size} '
                     f'{look.GROUP}')
        node.run(f'dd if=/dev/zero of=/dev/{look.GROUP}/{_METADATA} '
                 'bs=1M count=4 oflag=direct')
        node.run(f'dmsetup create {_DEVICE} --table "0 {_SECTORS} clone '
                 f'/dev/{look.GROUP}/{_METADATA} /dev/{look.GROUP}/{_COPY} '
                 f'{at.path} 8 1 no_hydration"')
        yield node
    finally:
        node.run(f'dmsetup remove {_DEVICE}; lvremove --quiet --yes '
                 f'{look.GROUP}/{_COPY} {look.GROUP}/{_METADATA}')
    peer.disconnect(at)
    lab.wait_volume(volume, 'available')


def _outage(lab: Lab, reads: dict[str, tuple[LabNode, str]], away: int
            ) -> dict[str, float]:
    """Seconds until a read in an outage ends; below 0 if it fails."""
    lender = lab.nodes[0]
    with contextlib.ExitStack() as stack:
        lender.partition()
        stack.callback(lender.heal)
        running = {name: stack.enter_context(
            node.popen(['sh', '-c', _READ, 'sh', path]))
            for name, (node, path) in reads.items()}
        time.sleep(away)
        lender.heal()
        return {name: _seconds(command.wait(_LIMIT))
                for name, command in running.items()}


def _seconds(result: Result) -> float:
    begin, end = map(float, result.stdout.split())
    return begin - end if result.code else end - begin
