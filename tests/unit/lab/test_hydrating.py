# SPDX-License-Identifier: Apache-2.0
"""What is measured before a volume has arrived, and what is made of it."""
from __future__ import annotations

import unittest

from oslo_utils import units as oslo_units

from cinder_dmclone import opts
from cinder_dmclone.stack import clones
from lab import hydrating
from lab.fio import Load
from lab.hydrating import (REGIONS, REST, SAME, SECOND, ZRAM, Case, Found,
                           Row)
from tests.unit.lab import base


def load(rate: float) -> Load:
    return Load(rate, 9.0, 1.0, 2.0)


def row(rate: float, bare: float, before: float, after: float) -> Row:
    return Row(load(rate), load(bare), (before, after))


class CasesTest(unittest.TestCase):

    def test_all_are_all(self) -> None:
        found = hydrating.cases([SAME, SECOND, ZRAM], quick=False)
        self.assertEqual(3 * len(REGIONS), len(set(found)))

    def test_quickly_each_medium_and_more_than_one_size(self) -> None:
        found = hydrating.cases([SAME, SECOND], quick=True)
        self.assertEqual({SAME, SECOND}, {case.medium for case in found})
        self.assertLess(1, len({case.region for case in found}))
        self.assertEqual(len(found), len(set(found)))
        # One that is compared with another differs in one thing alone.
        self.assertIn(Case(SAME, 64), found)
        self.assertIn(Case(SECOND, 64), found)

    def test_the_default_is_measured_on_each_medium(self) -> None:
        region, = {opt.default for opt in opts.dmclone_opts
                   if opt.name == 'dmclone_region_size_kib'}
        for medium in SAME, SECOND, ZRAM:
            self.assertIn(Case(medium, region), hydrating.cases(
                [SAME, SECOND, ZRAM], quick=True))

    def test_regions_that_a_lender_here_does_not_have(self) -> None:
        here = [case.region for case in hydrating.cases([SAME], quick=False)
                if case.here]
        self.assertEqual(clones._NEAR, oslo_units.Ki * min(here))
        self.assertIn(max(REGIONS), here)

    def test_what_it_will_take_is_told(self) -> None:
        text = hydrating.forecast(
            3 * [Case(SAME, 4), *3 * [Case(SAME, 64)]], 3, 60, 5)
        self.assertIn('540 rows of up to 60 s', text)
        self.assertIn('11 h 36 min', text)


class FiguresTest(base.FiguresTestCase):

    def setUp(self) -> None:
        self.found = hydrating.made_of(Found({
            ('writes', 'remote, second disk, 64 KiB'): [
                row(50, 100, 0, 7), row(60, 100, 0, 9)],
            ('writes', 'local, same disk, 4 KiB'): [row(30, 100, 0, 1)],
            ('reads', 'remote, same disk, 4 KiB'): [row(40, 100, 0, 0)],
            ('writes', REST): [row(90, 100, 100, 100)]}, {
                Case(SAME, 4): [40, 30, 45], Case(SECOND, 64): [70, 70, 70],
                Case(SAME, 64): [80, 60, 50]}))

    def test_is_a_ratio_to_the_bare_lv_beside_it(self) -> None:
        figure = self.value('writes, remote, second disk, 64 KiB')
        self.assertEqual([0.5, 0.6], figure.pairs())
        self.assertEqual([0.9], self.value(f'writes, {REST}').pairs())

    def test_tells_what_had_arrived(self) -> None:
        figure = self.value('writes, remote, second disk, 64 KiB')
        self.assertIn('arrived: 0, then 8 %', figure.note)
        self.assertEqual([7.0, 9.0], figure.samples['percent after'])

    def test_what_limits_is_of_the_direction(self) -> None:
        figure = self.value('writes, local, same disk, 4 KiB')
        self.assertTrue(figure.missed)
        self.assertIn('commit', figure.limits)
        # It writes all of a region.
        self.assertNotIn('arrive', figure.limits)
        figure = self.value('writes, remote, second disk, 64 KiB')
        self.assertIn('arrive', figure.limits)
        figure = self.value('reads, remote, same disk, 4 KiB')
        self.assertFalse(figure.missed)
        self.assertIsNone(self.value(f'writes, {REST}').aim)

    def test_rates_are_compared_with_those_of_64_kib(self) -> None:
        figure = self.value('hydration, same disk, 4 KiB')
        self.assertEqual([0.5, 0.5, 0.9], figure.pairs())
        self.assertFalse([one for one in self.found
                          if one.name.startswith('hydration, second')])

    def test_rows_of_the_article_have_an_aim(self) -> None:
        for name in 'reads', 'writes':
            for lender in hydrating.LOCAL, hydrating.REMOTE:
                for case in hydrating.cases([SAME, SECOND, ZRAM], False):
                    self.assertIsNotNone(
                        hydrating._aim(name, f'{lender}, {case}'))
