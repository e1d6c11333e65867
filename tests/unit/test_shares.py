# SPDX-License-Identifier: Apache-2.0
"""The shares of a long run are all of it, each test once."""

from __future__ import annotations

import itertools
import random
import unittest
from unittest import mock

from tests.simulation import test_explore
from tools import shares

FUNCTIONAL = shares.Stage('functional', {
    f'tests.functional.test_{name}.Test.test_{number}': float(seconds)
    for number, (name, seconds) in enumerate(itertools.product(
        ('galera', 'power', 'crash', 'boot'), (3, 50, 20, 90)))}, 40.0, 2)
UNIT = shares.Stage('unit', {'pep8': 5.0, 'cover': 60.0, 'docs': 9.0})
STAGES = [UNIT, FUNCTIONAL]


def tests_of(found: list[dict[str, list[str]]], stage: str) -> list[str]:
    return [test for share in found for test in share.get(stage, ())]


class DivideTest(unittest.TestCase):

    def test_the_union_is_all_and_nothing_is_twice(self) -> None:
        for count in (1, 2, 3, 4, 7, 100):
            found = shares.divide(STAGES, count)
            self.assertEqual(count, len(found))
            for stage in STAGES:
                self.assertEqual(sorted(stage.tests),
                                 sorted(tests_of(found, stage.name)))

    def test_it_follows_from_the_times_alone(self) -> None:
        mixed = list(FUNCTIONAL.tests.items())
        random.Random(1).shuffle(mixed)
        other = shares.Stage('functional', dict(mixed), 40.0, 2)
        self.assertEqual(shares.divide(STAGES, 3),
                         shares.divide([other, UNIT], 3))

    def test_what_starts_something_of_its_own_is_not_divided(self) -> None:
        for share in shares.divide(STAGES, 4):
            for name in ('galera', 'power'):
                count = sum(f'test_{name}.' in test
                            for test in share.get('functional', ()))
                self.assertIn(count, (0, 4))

    def test_no_share_of_a_stage_has_only_what_is_skipped(self) -> None:
        stage = shares.Stage('nova', {
            'tests.nova.test_a.Test.test_runs': 3.0,
            **{f'tests.nova.test_a.Test.test_skipped_{number}': 0.0001
               for number in range(20)}})
        found = shares.divide([UNIT, stage], 5)
        self.assertEqual(sorted(stage.tests),
                         sorted(tests_of(found, stage.name)))
        self.assertEqual(1, sum(stage.name in share for share in found))

    def test_a_class_of_tempest_is_not_divided(self) -> None:
        names = [f'{package}.api.volume.{module}.{case}.test_x[id-{number}]'
                 for package in ('tempest', 'cinder_tempest_plugin')
                 for module in ('test_a', 'admin.test_b')
                 for case in ('OneTest', 'TwoTestJSON')
                 for number in range(3)]
        stage = shares.Stage('tempest', dict.fromkeys(names, 1.0))
        self.assertEqual(
            {3}, {len(tests) for tests in stage.units().values()})
        self.assertEqual(8, len(stage.units()))

    def test_shares_are_about_as_long(self) -> None:
        times = {f't{number}': float(number % 17 + 1)
                 for number in range(100)}
        found = shares.divide([shares.Stage('s', times)], 4)
        lengths = [sum(times[test] for test in share['s'])
                   for share in found]
        self.assertLess(max(lengths) - min(lengths), 17)

    def test_a_stage_is_started_where_it_pays(self) -> None:
        """A lab that takes long to start for one short test: once."""
        found = shares.divide([
            shares.Stage('long', {f't{n}': 10.0 for n in range(4)}, 100.0),
            shares.Stage('short', {f't{n}': 10.0 for n in range(14)})], 2)
        self.assertEqual(1, sum('long' in share for share in found))

    def test_of_many_stages_not_all_combinations_are_tried(self) -> None:
        """Of these there are 10^9, which no run would see the end of."""
        found = shares.divide([
            shares.Stage(f's{number}', {f's{number}t{n}': 10.0
                                        for n in range(20)}, 100.0)
            for number in range(9)], 10)
        # As long as the longest stage alone.
        self.assertEqual(300.0, max(
            sum(100.0 + 10.0 * len(tests) for tests in share.values())
            for share in found))


class TimesTest(unittest.TestCase):

    def test_a_new_test_takes_as_long_as_others(self) -> None:
        self.assertEqual(
            {'a': 5.0, 'new': 5.0},
            shares.timed(['a', 'new'], {'a': 5.0, 'b': 1.0, 'c': 9.0,
                                        'skipped': 0.0, 'too': 0.05}))
        self.assertEqual({'new': shares.UNKNOWN}, shares.timed(['new'], {}))

    def test_workers_need_about_the_same_time(self) -> None:
        found = shares.workers({'a': 4.0, 'b': 3.0, 'c': 2.0, 'd': 1.0}, 2)
        self.assertEqual([['a', 'd'], ['b', 'c']], found)


class SimulationTest(unittest.TestCase):

    def test_the_union_is_every_schedule_once(self) -> None:
        found: list[int] = []
        for number in (1, 2, 3):
            with mock.patch.multiple(test_explore, SHARE=number, SHARES=3):
                found += test_explore.share(range(100))
        self.assertEqual(list(range(100)), sorted(found))
