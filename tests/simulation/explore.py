# SPDX-License-Identifier: Apache-2.0
"""Which schedules there are, and what comes of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
import typing

from tests.simulation import faults
from tests.simulation import schedule
from tests.simulation import stories
from tests.unit.fake import ports

Spec = schedule.Spec

# What the systematic part lets happen at every change: with whom, counted
# from the node that makes it, and whether afterwards as well.
CRASHES = ('kill', 'power')
OTHERS = ('answer', 'mute', 'commit', 'away', 'empty', 'restore', 'sector')
# Long enough for what waits to be found.
SECONDS = {'cut': 300.0, 'mute': 60.0}
# How often each pair of calls is tried, and how much they take turns.
PAIR_TRIES = 4
PAIR_SWITCH = 0.3
PAIR_SLOWNESS = 0.1
STORY_SWITCH = 0.1


@functools.cache
def undisturbed(story: str) -> schedule.Outcome:
    """How many changes and messages a base story has."""
    return schedule.run(Spec(f'base/{story}', stories.BASE[story]))


def crashes() -> typing.Iterator[str]:
    """A crash of each node before and after every change, or another fault.
    """
    for story in stories.BASE:
        nodes = range(len(stories.BASE[story].hosts))
        whats = [f'{kind}/{moment}/{node}' for kind, moment, node in
                 itertools.product(CRASHES, ('before', 'after'), nodes)]
        whats += [f'cut/before/{node}' for node in nodes[1:]]
        whats += [f'reinstall/before/{node}' for node in nodes]
        whats += [f'{kind}/before/0' for kind in OTHERS]
        for at in range(1, undisturbed(story).changes + 1):
            for what in whats:
                yield f'crash/{story}/{what}/{at}'


def messages() -> typing.Iterator[str]:
    """Every message lost, unanswered, late, twice and astray."""
    for story in stories.BASE:
        for number in range(1, undisturbed(story).messages + 1):
            for fate in faults.DISTURBED:
                yield f'message/{story}/{fate.name}/{number}'


def pairs(first: int = 0) -> typing.Iterator[str]:
    """Every pair of calls at the same time.

    :param first: the first of the ways in which they take turns
    """
    return _pairs('pair', stories.STATES, stories.CALLS, first)


def shared_pairs(first: int = 0) -> typing.Iterator[str]:
    """The same about a volume that two servers may have."""
    return _pairs('share', stories.SHARED_STATES, stories.SHARED_CALLS, first)


def _pairs(kind: str, states: typing.Iterable[str],
           calls: typing.Iterable[str], first: int) -> typing.Iterator[str]:
    for state in states:
        for one, other in itertools.combinations_with_replacement(calls, 2):
            for number in range(first, first + PAIR_TRIES):
                yield f'{kind}/{state}/{one}/{other}/{number}'


def seeds(first: int) -> typing.Iterator[str]:
    """Schedules in which everything is left to chance."""
    for seed in itertools.count(first):
        yield f'seed/{seed}'


def spec(name: str) -> Spec:
    """The schedule with a name.

    :raises ValueError: if there is none
    """
    kind, *words = name.split('/')
    match kind, *words:
        case 'seed', seed:
            return Spec.of_seed(int(seed))
        case 'base', story:
            return Spec(name, stories.BASE[story])
        case 'story', story, _:
            return Spec(name, stories.BASE[story], switch=STORY_SWITCH)
        case 'slow', story, _:
            return Spec(name, stories.BASE[story], switch=PAIR_SWITCH,
                        slowness=PAIR_SLOWNESS)
        case 'crash', story, what, moment, victim, at:
            fault = faults.Fault(int(at), what, moment, int(victim),
                                 SECONDS.get(what, 20.0))
            return Spec(name, stories.BASE[story], faults.Plan((fault,)))
        case 'message', story, fate, number:
            return Spec(name, stories.BASE[story], faults.Plan(
                fates={int(number): ports.Fate[fate]}))
        case 'pair' | 'share', state, one, other, _:
            make = stories.pair if kind == 'pair' else stories.shared_pair
            return Spec(name, make(state, one, other),
                        switch=PAIR_SWITCH, slowness=PAIR_SLOWNESS)
    raise ValueError(f'no schedule is called {name}')


@dataclasses.dataclass
class Report:
    """What was explored, and what was found."""

    schedules: int = 0
    injected: int = 0
    steps: int = 0
    seconds: float = 0.0
    found: list[schedule.Outcome] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        pace = self.schedules / self.seconds * 60 if self.seconds else 0
        return (f'{self.schedules} schedules, {self.injected} faults, '
                f'{self.steps} steps, {self.seconds:.0f} s of processor '
                f'time ({pace:.0f} a minute), {len(self.found)} findings')


def explore(names: typing.Iterable[str], report: Report,
            until: typing.Callable[[Report], bool] = lambda report: False
            ) -> Report:
    """Carry schedules out until there are no more, or it is enough."""
    for name in names:
        began = time.process_time()
        outcome = schedule.run(spec(name))
        report.schedules += 1
        report.injected += outcome.injected
        report.steps += outcome.steps
        report.seconds += time.process_time() - began
        if outcome.violation:
            report.found.append(outcome)
        if until(report):
            break
    return report


def describe(name: str) -> str:
    """A schedule in full, for a person."""
    outcome = schedule.run(spec(name), trace=True)
    return '\n'.join([
        f'schedule {name}', f'story    {outcome.spec.story}',
        f'faults   {", ".join(map(str, outcome.spec.plan.faults))}',
        f'messages {outcome.spec.plan.fates}', *outcome.trace,
        f'found    {outcome.violation}',
        f'again    python -m tests.simulation --replay "{name}"'])
