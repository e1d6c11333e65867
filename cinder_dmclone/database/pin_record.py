# SPDX-License-Identifier: Apache-2.0
"""The driver's part of a snapshot's row: which LV the snapshot is.

``provider_id`` of a snapshot reads ``<generation>;at=<node>/<lv>``. Without
``at`` it is nowhere, and never will be at this generation. That is format 1;
any other begins with ``v<format>;``.
"""

from __future__ import annotations

import dataclasses
import re

from cinder_dmclone.database.provider_id import LONGEST
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location


@dataclasses.dataclass(frozen=True)
class PinRecord:
    """What stands in a snapshot's ``provider_id``."""

    generation: int
    at: Location | None = None

    def __str__(self) -> str:
        text = str(self.generation) + (f';at={self.at}' if self.at else '')
        if len(text) > LONGEST:
            raise exceptions.CorruptRecord(
                record=text, reason='longer than 255 characters; use '
                'shorter host or backend names')
        return text

    @classmethod
    def parse(cls, text: str) -> PinRecord:
        """Read a snapshot's ``provider_id``.

        :raises CorruptRecord: if it makes no sense, or is of another format
        """
        head, _, rest = text.partition(';')
        if re.fullmatch(r'v\d+', head):
            raise exceptions.LaterFormat(record=text, format=head[1:])
        if not head.isdecimal():
            raise exceptions.CorruptRecord(record=text,
                                           reason=f'{head!r} is no number')
        if not rest:
            return cls(int(head))
        if not rest.startswith('at=') or ';' in rest:
            raise exceptions.CorruptRecord(record=text, reason=f'{rest!r}')
        return cls(int(head), Location.parse(rest.removeprefix('at=')))
