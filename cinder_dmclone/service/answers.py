# SPDX-License-Identifier: Apache-2.0
"""What this node answers other nodes.

Whatever a message says, it is acted upon only if a fresh row, read under
this node's own lock, says the same. The lock is held already, if the request
says so (``peers/messages.py``).
"""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm
from cinder_dmclone.peers import messages
from cinder_dmclone.peers import snapshot_messages
from cinder_dmclone.reconcile import questions
from cinder_dmclone.reconcile import schedule
from cinder_dmclone.relocation import borrower
from cinder_dmclone.relocation import holes
from cinder_dmclone.relocation import live_migration
from cinder_dmclone.relocation import room
from cinder_dmclone.service.base import Service
from cinder_dmclone.service import births
from cinder_dmclone.service import connections
from cinder_dmclone.service import forgetting
from cinder_dmclone.service import migrate
from cinder_dmclone.service import recovery
from cinder_dmclone.service import releasing
from cinder_dmclone.service import snapshot_moves
from cinder_dmclone.service import snapshots
from cinder_dmclone.service import undoing
from cinder_dmclone.service import views
from cinder_dmclone.service import volumes
from cinder_dmclone import units


def identify(service: Service, request: messages.Identify
             ) -> messages.Identity:
    """Who this node is, also when it is full."""
    return _identity(service, service.host.group.report())


def find_room(service: Service, request: messages.FindRoom) -> messages.Room:
    """What this node could take in.

    :raises PeerRefused: if the volume does not end with an extent of this
        node
    """
    host, size = service.host, request.size
    report = host.group.report()
    if size % report.extent_size:
        # The copy would end with what another volume has left there.
        raise exceptions.PeerRefused(
            node=service.node, what=f'a volume of {size} bytes',
            reason=f'the extents of {report.name} have '
            f'{report.extent_size} bytes: it cannot be as large')
    there, lacks, free = _identity(service, report), '', units.Bytes(0)
    try:
        free = room.free(host, report, size)
    except exceptions.NoRoom as error:
        lacks = error.msg
    return messages.Room(**dataclasses.asdict(there), free=free, lacks=lacks)


def prepare(service: Service, request: messages.Prepare) -> str:
    """Build an offered copy; see ``relocation.borrower.prepare``."""
    service.require_group(request.group, 'to prepare a copy')
    try:
        return borrower.prepare(service.world, request)
    finally:
        service.loop.enqueue(request.lv)


def hand_over(service: Service, request: messages.HandOver) -> None:
    """Make an offered copy the volume (``relocation.live_migration``)."""
    row = service.row(request.volume)
    if row.owner == request.copy:
        # The answer to an earlier request was lost.
        return
    service.require_home(row)
    try:
        live_migration.hand_over(service.world, row, request.copy,
                                 request.pool)
    finally:
        # The server there waits: what is left to do here can wait.
        service.loop.enqueue(row.lv, schedule.SOONEST)


def discard(service: Service, request: messages.Discard) -> None:
    """Destroy a withdrawn copy; see ``relocation.borrower.discard``."""
    borrower.discard(service.world, request.volume, request.lv)


def agree(service: Service, request: messages.Agree) -> bool:
    """Whether a copy elsewhere may go.

    A copy's LV is never offered twice: once this is true it stays true.
    """
    row = service.world.rows.get(request.volume)
    return bool(row and request.copy not in row.places)


def show(service: Service, request: messages.Show) -> messages.Shown:
    """What this node has under an LV uuid, now."""
    return questions.show(service.host, request.lv)


def find_holes(service: Service, request: messages.FindHoles) -> list[int]:
    """What of an LV need not be copied; see ``relocation.holes``."""
    return holes.pack(holes.here(service.host, request.lv, request.copy))


def notify(service: Service, request: messages.Notify) -> None:
    """Look at a volume soon."""
    service.loop.enqueue(request.volume)


def _identity(service: Service, report: lvm.Report) -> messages.Identity:
    return messages.Identity(
        pool=service.world.settings.pool, group=report.uuid,
        block=report.block_size, thin=bool(service.host.group.pool),
        initiator=service.host.initiator.name())


# A request of the volume's home gets its row.
ANSWERS: dict[type[messages.AnyRequest],
              typing.Callable[..., typing.Any]] = {
    messages.Agree: agree,
    messages.Connect: connections.connect_here,
    snapshot_messages.ConnectSnapshot: views.connect_here,
    snapshot_messages.CopySnapshot: snapshot_moves.copy,
    messages.Discard: discard,
    messages.Disconnect: connections.disconnect_here,
    snapshot_messages.DisconnectSnapshot: views.disconnect_here,
    messages.Extend: volumes.extend_here,
    messages.FindHoles: find_holes,
    messages.FindRoom: find_room,
    messages.Forget: forgetting.forget,
    messages.GiveUp: recovery.give_up,
    messages.Undo: undoing.undo,
    messages.HandOver: hand_over,
    messages.Identify: identify,
    messages.Leave: migrate.leave,
    messages.Lend: births.lend,
    snapshot_messages.MoveSnapshot: snapshot_moves.move,
    messages.Notify: notify,
    messages.Prepare: prepare,
    messages.Release: releasing.release,
    messages.Show: show,
    messages.TakeBack: recovery.take_back,
    snapshot_messages.TakeSnapshot: snapshots.take,
}
