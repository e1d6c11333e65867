# SPDX-License-Identifier: Apache-2.0
"""Where one server can go, and where it is best placed."""

from __future__ import annotations

import dataclasses
import threading
import time
import typing

from oslo_log import log as logging

from cinder_dmclone.nova.knowledge import Knowledge
from cinder_dmclone.nova.placements import Placements
from cinder_dmclone.nova.rooms import Need
from cinder_dmclone.nova.rooms import NewVolume
from cinder_dmclone.nova.rooms import Node
from cinder_dmclone.nova.rooms import Pool
from cinder_dmclone.nova.rooms import Report

LOG = logging.getLogger(__name__)

# In seconds: the weigher is asked right after the filter.
SAME_REQUEST = 2
# How many nodes a message names.
_NAMED = 10

# A host as Nova shows it to filters: its name, and its resource provider.
HostState = typing.Any


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is known for one server.

    :ivar promised: what nodes will have left, in GiB, if that is less than
        what they report
    """

    server: str
    need: Need
    report: Report
    promised: typing.Mapping[Node, float] = dataclasses.field(
        default_factory=dict)

    def _free(self, pool: Pool) -> float:
        return min(pool.free, self.promised.get(pool.node, pool.free))

    def fits(self, host: str) -> bool:
        """Whether a host has room for all that it would have to take."""
        lacking = {pool: gib for pool, gib in self.report.load(
            host, self.need, self._free).items()
            if gib and gib > self._free(pool)}
        for pool, gib in lacking.items():
            LOG.debug('%s has %.2f GiB for volumes, server %s needs %.2f',
                      pool.node, self._free(pool), self.server, gib)
        return not lacking

    def explain(self) -> str:
        """Why it fits nowhere."""
        by_room = sorted(self.report.pools, key=self._free, reverse=True)
        free = ', '.join(f'{pool.node} {self._free(pool):.2f}'
                         for pool in by_room[:_NAMED])
        more = len(by_room) - _NAMED
        return (f'No host has room for the volumes of server {self.server}: '
                f'{self.need}. GiB free for volumes, the most first: {free}'
                + (f' and {more} more' if more > 0 else ''))


class Planner:
    """Makes plans; used by all requests of a process at once."""

    def __init__(self, knowledge: Knowledge, placements: Placements,
                 disks: typing.Callable[[str], typing.Iterable[typing.Any]],
                 clock: typing.Callable[[], float] = time.monotonic) -> None:
        """:param disks: the block device mappings of a server"""
        self._knowledge = knowledge
        self._placements = placements
        self._disks = disks
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[str, tuple[float, Plan | None]] = {}

    def plan(self, server: str) -> Plan | None:
        """What is known for a server.

        :returns: None if it has no volume of this driver, and if that cannot
            be known
        """
        now = self._clock()
        with self._lock:
            self._last = {one: last for one, last in self._last.items()
                          if now - last[0] < SAME_REQUEST}
            if server in self._last:
                return self._last[server][1]
        try:
            made = self._make(server)
        except Exception as error:
            # Whatever it is: servers start without this, too.
            self._knowledge.failed(error)
            made = None
        with self._lock:
            self._last[server] = self._clock(), made
        return made

    def _make(self, server: str) -> Plan | None:
        disks = [one for one in self._disks(server)
                 if one.destination_type == 'volume' and not one.no_device]
        if not disks:
            return None
        report = self._knowledge.report()
        if not report or not report.pools:
            return None
        volumes = self._knowledge.volumes(
            [one.volume_id for one in disks if one.volume_id])
        if volumes is None:
            return None
        need = report.need(server, volumes, [
            NewVolume(one.volume_type, one.volume_size or 0)
            for one in disks if not one.volume_id])
        return Plan(server, need, report) if need else None

    def admit(self, server: str, hosts: list[HostState]) -> list[HostState]:
        """Those hosts that have room; all of them if nothing is known.

        What is placed here counts from now on.
        """
        with self._lock:
            self._last.pop(server, None)
        plan = self.plan(server)
        if plan is None:
            return hosts
        try:
            promised = self._placements.promised(
                {host.uuid: host.host for host in hosts}, server)
        except Exception as error:
            self._knowledge.failed(error)
            return hosts
        plan = dataclasses.replace(plan, promised=promised)
        admitted = [host for host in hosts if plan.fits(host.host)]
        if hosts and not admitted:
            LOG.warning(plan.explain())
        self._placements.remember(server, plan.need, plan.report)
        return admitted
