# SPDX-License-Identifier: Apache-2.0
"""The borrower: builds the copy, becomes its owner, or destroys it."""

from __future__ import annotations

from oslo_utils import excutils

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.ports import Host
from cinder_dmclone.relocation import holes
from cinder_dmclone.relocation import room
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.stack import tagging
from cinder_dmclone.stack import teardown
from cinder_dmclone.stack import write_gate
from cinder_dmclone import units
from cinder_dmclone.world import World


def prepare(world: World, copy: messages.Prepare) -> str:
    """Build the offered copy; the caller holds the volume's lock here.

    A second message for the same copy gets the same answer. Past the
    deadline the copy is undone: nobody waits for it any more.

    :returns: the path of the copy's front
    :raises PeerRefused: if the row does not offer this copy to this node
    :raises NoRoom, LoginFailed, SourceMismatch: see ``build``
    """
    started = world.clock.monotonic()
    settings = world.settings
    here = Location(settings.node, copy.lv)
    row = world.rows.get(copy.volume)
    if (not row or row.deleted or row.offer != here
            or row.generation + 1 != copy.generation
            or row.owner != copy.lent.lender):
        raise exceptions.PeerRefused(
            node=settings.node, what='to prepare a copy', reason='the '
            f'database does not offer {here}')
    stack = inspect.refresh(world.host, copy.lv)
    name = names.front(settings.host, copy.lv)
    if stack.meta_tag and stack.meta_tag.ready and stack.assembled and (
            stack.gated(name) == copy.gated):
        return name.path
    if stack.data:
        _require_copy(world, stack, row, 'to prepare a copy')
        teardown.teardown(world.host, stack)
        raise exceptions.PeerRefused(
            node=settings.node, what='to prepare a copy', reason='an '
            'earlier attempt with the same LV was interrupted')
    try:
        build(world, copy.lv,
              lv_tags.CopyTag(copy.generation, copy.volume), copy.lent,
              copy.lent.size, copy.front, written=copy.gated)
        if copy.gated:
            stack = inspect.refresh(world.host, copy.lv)
            write_gate.prepare(world.host, stack)
            write_gate.close_gate(world.host, stack, name)
        if world.clock.monotonic() - started > copy.seconds:
            raise exceptions.PeerRefused(
                node=settings.node, what='to prepare a copy',
                reason=f'it took longer than {copy.seconds:.0f} seconds')
    except Exception:
        with excutils.save_and_reraise_exception():
            teardown.teardown(world.host, inspect.refresh(world.host, copy.lv))
    return name.path


def build(world: World, lv: LvUuid, copy: clones.Becomes,
          lent: messages.Lent, size: units.Bytes, front: bool = False,
          written: bool = False) -> None:
    """Make a copy of what was lent, on this node or another.

    :param copy: what it is to become
    :param size: its own, which may be more than what was lent
    :param written: whether somebody may still write what was lent
    :raises NoRoom: if its room is gone
    :raises LoginFailed, SourceMismatch: if the lender cannot be reached
    """
    skip = [] if written else holes.find(world, lv, lent)
    room.make(world, lv, size, copy, lent.tag)
    if lent.tag.local:
        clones.build_here(world.host, lv, skip)
    else:
        clones.build(world.host, lv, lent.source, front, skip)


def adopt(world: World, stack: Stack, row: rows.Row) -> None:
    """Become the owner the row already names; durable before hydration."""
    # What was read before the commit may be older than the volume.
    world.host.dm.drop_cache(*(name.path for name in stack.of_kind(
        names.Kind.FRONT, names.Kind.CLONE)))
    # A server waits for this. The tag matters for a boot only, and may be
    # more cautious than the row.
    if stack.of_kind(*names.GATE):
        write_gate.release(world.host, stack)
    tagging.write(world.host, stack.lv,
                  add=[lv_tags.OwnTag(row.generation, row.id)],
                  remove=[stack.tags.copy])


def discard(world: World, volume_id: VolumeId, lv: LvUuid) -> None:
    """Destroy a copy whose offer the row no longer holds.

    :raises PeerRefused: if the copy may still be needed
    """
    here = Location(world.settings.node, lv)
    stack = inspect.refresh(world.host, lv)
    # Who asks may have a record that Cinder copied from another volume's
    # (``_clone_image_volume`` of cinder/volume/manager.py).
    of = stack.tags.copy.volume if stack.tags.copy else volume_id
    found = {row.id: row for row in world.rows.find({volume_id, of})}
    if found.keys() != {volume_id, of} or any(here in row.places
                                              for row in found.values()):
        raise exceptions.PeerRefused(
            node=world.settings.node, what='to destroy a copy',
            reason=f'the row still names {here}')
    if stack.data:
        _require_copy(world, stack, found[of], 'to destroy a copy')
    destroy(world.host, stack)


def _require_copy(world: World, stack: Stack, row: rows.Row,
                  what: str) -> None:
    """See that an LV is nothing but a copy that may be destroyed.

    :raises PeerRefused: if it is, or was, more than that: the database may
        have gone back in time
    """
    here, reason = Location(world.settings.node, stack.lv), ''
    if not stack.tags.copy:
        reason = f'{here} is more than a copy'
    elif stack.tags.bars_front or stack.tags.generation > row.generation:
        reason = f'{here} is lent, or ahead of the database'
    elif stack.tags.copy.generation < row.generation:
        reason = f'{here} may have been the volume'
    if reason:
        raise exceptions.PeerRefused(node=world.settings.node, what=what,
                                     reason=reason)


def destroy(host: Host, stack: Stack) -> None:
    """Remove a copy that was withdrawn; I/O of a server that has it fails.

    If it waited the server could not be ended.

    :raises DeviceBusy: as long as a server has it open
    """
    write_gate.give_up(host, stack)
    try:
        teardown.teardown(host, stack)
    except exceptions.DeviceBusy:
        with excutils.save_and_reraise_exception():
            teardown.quiesce(host, stack)
