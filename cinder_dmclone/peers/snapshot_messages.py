# SPDX-License-Identifier: Apache-2.0
"""What nodes ask each other about snapshots."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone import deadlines
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers.messages import Lent
from cinder_dmclone.peers.messages import Lock
from cinder_dmclone.peers.messages import Plan
from cinder_dmclone.peers.messages import Request


@dataclasses.dataclass(frozen=True)
class TakeSnapshot(Request[None]):
    """Make the volume a snapshot that is being created.

    It may wait for a live migration; the lock is not held meanwhile.
    """

    part = 1.0

    volume: VolumeId
    snapshot: SnapshotId


@dataclasses.dataclass(frozen=True)
class ConnectSnapshot(Request[dict[str, typing.Any]]):
    """Let a connector read a snapshot; the answer is the connection info.

    :ivar volume: whose snapshot it is
    """

    part = deadlines.CALL_PART
    lock = Lock.CALL

    volume: VolumeId
    snapshot: SnapshotId
    connector: dict[str, typing.Any]


@dataclasses.dataclass(frozen=True)
class DisconnectSnapshot(Request[None]):
    """End that."""

    part = deadlines.CALL_PART
    lock = Lock.CALL

    volume: VolumeId
    snapshot: SnapshotId
    connector: dict[str, typing.Any]


@dataclasses.dataclass(frozen=True)
class CopySnapshot(Request[None]):
    """Build the LV that a snapshot of another node is to be.

    Who asks holds the lock of the snapshot's volume there: a home that waits
    for that lock, and holds the one here, is given way to.

    :ivar volume: whose snapshot it is
    :ivar lv: the LV on this node, which the snapshot's row offers
    :ivar group: uuid that the node's volume group must have
    :ivar seconds: the node undoes the copy if it takes longer
    """

    lock = Lock.SHORT

    volume: VolumeId
    snapshot: SnapshotId
    generation: int
    lv: LvUuid
    lent: Lent
    group: GroupUuid
    seconds: float

    def timeout(self, response_timeout: float) -> float:
        return self.seconds


@dataclasses.dataclass(frozen=True)
class MoveSnapshot(Request[Plan]):
    """Have a snapshot of yours copied to another node, and be there then.

    :ivar volume: whose snapshot it is
    :ivar peer: the other node, empty for any that has room; or you, if it is
        on its way and is to stay
    :ivar record: as in ``TakeBack``
    """

    part = 1.0
    lock = Lock.SHORT

    volume: VolumeId
    snapshot: SnapshotId
    peer: NodeName
    record: str
