# SPDX-License-Identifier: Apache-2.0
"""What a node has that is drained, and what is to become of each.

The rows tell which volumes are here, its disks what others need, and those
others whether they will ever need it no more.
"""

from __future__ import annotations

import dataclasses
import enum
import typing

from cinder.objects.fields import SnapshotStatus

from cinder_dmclone.cli import asking
from cinder_dmclone.cli import status
from cinder_dmclone.database import rows
from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile.decision import Action
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import home
from cinder_dmclone.reconcile import loans
from cinder_dmclone.reconcile import observed
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.world import World

Stacks = dict[LvUuid, Stack]


class Fate(enum.Enum):
    """What becomes of something."""

    MOVES = 'it can move now'
    WAITS = 'it goes, or can move, when something has ended by itself'
    STAYS = 'somebody has to do something about it'


@dataclasses.dataclass(frozen=True)
class Item:
    """Something that is on the node.

    :ivar why: what it waits for, or why it stays
    :ivar volume: if it is a volume of this node
    :ivar snapshot: if it is a snapshot that is here
    :ivar size: of either, in GiB
    :ivar reader: the other node that hydrates from it, if one does
    """

    what: str
    fate: Fate
    why: str = ''
    volume: VolumeId | None = None
    snapshot: SnapshotRow | None = None
    size: int = 0
    reader: NodeName | None = None

    @property
    def moves(self) -> str | None:
        """The id of what can move, now or later; None if nothing can."""
        return self.snapshot.id if self.snapshot else self.volume

    def staying(self, why: str) -> Item:
        """The same, as somebody has to do something about it."""
        return dataclasses.replace(self, fate=Fate.STAYS, why=why)


def look(world: World) -> list[Item]:
    """All that keeps this node from being empty, volumes first.

    :raises DatabaseAway: if the database does not answer
    """
    # In this order a volume that moves meanwhile is looked for again, or
    # found as what others need.
    here = sorted(world.rows.on(world.settings.node),
                  key=lambda row: row.id)
    stacks = inspect.collect(world.host, patient=True)
    of = _rows_of(world, stacks)
    snapshots = _snapshots_of(world, stacks, of)
    kept = world.rows.hindrances(here, rows.Leave())
    shows = asking.Shows(world)
    shows.gather(_places(here, stacks, kept))
    found = [_volume(shows, row, stacks.get(row.lv),
                     kept.get(row.id, '')) for row in here]
    at_home = {row.lv: row for row in here}
    for lv, stack in sorted(stacks.items()):
        found += _others(shows, observed.Facts(
            world.settings.node, stack, at_home.get(lv), borrowers=of,
            snapshots=snapshots))
    return found


def _places(here: typing.Iterable[rows.Row], stacks: Stacks,
            kept: typing.Container[VolumeId]) -> typing.Iterator[Location]:
    """The LVs that this node reads, and that read from it."""
    for row in here:
        if not row.unreadable and row.source and row.id not in kept:
            yield row.source
    for stack in stacks.values():
        yield from (tag.borrower for tag in stack.tags.lent)


def _rows_of(world: World, stacks: Stacks) -> dict[VolumeId, rows.Row]:
    """The rows of all volumes that the LVs of this node name, by their ids."""
    wanted = {volume for stack in stacks.values()
              for volume in (*stack.volumes, *stack.borrowers)}
    return {row.id: row for row in world.rows.find(wanted)}


def _snapshots_of(world: World, stacks: Stacks,
                  of: dict[VolumeId, rows.Row]
                  ) -> dict[SnapshotId, SnapshotRow]:
    """Those of the snapshots that they are, or that they were lent to."""
    wanted = {tag.snapshot for stack in stacks.values()
              for tag in stack.tags.snaps}
    wanted |= {SnapshotId(borrower) for stack in stacks.values()
               for borrower in stack.borrowers if borrower not in of}
    return {row.id: row for row in world.snapshots.find(wanted)}


# -- a volume of this node ---------------------------------------------------

def _volume(shows: asking.Shows, row: rows.Row, stack: Stack | None,
            kept: str) -> Item:
    """What becomes of a volume.

    :param kept: what keeps it from leaving, as its row says
    """
    def item(fate: Fate, why: str = '') -> Item:
        return Item(f'volume {row.id}', fate, why, row.id, size=row.size)

    if row.unreadable:
        return item(Fate.STAYS, row.unreadable)
    if row.offer and row.migrates:
        return item(Fate.WAITS, f'it moves to {row.offer}')
    if kept:
        return item(Fate.STAYS, kept + _remedy(row))
    if stack is None or stack.data is None:
        return item(Fate.STAYS, f'its LV {names.data_lv(row.lv)} is missing '
                    'here')
    if row.offer:
        return item(Fate.WAITS, f'it moves to {row.offer}')
    if stack.tags.lost:
        return item(Fate.STAYS, f'its lender {row.source} is lost, and what '
                    'has not arrived was given up: copy what can be read to '
                    'another volume')
    return item(*_hydrating(shows, row.source))


def _hydrating(shows: asking.Shows,
               source: Location | None) -> tuple[Fate, str]:
    """What becomes of something that is as soon as it has hydrated."""
    if not source:
        return Fate.MOVES, ''
    why = f'it hydrates from {source}'
    if not shows.works(source.node):
        return Fate.STAYS, f'{why}, which is down: start it'
    shown = shows.of(source)
    if shown and shown.state is LvState.MISSING:
        return Fate.STAYS, f'{why}, which is lost: see the page "Failures"'
    return Fate.WAITS, why


def _remedy(row: rows.Row) -> str:
    """What to do about those who have a volume."""
    if row.shared:
        return ('; it is one of several servers, and stays as long as it is: '
                'detach it')
    if row.attachments:
        return '; live-migrate its server, or detach it'
    return ''


# -- what others need, and what is left --------------------------------------

def _others(shows: asking.Shows,
            facts: observed.Facts) -> typing.Iterator[Item]:
    """What becomes of an LV besides the volume that it may be.

    :param facts: with the row of the volume that it is, and of no other
    """
    stack, row = facts.stack, facts.row
    what, tags = f'LV {names.data_lv(stack.lv)}', stack.tags
    if stack.unreadable:
        yield Item(what, Fate.STAYS, stack.unreadable)
        return
    for snap in tags.snaps:
        yield _snapshot(shows, facts, snap)
    offer = row.offer if row and not row.unreadable else None
    lent = [tag for tag in tags.lent if not offer or tag.borrower != offer]
    for tag in lent:
        yield _lent(shows, what, facts, tag)
    if not (row or lent or tags.snaps):
        yield _left(what, stack, facts.borrowers)


def _snapshot(shows: asking.Shows, facts: observed.Facts,
              tag: lv_tags.SnapTag) -> Item:
    """What becomes of a snapshot that an LV is, or says it is."""
    what = f'snapshot {tag.snapshot} of volume {tag.volume}'
    row = facts.snapshots.get(tag.snapshot)
    if row is None or row.unreadable:
        return Item(what, Fate.STAYS, row and row.unreadable or
                    'the database does not know it; see the log of '
                    'cinder-volume here')
    if row.deleted or row.status == SnapshotStatus.DELETING:
        return Item(what, Fate.WAITS, 'it is being deleted')
    if row.offer == facts.here:
        return Item(what, Fate.STAYS, f'it moves here from {row.at}; to end '
                    f'that: cinder-dmclone move-snapshot {row.id} '
                    f'{row.at and row.at.node} --yes')
    if row.at != facts.here:
        return Item(what, Fate.WAITS, f'it is {row.at or "not made yet"}, '
                    'and no more here')
    if row.offer:
        works = shows.works(row.offer.node)
        return Item(what, Fate.WAITS if works else Fate.STAYS,
                    f'it moves to {row.offer}' + (
                        '' if works else ', which is down: start it'))
    fate, why = _hydrating(shows, facts.stack.tags.hydrates_from)
    if row.status != SnapshotStatus.AVAILABLE:
        fate, why = Fate.STAYS, f'its status is {row.status}'
    return Item(what, fate, why, snapshot=row, size=row.size)


def _lent(shows: asking.Shows, what: str, facts: observed.Facts,
          tag: lv_tags.LoanTag) -> Item:
    node = tag.node
    kind = ('snapshot' if SnapshotId(tag.volume) in facts.snapshots
            else 'volume')
    volume = f'{kind} {tag.volume}'
    reader = None if tag.local else node
    if not shows.works(node):
        return Item(what, Fate.STAYS, f'{volume} needs it on {node}, '
                    'which is down: start it; if it is lost, see the page '
                    '"Failures"', reader=reader)
    answers = observed.Answers()
    found = _standing(shows, answers.beside(facts), tag, answers)
    if found is None:
        return Item(what, Fate.WAITS, f'all of {volume} is on {node}, '
                    'and this is being deleted')
    if found.step is Verdict.REPORT:
        shown = answers.shown.get(tag.borrower)
        gone = shown and shown.state is LvState.MISSING
        return Item(what, Fate.STAYS, f'{found.why}; see the page "Failures"',
                    reader=None if gone else reader)
    return Item(what, Fate.WAITS, f'{volume} on {node} hydrates from it',
                reader=reader)


def _standing(shows: asking.Shows, facts: observed.Facts, tag: lv_tags.LoanTag,
              answers: observed.Answers) -> Decision | None:
    """Why a loan stands, as the reconciler sees it; None if it ends.

    :param answers: those that the facts have; get what is asked
    """
    row, found = facts.row, None
    if row and not row.unreadable and row.id == tag.volume:
        found = home.stale_loan(facts, row, tag)
    found = found or loans.standing(facts, tag)
    if found is None or found.step is Action.REVOKE:
        return None
    if not found.ask:
        return found
    for place in found.ask:
        shown = shows.of(place)
        if shown is None:
            answers.silent[place] = f'{place.node} does not show it'
        else:
            answers.shown[place] = shown
    return _standing(shows, facts, tag, answers)


def _left(what: str, stack: Stack,
          of: typing.Mapping[VolumeId, rows.Row]) -> Item:
    """An LV that is no volume, no snapshot, and lent to nobody."""
    found = [of[volume] for volume in stack.volumes if volume in of]
    if stack.tags.forgotten or stack.tags.erased or (
            found and all(row.deleted for row in found)):
        return Item(what, Fate.WAITS, 'it is being deleted')
    if stack.tags.copy:
        return Item(what, Fate.STAYS, f'volume {stack.tags.copy.volume} is '
                    'about to move here: end that attachment or migration')
    return Item(what, Fate.STAYS, f'{status.role_of(stack)}; see the log of '
                'cinder-volume here')
