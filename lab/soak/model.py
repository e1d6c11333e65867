# SPDX-License-Identifier: Apache-2.0
"""What there is, and what each of it has to hold; nothing of it is real.

A step is applied when it has been done. Each ends in one way only, whatever
failed meanwhile, so that one seed gives one story.
"""
from __future__ import annotations

import dataclasses

from lab.ledger import Ledger

# What a GiB of Cinder's has where soak has a lab of its own, in bytes.
GIB = 1 << 27


@dataclasses.dataclass(frozen=True)
class Outage:
    """Something that is taken away for a while.

    :ivar kind: one of lab.soak.outages.KINDS
    :ivar node: of which node (from 1); 0 of the control plane
    :ivar after: seconds from the beginning of the step
    :ivar length: seconds
    """

    kind: str
    node: int
    after: float
    length: float

    def __str__(self) -> str:
        where = f' of node{self.node}' if self.node else ''
        return f'{self.kind}{where} for {self.length:.0f} s'


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing to do.

    :ivar verb: one of lab.soak.choice.WEIGHTS
    :ivar name: of the volume or snapshot that it is about, or that it makes
    :ivar source: what a new one is made of, or a volume is reverted to
    :ivar node: where (from 1)
    :ivar gib: how large it is then
    """

    verb: str
    name: str = ''
    source: str = ''
    node: int = 0
    gib: int = 0
    outage: Outage | None = None

    def __str__(self) -> str:
        words = [self.verb, self.name]
        words += [f'of {self.source}'] if self.source else []
        words += [f'node{self.node}'] if self.node else []
        words += [f'{self.gib} GiB'] if self.gib else []
        words += [f'({self.outage})'] if self.outage else []
        return ' '.join(filter(None, words))


@dataclasses.dataclass
class Snapshot:
    """A snapshot; ``record`` is what a volume made of it has to hold."""

    name: str
    volume: str
    gib: int
    record: Ledger


@dataclasses.dataclass
class Volume:
    """A volume.

    :ivar node: where a server has it (from 1), or 0
    :ivar writing: whether the server writes all the time
    :ivar filled: whether anything was written; before that it holds nothing
    :ivar looked: whether nothing has happened since it was compared
    """

    name: str
    gib: int
    record: Ledger
    node: int = 0
    writing: bool = False
    filled: bool = False
    looked: bool = False


class Model:
    """All volumes and snapshots.

    :ivar epoch: number of the last run of any server
    """

    def __init__(self, gib: int = GIB) -> None:
        """
        :param gib: what a GiB of Cinder's has, in bytes: where blocks are
            written; what is added later has none
        """
        self.gib = gib
        self.volumes: dict[str, Volume] = {}
        # The latest last.
        self.snapshots: dict[str, Snapshot] = {}
        self.epoch = 0
        self._made = 0

    def new_name(self, kind: str) -> str:
        """The name of what is made next: its kind with a number."""
        return f'{kind}{self._made + 1}'

    def snapshots_of(self, volume: str) -> list[Snapshot]:
        """Those of a volume, the latest last."""
        return [snapshot for snapshot in self.snapshots.values()
                if snapshot.volume == volume]

    def record(self, name: str) -> Ledger:
        """What a volume or snapshot has to hold."""
        found = self.volumes.get(name) or self.snapshots[name]
        return found.record

    def run(self, name: str) -> int:
        """Let a server begin to write; the number of the run."""
        self.epoch += 1
        self.volumes[name].writing = True
        self.volumes[name].looked = False
        return self.epoch

    def doubt(self) -> None:
        """Let nothing count as compared."""
        for volume in self.volumes.values():
            volume.looked = False

    def _died(self, node: int) -> None:
        """The servers of a node have ended, with it."""
        for volume in self.volumes.values():
            if volume.node == node:
                volume.writing = False

    def apply(self, step: Step, record: Ledger | None = None) -> None:
        """Take in a step that was done and had not to be refused.

        :param record: of what was made of something else, forked before; if
            it is left out, of what that holds now
        """
        name, verb = step.name, step.verb
        if step.source and record is None:
            record = self.record(step.source).fork()
        if verb in ('create', 'clone', 'born', 'snapshot'):
            self._made += 1
        if verb == 'create':
            self.volumes[name] = Volume(name, step.gib, Ledger(
                self._made, self.gib))
        elif verb in ('clone', 'born'):
            assert record
            self.volumes[name] = Volume(name, step.gib, record, filled=True)
        elif verb == 'snapshot':
            assert record
            source = self.volumes[step.source]
            self.snapshots[name] = Snapshot(name, source.name, source.gib,
                                            record)
        elif verb == 'unsnapshot':
            del self.snapshots[name]
        elif verb == 'delete':
            del self.volumes[name]
        elif name:
            self._change(self.volumes[name], step, record)
        if step.outage and step.outage.kind == 'reset':
            self._died(step.outage.node)

    def _change(self, volume: Volume, step: Step,
                record: Ledger | None) -> None:
        verb = step.verb
        volume.looked = verb == 'verify' or (
            verb == 'detach' and volume.looked)
        if verb in ('attach', 'migrate'):
            volume.node = step.node
            volume.filled = True
        elif verb == 'detach':
            volume.node, volume.writing = 0, False
        elif verb == 'verify':
            volume.writing = False
        elif verb == 'extend':
            volume.gib = step.gib
        elif verb == 'revert':
            assert record
            volume.record = record
