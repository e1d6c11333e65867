# SPDX-License-Identifier: Apache-2.0
"""A Cinder of three nodes as its API shows it, and a clock."""

from __future__ import annotations

import dataclasses
import typing

from cinder_dmclone.nova import rooms

GIB_FREE = {'node1': 100, 'node2': 100, 'node3': 10}


def pool(host: str, free: float, backend: str = 'dmclone', name: str = '',
         reserved: int = 0, total: float = 200) -> dict[str, typing.Any]:
    """A pool of this driver."""
    name = name or backend
    return {'name': f'{host}@{backend}#{name}', 'capabilities': {
        'location_info': f'dmclone:{host}@{backend}:uuid',
        'volume_backend_name': name, 'free_capacity_gb': free,
        'total_capacity_gb': total, 'reserved_percentage': reserved}}


def foreign(host: str = 'ceph') -> dict[str, typing.Any]:
    """A pool of another driver, which says less of itself."""
    return {'name': f'{host}@rbd#rbd', 'capabilities': {
        'volume_backend_name': 'rbd', 'free_capacity_gb': 'infinite'}}


def type_(name: str, **specs: str) -> dict[str, typing.Any]:
    return {'id': f'id-{name}', 'name': name, 'extra_specs': specs}


TYPES = [type_('local', volume_backend_name='dmclone'),
         type_('ceph', volume_backend_name='rbd'), type_('any')]


def report(free: typing.Mapping[str, float] = GIB_FREE,
           *more: dict[str, typing.Any], default: str | None = 'id-local'
           ) -> rooms.Report:
    """What Cinder says; ``more`` are further pools."""
    return rooms.Report([*(pool(*each) for each in free.items()), *more],
                        TYPES, default)


def volume(host: str, gib: int = 20, backend: str = 'dmclone',
           id_: str = 'v', servers: typing.Iterable[str] = ()
           ) -> rooms.Volume:
    return rooms.Volume(id_, rooms.Node(host, backend), gib,
                        frozenset(servers))


@dataclasses.dataclass
class Disk:
    """What is looked at of a block device mapping."""

    volume_id: str | None = None
    volume_type: str | None = None
    volume_size: int | None = None
    destination_type: str = 'volume'
    no_device: bool = False


@dataclasses.dataclass(eq=False)
class Host:
    """What is looked at of Nova's HostState."""

    host: str

    @property
    def uuid(self) -> str:
        return f'provider-{self.host}'


class Clock:
    """The time goes on if a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Cinder:
    """Answers, or raises ``error``, or waits for ``held``."""

    def __init__(self, **volumes: rooms.Volume) -> None:
        self.volumes = volumes
        self.free: dict[str, float] = dict(GIB_FREE)
        self.error: Exception | None = None
        self.held: typing.Callable[[], object] = bool
        self.asked: list[str] = []

    def report(self) -> rooms.Report:
        self._ask('report')
        return report(self.free, foreign())

    def volume(self, volume: str) -> rooms.Volume | None:
        self._ask(volume)
        return self.volumes.get(volume)

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        self.held()
        if self.error:
            raise self.error
