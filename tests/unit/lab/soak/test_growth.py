# SPDX-License-Identifier: Apache-2.0
"""What grows for ever is found, and what grows at first is not blamed."""
from __future__ import annotations

import random
import typing
import unittest

import ddt

from lab.soak import growth

STEPS = 40
USUAL = {'memory': 100 << 10, 'files': 60, 'archive': 3, 'log': 10 << 10}
# What a step finds.
Values = typing.Callable[[int], float]


def samples(life: typing.Callable[[int], int] = lambda step: 1,
            steps: int = STEPS, **of: Values) -> list[growth.Sample]:
    """A sample of each step; what is not given is as usual, with noise."""
    dice = random.Random(1)
    log, found = 0, []
    for step in range(steps):
        values = {what: int(of[what](step) if what in of else usual)
                  for what, usual in USUAL.items()}
        log += int(values.pop('log') * dice.uniform(0.5, 1.5))
        values['memory'] += dice.randrange(2 << 10)
        values['files'] += dice.randrange(4)
        found.append(growth.Sample(step, 'node1', life(step), log=log,
                                   **values))
    return found


@ddt.ddt
class GrowthTest(unittest.TestCase):

    def test_as_usual(self) -> None:
        self.assertEqual([], growth.verdict(samples()))

    @ddt.data(
        ('memory', lambda step: (100 << 10) + step * 1200),
        ('files', lambda step: 60 + step * 2),
        ('archive', lambda step: 3 + step // 4),
        ('log', lambda step: (10 + 10 * step) << 10))
    @ddt.unpack
    def test_what_grows(self, what: str, value: Values) -> None:
        of: dict[str, typing.Any] = {what: value}
        found = growth.verdict(samples(**of))
        self.assertEqual(1, len(found), found)
        self.assertIn(what, found[0])
        self.assertIn('node1', found[0])

    def test_what_grows_at_first(self) -> None:
        for steps in (growth.WARM_UP + growth.LEAST, STEPS):
            found = growth.verdict(samples(
                steps=steps,
                memory=lambda step: (60 + 10 * min(step, 4)) << 10,
                files=lambda step: 30 + 10 * min(step, 4)))
            self.assertEqual([], found)

    def test_too_few_samples_say_nothing(self) -> None:
        for more in (0, 1):
            found = growth.verdict(samples(
                steps=growth.WARM_UP + growth.LEAST - 1 + more,
                files=lambda step: 60 + step * 20))
            self.assertEqual(more, len(found))

    def test_a_service_that_is_started_again(self) -> None:
        """Each life is looked at by itself, and has to be long enough."""
        self.assertEqual([], growth.verdict(samples(
            lambda step: step // 10,
            memory=lambda step: (100 << 10) + step * 1200)))
        self.assertEqual(1, len(growth.verdict(samples(
            lambda step: step // 20,
            memory=lambda step: (100 + 4 * max(0, step - 20)) << 10))))

    def test_nodes_are_looked_at_by_themselves(self) -> None:
        other = [growth.Sample(one.step, 'node2', 2, 900 << 10, 500, 40,
                               9 << 20) for one in samples()]
        mixed = [one for both in zip(samples(), other) for one in both]
        self.assertEqual([], growth.verdict(mixed))

    def test_the_table(self) -> None:
        lines = growth.table(samples())
        self.assertEqual(3, len(lines))
        self.assertEqual(['node1', '0', '100', '62', '3'],
                         lines[1].split()[:5])
