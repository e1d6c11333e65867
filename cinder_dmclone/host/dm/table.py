# SPDX-License-Identifier: Apache-2.0
"""dm tables as values that print and parse.

``str(table)`` is what dmsetup reads, ``Table.parse`` reads what the kernel
prints. The kernel rewrites what it was given (multipath gains features), so
tables are compared as values and never as text. Devices are 'major:minor'
throughout, as the kernel prints them.
"""

from __future__ import annotations

import dataclasses
import re
from typing import ClassVar, Iterable, Iterator, Mapping, Self

from cinder_dmclone.units import Sectors

_DEVNUM = re.compile(r'^\d+:\d+$')

# How many I/Os round-robin sends before it changes path; there is only one.
_REPEAT = '1000'


def _devnum(text: str) -> str:
    if not _DEVNUM.match(text):
        raise ValueError(f'{text!r} is not a device number')
    return text


def _counted(words: Iterator[str]) -> list[str]:
    """The arguments after a count; dm lets such lists be absent."""
    return [next(words) for _ in range(int(next(words, '0')))]


def pairs(words: Iterable[str]) -> dict[str, int]:
    """dm's ``name number name number ...``."""
    words = iter(words)
    return {name: int(next(words)) for name in words}


@dataclasses.dataclass(frozen=True)
class Linear:
    """A piece of another device, from ``offset`` on."""

    type: ClassVar[str] = 'linear'
    device: str
    offset: Sectors = Sectors(0)

    def __str__(self) -> str:
        return f'{_devnum(self.device)} {self.offset}'

    @classmethod
    def parse(cls, words: Iterator[str]) -> Self:
        """Read what the kernel shows; see ``Segment.parse``."""
        return cls(_devnum(next(words)), Sectors(int(next(words))))


@dataclasses.dataclass(frozen=True)
class Clone:
    """A dm-clone of ``source`` on ``data``.

    The kernel shows the features and core arguments that the table was
    loaded with; what messages changed since is in the status.
    """

    type: ClassVar[str] = 'clone'
    metadata: str
    data: str
    source: str
    region_size: Sectors
    features: frozenset[str] = frozenset()
    core: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        words = [_devnum(self.metadata), _devnum(self.data),
                 _devnum(self.source), str(self.region_size),
                 str(len(self.features)), *sorted(self.features),
                 str(2 * len(self.core))]
        for name, value in sorted(self.core.items()):
            words += [name, str(value)]
        return ' '.join(words)

    @classmethod
    def parse(cls, words: Iterator[str]) -> Self:
        """Read what the kernel shows; see ``Segment.parse``."""
        return cls(_devnum(next(words)), _devnum(next(words)),
                   _devnum(next(words)), Sectors(int(next(words))),
                   frozenset(_counted(words)), pairs(_counted(words)))


@dataclasses.dataclass(frozen=True)
class Multipath:
    """A device with one path, or none yet.

    :ivar path: its device number, or None
    :ivar queue: whether I/O waits while no path works, or fails
    """

    type: ClassVar[str] = 'multipath'
    path: str | None
    queue: bool

    def __str__(self) -> str:
        # bio: works on any path, a path that is not request-based needs it.
        features = ['queue_mode', 'bio']
        if self.queue:
            features.insert(0, 'queue_if_no_path')
        words = [str(len(features)), *features, '0']
        if self.path is None:
            words += ['0', '0']
        else:
            words += ['1', '1', 'round-robin', '0', '1', '1',
                      _devnum(self.path), _REPEAT]
        return ' '.join(words)

    @classmethod
    def parse(cls, words: Iterator[str]) -> Self:
        """Read what the kernel shows; see ``Segment.parse``."""
        features = _counted(words)
        _counted(words)  # hardware handler
        if 'bio' not in features:
            raise ValueError('not in bio mode')
        groups = int(next(words))
        next(words)  # the group used next
        path = None
        if groups:
            next(words)  # path selector
            _counted(words)  # its arguments
            paths = int(next(words))
            next(words)  # arguments per path
            if (groups, paths) != (1, 1):
                raise ValueError('more than one path')
            path = _devnum(next(words))
        return cls(path, 'queue_if_no_path' in features)


@dataclasses.dataclass(frozen=True)
class Gate:
    """Reads and flushes pass to ``device``, writes and discards to ``hold``.

    dm-delay without delays: it has a device for each of the three
    (``delay_map`` in dm-delay.c; dm core sends the data of a write that
    begins with a flush without that flush).
    """

    type: ClassVar[str] = 'delay'
    device: str
    offset: Sectors
    hold: str
    hold_offset: Sectors

    def __str__(self) -> str:
        passes = f'{_devnum(self.device)} {self.offset} 0'
        return f'{passes} {_devnum(self.hold)} {self.hold_offset} 0 {passes}'

    @classmethod
    def parse(cls, words: Iterator[str]) -> Self:
        """Read what the kernel shows; see ``Segment.parse``."""
        device, offset, *rest = words
        found = cls(_devnum(device), Sectors(int(offset)), _devnum(rest[1]),
                    Sectors(int(rest[2])))
        if str(found).split() != [device, offset, *rest]:
            raise ValueError('a delay that is no gate')
        return found


@dataclasses.dataclass(frozen=True)
class Error:
    """Every I/O fails."""

    type: ClassVar[str] = 'error'

    def __str__(self) -> str:
        return ''

    @classmethod
    def parse(cls, words: Iterator[str]) -> Self:
        """Read what the kernel shows; see ``Segment.parse``."""
        return cls()


@dataclasses.dataclass(frozen=True)
class Other:
    """A target this driver does not make, kept as text."""

    type: str
    parameters: str

    def __str__(self) -> str:
        return self.parameters


Target = Linear | Clone | Multipath | Gate | Error | Other
_TARGETS = {target.type: target
            for target in (Linear, Clone, Multipath, Gate, Error)}


@dataclasses.dataclass(frozen=True)
class Segment:
    """A range of a device and what it maps to."""

    start: Sectors
    length: Sectors
    target: Target

    def __str__(self) -> str:
        return (f'{self.start} {self.length} {self.target.type} '
                f'{self.target}').rstrip()

    @classmethod
    def parse(cls, line: str) -> Self:
        """
        :raises ValueError: if the line is not one of a table
        """
        start, length, kind, *words = line.split()
        target: Target = Other(kind, ' '.join(words))
        if kind in _TARGETS:
            try:
                target = _TARGETS[kind].parse(iter(words))
            except (StopIteration, ValueError, IndexError):
                pass  # one that somebody else made; it equals none of ours
        return cls(Sectors(int(start)), Sectors(int(length)), target)


@dataclasses.dataclass(frozen=True)
class Table:
    """What a device maps to; without segments it has no table.

    :raises ValueError: if there is a hole between two segments
    """

    segments: tuple[Segment, ...] = ()

    def __post_init__(self) -> None:
        end = Sectors(0)
        for segment in self.segments:
            if segment.start != end:
                raise ValueError(f'{segment} does not begin at {end}')
            end += segment.length

    @classmethod
    def single(cls, length: Sectors, target: Target) -> Self:
        """A table of one segment."""
        return cls((Segment(Sectors(0), length, target),))

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        :raises ValueError: if the text is not a table
        """
        return cls(tuple(Segment.parse(line)
                         for line in text.splitlines() if line.strip()))

    def __str__(self) -> str:
        return '\n'.join(str(segment) for segment in self.segments)

    @property
    def length(self) -> Sectors:
        """Size of the device."""
        return sum((segment.length for segment in self.segments), Sectors(0))

    def first(self, length: Sectors) -> Table:
        """So much of it from the beginning, if there is as much."""
        return Table(tuple(
            dataclasses.replace(segment, length=min(
                segment.length, Sectors(length - segment.start)))
            for segment in self.segments if segment.start < length))

    @property
    def queues(self) -> bool:
        """Whether I/O waits while a multipath device has no path."""
        return any(isinstance(segment.target, Multipath)
                   and segment.target.queue for segment in self.segments)

    def has_path(self, device: str) -> bool:
        """Whether a multipath device has this one, 'major:minor'."""
        return any(isinstance(segment.target, Multipath)
                   and segment.target.path == device
                   for segment in self.segments)

    def has(self, kind: type[Target]) -> bool:
        """Whether a segment maps to this kind of target."""
        return any(isinstance(segment.target, kind)
                   for segment in self.segments)
