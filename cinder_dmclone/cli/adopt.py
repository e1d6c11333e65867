# SPDX-License-Identifier: Apache-2.0
"""``cinder-dmclone adopt``: a volume is an LV of which its row does not know.

Everything is done here: cinder-volume does not run, here and on all nodes
that may take what they have for the volume.
"""

from __future__ import annotations

import contextlib
import typing

from cinder import exception

from cinder_dmclone.cli import decisions
from cinder_dmclone.cli.errors import fail
from cinder_dmclone.database import rows
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone import locks
from cinder_dmclone import names
from cinder_dmclone.reconcile import adoption
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import reader
from cinder_dmclone.stack import inspect
from cinder_dmclone.world import World

# What keeps it from being done or told.
_FAILURES = (*decisions.FAILURES, exception.ServiceNotFound)


def run(lv: LvUuid, worlds: typing.Sequence[World], yes: bool) -> int:
    """Show what the row would say, and with ``--yes`` make it say so.

    :returns: 0, 1 if it may not be done, 2 if it could not be done or told
    """
    otherwise = decisions.UNCHANGED
    try:
        world = decisions.with_lv(lv, worlds)
        with contextlib.ExitStack() as stack:
            stack.enter_context(
                locks.Presence(world.settings.node).absent())
            volume = inspect.refresh(world.host, lv).volume
            stack.enter_context(world.locks.volume(
                volume, deadlines.LOCK_SECONDS))
            known = reader.Reader(world).now(lv, volume,
                                             observed.no_answers())
            _require(world, known)
            _tell(known)
            if not yes:
                print(f'{decisions.UNCHANGED} With --yes it is done.')
                return 0
            otherwise = ('Whether it was done is not known: run the command '
                         'again')
            _adopt(world, known)
    except (exceptions.NotAdopted, exceptions.RowChanged) as error:
        return fail(error.msg, 1)
    except exceptions.ServiceRuns as error:
        return fail(f'cinder-volume works on {error.kwargs["node"]}, or '
                    f'another command does: stop it first. '
                    f'{decisions.UNCHANGED}', 1)
    except _FAILURES as error:
        return fail(f'{decisions.said(error).rstrip(".")}. {otherwise}')
    print('Done. Start cinder-volume when the rows of all volumes are right.')
    return 0


def _require(world: World, known: observed.Facts) -> None:
    """
    :raises NotAdopted: if it may not be done
    """
    reason = adoption.why_not(known)
    if not reason:
        up = sorted(node for node in adoption.concerned(known)
                    if world.peers.is_up(node))
        if up:
            reason = (f'cinder-volume works on {" and ".join(up)}, which may '
                      'have the volume too, or has reported in within '
                      'service_down_time: stop it first')
    if reason:
        raise exceptions.NotAdopted(lv=known.stack.lv, node=known.node,
                                    reason=reason)


def _tell(known: observed.Facts) -> None:
    row = known.row
    assert row is not None
    record = adoption.record(known)
    source = f', which hydrates from {record.source}' if record.source else ''
    print(f'Volume {row.id} becomes {known.here} (generation '
          f'{record.generation}){source}. The row says {row.owner} '
          f'(generation {row.generation}).',
          *(f'gives up: {line}' for line in adoption.given_up(known)),
          sep='\n')


def _adopt(world: World, known: observed.Facts) -> None:
    assert known.row is not None
    owner = rows.Owner(known.here, world.settings.pool)
    fresh = world.rows.adopt(known.row, owner, adoption.record(known))
    if fresh.owner != known.here:
        raise exceptions.NotAdopted(
            lv=known.stack.lv, node=known.node,
            reason=f'the volume is {fresh.owner} by now, '
            f'{names.data_lv(known.stack.lv)} is as it was')
