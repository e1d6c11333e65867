# SPDX-License-Identifier: Apache-2.0
"""The protocol that moves a volume to another node.

::

    home node A                                node B
    -----------                                ------
    offer     CAS: the row names the copy
    lend      tag, flush, export
    prepare   ------------------------------>  build the copy, answer its path
    seal      no writer, flush
    commit    CAS: the row names B's LV
              - - - - - - - - - - - - - - - >  adopt, hydrate, finish

Up to the commit every failure is undone by *withdraw*: the row first, then
the rest. After it there is only forward, and nothing raises. A crash at any
point leaves what the reconciler finds and settles.
"""

from __future__ import annotations

import contextlib
import typing
import uuid

from oslo_log import log as logging
from oslo_utils import excutils

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone import records
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import state
from cinder_dmclone.stack import teardown
from cinder_dmclone.stack import write_gate
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)


# Part of a call's budget (World.settings.budget), which is 45 s by default.
PREPARE_PART = 25 / 45


def relocate(world: World, row: rows.Row, peer: str,
             purpose: rows.Purpose) -> str:
    """Move a volume from this node to ``peer``; the caller holds its lock.

    :param peer: ``host@backend``
    :returns: the path of the volume's front there
    :raises CannotRelocate, PeerAway, PeerRefused, RowChanged: the volume is
        still here and usable, nothing is left behind that the reconciler
        does not clean up
    :raises DatabaseAway: the outcome is not known; it is settled later
    """
    room = find_room(world, row, peer)
    # Whatever would stop the seal is found before anything is made.
    check_sealable(world, row)
    row = offer(world, row, peer, purpose)
    with undone(world, row):
        path = prepare_there(world, row, room, purpose)
        seal(world, row)
        commit(world, row, room.pool, purpose)
    world.peers.nudge(peer, row.id)
    return path


@contextlib.contextmanager
def undone(world: World, row: rows.Row) -> typing.Iterator[None]:
    """Withdraw the row's offer if what happens inside fails."""
    try:
        yield
    except exceptions.DatabaseAway:
        raise
    except Exception:
        with excutils.save_and_reraise_exception():
            _undo(world, row)


def offer(world: World, row: rows.Row, peer: str,
          purpose: rows.Purpose) -> rows.Row:
    """Write down a copy that has never been before; the row as it is now."""
    copy = records.Location(peer, str(uuid.uuid4()))
    return world.rows.offer(row, copy, purpose)


def prepare_there(world: World, row: rows.Row, room: messages.Room,
                  purpose: rows.Purpose) -> str:
    """Lend to the offered copy and have it built; the path of its front."""
    assert row.offer is not None
    spec = lend(world, row, room)
    return world.peers.prepare(
        row.offer.node, spec, room.group,
        front=purpose.attachment is not None, gated=purpose.live,
        seconds=world.settings.budget * PREPARE_PART)


def commit(world: World, row: rows.Row, pool: str,
           purpose: rows.Purpose) -> None:
    """Make the offered copy the volume; there is no way back.

    Its node has to be told.

    :param pool: the pool of the copy's node
    """
    copy = row.offer
    assert copy is not None
    world.rows.commit(row, rows.Owner(copy, pool), purpose)
    LOG.info('Volume %(volume)s moved from %(here)s to %(there)s.',
             {'volume': row.id, 'here': row.owner, 'there': copy})


def find_room(world: World, row: rows.Row, peer: str) -> messages.Room:
    """Ask the peer for room before anything is written down.

    :raises CannotRelocate: if there is none, or its disks do not fit
    """
    def cannot(reason: str) -> exceptions.CannotRelocate:
        return exceptions.CannotRelocate(
            volume=row.id, node=world.settings.node, peer=peer,
            reason=reason)

    report = world.host.group.report()
    lv = report.lvs.get(names.data_lv(row.lv))
    if lv is None:
        raise cannot(f'its LV {names.data_lv(row.lv)} is missing')
    room = world.peers.room(peer, lv.size)
    if room.free < lv.size:
        raise cannot(f'{peer} has not enough room: the volume needs '
                     f'{lv.size} bytes, {room.free} are free')
    if room.block != report.block_size:
        raise cannot(f'the disks of {peer} have {room.block}-byte blocks, '
                     f'those of {world.settings.node} {report.block_size}')
    return room


# -- the lender's steps -----------------------------------------------------

def lend(world: World, row: rows.Row, room: messages.Room) -> messages.Copy:
    """Mark the LV lent, durably, and export it to the borrower."""
    copy = row.offer
    assert copy is not None
    tag = records.Lent(row.generation + 1, row.id, copy.node, copy.lv,
                       room.group, room.initiator)
    world.host.group.retag(names.data_lv(row.lv), add=[records.print_tag(tag)])
    world.host.group.flush()
    unit = inspect.refresh(world.host, row.lv)
    exports.export_loan(world.host, unit, tag)
    assert unit.data is not None
    iqn = exports.loan_iqn(world.host, unit, tag)
    user, password = world.settings.credentials(iqn)
    return messages.Copy(
        volume=row.id, generation=tag.generation, lv=copy.lv,
        lender=row.owner, iqn=iqn, portal=world.settings.portal,
        size=unit.data.size, block=world.host.group.report().block_size,
        user=user, password=password)


def reclaim(world: World, unit: state.Unit, tag: records.Lent) -> None:
    """Forget a loan: its offer was withdrawn or never used."""
    iqn = exports.loan_iqn(world.host, unit, tag)
    world.host.exporter.remove(iqn)
    world.host.dm.remove(str(names.loan(unit.lv, tag.lv)))
    world.host.group.retag(names.data_lv(unit.lv),
                           remove=[records.print_tag(tag)])
    world.host.group.flush()


def check_sealable(world: World, row: rows.Row,
                   live: bool = False) -> state.Unit:
    """Whether no writer has the volume open here.

    :param live: a front may be open, it can be gated
    :raises CannotRelocate: if one has
    """
    unit = inspect.refresh(world.host, row.lv)
    for name in unit.of_kind(*names.WRITERS):
        gateable = live and name.kind is names.Kind.FRONT
        if unit.is_held(name) and not gateable:
            raise exceptions.CannotRelocate(
                volume=row.id, node=world.settings.node, peer='another node',
                reason=f'{name} is in use')
    return unit


def seal(world: World, row: rows.Row, live: bool = False) -> None:
    """Leave no writer on the volume, then make durable what was written.

    The fence is observed: the kernel's open count of what the consumers lead
    to must equal our read-only loans, the sluice and the gated fronts.
    Flushing is needed because flushes on the borrower reach only its disk.

    :param live: gate a front that is open, instead of giving up
    :raises CannotRelocate: if somebody else has it open
    """
    unit = check_sealable(world, row, live)
    if live and unit.of_kind(names.Kind.FRONT):
        unit = write_gate.prepare(world.host, unit)
    allowed = len(unit.of_kind(names.Kind.LOAN, names.Kind.SLUICE))
    for name in unit.of_kind(*names.WRITERS):
        if unit.is_held(name):
            write_gate.close(world.host, unit, name)
            allowed += 1
        else:
            consumers.drop(world.host, unit, name)
    openers = consumers.openers(world.host, unit)
    if openers != allowed:
        raise exceptions.CannotRelocate(
            volume=row.id, node=world.settings.node, peer='another node',
            reason=f'it is open {openers} times instead of {allowed}')
    consumers.flush(world.host, unit)


def withdraw(world: World, row: rows.Row) -> rows.Row:
    """Take an offer back: the row first, then what was made for it."""
    copy = row.offer
    assert copy is not None
    row = world.rows.withdraw(row)
    try:
        world.peers.discard(copy.node, row.id, copy.lv)
    except (exceptions.PeerAway, exceptions.PeerRefused) as error:
        LOG.warning('Volume %(volume)s: %(copy)s is left to the reconciler '
                    'of its node: %(error)s',
                    {'volume': row.id, 'copy': copy, 'error': error})
        if isinstance(error, exceptions.PeerRefused):
            # It may be the volume, and the row an old one that was restored:
            # what it shows decides about the loan.
            return row
    unit = inspect.refresh(world.host, row.lv)
    for tag in unit.tags.lent:
        if tag.borrower == copy:
            reclaim(world, unit, tag)
    return row


def _undo(world: World, row: rows.Row) -> None:
    try:
        withdraw(world, row)
    except exceptions.DMCloneException as error:
        LOG.warning('Volume %(volume)s: offer %(offer)s is left to the '
                    'reconciler: %(error)s',
                    {'volume': row.id, 'offer': row.offer, 'error': error})


# -- the borrower's steps ---------------------------------------------------

def prepare(world: World, copy: messages.Copy, front: bool, gated: bool,
            seconds: float) -> str:
    """Build the offered copy; the caller holds the volume's lock here.

    A second message for the same copy gets the same answer. Past the
    deadline the copy is undone: nobody waits for it any more.

    :param seconds: how long the lender waits
    :returns: the path of the copy's front
    :raises PeerRefused: if the row does not offer this copy to this node
    """
    started = world.clock.monotonic()
    settings = world.settings
    here = records.Location(settings.node, copy.lv)
    row = world.rows.get(copy.volume)
    if (not row or row.deleted or row.offer != here
            or row.generation + 1 != copy.generation
            or row.owner != copy.lender):
        raise exceptions.PeerRefused(
            node=settings.node, what='to prepare a copy', reason='the '
            f'database does not offer {here}')
    unit = inspect.refresh(world.host, copy.lv)
    name = names.front(settings.host, copy.lv)
    if unit.meta_tag and unit.meta_tag.ready and unit.assembled and (
            unit.gated(name) == gated):
        return name.path
    if unit.data:
        teardown.teardown(world.host, unit)
        raise exceptions.PeerRefused(
            node=settings.node, what='to prepare a copy', reason='an '
            'earlier attempt with the same LV was interrupted')
    try:
        clones.build(world.host, copy.lv, copy.tags, copy.source, front)
        if gated:
            unit = inspect.refresh(world.host, copy.lv)
            write_gate.prepare(world.host, unit)
            write_gate.close(world.host, unit, name)
        if world.clock.monotonic() - started > seconds:
            raise exceptions.PeerRefused(
                node=settings.node, what='to prepare a copy',
                reason=f'it took longer than {seconds:.0f} seconds')
    except Exception:
        with excutils.save_and_reraise_exception():
            teardown.teardown(world.host, inspect.refresh(world.host, copy.lv))
    return name.path


def adopt(world: World, unit: state.Unit, row: rows.Row) -> None:
    """Become the owner the row already names; durable before hydration."""
    # What was read before the commit may be older than the volume.
    world.host.dm.drop_cache(*(name.path for name in unit.of_kind(
        names.Kind.FRONT, names.Kind.CLONE)))
    # A server waits for this. The tag matters for a boot only, and may be
    # more cautious than the row.
    if unit.of_kind(*names.GATE):
        write_gate.release(world.host, unit)
    stale = [tag for tag in (unit.tags.copy,) if tag]
    own = records.Own(row.generation, row.id)
    world.host.group.retag(names.data_lv(unit.lv),
                           add=[records.print_tag(own)],
                           remove=[records.print_tag(tag) for tag in stale])
    world.host.group.flush()


def discard(world: World, volume_id: str, lv: str) -> None:
    """Destroy a copy whose offer the row no longer holds.

    :raises PeerRefused: if the copy may still be needed
    """
    here = records.Location(world.settings.node, lv)
    unit = inspect.refresh(world.host, lv)
    row = world.rows.get(volume_id)
    if row is None or here in (row.owner, row.offer, row.source):
        raise exceptions.PeerRefused(
            node=world.settings.node, what='to destroy a copy',
            reason=f'the row still names {here}')
    if unit.data and not unit.tags.copy:
        raise exceptions.PeerRefused(
            node=world.settings.node, what='to destroy a copy',
            reason=f'{here} is more than a copy')
    if unit.tags.lent or (unit.tags.generation > row.generation):
        raise exceptions.PeerRefused(
            node=world.settings.node, what='to destroy a copy',
            reason=f'{here} is lent, or ahead of the database')
    write_gate.give_up(world.host, unit)
    teardown.teardown(world.host, unit)
