# SPDX-License-Identifier: Apache-2.0
"""Stories that are left to chance."""

from __future__ import annotations

import dataclasses
import random
import typing

from tests.simulation import backups
from tests.simulation import births
from tests.simulation import outside
from tests.simulation.stories import DIFFERENCES
from tests.simulation.stories import FULL
from tests.simulation.stories import Step
from tests.simulation.stories import Story

ENDINGS = ('success', 'success', 'early', 'quiet', 'never', 'held', 'split',
           'lazy')


def of_seed(choices: random.Random, others: random.Random) -> Story:
    """
    :param others: decides about what came later: most seeds stay as they were
    """
    story = _of_seed(choices)
    if others.random() < 0.1:
        return dataclasses.replace(story, last=FULL, serves_the_full=True)
    if others.random() < 0.1:
        return dataclasses.replace(story, lines=tuple(
            tuple(_outside(step, others) for step in steps)
            for steps in story.lines))
    if others.random() < 0.3:
        return dataclasses.replace(story, lines=tuple(
            tuple(_with_cuts(steps, others)) for steps in story.lines))
    if others.random() < 0.2:
        return dataclasses.replace(story, lines=tuple(
            tuple(backups.woven(steps, others)) for steps in story.lines))
    if others.random() < 0.3:
        return _shared(story, others)
    if others.random() < 0.3:
        return dataclasses.replace(story, lines=tuple(
            tuple(births.woven(steps, story.hosts, others))
            for steps in story.lines))
    if others.random() < 0.2:
        return dataclasses.replace(story, thin=story.hosts, lines=tuple(
            tuple(_with_cuts(steps, others)) for steps in story.lines))
    return story


def _shared(story: Story, choices: random.Random) -> Story:
    """The same with a second server that may have the volume, too."""
    hosts = (*story.hosts, outside.Outside.host)
    steps: list[Step] = []
    for _ in range(choices.choice((2, 4, 8))):
        what = choices.choice(('attach2', 'attach2', 'detach2', 'live2'))
        step: Step = (what,)
        if what == 'live2':
            step += choices.choice(story.hosts), choices.choice(ENDINGS)
        elif what == 'attach2':
            step += (choices.choice(hosts),)
        steps += [step, ('wait', choices.choice(('0', '1', '7', '60')))]
        if choices.random() < 0.3:
            steps.append(('see',))
    return dataclasses.replace(story, lines=(*story.lines, tuple(steps)),
                               multiattach=True)


def _with_cuts(steps: typing.Iterable[Step],
               choices: random.Random) -> typing.Iterator[Step]:
    for step in steps:
        yield step
        if choices.random() < 0.4:
            yield (choices.choice(('cut', 'snap', 'snap', 'unsnap',
                                   'revert')),)


def _outside(step: Step, choices: random.Random) -> Step:
    """The same, perhaps for a server on a host without the backend."""
    what, *words = step
    if what in ('attach', 'attach2') and choices.random() < 0.5:
        return what, outside.Outside.host
    return step


def _of_seed(choices: random.Random) -> Story:
    hosts = ('a', 'b', 'c')[:choices.choice((2, 3, 3))]
    first = _main_line(choices, hosts)
    lines = [first]
    if choices.random() < 0.6:
        lines.append(_side_line(choices, hosts))
    return Story(hosts, tuple(lines), choices.random() < 0.7,
                 choices.random() < 0.2,
                 choices.choice((*[()] * 5, *DIFFERENCES)))


def _main_line(choices: random.Random,
               hosts: typing.Sequence[str]) -> tuple[Step, ...]:
    steps: list[Step] = []
    attached = False
    for _ in range(choices.choice((2, 3, 4, 6))):
        host = choices.choice(hosts)
        if attached:
            step: Step = choices.choice((
                ('detach',), ('live', host), ('live', host), ('fill',)))
            if step[0] == 'live':
                step += (choices.choice(ENDINGS),)
            attached = step[0] != 'detach'
        else:
            step = choices.choice((
                ('attach', host), ('attach', host), ('attach', host),
                ('extend',), ('migrate', host), ('image',)))
            attached = step[0] == 'attach'
        steps.append(step)
        if choices.random() < 0.4:
            steps.append(('wait', choices.choice(('1', '5', '30', '300'))))
    return tuple(steps)


def _side_line(choices: random.Random,
               hosts: typing.Sequence[str]) -> tuple[Step, ...]:
    """Somebody else asks for the same volume."""
    steps: list[Step] = []
    for _ in range(choices.choice((1, 2, 3))):
        steps.append(('wait', choices.choice(('0', '0', '1', '7', '60'))))
        host = choices.choice(hosts)
        steps.append(choices.choice((
            ('attach2', host), ('attach2', host), ('detach2',), ('drop',),
            ('extend',), ('migrate', host), ('image',), ('delete',),
            ('again',), ('kill', host), ('power', host))))
    return tuple(steps)
