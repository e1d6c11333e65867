# SPDX-License-Identifier: Apache-2.0
"""The nodes of the unit tests' cloud, with tasks instead of calls.

What there runs to its end at once, here takes turns: services, their
threads, messages between nodes, the kernel's copying and its events.
"""

from __future__ import annotations

import math
import random
import typing

from cinder import exception
import oslo_messaging as messaging
from oslo_serialization import jsonutils

from cinder_dmclone import deadlines
from cinder_dmclone.host.dm import table
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone import names
from cinder_dmclone.peers import client
from cinder_dmclone.reconcile import activation
from tests.simulation import machine
from tests.simulation import outside
from tests.simulation import rows
from tests.simulation import scheduler as scheduler_module
from tests.unit.fake import cloud
from tests.unit.fake import mapped
from tests.unit.fake import ports

Fate = ports.Fate

# Seconds that copying a region takes.
COPY_SECONDS = 1.0
# Service records are believed that long (``service_down_time``).
DOWN_SECONDS = 60.0


class Peers(ports.Peers):
    """The real client; which services are up is known without a query."""

    def __init__(self, process: Process) -> None:
        super().__init__(process, cloud.BACKEND)
        self._cloud = process.node.cloud

    def node_of(self, host: str) -> NodeName | None:
        node = NodeName(f'{host}@{cloud.BACKEND}')
        return node if node in self._cloud.nodes else None

    def node_with(self, initiator: str) -> NodeName | None:
        return next((node.name for node in self._cloud.nodes.values()
                     if node.initiator.name() == initiator), None)

    def taking_in(self, node: NodeName, most: int) -> list[NodeName]:
        return [other.name for other in self._cloud.nodes.values()
                if other.name != node and self.is_up(other.name)][:most]

    def is_up(self, node: str) -> bool:
        return not self._cloud.tables.hidden and (
            self._cloud.nodes[node].reports_in)


class Process(cloud.Process):
    """A cinder-volume whose threads are tasks."""

    node: Node

    def __init__(self, node: Node) -> None:
        self.scheduler = node.cloud.scheduler
        # From when on it answers.
        self.serving = False
        super().__init__(node)
        # Else no schedule would ever come to rest.
        self.loop.everything_seconds = math.inf
        self.loop._wake = typing.cast(
            typing.Any, scheduler_module.Condition(self.scheduler))

    def make_rows(self) -> rows.RowStore:
        return rows.RowStore(
            self.node.cloud.tables, self.node.cloud.clock,
            lambda commit: self.node.cloud.transact(self, commit))

    def make_snapshots(self) -> rows.SnapshotStore:
        return rows.SnapshotStore(self.make_rows(), self.node.cloud.clock)

    def make_peers(self) -> client.Peers:
        return Peers(self)

    def make_locks(self) -> scheduler_module.Locks:
        return scheduler_module.Locks(self.scheduler, self.node.name)

    def spawn(self, function: typing.Callable[..., None],
              *arguments: typing.Any) -> None:
        self.scheduler.spawn(f'{self.node.host}: {function.__name__}',
                             function, *arguments, owner=self)

    def pass_a_day(self) -> None:
        with self.loop._wake:
            self.loop._everything_at = 0.0
            self.loop._wake.notify()

    def begin(self, booted: bool) -> None:
        self.scheduler.spawn(f'{self.node.host}: reconciler', self._main,
                             booted, owner=self)

    def _main(self, booted: bool) -> None:
        if booted:
            activation.activate(self.world, ports.in_turn)
            self.node.cloud.activated(self.node)
        elif not self.node.active:
            activation.activate_volumes(self.world.host)
        self.node.targets.check()
        self.serving = True
        self.loop._run()


class Kernel:
    """What copies in the background until the power goes."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.alive = True
        self.idle = False
        self.scheduler = node.cloud.scheduler
        self.task = self.scheduler.spawn(
            f'{node.host}: kernel', self._copy, owner=self)

    def _copy(self) -> None:
        while True:
            clones = [found for found in self.node.mapper.mapped.values()
                      if found.table.has(table.Clone) and found.hydration
                      and len(found.copied) < mapped.regions(
                          found.table.length)]
            if clones:
                self.node.mapper.hydrate(self.node.cloud.copies_at_once)
                self.scheduler.sleep(COPY_SECONDS)
            else:
                self.idle = True
                self.scheduler.block()
                self.idle = False


class Node(cloud.Node):
    """A machine whose power and service can go at any time."""

    cloud: Cloud
    process: Process

    mapper: machine.Mapper

    def make_process(self) -> Process:
        return Process(self)

    def make_mapper(self) -> machine.Mapper:
        return machine.Mapper(self)

    def begin(self) -> None:
        """First start."""
        self.kernel = Kernel(self)
        self.gone = 0.0
        self.process.begin(False)

    @property
    def active(self) -> bool:
        return all(lv.devnum and not group.waits(lv)
                   for group in (self.group, self.meta_group)
                   for lv in group.volumes.values())

    @property
    def reports_in(self) -> bool:
        return self.process.alive or (
            self.cloud.clock.monotonic() - self.gone < DOWN_SECONDS)

    def kill(self) -> None:
        if self.process.alive:
            self.gone = self.cloud.clock.monotonic()
        super().kill()
        self.cloud.scheduler.wake_dead()

    def lose_power(self) -> None:
        self.kernel.alive = False
        self.cloud.power_cut(self)
        super().lose_power()

    def start(self) -> None:
        if self.process.alive:
            return
        booted, self.up = not self.up, True
        if booted:
            self.kernel = Kernel(self)
        self.process = self.make_process()
        self.process.begin(booted)


# Stories may move a volume as often as they like.
LONGEST_CHAIN = 99


class Cloud(cloud.Cloud):
    """All nodes of one schedule.

    :param choices: what the seed decides
    :param last: how the last node differs from the others
    """

    nodes: typing.Mapping[str, Node]

    def __init__(self, scheduler: scheduler_module.Scheduler,
                 choices: random.Random, hosts: typing.Sequence[str],
                 last: dict[str, typing.Any] | None = None,
                 **options: typing.Any) -> None:
        self._different = {hosts[-1]: last or {}}
        self._twins: dict[str, Node] = {}
        # Servers whose disk some node serves over iSCSI.
        self.clients: list[outside.Served] = []
        self.scheduler = scheduler
        self.choices = choices
        self.tables = rows.Tables()
        self.copies_at_once = choices.choice((1, 3, 8))
        # Seconds that passed until lost connections were found to be lost.
        self.delayed = 0.0
        # How likely a change takes time, in which others go on.
        self.slowness = 0.0
        self.activated: typing.Callable[[Node], None] = lambda node: None
        self.power_cut: typing.Callable[[Node], None] = lambda node: None
        self.changed: typing.Callable[[ports.Call], None] = (
            lambda call: None)
        # A fault plan acts here, before and after every change.
        self.fault: typing.Callable[[str, ports.Call], None] = (
            lambda moment, call: None)
        self.note: typing.Callable[[str], None] = lambda text: None
        # Whether the next answer of the database to a change is lost.
        self.lose_answer: typing.Callable[[Process], bool] = (
            lambda process: False)
        # Whether a change is made now whose connection was lost.
        self.commits_late = False
        # Whether its connection breaks before that, during the COMMIT.
        self.lose_commit: typing.Callable[[Process], bool] = (
            lambda process: False)
        super().__init__(*hosts, max_copies=LONGEST_CHAIN, **options)
        self.before = self._before
        self.after = self._after
        for node in self.nodes.values():
            node.begin()

    def make_node(self, host: str, **options: typing.Any) -> Node:
        return Node(self, host, **options, **self._different.get(host, {}))

    def twin(self, name: str) -> Node:
        """Another node of the same name, which has disks of its own."""
        if name not in self._twins:
            twin = Node(self, self.nodes[name].host)
            twin.group.uuid = GroupUuid(f'{twin.group.uuid}-another')
            twin.begin()
            self._twins[name] = twin
        return self._twins[name]

    def make_clock(self) -> typing.Any:
        return scheduler_module.Clock(self.scheduler)

    def make_database(self) -> typing.Any:
        return self.tables

    def row(self, volume_id: str) -> typing.Any:
        return self.tables.row(volume_id)

    def logged_in(self, lender: cloud.Node, iqn: str) -> set[str]:
        return super().logged_in(lender, iqn) | {
            client.initiator for client in self.clients
            if client.logged_in(typing.cast(Node, lender), iqn)}

    # -- what a fault plan sets, and who looks on ---------------------------

    def _before(self, call: ports.Call) -> None:
        if not call.reads:
            self.fault('before', call)
            self.take_time()
        self.scheduler.point()

    def take_time(self) -> None:
        if self.choices.random() < self.slowness:
            self.scheduler.pause(self.choices.choice((0.01, 0.1, 0.5)))

    def _after(self, call: ports.Call) -> None:
        if not call.reads:
            self.changed(call)
            self.fault('after', call)
            self._wake_kernels()
        self.scheduler.point()

    def _wake_kernels(self) -> None:
        for node in self.nodes.values():
            if node.kernel.idle:
                self.scheduler.wake(node.kernel.task)

    # -- the database -------------------------------------------------------

    def transact(self, process: Process,
                 commit: typing.Callable[[], int]) -> int:
        """Carry out a change of a row; its answer may be lost."""
        self._wait_for_row(process)
        if self.lose_commit(process):
            self.tables.locked = True
            task = self.scheduler.current()
            self.scheduler.spawn(f'database: {task.name if task else ""}',
                                 self._end_later, commit)
            self._break(process)
        changed = commit()
        self.scheduler.point()
        process.check_alive()
        if self.lose_answer(process):
            self._break(process)
        return changed

    def _wait_for_row(self, process: Process) -> None:
        began = self.scheduler.now
        while self.tables.locked:
            if self.scheduler.now - began > deadlines.ROW_SECONDS:
                raise rows.lock_timeout()
            self.scheduler.sleep(1.0)
            process.check_alive()

    def _end_later(self, commit: typing.Callable[[], int]) -> None:
        """The COMMIT arrives late, or the database notices the loss.

        Others change what they like meanwhile, who would wait for the row as
        well: if the change is not possible any more, it was rolled back
        before.
        """
        self.scheduler.sleep(self.choices.choice((0.5, 10.0, 45.0, 70.0)))
        self.tables.locked = False
        arrives = self.choices.random() < 0.7 and not self.tables.real
        self.commits_late = True
        made = arrives and commit()
        self.commits_late = False
        self.note('** the change whose connection was lost is '
                  + ('made' if made else 'rolled back'))

    def _break(self, process: Process) -> typing.NoReturn:
        """The connection breaks at once, or is found to be dead."""
        seconds = self.choices.choice((0.0, 3.0, 40.0))
        self.scheduler.sleep(seconds)
        # Also for who has begun meanwhile, and waited for this.
        self.delayed += seconds
        process.check_alive()
        raise rows.lost_answer()

    # -- messages -----------------------------------------------------------

    def send(self, what: str, target: str, fate: Fate, timeout: float,
             run: typing.Callable[[Process], typing.Any],
             reachable: typing.Callable[[], bool],
             again: float = 0.0) -> scheduler_module.Future:
        """Let a process work on a message; its answer may never come.

        :param again: seconds after which a second copy arrives
        """
        future = scheduler_module.Future(self.scheduler)
        answer = (None if fate in (Fate.UNANSWERED, Fate.LATE, Fate.LOST)
                  else future)
        delays = {Fate.LOST: (), Fate.LATE: (timeout * 1.5,),
                  Fate.TWICE: (0.0, again)}.get(fate, (0.0,))
        node = self.twin(target) if fate is Fate.ASTRAY else (
            self.nodes[target])
        for delay in delays:
            self.scheduler.spawn(f'{what} to {target}', self._deliver, what,
                                 node, delay, run, reachable, answer)
        return future

    def _deliver(self, what: str, node: Node, delay: float,
                 run: typing.Callable[[Process], typing.Any],
                 reachable: typing.Callable[[], bool],
                 answer: scheduler_module.Future | None) -> None:
        if delay:
            self.scheduler.sleep(delay)
        process = node.process
        if not (process.alive and process.serving and reachable()):
            return

        def work() -> None:
            result = run(process)
            if answer and reachable():
                answer.set(result)
        worker = self.scheduler.spawn(f'{node.host}: {what}', work,
                                      owner=process)
        if answer:
            answer.comes_from(worker)

    def carry(self, process: cloud.Process, message: ports.Message,
              timeout: float) -> ports.Answer:
        again = self.choices.choice((0.0, 0.0, 30.0, 200.0))
        future = self.send(
            message.request, message.target, self.fate(message), timeout,
            self._handler(message),
            lambda: self.reachable(message.source, message.target), again)
        if not future.wait(timeout):
            raise messaging.MessagingTimeout(message.request)
        return future.value

    @staticmethod
    def _handler(message: ports.Message) -> typing.Callable[
            [Process], ports.Answer]:
        fields = jsonutils.dumps(message.fields)

        def run(process: Process) -> ports.Answer:
            return ports.Answer.of(lambda: process.endpoint.answer(
                None, message.request, jsonutils.loads(fields)))
        return run

    def post(self, message: ports.Message) -> None:
        fate = self.fate(message)
        if fate is not Fate.LOST:
            self.scheduler.spawn(f'cast to {message.target}', self._cast,
                                 message, 100.0 if fate is Fate.LATE else 0)

    def _cast(self, message: ports.Message, delay: float) -> None:
        if delay:
            self.scheduler.sleep(delay)
        process = self.nodes[message.target].process
        while not (process.alive and process.serving
                   and self.reachable(message.source, message.target)):
            self.scheduler.sleep(5.0)
            process = self.nodes[message.target].process
        self.scheduler.spawn(f'{message.target}: {message.request}',
                             self._handler(message), process, owner=process)

    # -- the kernel ---------------------------------------------------------

    def path_failed(self, node: cloud.Node, found: mapped.Mapped) -> None:
        process = typing.cast(Process, node.process)
        name = names.DeviceName.parse(found.name)
        if name and process.alive and process.serving:
            self.scheduler.spawn(f'{node.host}: uevent',
                                 process.loop.path_failed, name.lv,
                                 owner=process)


# What the driver may answer with; anything else is a mistake in it.
ANSWERS = (exception.CinderException,)
