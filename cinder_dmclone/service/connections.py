# SPDX-License-Identifier: Apache-2.0
"""Connections: begun and ended by the volume's home, whoever is asked."""

from __future__ import annotations

import typing

from cinder.message import api as message_api
from cinder.message import message_field
from cinder import context as cinder_context
from cinder.objects.fields import VolumeStatus
from oslo_log import log as logging

from cinder_dmclone.database import rows
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.location import host_of
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import schedule
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.relocation import cut
from cinder_dmclone.relocation import live_migration
from cinder_dmclone.service import attach_policy
from cinder_dmclone.service.attach_policy import How
from cinder_dmclone.service.base import Service
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import state

LOG = logging.getLogger(__name__)

Connector = dict[str, typing.Any]


def connect(service: Service, volume_id: VolumeId,
            connector: Connector) -> dict[str, typing.Any]:
    """Serve a connector; returns Cinder's connection info.

    A retry waits for the attempt that runs and gets its result. What waits
    for the end of a hydration waits without the lock.
    """
    clock, settings = service.world.clock, service.world.settings
    deadline = clock.monotonic() + settings.budget * deadlines.HYDRATES_PART
    while True:
        try:
            return service.at_home(messages.Connect(volume_id, connector),
                                   connect_here)
        except exceptions.Hydrates as error:
            if clock.monotonic() >= deadline:
                _tell_user(service.row(volume_id), error)
                raise
        clock.sleep(schedule.SOONEST)


def disconnect(service: Service, volume_id: VolumeId,
               connector: Connector | None) -> bool:
    """End a connection; every connection if there is no connector.

    :returns: whether others still use it
    :raises StillUsed, ServerHere: if somebody has its device open
    """
    return service.at_home(messages.Disconnect(volume_id, connector),
                           disconnect_here)


def give_away(service: Service, volume_id: VolumeId) -> None:
    """Take from whoever is logged in what becomes another one's.

    While it does, nobody is given it (``transfer_accept`` of the database
    comes after this). A request that comes twice, late, is none.

    :raises StillUsed: see ``disconnect``
    """
    if service.row(volume_id).status == VolumeStatus.AWAITING_TRANSFER:
        disconnect(service, volume_id, None)


# -- begun ------------------------------------------------------------------

def connect_here(service: Service, row: rows.Row,
                 request: messages.Connect) -> dict[str, typing.Any]:
    """Serve a connector of a volume of this node; its lock is held."""
    try:
        known = service.settled(row, 'connected')
        return _serve(service, known, request.connector)
    finally:
        # Nobody may want any more what was made.
        service.loop.enqueue(row.id)


def _serve(service: Service, known: observed.Facts,
           connector: Connector) -> dict[str, typing.Any]:
    row, stack = known.row, known.stack
    assert row is not None
    found = _place(service, row, connector)
    if found.how is How.REFUSE:
        refusal = exceptions.CannotServe(volume=row.id, node=service.node,
                                         reason=found.why)
        _tell_user(row, refusal)
        raise refusal
    if found.how in (How.RELOCATE, How.LIVE):
        try:
            return _relocate(service, row, found)
        except exceptions.HasToStay as error:
            found = _in_place(service, row, found, connector, error)
    if found.how is not How.LOCAL and (
            row.id in service.copying
            # Cinder itself connects to copy what it encrypts, or a snapshot.
            or stack.is_open(names.local_io(stack.known_as))
            and not any(a.attached for a in row.attachments)):
        raise exceptions.CannotServe(
            volume=row.id, node=service.node,
            reason='an image is being copied to it; try again later')
    if found.how is not How.FRONT or row.shared:
        service.require_unoffered(row, 'connected')
    if not stack.put_together:
        raise exceptions.CannotServe(
            volume=row.id, node=service.node, reason='its devices cannot '
            'be put together; see the log of cinder-volume there')
    if known.reads_elsewhere:
        _require_unmixed(service, row, stack, found.how)
    host = service.host
    if attach_policy.only_reads(row):
        return exports.view(host, stack, row.id, None
                            if found.how is How.LOCAL
                            else connector['initiator'])
    row, stack = cut.writable(service.world, row, stack)
    if found.how is How.ISCSI:
        return exports.export(host, stack, row.id, connector['initiator'])
    if found.how is How.FRONT:
        name = names.front(host.settings.host, stack.known_as)
        if name not in stack.devices:
            live_migration.keep_here(service.world, row)
        consumers.consume(host, stack, name)
        return exports.local(name.path, stack.thin)
    name = names.local_io(stack.known_as)
    consumers.consume(host, stack, name)
    return exports.local(host.dm.link(str(name)))


def _place(service: Service, row: rows.Row,
           connector: Connector) -> attach_policy.Placement:
    peers, host = service.world.peers, service.world.settings.host
    asking, initiator = connector.get('host', ''), connector.get('initiator')
    peer = None if asking == host else peers.node_of(asking)
    peer_up = bool(peer and peers.is_up(peer))
    misnamed = (peers.node_with(initiator) if initiator and asking
                and asking != host and not peer else None)
    return attach_policy.place(row, connector, host, peer, peer_up, misnamed)


def _require_unmixed(service: Service, row: rows.Row, stack: state.Stack,
                     how: How) -> None:
    """
    :raises Hydrates: if other servers have to have a volume in another way
    """
    why = attach_policy.mixes(
        how, row, service.world.settings.host,
        here=bool(stack.of_kind(names.Kind.FRONT)),
        elsewhere=bool(stack.of_kind(names.Kind.SERVE)))
    if why:
        raise exceptions.Hydrates(volume=row.id, node=service.node,
                                  reason=why)


def _in_place(service: Service, row: rows.Row,
              found: attach_policy.Placement, connector: Connector,
              error: exceptions.HasToStay) -> attach_policy.Placement:
    instead = attach_policy.without_moving(
        found, connector, service.world.settings.serves_the_full)
    if instead.how is How.REFUSE:
        _tell_user(row, error)
        raise error
    LOG.info('Volume %(volume)s is served from %(node)s to %(peer)s over '
             'iSCSI, as dmclone_no_room says, until it is detached and '
             'attached anew. Until then its server cannot be live-migrated, '
             'unless the volume is multiattach. %(error)s',
             {'volume': row.id, 'node': service.node, 'peer': found.peer,
              'error': error.msg})
    return instead


def _relocate(service: Service, row: rows.Row,
              found: attach_policy.Placement) -> dict[str, typing.Any]:
    peer, purpose = found.peer, found.purpose
    assert peer is not None
    try:
        if row.id in service.copying:
            raise exceptions.CannotRelocate(
                volume=row.id, node=service.node, peer=peer,
                reason='an image is being copied; try again later')
        move = (live_migration.offer
                if isinstance(purpose, rows.LiveMigration)
                else coordinator.relocate)
        return move(service.world, row, peer, purpose)
    except exceptions.HasToStay:
        raise  # it may be served all the same
    except exceptions.DMCloneException as error:
        _tell_user(row, error)
        raise
    finally:
        service.loop.enqueue(row.lv)


def _tell_user(row: rows.Row, error: exceptions.DMCloneException) -> None:
    """Leave a message with ``openstack volume message list``.

    Cinder shows only its own fixed texts there; the reason is in the
    answer to the request.
    """
    LOG.error('Attaching volume %(volume)s failed: %(error)s',
              {'volume': row.id, 'error': error.msg})
    context = cinder_context.RequestContext(
        project_id=row.project, is_admin=True)
    message_api.API().create(
        context, message_field.Action.ATTACH_VOLUME,
        resource_uuid=row.id, detail=message_field.Detail.ATTACH_ERROR)


# -- ended ------------------------------------------------------------------

def disconnect_here(service: Service, row: rows.Row,
                    request: messages.Disconnect) -> bool:
    """End a connection to a volume of this node; its lock is held."""
    # Cinder deletes the attachment after this. Who looks before that finds
    # its front missing, and makes it.
    later = schedule.SOONEST
    try:
        # What needs the operator can still be detached.
        _, known = service.loop.settle(row, later)
        if known.row is None:
            raise service.unknown(row.id)
        return _drop(service, known.row, known.stack, request.connector)
    except exceptions.ServerHere:
        raise
    except exceptions.DeviceBusy as error:
        raise exceptions.StillUsed(volume=row.id, node=service.node,
                                   reason=error.msg) from error
    finally:
        service.loop.enqueue(row.lv, later)


def _drop(service: Service, row: rows.Row, stack: state.Stack,
          connector: Connector | None) -> bool:
    host, here = service.host, service.world.settings.host
    if row.offer:
        row, moved = _end_offer(service, row, stack, connector)
        if moved:
            return True
    if attach_policy.only_reads(row):
        exports.unview(host, stack, row.id,
                       (connector or {}).get('initiator'))
        return False
    if connector is not None and attach_policy.goes_on(row, connector, here):
        return True
    shared = False
    if connector is None or connector.get('host') != here:
        initiator = (connector or {}).get('initiator')
        if connector is None or initiator:
            shared = exports.unexport(host, stack, initiator)
    if connector is None:
        exports.unview_elsewhere(host, stack, row.id)
    if connector is None or connector.get('host') == here:
        for front in stack.of_kind(names.Kind.FRONT):
            host.dm.remove(str(front))
        if not row.connected_at(here):
            host.dm.remove(str(names.local_io(stack.known_as)))
    return shared


def _end_offer(service: Service, row: rows.Row, stack: state.Stack,
               connector: Connector | None) -> tuple[rows.Row, bool]:
    """What the end of an attachment means for a live migration.

    Nova deletes the attachment of the node that the server is not on: here
    after a success, there after a failure. Errors it only logs, so neither is
    taken at its word: a server that has its device open here has not moved.

    :returns: the row, and whether there is nothing more to do
    :raises DeviceBusy: if the server is here
    :raises CannotRelocate, PeerUnreachable, PeerRefused: if the other node
        does not say what it has
    """
    world, host = service.world, service.world.settings.host
    copy, attachment = row.offer, row.migration
    assert copy is not None
    there = host_of(copy.node)
    asking = (connector or {}).get('host')
    if connector is not None and asking not in (host, there):
        # It comes late: neither end of the live migration was meant.
        return row, False
    if asking == there and len(row.connected_at(there)) > 1:
        # One that Nova asked for and got no answer; it asked again.
        return row, True
    moved = (asking == host and attachment is not None
             and attachment.attached)
    fronts = [front for front in stack.of_kind(names.Kind.FRONT)
              if stack.is_open(front)]
    if fronts and (connector is None or asking == host):
        raise exceptions.ServerHere(volume=row.id, node=service.node,
                                    device=fronts[0], peer=copy.node)
    try:
        if moved and live_migration.is_there(world, row, stack):
            pool = world.peers.ask(copy.node, messages.Identify()).pool
            live_migration.hand_over(world, row, copy, pool)
            world.peers.notify(copy.node, row.id)
            return row, True
        row = coordinator.withdraw(
            world, row, f'the copy on {copy.node} is gone' if moved else
            'its server did not move: its attachment was deleted')
        return row, asking == there
    finally:
        service.loop.enqueue(row.lv)
