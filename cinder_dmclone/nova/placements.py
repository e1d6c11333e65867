# SPDX-License-Identifier: Apache-2.0
"""What this process has placed lately, which no report shows yet."""

from __future__ import annotations

import dataclasses
import threading
import time
import typing

from cinder_dmclone.nova.rooms import Need
from cinder_dmclone.nova.rooms import Node
from cinder_dmclone.nova.rooms import Pool
from cinder_dmclone.nova.rooms import Report

# In seconds: until a volume has come, its node has told Cinder's scheduler,
# and that has told us.
KEPT = 120
# Nova has claimed what the server needs by then, or places it nowhere.
CLAIMED = 10


@dataclasses.dataclass
class _Placement:
    """A server that was placed, or is about to be.

    :ivar report: what was known then
    :ivar providers: its resource providers, as soon as it has any
    """

    when: float
    need: Need
    report: Report
    providers: frozenset[str] = frozenset()


class Placements:
    """What servers need that were placed where.

    A filter is never told where a server went; Placement knows it at once.
    """

    def __init__(self,
                 providers: typing.Callable[[str], typing.Iterable[str]],
                 clock: typing.Callable[[], float] = time.monotonic) -> None:
        """:param providers: the resource providers of a server"""
        self._providers = providers
        self._clock = clock
        self._lock = threading.Lock()
        self._placed: dict[str, _Placement] = {}

    def remember(self, server: str, need: Need, report: Report) -> None:
        """A server is about to be placed."""
        now = self._clock()
        with self._lock:
            self._placed = {
                one: placed for one, placed in self._placed.items()
                if now - placed.when < KEPT and one != server}
            self._placed[server] = _Placement(now, need, report)

    def promised(self, hosts: typing.Mapping[str, str], asking: str
                 ) -> dict[Node, float]:
        """What nodes have left, in GiB, when all has come that comes.

        Each server is subtracted from what was free when it was placed, not
        from what is reported now: that may show it already.

        :param hosts: by resource provider
        :param asking: the server that is to be placed, which does not count
        """
        now = self._clock()
        with self._lock:
            placed = [(server, one) for server, one in self._placed.items()
                      if now - one.when < KEPT and server != asking]
        left: dict[Node, float] = {}

        def free(pool: Pool) -> float:
            return min(pool.free, left.get(pool.node, pool.free))

        for server, one in placed:
            for host in self._hosts(server, one, now, hosts):
                for pool, gib in one.report.load(
                        host, one.need, free).items():
                    if gib:
                        left[pool.node] = free(pool) - gib
        return left

    def _hosts(self, server: str, placed: _Placement, now: float,
               hosts: typing.Mapping[str, str]) -> set[str]:
        if not placed.providers:
            placed.providers = frozenset(self._providers(server))
            if not placed.providers and now - placed.when > CLAIMED:
                with self._lock:
                    self._placed.pop(server, None)
        return {hosts[one] for one in placed.providers if one in hosts}
