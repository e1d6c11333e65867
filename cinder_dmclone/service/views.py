# SPDX-License-Identifier: Apache-2.0
"""Reading a snapshot where it is, as a backup does.

Cinder asks the volume's home, which may be another node. Nothing is written
down: the status of what is read is why there is a view.
"""

from __future__ import annotations

import typing

from cinder_dmclone.database import snapshots as records
from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import Answer
from cinder_dmclone.peers import snapshot_messages
from cinder_dmclone.service.base import Service
from cinder_dmclone.service import snapshots
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import inspect

Connector = dict[str, typing.Any]


def connect(service: Service, snapshot: SnapshotId,
            connector: Connector) -> dict[str, typing.Any]:
    """Let a connector read a snapshot; returns Cinder's connection info.

    :raises CannotServe: if it is on no node, or the connector is elsewhere
        and names no iSCSI initiator
    :raises PeerRefused: if its node cannot have it read
    """
    found = _row(service, snapshot)
    return _there(service, found, snapshot_messages.ConnectSnapshot(
        found.volume, snapshot, connector), connect_here)


def disconnect(service: Service, snapshot: SnapshotId,
               connector: Connector) -> None:
    """End that; idempotent.

    :raises DeviceBusy: if somebody has it open
    """
    found = _row(service, snapshot)
    _there(service, found, snapshot_messages.DisconnectSnapshot(
        found.volume, snapshot, connector), disconnect_here)


def _row(service: Service, snapshot: SnapshotId) -> records.SnapshotRow:
    found = service.world.snapshots.get(snapshot)
    if found is None:
        raise exceptions.CannotServe(
            volume=snapshot, node=service.node,
            reason='the database has no such snapshot')
    return found


def _there(service: Service, found: records.SnapshotRow,
           request: messages.Request[Answer],
           here: typing.Callable[..., Answer]) -> Answer:
    if found.at is None:
        raise exceptions.CannotServe(volume=found.volume, node=service.node,
                                     reason=f'snapshot {found.id} is on no '
                                     'node')

    def ask(node: NodeName) -> Answer:
        if node != service.node:
            return service.world.peers.ask(node, request)
        with service.locked(request.volume):
            return here(service, request)
    return snapshots.there(service, found, ask)


def connect_here(service: Service, request: snapshot_messages.ConnectSnapshot
                 ) -> dict[str, typing.Any]:
    """Have a snapshot of this node read; its volume's lock is held."""
    stack, tag = snapshots.readable(service, request.snapshot)
    initiator = request.connector.get('initiator')
    if request.connector.get('host') == service.world.settings.host:
        initiator = None
    elif not initiator:
        raise exceptions.CannotServe(
            volume=request.volume, node=service.node,
            reason=f'snapshot {request.snapshot} is read elsewhere, and the '
            'connector names no iSCSI initiator')
    try:
        return exports.view(service.host, stack, tag.snapshot, initiator)
    finally:
        service.loop.enqueue(stack.lv)


def disconnect_here(service: Service,
                    request: snapshot_messages.DisconnectSnapshot) -> None:
    """End that; its volume's lock is held."""
    found = _row(service, request.snapshot)
    if found.at:
        stack = inspect.refresh(service.host, found.at.lv)
        exports.unview(service.host, stack, request.snapshot,
                       request.connector.get('initiator'))
        service.loop.enqueue(stack.lv)
