# SPDX-License-Identifier: Apache-2.0
"""Nodes, their crashes, and the control plane around them."""

from __future__ import annotations

import typing
import uuid

import oslo_messaging as messaging
from oslo_serialization import jsonutils

from cinder_dmclone.database import rows
from cinder_dmclone.database.snapshots import SnapshotStore
from cinder_dmclone.database.volumes import RowStore
from cinder_dmclone.peers import client
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.ports import Host
from cinder_dmclone.reconcile import activation
from cinder_dmclone.reconcile.decision import Decision
from cinder_dmclone.reconcile import reconciler
from cinder_dmclone.reconcile import schedule
from cinder_dmclone.service.base import Service
from cinder_dmclone.service import connections
from cinder_dmclone.service import endpoint
from cinder_dmclone.service import volumes
from cinder_dmclone.settings import Rates
from cinder_dmclone.settings import Settings
from cinder_dmclone import units
from cinder_dmclone.world import World
from tests.unit.fake import database
from tests.unit.fake import iscsi
from tests.unit.fake import mapped
from tests.unit.fake import mapper
from tests.unit.fake import ports
from tests.unit.fake import storage

BACKEND = 'dmclone'
POOL = 'pool'


class Reconciler(reconciler.Reconciler):
    """One whose steps have to lead somewhere."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.world, spawn=process.spawn)
        self._node = process.node

    def _endless(self, lv: LvUuid, decision: Decision) -> Decision:
        self._node.complain(f'{lv} takes no end of steps: {decision}')
        return super()._endless(lv, decision)


class Process:
    """One cinder-volume: what a kill -9 ends."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.alive = True
        port = self._port
        group = port('group', node.group)
        settings = Settings(
            node=node.name, pool=POOL, portal=node.portal,
            target_prefix='iqn.2010-10.org.openstack:',
            least_region=storage.REGION, hydration_threshold=units.Bytes(1),
            hydration_batch=units.Bytes(1), budget=45.0,
            rates=lambda: Rates(units.Bytes(0), units.Bytes(0)),
            max_copies=node.cloud.max_copies,
            serves_the_full=node.cloud.serves_the_full,
            reserved_percentage=node.cloud.reserved_percentage,
            key=node.group.uuid.encode())
        host = Host(
            settings=settings, group=group,
            meta_group=(group if node.meta_group is node.group
                        else port('meta_group', node.meta_group)),
            dm=port('dm', node.mapper),
            targets=port('targets', node.targets),
            initiator=port('initiator', node.initiator),
            erase=port('erase', node.erase))
        self.world = World(
            host=host, rows=port('rows', self.make_rows()),
            snapshots=port('snapshots', self.make_snapshots()),
            peers=port('peers', self.make_peers()),
            locks=port('locks', self.make_locks()), clock=node.cloud.clock)
        self.loop = Reconciler(self)
        self.service = Service(self.world, self.loop)
        self.endpoint = endpoint.Endpoint(self.service)

    # -- what a simulation replaces -----------------------------------------

    def make_rows(self) -> RowStore:
        clock = self.node.cloud.clock
        return RowStore(clock.monotonic, clock.sleep)

    def make_snapshots(self) -> SnapshotStore:
        return SnapshotStore(self.node.cloud.clock.monotonic)

    def make_peers(self) -> client.Peers:
        return ports.Peers(self, BACKEND)

    def make_locks(self) -> typing.Any:
        return ports.Locks(self.node.name, self.node.cloud.lock_wait)

    def spawn(self, function: typing.Callable[..., None],
              *arguments: typing.Any) -> None:
        """What would be a thread runs to its end at once."""
        function(*arguments)

    # -----------------------------------------------------------------------

    def _port(self, name: str, target: typing.Any) -> typing.Any:
        return ports.Port(self, name, target)

    def check_alive(self) -> None:
        if not self.alive:
            raise ports.Killed()

    def call(self, port: str, method: str,
             function: typing.Callable[..., typing.Any],
             arguments: tuple[typing.Any, ...],
             named: dict[str, typing.Any]) -> typing.Any:
        self.check_alive()
        call = ports.Call.of(self.node.name, port, method, arguments)
        self.node.cloud.calls.append(call)
        self.node.cloud.before(call)
        self.check_alive()
        result = function(*arguments, **named)
        self.check_alive()
        self.node.cloud.after(call)
        self.check_alive()
        return result


class Node:
    """A machine. Its disks and node records outlive everything."""

    def __init__(self, cloud: Cloud, host: str, gib: int = 100,
                 block_size: int = 512, own_metadata: bool = False) -> None:
        self.cloud = cloud
        self.host = host
        self.name = NodeName(f'{host}@{BACKEND}')
        self.portal = f'{host}:3260'
        self.up = True
        self._numbers = 0
        self.group = storage.Group(self, 'volumes', units.Bytes.from_gib(gib),
                                   block_size)
        self.meta_group = (
            storage.Group(self, 'fast', units.Bytes.from_gib(1), block_size)
            if own_metadata else self.group)
        self.mapper = self.make_mapper()
        self.targets = iscsi.Targets(self)
        self.initiator = iscsi.Initiator(self)
        self.erased: list[str] = []
        self.process = self.make_process()

    def make_process(self) -> Process:
        return Process(self)

    def make_mapper(self) -> mapper.Mapper:
        return mapper.Mapper(self)

    @property
    def service(self) -> Service:
        """What Cinder calls."""
        return self.process.service

    @property
    def connector(self) -> dict[str, typing.Any]:
        """What Nova on this node says about itself."""
        return {'host': self.host, 'initiator': self.initiator.name(),
                'ip': '192.0.2.1', 'multipath': False}

    def number(self, major: str = '253') -> str:
        self._numbers += 1
        return f'{major}:{self._numbers}'

    def erase(self, path: str, size: units.Bytes,
              goes_on: typing.Callable[[], bool]) -> None:
        name = path.rpartition('/')[2]
        self.erased.append(name)
        lv = self.group.volumes[name]
        for region in range(size // storage.REGION):
            if not goes_on():
                break
            lv.blocks[region] = storage.ZEROS
            self.cloud.overwritten()
        lv.flush()

    def complain(self, text: str) -> None:
        self.cloud.complaints.append(f'{self.name}: {text}')

    def kill(self) -> None:
        """kill -9 of cinder-volume: the kernel does not notice."""
        self.process.alive = False

    def lose_power(self) -> None:
        self.kill()
        self.up = False
        for group in (self.group, self.meta_group):
            group.lose_power()
        self.mapper.mapped.clear()
        self.targets.lose_power()
        self.initiator.sessions_.clear()
        self.cloud.lose_paths()

    def start(self) -> None:
        """Boot the node if need be, and start cinder-volume again."""
        booted, self.up = not self.up, True
        self.process = self.make_process()
        if booted:
            activation.activate(self.process.world, ports.in_turn)
            # As cinder-volume does when it starts.
            self.targets.check()
        self.process.loop.run_once(everything=True)


class Cloud:
    """All nodes and the database."""

    def __init__(self, *hosts: str, lock_wait: float = 0.0,
                 max_copies: int = 3, reserved_percentage: int = 0,
                 serves_the_full: bool = False,
                 **options: typing.Any) -> None:
        self.lock_wait = lock_wait
        self.max_copies = max_copies
        self.serves_the_full = serves_the_full
        self.reserved_percentage = reserved_percentage
        self.clock = self.make_clock()
        self.db = self.make_database()
        self.calls: list[ports.Call] = []
        self.complaints: list[str] = []
        self.late: list[ports.Message] = []
        self.cut: set[frozenset[str]] = set()
        self.fate: typing.Callable[[ports.Message], ports.Fate] = (
            lambda message: ports.Fate.ARRIVES)
        self.before: typing.Callable[[ports.Call], None] = (
            lambda call: None)
        # Whether LVM is killed in a change that suspends an LV.
        self.lvm_dies: typing.Callable[[], bool] = lambda: False
        self.after: typing.Callable[[ports.Call], None] = lambda call: None
        # Between two regions of what is erased.
        self.overwritten: typing.Callable[[], None] = lambda: None
        self.nodes: typing.Mapping[str, Node] = {
            f'{host}@{BACKEND}': self.make_node(host, **options)
            for host in hosts}
        for node in self.nodes:
            self.db.service(node)

    # -- what a simulation replaces -----------------------------------------

    def make_node(self, host: str, **options: typing.Any) -> Node:
        return Node(self, host, **options)

    def make_clock(self) -> ports.Clock:
        return ports.Clock()

    def make_database(self) -> database.Database:
        return database.Database()

    def path_failed(self, node: Node, found: mapped.Mapped) -> None:
        """The kernel reports a failed path; here tests do."""

    def carry(self, process: Process, message: ports.Message,
              timeout: float) -> ports.Answer:
        """Take a message to its receiver and bring the answer back.

        :raises MessagingTimeout: if there is none
        """
        fate = self.fate(message)
        if fate is ports.Fate.LATE:
            self.late.append(message)
        if fate in (ports.Fate.LOST, ports.Fate.LATE) or (
                not self.reachable(message.source, message.target)):
            raise messaging.MessagingTimeout(message.request)
        answer = self.deliver(message)
        if fate is ports.Fate.TWICE:
            answer = self.deliver(message)
        process.check_alive()
        if fate is ports.Fate.UNANSWERED or answer is None:
            raise messaging.MessagingTimeout(message.request)
        return answer

    def post(self, message: ports.Message) -> None:
        """A cast: one to a node that is down waits in its queue."""
        self.late.append(message)

    # -- the network --------------------------------------------------------

    def reachable(self, one: str, other: str) -> bool:
        return (self.nodes[other].up
                and frozenset((one, other)) not in self.cut)

    def partition(self, one: Node, other: Node) -> None:
        self.cut.add(frozenset((one.name, other.name)))
        self.lose_paths()

    def heal(self) -> None:
        self.cut.clear()

    def by_portal(self, asking: Node, portal: str) -> Node | None:
        return next((node for node in self.nodes.values()
                     if node.portal == portal
                     and self.reachable(asking.name, node.name)), None)

    def logged_in(self, lender: Node, iqn: str) -> set[str]:
        return {node.initiator.name() for node in self.nodes.values()
                for disk in [node.initiator.disk(iqn)]
                if disk and disk.state == 'LOGGED_IN'}

    def lose_paths(self) -> None:
        for node in self.nodes.values():
            node.mapper.lose_paths()

    def deliver(self, message: ports.Message) -> ports.Answer | None:
        """Carry a message out; None if its receiver died over it."""
        process = self.nodes[message.target].process
        if not process.alive:
            return None
        fields = jsonutils.loads(jsonutils.dumps(message.fields))
        try:
            return ports.Answer.of(lambda: process.endpoint.answer(
                self.db.context, message.request, fields))
        except ports.Killed:
            return None

    def deliver_late(self) -> None:
        """Carry out what is still under way."""
        waiting, self.late = self.late, []
        for message in waiting:
            if self.reachable(message.source, message.target) and (
                    self.nodes[message.target].process.alive):
                self.deliver(message)
            else:
                self.late.append(message)

    # -- time ---------------------------------------------------------------

    def tick(self, regions: int = 3) -> None:
        """A minute passes."""
        self.deliver_late()
        for node in self.nodes.values():
            if node.process.alive:
                try:
                    node.process.loop.run_once()
                    node.mapper.check_copies()
                except ports.Killed:
                    pass
            if node.up:
                node.mapper.hydrate(regions)
        self.clock.sleep(schedule.LATEST)

    def settle(self, ticks: int = 25) -> None:
        """Let time pass until the nodes have nothing to do any more."""
        idle = False
        for _ in range(ticks):
            before, was_idle = len(self.calls), idle
            self.tick()
            idle = len(self.calls) == before and not self.late
            # Time passes at the end of a tick: something may be due then.
            if idle and was_idle:
                return

    def restart(self) -> None:
        """Start whatever does not run."""
        for node in self.nodes.values():
            if not node.process.alive:
                try:
                    node.start()
                except ports.Killed:
                    pass

    # -- the control plane --------------------------------------------------

    def create(self, node: Node, gib: int = 1) -> VolumeId:
        """A new volume on a node, with its data written and flushed."""
        volume_id = VolumeId(str(uuid.uuid4()))
        self.db.volume(volume_id, f'{node.name}#{POOL}', size=gib)
        volumes.create(node.service, volume_id)
        self.db.update(volume_id, status='available')
        return volume_id

    def row(self, volume_id: VolumeId) -> rows.Row:
        row = RowStore().get(volume_id)
        assert row
        return row

    def home(self, volume_id: VolumeId) -> Node:
        return self.nodes[self.row(volume_id).node]

    def reserve(self, volume_id: VolumeId) -> str:
        self.db.update(volume_id, status='reserved')
        return self.db.attachment(volume_id)

    def connect(self, volume_id: VolumeId, attachment: str, node: Node) -> str:
        """What PUT /attachments does; returns the device path."""
        info = connections.connect(self.home(volume_id).service, volume_id,
                                   node.connector)
        self.db.update_attachment(
            attachment, attach_status='attaching',
            connector=jsonutils.dumps(node.connector))
        self.db.update(volume_id, status='attaching',
                       attach_status='attaching')
        assert info['driver_volume_type'] == 'local', info
        return info['data']['device_path']

    def migrate(self, volume_id: VolumeId, node: Node) -> tuple[str, str]:
        """What Nova asks for before a server moves: attachment and path.

        ``ComputeManager.pre_live_migration`` creates the attachment with its
        connector, and completes it, while the server runs where it is.
        """
        attachment = self.db.attachment(volume_id)
        path = self.connect(volume_id, attachment, node)
        self.complete(volume_id, attachment)
        return attachment, path

    def complete(self, volume_id: VolumeId, attachment: str) -> None:
        self.db.update_attachment(attachment, attach_status='attached')
        self.db.update(volume_id, status='in-use', attach_status='attached')

    def attach(self, volume_id: VolumeId, node: Node) -> tuple[str, str]:
        """Reserve, connect, complete: the attachment and the path."""
        attachment = self.reserve(volume_id)
        path = self.connect(volume_id, attachment, node)
        self.complete(volume_id, attachment)
        return attachment, path

    def detach(self, volume_id: VolumeId, attachment: str, node: Node) -> None:
        connections.disconnect(self.home(volume_id).service, volume_id,
                               node.connector)
        self.forget(volume_id, attachment)

    def forget(self, volume_id: VolumeId, attachment: str) -> None:
        """An attachment goes without the driver being told."""
        self.db.drop_attachment(attachment)
        self.db.update(volume_id, status='available',
                       attach_status='detached')

    def delete(self, volume_id: VolumeId) -> None:
        self.db.update(volume_id, status='deleting')
        volumes.delete(self.home(volume_id).service, volume_id)
        self.db.destroy(volume_id)
