# SPDX-License-Identifier: Apache-2.0
"""All that is known about an LV when a decision is made."""

from __future__ import annotations

import collections
import dataclasses
import typing

from cinder_dmclone.database import rows
from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone.location import foreign
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.stack import joint
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state

Records: typing.TypeAlias = frozenset[tuple[object, ...]]


@dataclasses.dataclass(frozen=True)
class Facts:
    """All that is known about a stack when a decision is made.

    ``row`` is None if none was found that speaks of the LV, not even a
    deleted one;
    ``rivals`` tells that several rows claim the LV, ``standing`` that the
    row's offer has stood for long, ``overdue`` that it has without an
    attachment that is connected, ``let_down`` that ``Row.let_down`` has been
    true for long. ``forgotten`` are views and devices for the node's own work
    that nobody has used for long. ``shown`` and ``agreed`` are the answers of
    peers that were asked, by LV and by node; ``silent`` tells why one was
    asked about in vain. ``borrowers`` are the rows of other volumes that it
    was lent to. ``lender`` is the stack that it hydrates from, if that is on
    this node. ``snapshots`` are the rows of those that it is, or was to be,
    and that it was lent to. ``going`` tells that it has waited for its erasure
    since nobody needed it.
    ``written`` tells of a copy that was before the row's generation that it
    holds, or may hold, what was written to it.
    """

    node: NodeName
    stack: state.Stack
    row: rows.Row | None
    rivals: bool = False
    overdue: bool = False
    standing: bool = False
    let_down: bool = False
    forgotten: frozenset[names.DeviceName] = frozenset()
    shown: typing.Mapping[Location, messages.Shown | None] = (
        dataclasses.field(default_factory=dict))
    agreed: typing.Mapping[str, bool | None] = dataclasses.field(
        default_factory=dict)
    silent: typing.Mapping[Location, str] = dataclasses.field(
        default_factory=dict)
    borrowers: typing.Mapping[VolumeId, rows.Row] = dataclasses.field(
        default_factory=dict)
    lender: state.Stack | None = None
    snapshots: typing.Mapping[SnapshotId, SnapshotRow] = dataclasses.field(
        default_factory=dict)
    going: bool = False
    written: bool = False

    @property
    def here(self) -> Location:
        return Location(self.node, self.stack.lv)

    @property
    def home(self) -> bool:
        """Whether this LV is a volume that was not deleted."""
        return bool(self.row and not self.row.deleted
                    and self.row.owner == self.here)

    @property
    def unrecorded(self) -> bool:
        """Whether the row does not say that it was made: that did not end.

        What a volume becomes later, a generation on, has another name.
        """
        row, tags = self.row, self.stack.tags
        return (row is not None and row.owner == self.here
                and not tags.bars_front
                and tags.own == lv_tags.OwnTag(row.reached + 1, row.id))

    @property
    def lagging(self) -> bool:
        """Whether somebody still writes what this LV is the copy of."""
        return bool(self.stack.of_kind(names.Kind.JOINT)
                    or self.lender and joint.lagging(self.stack, self.lender))

    @property
    def reads_elsewhere(self) -> bool:
        """Whether a read of it may have to wait for another node.

        One of what hydrates may; only a lender on this node that is whole
        rules that out.
        """
        return bool(self.stack.tags.source) and not (
            self.stack.borrows_here and self.lender is not None
            and self.lender.data is not None
            and not self.lender.tags.source)

    @property
    def goes_on_here(self) -> bool:
        """Whether the volume is on this node, and borrows from this LV."""
        row = self.row
        return bool(row and not row.deleted and not self.home
                    and row.node == self.node and any(
                        tag.local and tag.read and tag.volume == row.id
                        for tag in self.stack.tags.lent))

    @property
    def left_behind(self) -> bool:
        """Whether a server here has yet to be led over from this LV."""
        return self.goes_on_here and bool(
            self.stack.of_kind(names.Kind.FRONT, names.Kind.IO))

    def row_of(self, volume: VolumeId) -> rows.Row | None:
        """The row of this volume, or of one that it was lent to."""
        if self.row and self.row.id == volume:
            return self.row
        return self.borrowers.get(volume)

    @property
    def records(self) -> Records:
        """What the rows say of LVs."""
        volumes = (*self.borrowers.values(), *([self.row] if self.row else ()))
        return frozenset(
            (row.id, row.host, row.name_id, row.provider_id, row.deleted)
            for row in volumes) | frozenset(
            (row.id, row.provider_id, row.deleted)
            for row in self.snapshots.values())

    @property
    def may_be_newer(self) -> bool:
        """Whether the LV may be newer than the volume, as its row has it.

        Also of a row that names it on another backend: Cinder may have
        written that host, and no more.

        :raises CorruptRecord: if the row is unreadable
        """
        row = self.row
        return bool(row and not row.deleted
                    and row.generation < self.stack.tags.generation
                    and (not self.foreign(row) or row.lv == self.stack.lv))

    def foreign(self, row: rows.Row) -> bool:
        """Whether a volume is one of another backend."""
        return foreign(row.node, self.node)


@dataclasses.dataclass
class Answers:
    """What peers have said to one look.

    It asks no more about what is ``silent``, nor anybody ``unreachable``.
    ``going``: see ``Facts``.
    """

    going: bool = False
    shown: dict[Location, messages.Shown | None] = dataclasses.field(
        default_factory=dict)
    agreed: dict[str, bool | None] = dataclasses.field(default_factory=dict)
    silent: dict[Location, str] = dataclasses.field(default_factory=dict)
    unreachable: set[NodeName] = dataclasses.field(default_factory=set)
    _records: Records | None = None

    def beside(self, facts: Facts) -> Facts:
        """Facts, with what was said as long as the rows say the same.

        An LV may have been missing because it was yet to be made, and the
        row, which offered it, is that of a restored database by now.
        """
        before, self._records = self._records, facts.records
        if before not in (None, self._records):
            self.shown.clear()
            self.agreed.clear()
        return dataclasses.replace(
            facts, shown=self.shown, agreed=self.agreed, silent=self.silent,
            going=self.going)


class Rows:
    """Rows that were read for many stacks, each found by what it speaks of.

    What another backend's driver keeps in a row is no record of ours, even if
    it looks like one.
    """

    def __init__(self, found: typing.Iterable[rows.Row], node: NodeName,
                 snapshots: typing.Iterable[SnapshotRow] = ()) -> None:
        self._node = node
        self._snapshots = {row.id: row for row in snapshots}
        self._found: dict[Location | VolumeId, list[rows.Row]] = (
            collections.defaultdict(list))
        for row in found:
            if foreign(row.node, node):
                row = dataclasses.replace(row, provider_id=None)
            keys: set[Location | VolumeId] = {row.id}
            keys.update(_concerned(row))
            for key in keys:
                self._found[key].append(row)

    def named(self, stack: state.Stack) -> bool:
        """Whether a living volume is, comes from or may become an LV.

        Others that borrow from it do not count.
        """
        here = Location(self._node, stack.lv)
        return any(not row.deleted and _names(row, stack, here)
                   for row in self._found.get(here, ()))

    def of(self, stack: state.Stack) -> list[rows.Row]:
        """Those that may speak of a stack."""
        keys: list[Location | VolumeId] = [
            Location(self._node, stack.lv), *stack.volumes]
        return list({row.id: row for key in keys
                     for row in self._found.get(key, ())}.values())

    def borrowers(self, stack: state.Stack) -> dict[VolumeId, rows.Row]:
        """Those of the volumes that a stack was lent to."""
        return {row.id: row for volume in stack.borrowers
                for row in self._found.get(volume, ()) if row.id == volume}

    def snapshots(self, stack: state.Stack) -> dict[SnapshotId, SnapshotRow]:
        """Those of the snapshots that a stack is, was to be, or lends to."""
        wanted = (*(tag.snapshot for tag in stack.tags.snaps),
                  *map(SnapshotId, stack.borrowers))
        return {snapshot: self._snapshots[snapshot] for snapshot in wanted
                if snapshot in self._snapshots}


def _concerned(row: rows.Row) -> tuple[Location, ...]:
    """The LVs that a row speaks of, as far as it can be read."""
    return (row.owner,) if row.unreadable else row.places


def _names(row: rows.Row, stack: state.Stack, here: Location) -> bool:
    """Whether an LV is, was or may become the volume of a row that says so."""
    if row.id in stack.borrowers and row.id not in stack.volumes:
        return here in (row.owner, None if row.unreadable else row.offer)
    return here in _concerned(row)


def pick_row(stack: state.Stack, node: NodeName,
             found: typing.Iterable[rows.Row]) -> tuple[rows.Row | None,
                                                        bool]:
    """Of the rows that speak of a stack, the one that decides about it.

    Who names the LV comes first, deleted or not, and its owner before others;
    the ids in the tags are the weaker hint, because Cinder's generic
    migration exchanges ids between rows.

    :returns: the row or None, and whether several live rows claim the LV
    """
    here = Location(node, stack.lv)
    ranks: dict[tuple[bool, bool, int], list[rows.Row]] = (
        collections.defaultdict(list))
    for row in found:
        if _names(row, stack, here):
            rank = (False, row.deleted, int(row.owner != here))
        elif row.id in stack.volumes:
            rank = (True, row.deleted, stack.volumes.index(row.id))
        else:
            continue
        ranks[rank].append(row)
    if not ranks:
        return None, False
    best = ranks[min(ranks)]
    return best[0], len(best) > 1
