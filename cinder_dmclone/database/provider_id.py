# SPDX-License-Identifier: Apache-2.0
"""The driver's part of a row: the only authority on who owns a volume.

``provider_id`` reads ``<generation>[;from=<node>/<lv>][;offer=<node>/<lv>]``;
every commit adds one to the generation. That is format 1; any other begins
with ``v<format>;``.
"""

from __future__ import annotations

import dataclasses
import re

from cinder_dmclone import exceptions
from cinder_dmclone.location import Location

# provider_id is a varchar(255).
LONGEST = 255


@dataclasses.dataclass(frozen=True)
class ProviderId:
    """What stands in ``provider_id``.

    ``source`` is where the volume hydrates from, ``offer`` the copy that is
    being prepared for a relocation.
    """

    generation: int
    source: Location | None = None
    offer: Location | None = None

    def __str__(self) -> str:
        text = str(self.generation)
        if self.source:
            text += f';from={self.source}'
        if self.offer:
            text += f';offer={self.offer}'
        if len(text) > LONGEST:
            raise exceptions.BadRecord(
                record=text, reason='longer than 255 characters; use '
                'shorter host or backend names')
        return text

    @classmethod
    def parse(cls, text: str | None) -> ProviderId:
        """Read ``provider_id``; an empty one is generation 0.

        :raises BadRecord: if it makes no sense, or is of another format
        """
        if not text:
            return cls(0)
        head, *fields = text.split(';')
        if re.fullmatch(r'v\d+', head):
            raise exceptions.LaterFormat(record=text, format=head[1:])
        found: dict[str, Location] = {}
        for field in fields:
            key, _, value = field.partition('=')
            if key not in ('from', 'offer') or key in found:
                raise exceptions.BadRecord(record=text, reason=f'{field!r}')
            found[key] = Location.parse(value)
        if not head.isdecimal():
            raise exceptions.BadRecord(record=text, reason='no generation')
        return cls(int(head), found.get('from'), found.get('offer'))
