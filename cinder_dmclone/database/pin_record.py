# SPDX-License-Identifier: Apache-2.0
"""The driver's part of a snapshot's row: which LV the snapshot is.

``provider_id`` of a snapshot reads
``<generation>;at=<node>/<lv>[;offer=<node>/<lv>]``. Without ``at`` it is
nowhere, and never will be at this generation. That is format 1; any other
begins with ``v<format>;``.
"""

from __future__ import annotations

import dataclasses

from cinder_dmclone.database import record
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location


@dataclasses.dataclass(frozen=True)
class PinRecord:
    """What stands in a snapshot's ``provider_id``.

    ``offer`` is a copy of the LV at which it is: the snapshot moves there when
    all of it has arrived.
    """

    generation: int
    at: Location | None = None
    offer: Location | None = None

    def __str__(self) -> str:
        at = f';at={self.at}' if self.at else ''
        offer = f';offer={self.offer}' if self.offer else ''
        return record.bounded(f'{self.generation}{at}{offer}')

    @classmethod
    def parse(cls, text: str) -> PinRecord:
        """Read a snapshot's ``provider_id``.

        :raises CorruptRecord: if it makes no sense, or is of another format
        """
        generation, fields = record.split(text)
        found = [field.partition('=') for field in fields]
        if [key for key, _, _ in found] != ['at', 'offer'][:len(found)]:
            raise exceptions.CorruptRecord(record=text, reason=f'{fields}')
        return cls(generation, *(Location.parse(value)
                                 for _, _, value in found))
