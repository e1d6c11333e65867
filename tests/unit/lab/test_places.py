# SPDX-License-Identifier: Apache-2.0
"""Who has a place is compared with how many there are."""
from __future__ import annotations

import json
import unittest

from lab import places


def told(refused: str = '', moves: bool = True) -> dict[str, object]:
    return {'moves': moves, 'verdict': 0.25, 'seconds': 0.5,
            'refused': refused}


class PlacesTest(unittest.TestCase):

    def test_more_want_a_place_than_there_are(self) -> None:
        for movers in places.MOVERS:
            for thin in (False, True):
                case = places.Case.of(movers, thin)
                self.assertLessEqual(case.places, case.right)
                self.assertEqual(case.right, case.places)
        self.assertEqual(2, places.Case(1, 1, 5).right)

    def test_line(self) -> None:
        line = places.Line.of('one', places.OURS, places.Case(3, 1, 2), {
            'won': 2, 'statements': 40, 'messages': 12, 'deadlocks': 1,
            'told': [told(), told('b has not enough room: the volume'),
                     told('lvcreate failed'),
                     told('insufficient free space', moves=False)]})
        self.assertEqual(1, line.unclean)
        self.assertEqual(
            ['one', '3+1', '2', '2', *places.OURS.split(), '1', '40', '12',
             '1', '250', '250', '500'], str(line).split())
        found = places.Comparison([line])
        self.assertEqual(3, len(found.lines()))
        self.assertEqual(2, json.loads(found.report())['lines'][0]['won'])
