# SPDX-License-Identifier: Apache-2.0
"""What is told of a move to another node, and to whom."""

from __future__ import annotations

import dataclasses
import enum
import typing

from oslo_log import log as logging

from cinder_dmclone.location import NodeName
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId

LOG = logging.getLogger(__name__)


class What(enum.Enum):
    """What has just become true in the row of what moves."""

    START = 'start'
    END = 'end'
    ERROR = 'error'


@dataclasses.dataclass(frozen=True)
class Move:
    """One attempt to move a volume, or one of its snapshots.

    :ivar generation: that it has afterwards, if it moves
    :ivar source: ``host@backend`` that it is on, or was on
    :ivar target: ``host@backend`` that it moves to
    :ivar snapshot: None if it is the volume that moves
    """

    volume: VolumeId
    generation: int
    source: NodeName
    target: NodeName
    snapshot: SnapshotId | None = None

    def __str__(self) -> str:
        """What moves, as a line of the log begins."""
        return (f'Snapshot {self.snapshot}' if self.snapshot
                else f'Volume {self.volume}')


class Listener(typing.Protocol):
    """Somebody who wants to know.

    The volume's lock is held, and a server may wait: it neither waits for
    anything nor asks anybody.
    """

    def __call__(self, what: What, move: Move, reason: str) -> None:
        """
        :param reason: why it stays, in words; empty if it does not
        """


class Moves:
    """Tells all who listen; a move goes on whatever becomes of them."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Have somebody told from now on."""
        self._listeners.append(listener)

    def tell(self, what: What, move: Move, reason: str = '') -> None:
        """What has become of a move; see ``Listener``."""
        for listener in self._listeners:
            try:
                listener(what, move, reason)
            except Exception:
                LOG.exception('%(moved)s: what became of its move could not '
                              'be told.', {'moved': move})
