# SPDX-License-Identifier: Apache-2.0
"""What is made of the times that volumes were on two nodes."""
from __future__ import annotations

import math
from xml.etree import ElementTree

from lab import exposure
from lab import figures
from tests.unit.lab import base

SVG = '{http://www.w3.org/2000/svg}'


def window(seconds: float, gib: float = 4, rate: float = 0,
           ended: bool = True) -> exposure.Window:
    return exposure.Window(seconds, gib, rate, ended)


class ExposureTest(base.FiguresTestCase):

    def setUp(self) -> None:
        self.found = exposure.made_of({
            0: [window(40), window(80)],
            50: [window(60, rate=900), window(120, rate=1100)],
            100: [window(400, 1, 2000, False), window(400, 0, 2000, False)],
        }, 4)

    def test_is_told_for_a_gib(self) -> None:
        figure = self.value('exposure of a GiB, 50 % load')
        self.assertEqual(22.5, figure.value)
        self.assertIn('15 to 30', figure.note)
        self.assertIn('1000 writes a second', figure.note)

    def test_a_load_against_none_of_the_same_round(self) -> None:
        figure = self.value('exposure, 50 % load by none')
        self.assertEqual([1.5, 1.5], figure.pairs())
        self.assertFalse(figure.missed)

    def test_what_did_not_end_is_told_as_such(self) -> None:
        figure = self.value('exposure of a GiB, 100 % load')
        self.assertEqual(math.inf, figure.value)
        self.assertIn('2 of 2 not ended', figure.note)
        figure = self.value('exposure, 100 % load by none')
        self.assertTrue(figure.missed)
        self.assertIn('limited by the kernel',
                      '\n'.join(figures.table([figure])))

    def test_the_picture_has_all_that_are_finite(self) -> None:
        root = ElementTree.fromstring(exposure.draw(self.found, 'x'))
        self.assertEqual(5, len(list(root.iter(f'{SVG}circle'))))

    def test_nothing_at_all_can_be_drawn(self) -> None:
        found = exposure.made_of({0: [window(1, 0, ended=False)]}, 4)
        ElementTree.fromstring(exposure.draw(found, 'x'))
