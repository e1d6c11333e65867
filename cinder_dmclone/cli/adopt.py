# SPDX-License-Identifier: Apache-2.0
"""``cinder-dmclone adopt``: the database is wrong about an LV of this node.

A volume, or a snapshot, is an LV of which its row does not know; or the row
of another volume names it as well. The tags of the LV say what is right.
Everything is done here: cinder-volume does not run, here and on all nodes
that may take what they have for the volume.
"""

from __future__ import annotations

import contextlib
import dataclasses
import typing

from cinder import exception

from cinder_dmclone.cli import decisions
from cinder_dmclone.cli.errors import fail
from cinder_dmclone.cli.errors import UNCHANGED
from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone.database import rows
from cinder_dmclone.database.snapshots import SnapshotRow
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone import locks
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import LvState
from cinder_dmclone.reconcile import adoption
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import pins
from cinder_dmclone.reconcile import reader
from cinder_dmclone.stack import inspect
from cinder_dmclone.world import World

_FAILURES = (*decisions.FAILURES, exception.ServiceNotFound)


@dataclasses.dataclass(frozen=True)
class _Change:
    """What is made right.

    :ivar lines: what an operator is told
    :ivar make: makes it so
    :ivar others: nodes on which cinder-volume may not work meanwhile
    """

    lines: list[str]
    make: typing.Callable[[], None]
    others: typing.Collection[NodeName]


def run(lv: LvUuid, worlds: typing.Sequence[World], yes: bool) -> int:
    """Show what the rows would say, and with ``--yes`` make them say so.

    :returns: 0, 1 if it may not be done, 2 if it could not be done or told
    """
    otherwise = UNCHANGED
    try:
        world = decisions.with_lv(lv, worlds)
        with contextlib.ExitStack() as stack:
            stack.enter_context(
                locks.Presence(world.settings.node).absent())
            volume = inspect.refresh(world.host, lv).volume
            stack.enter_context(world.locks.volume(
                volume, deadlines.LOCK_SECONDS))
            known = reader.Reader(world).now(lv, volume, observed.Answers())
            change = (_of_rivals(world, known) or _of_snapshots(world, known)
                      or _of_volume(world, known))
            _require_down(world, known, change.others)
            print(*change.lines, sep='\n')
            if not yes:
                print(f'{UNCHANGED} With --yes it is done.')
                return 0
            otherwise = ('Whether it was done is not known: run the command '
                         'again')
            change.make()
    except (exceptions.NotAdopted, exceptions.RowChanged) as error:
        return fail(error.msg, 1)
    except exceptions.ServiceRuns as error:
        return fail(f'{error.msg} {UNCHANGED}', 1)
    except _FAILURES as error:
        return fail(f'{decisions.said(error)}. {otherwise}')
    print('Done. Start cinder-volume when the rows of all volumes are right.')
    return 0


def _require_down(world: World, known: observed.Facts,
                  others: typing.Collection[NodeName]) -> None:
    """
    :raises NotAdopted: if one may work
    """
    up = sorted(node for node in others if world.peers.is_up(node))
    if up:
        raise _refusal(known, f'cinder-volume works on {" and ".join(up)}, '
                       'which may have the volume too, or has reported in '
                       'within service_down_time: stop it first')


def _refusal(known: observed.Facts, reason: str) -> exceptions.NotAdopted:
    return exceptions.NotAdopted(lv=known.stack.lv, node=known.node,
                                 reason=reason)


def _is_nowhere(world: World, place: Location) -> bool:
    """Whether another node says that it has no such LV: it never will."""
    if not world.peers.is_up(place.node):
        return False
    try:
        return decisions.ask(world, place.node, messages.Show(
            place.lv)).state is LvState.MISSING
    except (exceptions.PeerRefused, exceptions.PeerUnreachable):
        return False


# -- a volume ---------------------------------------------------------------

def _of_volume(world: World, known: observed.Facts) -> _Change:
    """
    :raises NotAdopted: if it may not be done
    """
    mistaken = (known.row is not None and adoption.renamed(known)
                and _is_nowhere(world, known.row.owner))
    reason = adoption.why_not(known, mistaken)
    if reason:
        raise _refusal(known, reason)
    row, record = known.row, adoption.record(known)
    assert row is not None
    source = f', which hydrates from {record.source}' if record.source else ''
    return _Change([
        f'Volume {row.id} becomes {known.here} (generation '
        f'{record.generation}){source}. The row says {row.owner} (generation '
        f'{row.generation}).',
        *(f'gives up: {line}' for line in adoption.given_up(known))],
        lambda: _adopt(world, known), adoption.concerned(known, mistaken))


def _adopt(world: World, known: observed.Facts) -> None:
    assert known.row is not None
    owner = rows.Owner(known.here, world.settings.pool)
    fresh = world.rows.adopt(known.row, owner, adoption.record(known))
    if fresh.owner != known.here:
        raise _refusal(known, f'the volume is {fresh.owner} by now, '
                       f'{names.data_lv(known.stack.lv)} is as it was')


# -- volumes that are something else ----------------------------------------

def _of_rivals(world: World, known: observed.Facts) -> _Change | None:
    """Volumes whose rows name what the tags call another volume.

    :returns: None if only one row names it
    :raises NotAdopted: if somebody uses it
    """
    own, here = known.stack.tags.own, known.here
    claim = {row.id: row for row in world.rows.homes(
        known.node, [here.lv]) if row.owner == here}
    if own is None or known.stack.tags.copy or len(claim) < 2 or (
            claim.pop(own.volume, None) is None):
        return None
    held = [name for name in known.stack.of_kind(*names.CONSUMERS)
            if known.stack.is_held(name)]
    if held:
        raise _refusal(known, f'{held[0]} is in use, and volumes '
                       f'{", ".join(sorted([own.volume, *claim]))} claim it')
    lines: list[str] = []
    others: set[NodeName] = set()
    for row in claim.values():
        lines += [
            f'Volume {row.id} is nowhere: its row says {here}, which is '
            f'volume {own.volume}. If another LV is volume {row.id}, '
            '"cinder-dmclone adopt" that on its node afterwards; if none is, '
            'delete the volume.',
            f'gives up: what the row of volume {row.id} says: '
            f'{row.provider_id}']
        if not row.unreadable:
            others.update(place.node for place in (row.source, row.offer)
                          if place)
    return _Change(lines, lambda: _disown(world, list(claim.values())),
                   others - {known.node})


def _disown(world: World, claim: typing.Iterable[rows.Row]) -> None:
    """Have rows name LVs that there never will be."""
    for row in claim:
        nowhere = Location.never_used(row.node)
        world.rows.adopt(row, rows.Owner(nowhere, world.settings.pool),
                         ProviderId(0, lost=row.lost))


# -- snapshots --------------------------------------------------------------

def _of_snapshots(world: World, known: observed.Facts) -> _Change | None:
    """Snapshots that the LV is, of which their rows do not know.

    :returns: None if it is no such LV
    """
    found = pins.misplaced(known)
    if not found or known.stack.data is None or known.stack.unreadable or (
            known.stack.tags.forgotten):
        return None
    lines = [f'Snapshot {row.id} becomes {known.here}. The row says '
             f'{row.at or "nothing"}.' for row in found]
    lines += [f'gives up: what {row.at} has of it'
              for row in found if row.at]
    others = {row.at.node for row in found
              if row.at and row.at.node != known.node
              and not _is_nowhere(world, row.at)}
    return _Change(lines, lambda: _pin(world, known, found), others)


def _pin(world: World, known: observed.Facts,
         found: typing.Iterable[SnapshotRow]) -> None:
    for row in found:
        world.snapshots.adopt(row, known.here)
