# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a schedule: where, and with whom."""

from __future__ import annotations

import dataclasses
import random
import typing

from tests.simulation import cloud as cloud_module
from tests.simulation import disasters
from tests.simulation import truth as truth_module
from tests.unit.fake import ports

Fate = ports.Fate

DISTURBED = (Fate.LOST, Fate.UNANSWERED, Fate.LATE, Fate.TWICE, Fate.ASTRAY)
# What can go to another node of the same name: these tell by its disks. For
# the rest a Cinder with two such nodes is lost in any case.
_TO_DISKS = ('Prepare', 'CopySnapshot', 'Show')

KINDS = ('kill', 'kill', 'kill', 'kill', 'power', 'power', 'power', 'power',
         'cut', 'cut', 'answer', 'commit', 'away', 'empty', 'sector',
         'sector', 'restore', 'reinstall')

# Seconds until somebody repairs it.
_REPAIR = (1.0, 20.0, 200.0)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault at the ``at``-th change of anything by anybody.

    ``kind``: 'kill' or 'power' of a node, 'cut' between the node that makes
    the change and another, 'reinstall' of a node, with empty disks; 'sector'
    of a lender; 'answer': that of the database is lost, 'mute': the same,
    and it is away from then on, 'commit': the same, and the change is made
    later, if at all; 'away': the database; 'empty': the services have another
    one, 'restore': it is an old one. While LVM has an LV suspended 'answer'
    is that LVM is killed.
    ``victim`` counts nodes from the one that makes the change.
    """

    at: int
    kind: str
    moment: str = 'before'
    victim: int = 0
    repair: float = 20.0

    def __str__(self) -> str:
        return (f'{self.kind} {self.moment} change {self.at} '
                f'(node +{self.victim}, for {self.repair:.0f} s)')


@dataclasses.dataclass
class Plan:
    """The faults of one schedule."""

    faults: tuple[Fault, ...] = ()
    # By number of the message, counted over calls, casts and API requests.
    fates: dict[int, Fate] = dataclasses.field(default_factory=dict)

    @classmethod
    def of_seed(cls, choices: random.Random) -> Plan:
        """Few faults: most schedules have one or two."""
        faults = tuple(
            Fault(choices.randrange(1, 140),
                  choices.choice(KINDS),
                  choices.choice(('before', 'after')),
                  choices.randrange(3), choices.choice(_REPAIR))
            for _ in range(choices.choice((0, 1, 1, 2, 3))))
        fates = {choices.randrange(1, 30): choices.choice(DISTURBED)
                 for _ in range(choices.choice((0, 0, 1, 2)))}
        return cls(faults, fates)

    def muted(self, choices: random.Random) -> Plan:
        """The same, but some of the lost answers are not read back at once.
        """
        return dataclasses.replace(self, faults=tuple(
            dataclasses.replace(fault, kind='mute')
            if fault.kind == 'answer' and choices.random() < 0.5 else fault
            for fault in self.faults))


class Injector:
    """Carries a plan out."""

    def __init__(self, cloud: cloud_module.Cloud,
                 truth: truth_module.Truth, plan: Plan) -> None:
        self.cloud = cloud
        self.truth = truth
        self.changes = 0
        self.messages = 0
        self.injected = 0
        self.calm = False
        self._faults: dict[tuple[int, str], list[Fault]] = {}
        for fault in plan.faults:
            self._faults.setdefault((fault.at, fault.moment),
                                    []).append(fault)
        self._fates = plan.fates
        self._lose_answer = self._lose_commit = False
        self._mute = self._kill_lvm = False
        cloud.lvm_dies = self.lvm_dies
        cloud.fault = self.fault
        cloud.fate = self.fate
        cloud.lose_answer = self.lose_answer
        cloud.lose_commit = self.lose_commit

    def fate(self, message: typing.Any) -> Fate:
        self.messages += 1
        fate = self._fates.get(self.messages, Fate.ARRIVES)
        what = getattr(message, 'request', message)
        if self.calm or fate is Fate.ARRIVES or (
                fate is Fate.ASTRAY and what not in _TO_DISKS):
            return Fate.ARRIVES
        if fate is Fate.ASTRAY and what == 'Show' and (
                self.cloud.row(self.truth.volume).migration):
            # Its server had its disk on a node that is no more.
            self.truth.meddled = True
        if what == 'Disconnect' and fate in (Fate.LATE, Fate.TWICE):
            self.truth.ends_later = True
        self.injected += 1
        self.cloud.note(f'** message {self.messages}, {what}: {fate.value}')
        return fate

    def lose_answer(self, process: cloud_module.Process) -> bool:
        lost, self._lose_answer = self._lose_answer, False
        if self._mute:
            self.cloud.tables.away, self._mute = True, False
        return lost

    def lvm_dies(self) -> bool:
        dies, self._kill_lvm = self._kill_lvm, False
        return dies

    def lose_commit(self, process: cloud_module.Process) -> bool:
        lost, self._lose_commit = self._lose_commit, False
        return lost

    def fault(self, moment: str, call: ports.Call) -> None:
        if moment == 'before':
            self.changes += 1
        for fault in () if self.calm else self._faults.get(
                (self.changes, moment), ()):
            self.injected += 1
            self.cloud.note(f'** {fault} at {call}')
            self._inject(fault, call)

    def _inject(self, fault: Fault, call: ports.Call) -> None:
        repair = self._begin(fault, call)
        if repair:
            self.cloud.scheduler.spawn('repair', self._later, fault.repair,
                                       repair)

    def _later(self, seconds: float,
               repair: typing.Callable[[], None]) -> None:
        self.cloud.scheduler.sleep(seconds)
        repair()

    def _begin(self, fault: Fault, call: ports.Call) -> (
            typing.Callable[[], None] | None):
        """Let it happen; returns what repairs it."""
        nodes = list(self.cloud.nodes.values())
        here = nodes.index(self.cloud.nodes[call.node])
        victim = nodes[(here + fault.victim) % len(nodes)]
        match fault.kind:
            case 'kill':
                victim.kill()
                return victim.start
            case 'power':
                if victim.up:
                    victim.lose_power()
                return victim.start
            case 'reinstall':
                disasters.reinstall(victim, self.truth)
                return victim.start
            case 'cut':
                other = nodes[(here + max(1, fault.victim)) % len(nodes)]
                if other is not nodes[here]:
                    self.cloud.partition(nodes[here], other)
                return self.cloud.heal
            case 'answer':
                self._kill_lvm = call.method == 'suspended'
                self._lose_answer = not self._kill_lvm
                return None
            case 'mute':
                self._lose_answer = self._mute = True
            case 'commit':
                self._lose_commit = True
                return None
            case 'away':
                self.cloud.tables.away = True
            case 'empty':
                self.cloud.tables.hidden = True
            case 'restore':
                disasters.restore_database(self.cloud, self.truth)
            case 'sector':
                disasters.break_sector(
                    self.cloud, self.truth,
                    self.cloud.choices.randrange(len(self.truth.regions)))
        return self._repair_disks_and_database

    def _repair_disks_and_database(self) -> None:
        tables = self.cloud.tables
        tables.away = tables.hidden = self._mute = False
        disasters.adopt(self.cloud, self.truth)
        for node in self.cloud.nodes.values():
            node.mapper.bad.clear()

    def repair_all(self) -> None:
        """Faults have stopped."""
        self.calm = True
        self._lose_answer = self._lose_commit = False
        self.cloud.heal()
        self._repair_disks_and_database()
        for node in self.cloud.nodes.values():
            node.start()
