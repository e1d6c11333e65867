# SPDX-License-Identifier: Apache-2.0
"""What is taken away from a lab for a while, and given back."""
from __future__ import annotations

import random
import time
import typing
from collections.abc import Callable, Iterable

from lab.processes import wait_for
from lab.soak.model import Model, Outage, Step

if typing.TYPE_CHECKING:
    from lab.lab import Lab
    from lab.services import Service

# How often each is taken, and the longest time until it is given back, in
# seconds: kill -9 of cinder-volume, the storage network of a node, a node's
# power, and two services of the control plane.
KINDS: dict[str, tuple[int, float]] = {
    'kill': (4, 10), 'cut': (4, 30), 'reset': (2, 5), 'rabbitmq': (2, 15),
    'mariadb': (2, 15)}
# The longest time from the beginning of a step, in seconds.
AFTER = 3.0
_CONTROL = ('rabbitmq', 'mariadb')
# Less than service_down_time by more than report_interval (lab/config.py).
_REPORTED = 60


def choose(dice: random.Random, step: Step, model: Model,
           nodes: Iterable[int]) -> Outage:
    """What is taken away during a step."""
    kinds = list(KINDS)
    kind = dice.choices(kinds, [weight for weight, _ in KINDS.values()])[0]
    # A node that has to do the step itself has to be there.
    spared = _involved(step, model) if kind == 'reset' else set()
    node = dice.choice([node for node in nodes if node not in spared])
    after, length = dice.uniform(0, AFTER), dice.uniform(1, KINDS[kind][1])
    return Outage(kind, 0 if kind in _CONTROL else node, round(after, 1),
                  round(length, 1))


def _involved(step: Step, model: Model) -> set[int]:
    """Nodes where something is written or read for a step."""
    found = {step.node}
    for name in (step.name, step.source):
        if name in model.volumes:
            found.add(model.volumes[name].node)
    return found


class Outages:
    """Those of a lab.

    :ivar ended: when the last one ended (monotonic); None while there is one
    """

    def __init__(self, lab: Lab, died: Callable[[int], object],
                 booted: Callable[[int], object]) -> None:
        """
        :param died: is told the number of a node whose power was cut
        :param booted: and when it is back
        """
        self._lab = lab
        self._died = died
        self._booted = booted
        self.ended: float | None = float('-inf')

    def pass_by(self, outage: Outage) -> None:
        """Take something away, wait, and give it back, whole."""
        self.ended = None
        try:
            time.sleep(outage.after)
            self._strike(outage)
            time.sleep(outage.length)
            self._give_back(outage)
            self._wait_reporting()
        finally:
            self.ended = time.monotonic()

    def _strike(self, outage: Outage) -> None:
        node = self._lab.nodes[outage.node - 1]
        kind = outage.kind
        if kind in _CONTROL:
            service: Service = getattr(self._lab, kind)
            service.stop()
        elif kind == 'kill':
            node.volume.kill()
        elif kind == 'cut':
            node.partition()
        else:
            node.power_cut()
            self._died(node.number)

    def _give_back(self, outage: Outage) -> None:
        node = self._lab.nodes[outage.node - 1]
        kind = outage.kind
        if kind in _CONTROL:
            getattr(self._lab, kind).start()
            return
        if kind == 'cut':
            node.heal()
            return
        if kind == 'reset':
            node.start()
            node.wait_booted()
        node.volume.start(wait=True)
        if kind == 'reset':
            self._booted(node.number)

    def _wait_reporting(self) -> None:
        """Wait until Cinder counts on the services of all nodes."""
        def reporting() -> bool:
            found = {host for host, in self._lab.sql(
                'select host from services where deleted = 0 and updated_at '
                f'> utc_timestamp() - interval {_REPORTED} second')}
            for node in self._lab.nodes:
                node.volume.assert_running()
            return {node.volume.host for node in self._lab.nodes} <= found
        wait_for('the services to report', reporting, 600, 1)

    def forget_requests(self) -> None:
        """Let cinder-api drop requests whose answers will not come."""
        self._lab.cinder_api.kill()
        self._lab.cinder_api.start()
