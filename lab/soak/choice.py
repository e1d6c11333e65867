# SPDX-License-Identifier: Apache-2.0
"""Which step comes next: from a seed and the model, and from nothing else."""
from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping

from lab.soak import outages, refusals
from lab.soak.model import Model, Step, Volume

VOLUMES = 6
SNAPSHOTS = 4
# Volumes that servers have, and that are written, at the same time.
ATTACHED = 4
WRITING = 2
GIB = 2
# How often a verb is taken, against others that could be.
WEIGHTS = {
    'create': 3, 'clone': 3, 'born': 4, 'snapshot': 5, 'attach': 8,
    'write': 8, 'verify': 3, 'extend': 1, 'revert': 3, 'detach': 4,
    'migrate': 4, 'delete': 2, 'unsnapshot': 2, 'wait': 2}
# How often a step is one that has to be refused, and how often something is
# taken away during one that has not.
_WRONG = 0.08
_OUTAGE = 0.35


class Choice:
    """The steps of one seed.

    :ivar calm: whether nothing is ever taken away
    """

    def __init__(self, seed: int, nodes: int, calm: bool,
                 weights: Mapping[str, int] | None = None) -> None:
        """
        :param weights: how often each verb is taken; others never are
        """
        self.calm = calm
        self._weights = weights or WEIGHTS
        self._dice = random.Random(seed)
        self._nodes = range(1, nodes + 1)
        # Snapshots of which a volume was made at the end.
        self._shown: set[str] = set()

    def next(self, model: Model) -> Step:
        """What is to be done now."""
        dice = self._dice
        wrong = dice.random() < _WRONG
        by_verb: dict[str, list[Step]] = {}
        for step in self._possible(model, wrong):
            if step.verb in self._weights:
                by_verb.setdefault(step.verb, []).append(step)
        if not by_verb:
            # Nothing can be asked that is wrong.
            return self.next(model)
        verbs = list(by_verb)
        verb = dice.choices(verbs, [self._weights[verb] for verb in verbs])[0]
        step = dice.choice(by_verb[verb])
        if wrong or self.calm or (
                verb != 'wait' and dice.random() >= _OUTAGE):
            return step
        outage = outages.choose(dice, step, model, self._nodes)
        return dataclasses.replace(step, outage=outage)

    def closing(self, model: Model) -> Step | None:
        """What is to be done so that all was looked at and nothing is left.

        None if that is so.
        """
        dice = self._dice
        steps = [step for volume in model.volumes.values()
                 for step in self._closing(volume)]
        if not steps:
            steps = [Step('born', model.new_name('v'), snapshot.name,
                          gib=snapshot.gib)
                     for snapshot in model.snapshots.values()
                     if snapshot.name not in self._shown][:1]
            self._shown.update(step.source for step in steps)
        if not steps:
            steps = [step for step in _deletions(model)
                     if not refusals.reason(step, model)]
        return dice.choice(steps) if steps else None

    def _closing(self, volume: Volume) -> Iterator[Step]:
        """What is to be done until a volume can be deleted."""
        if volume.node:
            yield Step('detach' if volume.looked else 'verify', volume.name)
        elif volume.filled and not volume.looked:
            for node in self._nodes:
                yield Step('attach', volume.name, node=node)

    def _possible(self, model: Model, wrong: bool) -> Iterator[Step]:
        """All steps that can be done, or have to be refused."""
        for step in self._all(model):
            if bool(refusals.reason(step, model)) == wrong and (
                    wrong or not _too_much(step, model)):
                yield step

    def _all(self, model: Model) -> Iterator[Step]:
        """All steps that make sense, or that Cinder has to refuse."""
        name = model.new_name('v')
        for node in self._nodes:
            yield Step('create', name, node=node, gib=1)
        for volume in model.volumes.values():
            yield from self._of(volume, model)
        for snapshot in model.snapshots.values():
            for gib in range(1, GIB + 1):
                yield Step('born', name, snapshot.name, gib=gib)
            yield Step('revert', snapshot.volume, snapshot.name)
        yield from _deletions(model)
        if not self.calm and any(
                volume.node for volume in model.volumes.values()):
            yield Step('wait')

    def _of(self, volume: Volume, model: Model) -> Iterator[Step]:
        name = volume.name
        for node in self._nodes:
            yield Step('attach', name, node=node)
            if volume.node not in (0, node):
                yield Step('migrate', name, node=node)
        if volume.node:
            yield Step('verify', name)
            yield Step('detach', name)
            if not volume.writing:
                yield Step('write', name)
        else:
            for gib in range(1, GIB + 1):
                yield Step('extend', name, gib=gib)
        if volume.filled:
            yield Step('snapshot', model.new_name('s'), name)
            for gib in range(1, GIB + 1):
                yield Step('clone', model.new_name('v'), name, gib=gib)


def _deletions(model: Model) -> Iterator[Step]:
    for name in model.volumes:
        yield Step('delete', name)
    for name in model.snapshots:
        yield Step('unsnapshot', name)


def _too_much(step: Step, model: Model) -> bool:
    """Whether there is enough of what a step would make more of."""
    servers = [volume for volume in model.volumes.values() if volume.node]
    return (step.verb in ('create', 'clone', 'born')
            and len(model.volumes) >= VOLUMES
            or step.verb == 'snapshot'
            and len(model.snapshots) >= SNAPSHOTS
            or step.verb == 'attach' and len(servers) >= ATTACHED
            or step.verb in ('write', 'migrate') and sum(
                volume.writing for volume in servers
                if volume.name != step.name) >= WRITING
            or step.verb == 'delete' and len(model.volumes) < VOLUMES // 2)
