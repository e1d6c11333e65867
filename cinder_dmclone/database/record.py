# SPDX-License-Identifier: Apache-2.0
"""What all records have in common: a generation comes first, or a format."""

from __future__ import annotations

import re
import typing

from cinder_dmclone import exceptions


# provider_id is a varchar(255), in both tables.
LONGEST = 255


def bounded(text: str, longest: int = LONGEST) -> str:
    """A record, if it is not longer than it may be.

    :raises CorruptRecord: if it is
    """
    if len(text) > longest:
        raise exceptions.CorruptRecord(
            record=text, reason=f'longer than {longest} characters; use '
            'shorter host or backend names')
    return text


def split(text: str) -> tuple[int, list[str]]:
    """The generation of a record of format 1, and its other fields.

    :raises CorruptRecord: if it has no generation
    :raises LaterFormat: if another release of this driver wrote it
    """
    head, *fields = text.split(';')
    if re.fullmatch(r'v\d+', head):
        raise exceptions.LaterFormat(record=text, format=head[1:])
    return number(text, head), fields


def number(text: str, field: str) -> int:
    """What stands in a field of a record.

    :raises CorruptRecord: if it is no number
    """
    if not field.isdecimal():
        raise exceptions.CorruptRecord(record=text,
                                       reason=f'{field!r} is no number')
    return int(field)


class Recorded:
    """A row that has one; ``record`` reads it."""

    record: typing.Any

    @property
    def unreadable(self) -> str | None:
        """Why the driver's part makes no sense here; None if it does."""
        try:
            self.record
        except exceptions.CorruptRecord as error:
            return error.msg
        return None
