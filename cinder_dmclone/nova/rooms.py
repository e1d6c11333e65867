# SPDX-License-Identifier: Apache-2.0
"""What volumes need and what nodes have: values, in GiB."""

from __future__ import annotations

import dataclasses
import typing

# Of every copy: the metadata of dm-clone, and what the report rounds off.
EXTRA = 0.05
# Only this driver begins so what it says of its location.
_OURS = 'dmclone:'
_TYPE_KEYS = ('volume_backend_name', 'capabilities:volume_backend_name')

Json = typing.Mapping[str, typing.Any]


class Node(typing.NamedTuple):
    """A cinder-volume service: ``host@backend``."""

    host: str
    backend: str

    def __str__(self) -> str:
        return f'{self.host}@{self.backend}'


def node(text: str) -> Node:
    """From ``host@backend#pool``, as Cinder names pools."""
    host, _, rest = text.partition('@')
    return Node(host, rest.partition('#')[0])


@dataclasses.dataclass(frozen=True)
class Pool:
    """What a node reports.

    :ivar name: its ``volume_backend_name``
    :ivar free: what it may fill with volumes
    """

    node: Node
    name: str
    free: float

    @classmethod
    def parse(cls, pool: Json) -> Pool | None:
        """From an answer of Cinder; None if it is not of this driver."""
        has = pool.get('capabilities') or {}
        if not str(has.get('location_info', '')).startswith(_OURS):
            return None
        reserved = has['total_capacity_gb'] * has['reserved_percentage'] / 100
        return cls(node(pool['name']), has['volume_backend_name'],
                   max(0.0, has['free_capacity_gb'] - reserved))


@dataclasses.dataclass(frozen=True)
class Volume:
    """A volume that exists.

    :ivar servers: those that have it; it stays with them
    """

    id: str
    home: Node
    gib: int
    servers: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class NewVolume:
    """A volume that nova-compute will have made.

    :ivar type: name or id; None is the default type
    """

    type: str | None
    gib: int


@dataclasses.dataclass(frozen=True)
class Need:
    """What one server brings, or will have, of volumes of this driver.

    :ivar volumes: those that go where the server goes
    :ivar shared: those that stay, since another server has them
    :ivar new: GiB of each new volume, with the name of its backends; with
        None any will do
    """

    volumes: tuple[Volume, ...] = ()
    new: tuple[tuple[str | None, int], ...] = ()
    shared: tuple[Volume, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.volumes or self.new or self.shared)

    def __str__(self) -> str:
        return ', '.join(
            [f'volume {one.id} of {one.gib} GiB on {one.home}'
             for one in self.volumes]
            + [f'a new volume of {gib} GiB' for _, gib in self.new])

    def at_home(self, host: str) -> int:
        """GiB that are on a host already."""
        return sum(one.gib for one in (*self.volumes, *self.shared)
                   if one.home.host == host)


class Report:
    """What Cinder says of all nodes at one time."""

    def __init__(self, pools: typing.Iterable[Json],
                 types: typing.Iterable[Json], default: str | None) -> None:
        """:param default: name or id of the default type"""
        pools = list(pools)
        parsed = [Pool.parse(pool) for pool in pools]
        self.pools = [pool for pool in parsed if pool]
        # A type that names no backend leads to ours if there are no others.
        self._alone = len(self.pools) == len(parsed)
        self._at: dict[str, list[Pool]] = {}
        for pool in self.pools:
            self._at.setdefault(pool.node.host, []).append(pool)
        # Of a node that is down or disabled there is no pool.
        self._backends = {pool.node.backend for pool in self.pools}
        self._foreign = {node(pool['name']) for pool, ours in zip(
            pools, parsed) if ours is None}
        self._names = {pool.name for pool in self.pools}
        self._types: dict[str | None, str | None] = {}
        for type_ in types:
            specs = type_.get('extra_specs') or {}
            names = [specs[key] for key in _TYPE_KEYS if key in specs]
            for key in (type_['id'], type_['name']):
                self._types[key] = names[0] if names else None
        if default in self._types:
            self._types[None] = self._types[default]

    def need(self, server: str, volumes: typing.Iterable[Volume],
             new: typing.Iterable[NewVolume]) -> Need:
        """What of these, which a server has or is to have, is of this driver.
        """
        ours = [one for one in volumes if one.home.host
                and one.home.backend in self._backends
                and one.home not in self._foreign]
        return Need(
            tuple(one for one in ours if one.servers <= {server}),
            tuple((self._types.get(one.type), one.gib) for one in new
                  if self._leads_here(one.type)),
            tuple(one for one in ours if not one.servers <= {server}))

    def _leads_here(self, type_: str | None) -> bool:
        if type_ not in self._types:
            return False
        name = self._types[type_]
        return self._alone if name is None else name in self._names

    def load(self, host: str, need: Need,
             free: typing.Callable[[Pool], float]) -> dict[Pool, float]:
        """What the pools of a host have to take if a server goes there.

        A host without such a pool takes nothing: what is attached there is
        served over iSCSI.

        :param free: what a pool has
        """
        pools = self._at.get(host, ())
        load = dict.fromkeys(pools, 0.0)
        for pool in pools:
            for one in need.volumes:
                if one.home.backend == pool.node.backend and (
                        one.home.host != host):
                    load[pool] += one.gib + EXTRA
        for name, gib in need.new:
            able = [pool for pool in pools if name in (None, pool.name)]
            if able:
                best = max(able, key=lambda pool: free(pool) - load[pool])
                load[best] += gib + EXTRA
        return load
