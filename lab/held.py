# SPDX-License-Identifier: Apache-2.0
"""What nodes hold open at database and message bus, and what a start costs.

For the page about fleets (``doc/source/admin/fleet.rst``): once as Cinder's
defaults have it, and once as that page recommends it.
"""
from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import threading
from collections.abc import Callable, Iterable, Sequence

from lab import account, config
from lab.account import Cost
from lab.figures import Figure
from lab.lab import Lab, LabNode
from lab.network import mgmt_address
from lab.processes import wait_for
from lab.volume import CONF

# What the page recommends for each node, whatever there are of them.
RECOMMENDED: config.Sections = {
    'database': {'max_pool_size': 2, 'max_overflow': 10},
    'oslo_messaging_rabbit': {'rpc_conn_pool_size': 10}}
# On each node, and as many of them move at once in either direction: nodes of
# the lab refuse some of twice as many, as they make one copy after the other.
_VOLUMES = 4
_ADDRESS = 'substring_index(host, ":", 1)'
# Less than it takes to attach one.
_SAMPLE = 0.2
# So long nothing must have happened before it is called rest.
_QUIET = 30

Row = Sequence[str]


@dataclasses.dataclass(frozen=True)
class Held:
    """What one node holds open.

    :ivar queues: that it consumes, others as well or not
    """

    database: int
    connections: int = 0
    channels: int = 0
    queues: int = 0

    @classmethod
    def of(cls, address: str, database: dict[str, int],
           connections: Iterable[Row], channels: Iterable[Row],
           consumers: Iterable[Row]) -> Held:
        """
        :param address: of the node
        :param database: how many connections each address has there
        :param connections: pid and address of each of the bus
        :param channels: pid and connection of each
        :param consumers: queue and channel of each
        """
        own = {pid for pid, peer in connections if peer == address}
        inside = {pid for pid, connection in channels if connection in own}
        queues = {queue for queue, channel in consumers if channel in inside}
        return cls(database.get(address, 0), len(own), len(inside),
                   len(queues))


def look(lab: Lab) -> list[Held]:
    """What each node holds open now."""
    database = _database(lab)
    rows = [lab.rabbitmq.rows(*words) for words in (
        ('connections', 'pid', 'peer_host'), ('channels', 'pid', 'connection'),
        ('consumers', 'queue_name', 'channel_pid'))]
    return [Held.of(mgmt_address(node.number), database, *rows)
            for node in lab.nodes]


def _database(lab: Lab) -> dict[str, int]:
    return {str(address): int(count) for address, count in lab.sql(
        f"select {_ADDRESS}, count(*) from information_schema.processlist "
        f"group by {_ADDRESS}")}


def measure(lab: Lab, times: int, quick: bool,
            say: Callable[[str], object]) -> list[Figure]:
    """The figures of one node; the most of all nodes and rounds."""
    lab.unlimited()
    volumes = [lab.create_volume(1, node=node.number) for node in lab.nodes
               for _ in range(2 if quick else _VOLUMES)]
    found = []
    for settings, name in (({}, 'defaults'), (RECOMMENDED, 'recommended')):
        say(f'a start, {name}')
        start = account.cost(lab, lambda: _restart(lab, settings))
        account.wait_quiet(lab, _QUIET)
        rest = look(lab)
        busy: list[Held] = []
        for number in range(times):
            say(f'{len(volumes)} volumes move, {number + 1} of {times}')
            busy += _busy(lab, volumes)
        found += figures_of(name, start, rest, busy)
    return found


def _restart(lab: Lab, settings: config.Sections) -> None:
    """Start every cinder-volume anew, with these settings besides."""
    for node in lab.nodes:
        node.volume.stop()
    for node in lab.nodes:
        node.volume.configure()
        node.run(f'cat >>{CONF}', input=config.text(settings))
        node.volume.start()
    for node in lab.nodes:
        node.volume.wait_up()


def _busy(lab: Lab, volumes: Sequence[str]) -> list[Held]:
    """Have all volumes move at once; what was open meanwhile, and after."""
    samples: collections.Counter[str] = collections.Counter()
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(_SAMPLE):
            for address, count in _database(lab).items():
                samples[address] = max(samples[address], count)

    with concurrent.futures.ThreadPoolExecutor(len(volumes) + 1) as pool:
        sampling = pool.submit(sample)
        try:
            moves = [pool.submit(_move, lab, volume) for volume in volumes]
            for move in concurrent.futures.as_completed(moves):
                move.result()
        finally:
            ended.set()
        sampling.result()
    # The bus keeps what was needed for 20 minutes (conn_pool_ttl).
    return [dataclasses.replace(held, database=max(
        held.database, samples[mgmt_address(node.number)]))
        for node, held in zip(lab.nodes, look(lab), strict=True)]


def _move(lab: Lab, volume: str) -> None:
    """Have a volume follow a server to the other node, and hydrate there."""
    def home() -> LabNode:
        (host,), = lab.sql(f"select host from volumes where id = '{volume}'")
        return next(node for node in lab.nodes
                    if host.startswith(f'{node.name}@'))

    at = lab.attach_volume(volume, 3 - home().number)
    wait_for(f'end of the hydration of {volume}', lambda: not lab.sql(
        f"select id from volumes where id = '{volume}' and "
        "provider_id like '%;%'"), interval=1)
    lab.detach_volume(at.id)


def figures_of(name: str, start: Cost, rest: Sequence[Held],
               busy: Sequence[Held]) -> list[Figure]:
    """
    :param start: of all nodes together
    :param rest: of each node
    :param busy: of each node and round
    """
    sent = start.statements
    return [
        Figure(f'SQL statements, a start, {name}',
               round(sent.other / len(rest), 1),
               note=f'beside {sent.heartbeat / len(rest):g} about services'),
        *(Figure(f'{what}, {when}, {name}',
                 max(getattr(held, field) for held in found),
                 samples={what: [float(getattr(held, field))
                                 for held in found]})
          for when, found in (('at rest', rest), ('busy', busy))
          for what, field in (('database connections', 'database'),
                              ('bus connections', 'connections'),
                              ('bus channels', 'channels'),
                              ('bus queues', 'queues')))]
