# SPDX-License-Identifier: Apache-2.0
"""All that is known about an LV when a decision is made."""

from __future__ import annotations

import collections
import dataclasses
import typing

from cinder_dmclone.database import rows
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers import messages
from cinder_dmclone.stack import state


@dataclasses.dataclass(frozen=True)
class Facts:
    """All that is known about a stack when a decision is made.

    ``row`` is None if none was found that speaks of the LV, not even a
    deleted one;
    ``rivals`` tells that several rows claim the LV, ``standing`` that the
    row's offer has stood for long, ``overdue`` that it has without an
    attachment that is connected.
    ``shown`` and ``agreed`` are the answers of peers that were asked, by
    node.
    """

    node: NodeName
    stack: state.Stack
    row: rows.Row | None
    rivals: bool = False
    overdue: bool = False
    standing: bool = False
    shown: typing.Mapping[Location, messages.Shown | None] = (
        dataclasses.field(default_factory=dict))
    agreed: typing.Mapping[str, bool | None] = dataclasses.field(
        default_factory=dict)

    @property
    def here(self) -> Location:
        return Location(self.node, self.stack.lv)

    @property
    def home(self) -> bool:
        """Whether this LV is the volume."""
        return bool(self.row and self.row.owner == self.here)


class Rows:
    """Rows that were read for many stacks, each found by what it speaks of."""

    def __init__(self, found: typing.Iterable[rows.Row]) -> None:
        self._found: dict[Location | VolumeId, list[rows.Row]] = (
            collections.defaultdict(list))
        for row in found:
            keys: set[Location | VolumeId] = {row.id}
            keys.update(place for place in _concerned(row) if place)
            for key in keys:
                self._found[key].append(row)

    def named(self, lv: Location) -> bool:
        """Whether a living volume is, comes from or may become an LV."""
        return any(not row.deleted for row in self._found.get(lv, ()))

    def of(self, stack: state.Stack, node: NodeName) -> list[rows.Row]:
        """Those that may speak of a stack."""
        keys: list[Location | VolumeId] = [
            Location(node, stack.lv), *stack.volumes,
            *(tag.borrower for tag in stack.tags.lent)]
        return list({row.id: row for key in keys
                     for row in self._found.get(key, ())}.values())


def _concerned(row: rows.Row) -> tuple[Location | None, ...]:
    """The LVs that a row speaks of, as far as it can be read."""
    if row.unreadable:
        return (row.owner,)
    return row.owner, row.source, row.offer


def pick_row(stack: state.Stack, node: NodeName,
             found: typing.Iterable[rows.Row]) -> tuple[rows.Row | None,
                                                        bool]:
    """Of the rows that speak of a stack, the one that decides about it.

    The LV's owner comes first, then who names it, then who owns the LV it
    was lent to; the ids in the tags are the weakest hint, because Cinder's
    generic migration exchanges ids between rows.

    :returns: the row or None, and whether several live rows claim the LV
    """
    here = Location(node, stack.lv)
    borrowers = {tag.borrower for tag in stack.tags.lent}
    ranks: dict[tuple[bool, int], list[rows.Row]] = (
        collections.defaultdict(list))
    for row in found:
        if row.owner == here:
            rank = 0
        elif here in _concerned(row):
            rank = 1
        elif row.owner in borrowers:
            rank = 2
        elif row.id in stack.volumes:
            rank = 3 + stack.volumes.index(row.id)
        else:
            continue
        ranks[row.deleted, rank].append(row)
    if not ranks:
        return None, False
    best = ranks[min(ranks)]
    return best[0], len(best) > 1
