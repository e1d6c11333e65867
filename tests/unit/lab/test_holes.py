# SPDX-License-Identifier: Apache-2.0
"""How thin volumes are written, and what is made of what they send."""
from __future__ import annotations

import unittest
from xml.etree import ElementTree

from lab import figures
from lab import holes

SVG = '{http://www.w3.org/2000/svg}'
GIB = 1 << 30


class PartsTest(unittest.TestCase):

    def test_as_much_is_written_as_is_said(self) -> None:
        for gib in 1, 4:
            for share in holes.SHARES:
                with self.subTest(gib=gib, share=share):
                    step, length = holes.parts(gib * GIB, share)
                    size = holes.PARTS * length * holes.CHUNK
                    self.assertAlmostEqual(share, 100 * size / (gib * GIB),
                                           delta=share / 20)

    def test_parts_are_apart_until_all_is_written(self) -> None:
        for share in holes.SHARES:
            step, length = holes.parts(GIB, share)
            self.assertEqual(share < 100, length < step)
            self.assertLessEqual(
                (holes.PARTS - 1) * step + length, GIB // holes.CHUNK)


class FiguresTest(unittest.TestCase):

    def setUp(self) -> None:
        self.found = holes.made_of({
            1: {'on the wire': [12.0, 13.0], 'in use': [10.0, 10.0]},
            100: {'on the wire': [1060.0, 1050.0], 'in use': [1000.0] * 2}})

    def test_is_a_ratio_to_what_is_in_use(self) -> None:
        few, all_ = self.found
        self.assertEqual(1.25, few.value)
        self.assertTrue(few.missed)
        self.assertIn('limited by the headers', '\n'.join(
            figures.table(self.found)))
        self.assertFalse(all_.missed)

    def test_the_picture_has_all_samples(self) -> None:
        root = ElementTree.fromstring(holes.draw(self.found, 'x'))
        # Those of both curves, and the ends of the size.
        self.assertEqual(4 + 4 + 2, len(list(root.iter(f'{SVG}circle'))))
