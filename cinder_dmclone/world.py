# SPDX-License-Identifier: Apache-2.0
"""Everything outside the protocol's own logic."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.events.moves import Moves
from cinder_dmclone.locks import Locks
from cinder_dmclone.peers.client import Peers
from cinder_dmclone.ports import Host
from cinder_dmclone.database.snapshots import SnapshotStore
from cinder_dmclone.database.volumes import RowStore
from cinder_dmclone.settings import Settings


class Clock(typing.Protocol):
    """Time, as far as the protocol knows it."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


@dataclasses.dataclass(frozen=True)
class World:
    """This node, the database, the other nodes, and time.

    :ivar moves: is told of moves, for whoever wants to know
    """

    host: Host
    rows: RowStore
    snapshots: SnapshotStore
    peers: Peers
    locks: Locks
    clock: Clock
    moves: Moves = dataclasses.field(default_factory=Moves)

    @property
    def settings(self) -> Settings:
        """What the operator chose for this node."""
        return self.host.settings
