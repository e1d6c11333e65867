# SPDX-License-Identifier: Apache-2.0
"""Plans as a nova-scheduler with many hosts makes them, and takes the time.

Usage: python -m lab.placing TIMES. It needs oslo.log, and prints seconds as
JSON. Cinder's answers are made up, as its API gives them.
"""
from __future__ import annotations

import json
import random
import sys
import time
import types
import uuid
from typing import Any

from cinder_dmclone.nova import knowledge, placements, planning, rooms

HOSTS, VOLUMES, PLACED = 1000, 30_000, 100
# Of each server: more than most have.
DISKS = 4


def _answers() -> str:
    """What Cinder says of its pools and types."""
    return json.dumps([[{
        'name': f'host{number}@dmclone#dmclone',
        'capabilities': {
            'location_info': f'dmclone:host{number}@dmclone:{uuid.uuid4()}',
            'volume_backend_name': 'dmclone', 'total_capacity_gb': 4000.0,
            'free_capacity_gb': float(random.randrange(4000)),
            'reserved_percentage': 5}} for number in range(HOSTS)],
        [{'id': 't', 'name': 'local',
          'extra_specs': {'volume_backend_name': 'dmclone'}}], 't'])


class _Cinder:

    def __init__(self) -> None:
        self._answers = _answers()
        self.volumes = {}
        for number in range(VOLUMES):
            home = rooms.Node(f'host{number % HOSTS}', 'dmclone')
            one = rooms.Volume(str(uuid.uuid4()), home, 20)
            self.volumes[one.id] = one

    def report(self) -> rooms.Report:
        return rooms.Report(*json.loads(self._answers))

    def volume(self, volume: str) -> rooms.Volume | None:
        return self.volumes[volume]


def sample(times: int) -> dict[str, list[float]]:
    """Seconds of each step, so many times."""
    cinder = _Cinder()
    ids = list(cinder.volumes)
    hosts = [types.SimpleNamespace(host=f'host{number}', uuid=str(number))
             for number in range(HOSTS)]
    went: dict[str, str] = {}

    def disks(server: str) -> list[Any]:
        return [types.SimpleNamespace(
            volume_id=random.choice(ids), volume_type=None, volume_size=20,
            destination_type='volume', no_device=False)
            for _ in range(DISKS)]
    planner = planning.Planner(
        knowledge.Knowledge(cinder),
        placements.Placements(lambda server: [went[server]]), disks)
    found: dict[str, list[float]] = {'filter': [], 'weigher': [],
                                     'report': []}
    for number in range(PLACED + times):
        server = str(uuid.uuid4())
        begin = time.perf_counter()
        admitted = planner.admit(server, hosts)
        between = time.perf_counter()
        plan = planner.plan(server)
        assert plan
        best = max(admitted, key=lambda host: plan.need.at_home(host.host))
        end = time.perf_counter()
        went[server] = best.uuid
        if number >= PLACED:
            found['filter'].append(between - begin)
            found['weigher'].append(end - between)
    for _ in range(times):
        begin = time.perf_counter()
        cinder.report()
        found['report'].append(time.perf_counter() - begin)
    return found


if __name__ == '__main__':
    print(json.dumps(sample(int(sys.argv[1]))))
