# SPDX-License-Identifier: Apache-2.0
"""Where an LV is, and the identifiers that must not be taken for another.

All of them are texts; a type checker keeps them apart.
"""

from __future__ import annotations

import dataclasses
import typing
import uuid

from cinder_dmclone import exceptions

# ``host@backend``: a cinder-volume service of this backend.
NodeName = typing.NewType('NodeName', str)
# The id of a row of ``volumes``; generic migration exchanges those of two.
VolumeId = typing.NewType('VolumeId', str)
# The id of a row of ``snapshots``.
SnapshotId = typing.NewType('SnapshotId', str)
# The uuid in the names of a data LV and of all that is built on it
# (``Volume.name_id``); used once and never again.
LvUuid = typing.NewType('LvUuid', str)
# LVM's own uuid of a volume group.
GroupUuid = typing.NewType('GroupUuid', str)


def host_of(node: NodeName) -> str:
    """By what name Nova and connectors know a node."""
    return node.partition('@')[0]


def backend_of(node: NodeName) -> str:
    """The name of a node's backend; its peers have the same."""
    return node.partition('@')[2]


def foreign(other: NodeName, node: NodeName) -> bool:
    """Whether something on another node is none of this one's backend.

    What has no node is nobody's yet.
    """
    return bool(other) and backend_of(other) != backend_of(node)


@dataclasses.dataclass(frozen=True)
class Location:
    """An LV on a node."""

    node: NodeName
    lv: LvUuid

    def __str__(self) -> str:
        return f'{self.node}/{self.lv}'

    @classmethod
    def never_used(cls, node: NodeName) -> Location:
        """A place on a node for an LV that is yet to be made.

        No two are alike: what is said of one is never about another that had
        its name.
        """
        return cls(node, LvUuid(str(uuid.uuid4())))

    @classmethod
    def parse(cls, text: str) -> Location:
        """Read what ``str()`` wrote.

        :raises CorruptRecord: if it is something else
        """
        node, slash, lv = text.rpartition('/')
        if not (node and slash and lv):
            raise exceptions.CorruptRecord(record=text, reason='not NODE/LV')
        return cls(NodeName(node), LvUuid(lv))
