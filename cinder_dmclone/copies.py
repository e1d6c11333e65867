# SPDX-License-Identifier: Apache-2.0
"""What a borrower is told about the copy it has to build."""

from __future__ import annotations

import dataclasses

from cinder_dmclone.iscsi import importer
from cinder_dmclone import records
from cinder_dmclone import units


@dataclasses.dataclass(frozen=True)
class Copy:
    """A copy to be prepared: what the lender tells the borrower.

    ``size`` and ``block`` (the logical block size) are in bytes.
    """

    volume: str
    generation: int
    lv: str
    lender: records.Location
    iqn: str
    portal: str
    size: int
    block: int
    user: str
    password: str = dataclasses.field(repr=False)

    @property
    def tags(self) -> tuple[records.Copy, records.From]:
        return (records.Copy(self.generation, self.volume),
                records.From(self.lender.node, self.lender.lv, self.iqn,
                             self.portal, self.size, self.block))

    @property
    def source(self) -> importer.Source:
        return importer.Source(
            self.iqn, self.portal, self.lender.lv, units.Bytes(self.size),
            self.block, self.user, self.password)


def source_of(tag: records.From) -> importer.Source:
    """What must be found behind a recorded source; holds no secret."""
    return importer.Source(tag.iqn, tag.portal, tag.lv,
                           units.Bytes(tag.size), tag.block, '', '')
