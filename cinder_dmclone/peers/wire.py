# SPDX-License-Identifier: Apache-2.0
"""Values as JSON, and back."""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing

from cinder_dmclone.location import Location
from cinder_dmclone.units import Bytes

_hints = functools.cache(typing.get_type_hints)


def pack(value: typing.Any) -> typing.Any:
    """A value as it crosses the wire."""
    if isinstance(value, Location):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Bytes):
        return int(value)
    if dataclasses.is_dataclass(value):
        return {field.name: pack(getattr(value, field.name))
                for field in dataclasses.fields(value)}
    return value


def unpack(kind: typing.Any, value: typing.Any) -> typing.Any:
    """The value of a type that ``pack`` was given.

    :raises TypeError: if another release has more fields, or fewer
    :raises ValueError: if a size or a state is none
    :raises CorruptRecord: if a location is none
    """
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        kind, = set(kind.__args__) - {types.NoneType}
    if kind is Location:
        return Location.parse(value)
    if isinstance(kind, type) and issubclass(kind, (enum.Enum, Bytes)):
        return kind(value)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: unpack(hints.get(name), part)
                       for name, part in value.items()})
    return value
