# SPDX-License-Identifier: Apache-2.0
"""The driver's part of a row: the only authority on who owns a volume.

``provider_id`` reads ``<generation>[;from=<node>/<lv>][;offer=<node>/<lv>]``,
after an offer also ``[;renewed=<number>]``, and once it was taken back from a
node that is lost ``[;lost=<first>-<last>[,...]]``; each of that, and every
commit, adds one to the generation. That is format 1; any other begins with
``v<format>;``.
"""

from __future__ import annotations

import dataclasses

from cinder_dmclone.database import record
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location

Ranges = tuple[tuple[int, int], ...]

# So many times an operator may take a volume back and each be told apart.
_RANGES = 3
_FIELDS = ('from', 'offer', 'renewed', 'lost')
# So much of it an offer leaves free: that it can be renewed must not fail.
_RENEWAL = len(';renewed=999999')


@dataclasses.dataclass(frozen=True)
class ProviderId:
    """What stands in ``provider_id``.

    ``source`` is where the volume hydrates from, ``offer`` the copy that is
    being prepared for a relocation, ``renewed`` how often it was offered
    anew: a commit is of one of these times. ``lost`` are the first and the
    last generation that were given up when it was taken back, for each time;
    the oldest are one with all that is between.
    """

    generation: int
    source: Location | None = None
    offer: Location | None = None
    renewed: int = 0
    lost: Ranges = ()

    def __str__(self) -> str:
        text = str(self.generation)
        if self.source:
            text += f';from={self.source}'
        if self.offer:
            text += f';offer={self.offer}'
        if self.lost:
            text += ';lost=' + ','.join(
                f'{first}-{last}' for first, last in self.lost)
        longest = record.LONGEST
        if self.renewed:
            text += f';renewed={self.renewed}'
        elif self.offer:
            longest -= _RENEWAL
        return record.bounded(text, longest)

    @classmethod
    def parse(cls, text: str | None) -> ProviderId:
        """Read ``provider_id``; an empty one is generation 0.

        :raises CorruptRecord: if it makes no sense, or is of another format
        """
        if not text:
            return cls(0)
        generation, fields = record.split(text)
        found: dict[str, str] = {}
        for field in fields:
            key, _, value = field.partition('=')
            if key not in _FIELDS or key in found:
                raise exceptions.CorruptRecord(record=text,
                                               reason=f'{field!r}')
            found[key] = value
        source, offer = (Location.parse(found[key]) if key in found else None
                         for key in ('from', 'offer'))
        return cls(generation, source, offer,
                   record.number(text, found.get('renewed', '0')),
                   tuple(_range(text, one) for one in found['lost'].split(','))
                   if 'lost' in found else ())


def _range(text: str, field: str) -> tuple[int, int]:
    first, _, last = field.partition('-')
    return record.number(text, first), record.number(text, last)


def and_lost(known: Ranges, first: int, last: int) -> Ranges:
    """What is given up if this is, too; few enough for a record."""
    found = (*known, (first, last))
    while len(found) > _RANGES:
        oldest = [*found[0], *found[1]]
        found = ((min(oldest), max(oldest)), *found[2:])
    return found
