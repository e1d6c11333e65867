# SPDX-License-Identifier: Apache-2.0
"""The picture of a benchmark's ratios."""
from __future__ import annotations

import math
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


class CurvesTest(unittest.TestCase):

    def drawn(self, *points: tuple[float, float], up: chart.Axis,
              across: chart.Axis = chart.Axis('x')) -> list[
                  tuple[float, float]]:
        """Where the points are in a picture."""
        text = chart.curves([chart.Curve('<a>', points)], 'x & y', across, up,
                            [(1, 'b & c'), (1.5, 'd')])
        return [(float(circle.attrib['cx']), float(circle.attrib['cy']))
                for circle in ElementTree.fromstring(text).iter(
                    f'{SVG}circle')]

    def test_more_is_higher_and_further_right(self) -> None:
        for axis in chart.Axis('y'), chart.Axis('y', log=True):
            with self.subTest(log=axis.log):
                places = self.drawn((1, 0.2), (2, 7), (30, 900), up=axis)
                self.assertEqual(sorted(places), places)
                heights = [y for _, y in places]
                self.assertEqual(sorted(heights, reverse=True), heights)

    def test_all_is_between_the_axes(self) -> None:
        log = chart.Axis('y', log=True)
        for x, y in self.drawn((0.3, 0.0004), (7, 12345), up=log, across=log):
            self.assertTrue(chart._LEFT <= x <= chart._WIDTH - chart._RIGHT)
            self.assertTrue(chart._TOP <= y <= chart._HIGH - chart._BOTTOM)

    def test_what_an_axis_has_no_place_for_is_left_out(self) -> None:
        log = chart.Axis('y', log=True)
        self.assertEqual(1, len(self.drawn(
            (1, 0), (2, 3), (3, math.inf), up=log)))
        self.assertEqual([], self.drawn((1, math.inf), up=chart.Axis('y')))

    def test_a_line_goes_through_medians(self) -> None:
        curve = chart.Curve('a', [(2, 9), (1, 5), (2, 1), (2, 3)])
        self.assertEqual([(1, 5), (2, 3)], curve.medians())

    def test_lines_are_at_round_numbers(self) -> None:
        self.assertEqual([0, 20, 40, 60, 80, 100],
                         chart.Axis('x').marks([0, 50, 100]))
        self.assertEqual([0.1, 1, 10, 100],
                         chart.Axis('x', log=True).marks([0.3, 40]))
        self.assertEqual(2, len(chart.Axis('x', log=True).marks([10, 10])))
