# SPDX-License-Identifier: Apache-2.0
"""The picture of a benchmark's ratios."""
from __future__ import annotations

import unittest
from xml.etree import ElementTree

from lab import chart
from lab import figures

SVG = '{http://www.w3.org/2000/svg}'


class ChartTest(unittest.TestCase):

    def drawn(self, unit: str, *values: float) -> list[ElementTree.Element]:
        """The circles of a picture with a line for each ratio."""
        text = chart.ratios([
            figures.Figure('no ratio', 3), *(
                figures.ratio(f'<{value}>', 'a', 'b', {
                    'a': [value], 'b': [1.0]}, unit) for value in values)],
            'x & y')
        return list(ElementTree.fromstring(text).iter(f'{SVG}circle'))

    def test_larger_is_further_right(self) -> None:
        places = [float(circle.attrib['cx'])
                  for circle in self.drawn('s', 0.2, 1, 30)]
        self.assertEqual(sorted(places), places)
        self.assertEqual(3, len(set(places)))

    def test_a_time_is_better_short(self) -> None:
        for unit, better in (('s', 0.5), ('ms', 0.5), ('a second', 2)):
            with self.subTest(unit):
                circle, other = self.drawn(unit, better, 1 / better)
                self.assertEqual(chart._BETTER, circle.attrib['fill'])
                self.assertEqual(chart._WORSE, other.attrib['fill'])

    def test_what_was_divided_by_nothing_is_left_out(self) -> None:
        figure = figures.ratio('x', 'a', 'b', {'a': [1.0], 'b': [0.0]}, 's')
        self.assertNotIn('circle', chart.ratios([figure], 'x'))

    def test_all_is_within_the_picture(self) -> None:
        for circle in self.drawn('s', 0.0004, 12345):
            self.assertGreater(float(circle.attrib['cx']), chart._LABEL)
            self.assertLess(float(circle.attrib['cx']),
                            chart._WIDTH - chart._NOTE)
