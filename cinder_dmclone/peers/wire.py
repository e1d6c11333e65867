# SPDX-License-Identifier: Apache-2.0
"""Values as JSON, and back."""

from __future__ import annotations

import dataclasses
import functools
import typing

from cinder_dmclone.location import Location

_hints = functools.cache(typing.get_type_hints)


def pack(value: typing.Any) -> typing.Any:
    """A value as it crosses the wire."""
    if isinstance(value, Location):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {field.name: pack(getattr(value, field.name))
                for field in dataclasses.fields(value)}
    return value


def unpack(kind: typing.Any, value: typing.Any) -> typing.Any:
    """The value of a type that ``pack`` was given.

    :raises TypeError: if another release has more fields, or fewer
    :raises BadRecord: if a location is none
    """
    if kind is Location:
        return Location.parse(value)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: unpack(hints.get(name), part)
                       for name, part in value.items()})
    return value
