# SPDX-License-Identifier: Apache-2.0
"""A snapshot moves to another node: what an operator asks for."""

from __future__ import annotations

import typing

from cinder_dmclone.location import NodeName
from cinder_dmclone.peers.snapshot_messages import MoveSnapshot
from tests.simulation import recoveries

if typing.TYPE_CHECKING:
    from tests.simulation import control
    from tests.simulation import snaps


def move(api: control.Api, taken: snaps.Snapshot, peer: NodeName) -> None:
    """``move-snapshot SNAPSHOT NODE --yes``."""
    at = _node(api, taken)
    _ask(api, at, MoveSnapshot(api.volume, taken.id, peer, ''))


def stay(api: control.Api, taken: snaps.Snapshot) -> None:
    """The same with the node that it is on."""
    move(api, taken, _node(api, taken))


def _node(api: control.Api, taken: snaps.Snapshot) -> NodeName:
    if taken.at is None:
        raise api.refused('move snapshot: it is nowhere')
    return taken.at.node


def _ask(api: control.Api, node: NodeName,
         request: MoveSnapshot) -> None:
    try:
        plan = recoveries.ask(api, node, request)
        recoveries.ask(api, node, MoveSnapshot(
            request.volume, request.snapshot, request.peer, plan.record))
    except recoveries.NoAnswer:
        raise api.refused('move snapshot: no answer') from None
