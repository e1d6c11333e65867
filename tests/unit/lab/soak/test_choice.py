# SPDX-License-Identifier: Apache-2.0
"""One seed gives one story, which leaves out nothing and ends empty."""
from __future__ import annotations

from collections import Counter

import ddt

from lab.soak import choice, outages, refusals
from lab.soak.model import Model, Step
from tests.unit.lab.soak import base

STEPS = 400


def apply(model: Model, step: Step) -> None:
    """What an actor does to the model."""
    if refusals.reason(step, model):
        return
    source = model.volumes.get(step.source)
    model.apply(step)
    # They go on in another run.
    for verb, volume in (('write', model.volumes.get(step.name)),
                         ('migrate', model.volumes.get(step.name)),
                         ('snapshot', source), ('clone', source)):
        if step.verb == verb and volume and (volume.writing or verb in (
                'write', 'migrate')):
            model.run(volume.name)


class Story:
    """The steps of a seed, and what there is after them."""

    def __init__(self, seed: int, calm: bool = False,
                 steps: int = STEPS) -> None:
        self.model = Model()
        self.choice = choice.Choice(seed, 3, calm)
        self.steps: list[Step] = []
        self.refused: list[str] = []
        for _ in range(steps):
            self._take(self.choice.next(self.model))

    def _take(self, step: Step) -> None:
        reason = refusals.reason(step, self.model)
        if reason:
            self.refused.append(f'{step.verb}: {reason}')
        self.steps.append(step)
        apply(self.model, step)

    def close(self) -> list[Step]:
        """The steps until nothing is left."""
        begin = len(self.steps)
        self.model.doubt()
        while (step := self.choice.closing(self.model)) is not None:
            self._take(step)
        return self.steps[begin:]


@ddt.ddt
class ChoiceTest(base.SmallTestCase):

    def test_a_seed_gives_the_same_steps(self) -> None:
        stories = [[str(step) for step in Story(seed).steps]
                   for seed in (7, 7, 8)]
        self.assertEqual(stories[0], stories[1])
        self.assertNotEqual(stories[0], stories[2])

    def test_a_longer_story_begins_as_a_shorter_one(self) -> None:
        self.assertEqual(Story(7, steps=50).steps, Story(7).steps[:50])

    def test_nothing_is_left_out(self) -> None:
        story = Story(1)
        self.assertEqual(set(choice.WEIGHTS),
                         {step.verb for step in story.steps})
        kinds = Counter(step.outage.kind for step in story.steps
                        if step.outage)
        self.assertEqual(set(outages.KINDS), set(kinds))
        self.assertEqual(
            {'attach: another server has it', 'born: its source is larger',
             'clone: its source is larger', 'delete: a server has it',
             'delete: it has snapshots', 'extend: it is not larger then',
             'revert: a later snapshot is there', 'revert: a server has it',
             'revert: it was extended since'},
            {text for seed in range(1, 9) for text in Story(seed).refused})

    def test_a_calm_story_has_no_outage(self) -> None:
        steps = Story(1, calm=True).steps
        self.assertFalse([step for step in steps if step.outage])
        self.assertNotIn('wait', {step.verb for step in steps})

    def test_verbs_that_are_not_wanted(self) -> None:
        model = Model()
        chosen = choice.Choice(1, 3, True, {'create': 1, 'attach': 9})
        steps = []
        for _ in range(40):
            steps.append(chosen.next(model))
            apply(model, steps[-1])
        self.assertEqual({'create', 'attach'}, {step.verb for step in steps})

    def test_to_wait_is_for_an_outage(self) -> None:
        self.assertEqual({True}, {bool(step.outage) for step in Story(2).steps
                                  if step.verb == 'wait'})

    def test_what_has_to_be_refused_is_asked_in_peace(self) -> None:
        model, chosen = Model(), choice.Choice(3, 3, False)
        refused = 0
        for _ in range(STEPS):
            step = chosen.next(model)
            if refusals.reason(step, model):
                refused += 1
                self.assertIsNone(step.outage, step)
            apply(model, step)
        self.assertLess(10, refused)

    def test_a_node_at_work_is_not_reset(self) -> None:
        model, chosen = Model(), choice.Choice(4, 3, False)
        resets = 0
        for _ in range(4 * STEPS):
            step = chosen.next(model)
            if step.outage and step.outage.kind == 'reset':
                resets += 1
                at = {step.node} | {
                    model.volumes[name].node
                    for name in (step.name, step.source)
                    if name in model.volumes}
                self.assertNotIn(step.outage.node, at, step)
            apply(model, step)
        self.assertLess(10, resets)

    def test_there_is_never_too_much(self) -> None:
        model, chosen = Model(), choice.Choice(5, 3, False)
        for _ in range(STEPS):
            apply(model, chosen.next(model))
            servers = [one for one in model.volumes.values() if one.node]
            self.assertLessEqual(len(model.volumes), choice.VOLUMES)
            self.assertLessEqual(len(model.snapshots), choice.SNAPSHOTS)
            self.assertLessEqual(len(servers), choice.ATTACHED)
            self.assertLessEqual(sum(one.writing for one in servers),
                                 choice.WRITING)

    @ddt.data(*range(6))
    def test_the_end(self, seed: int) -> None:
        """All is looked at, also through each snapshot; nothing is left."""
        story = Story(seed)
        filled = {name for name, volume in story.model.volumes.items()
                  if volume.filled}
        snapshots = set(story.model.snapshots)
        steps = story.close()
        self.assertEqual({}, story.model.volumes)
        self.assertEqual({}, story.model.snapshots)
        born = {step.source: step.name for step in steps
                if step.verb == 'born'}
        self.assertEqual(snapshots, set(born))
        verified = {step.name for step in steps if step.verb == 'verify'}
        self.assertEqual(filled | set(born.values()), verified)
        self.assertFalse(any(step.outage for step in steps))
