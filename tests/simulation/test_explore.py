# SPDX-License-Identifier: Apache-2.0
"""Schedules that must hold: a fixed choice of them, or with
``DMCLONE_LONG`` a larger one that is another each time, and fresh seeds.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import typing
import unittest

from tests.simulation import explore
from tests.simulation import stories
from tests.unit import base

# One out of so many; none of them divides the number of the variants of a
# crash or of a message.
CRASHES = 23 if base.LONG else 797
MESSAGES = 3 if base.LONG else 47
PAIRS = 1 if base.LONG else 11
SHARED = 3 if base.LONG else 61
SEEDS = 5000 if base.LONG else 300
# Which part of the schedules this is, and of how many (tools/test --share).
SHARE, SHARES = map(int, os.environ.get('DMCLONE_SHARE', '1/1').split('/'))


T = typing.TypeVar('T')


def share(names: typing.Iterable[T]) -> typing.Iterable[T]:
    """Those of this part."""
    return itertools.islice(names, SHARE - 1, None, SHARES)


def setUpModule() -> None:
    if os.environ.get('PYTHONHASHSEED') != '0':
        raise RuntimeError('Set PYTHONHASHSEED=0: the order of sets is part '
                           'of a schedule.')


class ExploreTest(base.TestCase):

    def explore(self, names: typing.Iterable[str]) -> None:
        report = explore.explore(share(names), explore.Report(),
                                 lambda report: bool(report.found))
        print(f'{self.id()}: {report}')
        if report.found:
            self.fail(explore.describe(report.found[0].spec.name))
        self.assertGreater(report.schedules, 50)

    def some(self, names: typing.Iterable[str],
             step: int) -> typing.Iterable[str]:
        first = random.SystemRandom().randrange(step) if base.LONG else 0
        return itertools.islice(names, first, None, step)

    @staticmethod
    def first() -> int:
        """Of schedules that differ by a number alone."""
        return random.SystemRandom().randrange(10 ** 9) if base.LONG else 0

    def crashes(self, which: int) -> typing.Iterable[str]:
        """Half of them: with --long all take longer than all other tests.

        There are two workers.
        """
        return itertools.islice(self.some(explore.crashes(), CRASHES),
                                which, None, 2)

    def test_every_crash_odd(self) -> None:
        self.explore(self.crashes(0))

    def test_every_crash_even(self) -> None:
        self.explore(self.crashes(1))

    def test_every_message(self) -> None:
        self.explore(self.some(explore.messages(), MESSAGES))

    def test_every_pair(self) -> None:
        self.explore(self.some(explore.pairs(self.first()), PAIRS))

    def test_every_pair_of_two_servers(self) -> None:
        self.explore(self.some(explore.shared_pairs(self.first()),
                               SHARED))

    def test_seeds(self) -> None:
        self.explore(itertools.islice(explore.seeds(self.first()), SEEDS))


class BaseTest(unittest.TestCase):
    """Undisturbed, a story ends as it is meant to."""

    def test_stories(self) -> None:
        for story in stories.BASE:
            with self.subTest(story):
                outcome = explore.undisturbed(story)
                self.assertIsNone(outcome.violation)
                self.assertGreater(outcome.changes, 40)

    def test_what_two_servers_are_refused(self) -> None:
        """All else that they ask for they get."""
        wanted = {'two hydrating': ['it hydrates'],
                  'two served': ['it hydrates'],
                  'two offered': ['live-migrated', 'does not have'],
                  'two snap': ['several servers have it'],
                  'two cut': ['several servers have it']}
        for story, told in stories.BASE.items():
            if not told.multiattach:
                continue
            steps = {step[0] for line in told.lines for step in line}
            answers = [
                match[1] for line in explore.describe(
                    f'base/{story}').splitlines()
                for step in steps
                for match in [re.search(rf' story +{step}: (.*)', line)]
                if match and match[1] != 'done']
            reasons = wanted.get(story, [])
            with self.subTest(story):
                self.assertEqual(len(reasons), len(answers), answers)
                for reason, answer in zip(reasons, answers):
                    self.assertIn(reason, answer)

    def test_a_schedule_is_the_same_again(self) -> None:
        for name in ('seed/5', 'seed/17', 'pair/attached/detach/again/1'):
            first, second = (explore.describe(name) for _ in range(2))
            self.assertEqual(first, second)
