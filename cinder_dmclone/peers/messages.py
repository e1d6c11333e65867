# SPDX-License-Identifier: Apache-2.0
"""What nodes tell each other, as values."""

from __future__ import annotations

import dataclasses

from cinder_dmclone.host.iscsi import importer
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units

TOPIC = 'cinder-dmclone'
VERSION = '1.0'


@dataclasses.dataclass(frozen=True)
class Copy:
    """A copy to be prepared: what the lender tells the borrower.

    ``size`` and ``block`` (the logical block size) are in bytes.
    """

    volume: VolumeId
    generation: int
    lv: LvUuid
    lender: Location
    iqn: str
    portal: str
    size: int
    block: int
    user: str
    password: str = dataclasses.field(repr=False)

    @property
    def tags(self) -> tuple[lv_tags.CopyTag, lv_tags.SourceTag]:
        return (lv_tags.CopyTag(self.generation, self.volume),
                lv_tags.SourceTag(
                    self.lender.node, self.lender.lv, self.iqn, self.portal,
                    units.Bytes(self.size), self.block))

    @property
    def source(self) -> importer.Source:
        return importer.Source(
            self.iqn, self.portal, self.lender.lv, units.Bytes(self.size),
            self.block, self.user, self.password)


@dataclasses.dataclass(frozen=True)
class Identity:
    """Who a borrower is, full or not; ``block`` as in ``Copy``."""

    pool: str
    group: GroupUuid
    block: int
    initiator: str


@dataclasses.dataclass(frozen=True)
class Room(Identity):
    """What a borrower could take in, in bytes."""

    free: int


@dataclasses.dataclass(frozen=True)
class Shown:
    """A peer's statement about one of its LVs, as of now.

    ``state``: 'complete', 'hydrating', 'copy', 'missing' or 'unclear'.
    ``source`` is the location that it hydrates from.
    """

    state: str
    generation: int = 0
    size: int = 0
    group: GroupUuid | None = None
    source: str = ''
