# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a schedule: where, and with whom."""

from __future__ import annotations

import dataclasses
import random
import typing

from tests.simulation import cloud as cloud_module
from tests.unit.fake import ports

Fate = ports.Fate

DISTURBED = (Fate.LOST, Fate.UNANSWERED, Fate.LATE, Fate.TWICE)

# Seconds until somebody repairs it.
_REPAIR = (1.0, 20.0, 200.0)


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault at the ``at``-th change of anything by anybody.

    ``kind``: 'kill' or 'power' of a node, 'cut' between the node that makes
    the change and another, 'answer': that of the database is lost, 'away':
    the database.
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
                  choices.choice(('kill', 'kill', 'power', 'power', 'cut',
                                  'answer', 'away')),
                  choices.choice(('before', 'after')),
                  choices.randrange(3), choices.choice(_REPAIR))
            for _ in range(choices.choice((0, 1, 1, 2, 3))))
        fates = {choices.randrange(1, 30): choices.choice(DISTURBED)
                 for _ in range(choices.choice((0, 0, 1, 2)))}
        return cls(faults, fates)


class Injector:
    """Carries a plan out."""

    def __init__(self, cloud: cloud_module.Cloud, plan: Plan) -> None:
        self.cloud = cloud
        self.changes = 0
        self.messages = 0
        self.injected = 0
        self.calm = False
        self._faults: dict[tuple[int, str], list[Fault]] = {}
        for fault in plan.faults:
            self._faults.setdefault((fault.at, fault.moment),
                                    []).append(fault)
        self._fates = plan.fates
        self._lose_answer = False
        cloud.fault = self.fault
        cloud.fate = self.fate
        cloud.lose_answer = self.lose_answer

    def fate(self, message: typing.Any) -> Fate:
        self.messages += 1
        fate = self._fates.get(self.messages, Fate.ARRIVES)
        if self.calm or fate is Fate.ARRIVES:
            return Fate.ARRIVES
        self.injected += 1
        what = getattr(message, 'method', message)
        self.cloud.note(f'** message {self.messages}, {what}: {fate.value}')
        return fate

    def lose_answer(self, process: cloud_module.Process) -> bool:
        lost, self._lose_answer = self._lose_answer, False
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
        nodes = list(self.cloud.nodes.values())
        here = nodes.index(self.cloud.nodes[call.node])
        victim = nodes[(here + fault.victim) % len(nodes)]
        spawn = self.cloud.scheduler.spawn
        if fault.kind == 'kill':
            victim.kill()
            spawn('repair', self._start, victim, fault.repair)
        elif fault.kind == 'power':
            if victim.up:
                victim.lose_power()
            spawn('repair', self._start, victim, fault.repair)
        elif fault.kind == 'cut':
            other = nodes[(here + max(1, fault.victim)) % len(nodes)]
            if other is not nodes[here]:
                self.cloud.partition(nodes[here], other)
                spawn('repair', self._heal, fault.repair)
        elif fault.kind == 'answer':
            self._lose_answer = True
        else:
            self.cloud.tables.away = True
            spawn('repair', self._back, fault.repair)

    def _start(self, node: cloud_module.Node, seconds: float) -> None:
        self.cloud.scheduler.sleep(seconds)
        node.start()

    def _heal(self, seconds: float) -> None:
        self.cloud.scheduler.sleep(seconds)
        self.cloud.heal()

    def _back(self, seconds: float) -> None:
        self.cloud.scheduler.sleep(seconds)
        self.cloud.tables.away = False

    def repair_all(self) -> None:
        """Faults have stopped."""
        self.calm = True
        self._lose_answer = False
        self.cloud.heal()
        self.cloud.tables.away = False
        for node in self.cloud.nodes.values():
            node.start()
