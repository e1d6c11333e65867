# SPDX-License-Identifier: Apache-2.0
"""What is made of the writes of a server whose volume moves."""
from __future__ import annotations

import unittest
from xml.etree import ElementTree

from lab import figures
from lab import latency
from tests.unit.lab import base

SVG = '{http://www.w3.org/2000/svg}'
EVENTS = {'attach': 10.0, 'moved': 14.0, 'swap': 30.0, 'snapshot': 40.0,
          'cut': 42.0, 'swap of the cut': 60.0}
# In each phase one write of a length of its own.
PHASES = {'at rest': 5.0, 'attach': 14.0, 'hydration': 20.0, 'swap': 30.2,
          'snapshot': 41.0, 'hydration of the cut': 50.0,
          'swap of the cut': 59.5}
WRITES = [(at, 10.0 + number) for number, at in enumerate(PHASES.values())]


class PhasesTest(unittest.TestCase):

    def test_a_write_is_of_what_went_on_at_its_end(self) -> None:
        self.assertEqual({name: [10.0 + number]
                          for number, name in enumerate(PHASES)},
                         latency.phases(WRITES, EVENTS))

    def test_it_is_at_rest_between_and_behind(self) -> None:
        found = latency.phases([(35.0, 1.0), (70.0, 2.0)], EVENTS)
        self.assertEqual([1.0, 2.0], found['at rest'])

    def test_what_was_very_short_has_none(self) -> None:
        """It had hydrated before anybody looked."""
        events = {**EVENTS, 'swap': 14.5, 'swap of the cut': 42.1}
        found = latency.phases([(13.9, 1.0), (14.2, 2.0), (42.5, 3.0)],
                               events)
        self.assertEqual([], found['hydration'])
        self.assertEqual([1.0], found['attach'])
        self.assertEqual([2.0], found['swap'])
        self.assertEqual([3.0], found['swap of the cut'])

    def test_every_write_is_counted_once(self) -> None:
        writes = [(number / 7, 1.0) for number in range(700)]
        found = latency.phases(writes, EVENTS)
        self.assertEqual(700, sum(map(len, found.values())))


class LogTest(unittest.TestCase):

    def test_lines_of_fio(self) -> None:
        text = ('1795467842123, 1250000, 1, 4096, 0, 0\n'
                '1795467842133, 98000000, 1, 4096, 8192, 0\n')
        self.assertEqual([(1795467842.123, 1.25), (1795467842.133, 98.0)],
                         list(latency.parse(text)))

    def test_a_point_is_a_quarter_second(self) -> None:
        found = latency.buckets([(0.1, 1.0), (0.2, 9.0), (0.21, 2.0),
                                 (1.3, 4.0)])
        self.assertEqual({'seconds': [0.0, 1.25], 'typical': [2.0, 4.0],
                          'longest': [9.0, 4.0]}, found)


class FiguresTest(base.FiguresTestCase):

    def setUp(self) -> None:
        slow = [(at, 20 * took) for at, took in WRITES]
        self.found = latency.made_of([(WRITES, EVENTS), (slow, EVENTS)])

    def test_the_longest_of_each_phase(self) -> None:
        figure = self.value('longest write, swap')
        self.assertEqual([13.0, 260.0], figure.samples['longest'])
        self.assertTrue(figure.missed)
        self.assertIn('limited by a flush',
                      '\n'.join(figures.table([figure])))

    def test_the_typical_one_against_rest(self) -> None:
        self.assertEqual([1.2, 1.2],
                         self.value('typical write, hydration').pairs())

    def test_the_picture_is_of_the_first_round(self) -> None:
        root = ElementTree.fromstring(latency.draw(self.found, 'x'))
        # Two curves of a point for each write.
        self.assertEqual(2 * len(WRITES),
                         len(list(root.iter(f'{SVG}circle'))))
        words = [text.text for text in root.iter(f'{SVG}text')]
        for event in EVENTS:
            self.assertIn(event, words)
