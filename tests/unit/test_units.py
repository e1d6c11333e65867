# SPDX-License-Identifier: Apache-2.0

import unittest

from cinder_dmclone.units import Bytes
from cinder_dmclone.units import Regions
from cinder_dmclone.units import Sectors


class UnitsTest(unittest.TestCase):

    def test_conversions(self) -> None:
        self.assertEqual(Sectors(2097152), Bytes.from_gib(1).to_sectors())
        self.assertEqual([1, 1, 2], [Bytes(count).to_gib() for count in (
            1, 1 << 30, (1 << 30) + 1)])
        self.assertEqual(Bytes(4096), Sectors(8).to_bytes())
        self.assertIs(Sectors, type(Bytes(512).to_sectors()))

    def test_a_broken_sector_is_refused(self) -> None:
        with self.assertRaises(ValueError):
            Bytes(513).to_sectors()

    def test_negative_sizes_are_refused(self) -> None:
        with self.assertRaises(ValueError):
            Sectors(1) - Sectors(2)

    def test_the_last_region_may_be_partial(self) -> None:
        self.assertEqual(Regions(2), Sectors(16).to_regions(Sectors(8)))
        self.assertEqual(Regions(3), Sectors(17).to_regions(Sectors(8)))

    def test_round_up(self) -> None:
        self.assertEqual(Bytes(8192), Bytes(4097).round_up(4096))
        self.assertEqual(Bytes(4096), Bytes(4096).round_up(4096))

    def test_arithmetic_keeps_the_unit(self) -> None:
        total = sum([Sectors(1), Sectors(2)], Sectors(0))
        self.assertIs(Sectors, type(total))
        self.assertEqual(Sectors(3), total)
        self.assertEqual(Sectors(1), Sectors(3) - 2)

    def test_units_do_not_mix(self) -> None:
        for attempt in (lambda: Bytes(1) + Sectors(1),
                        lambda: Bytes(1) - Sectors(1),
                        lambda: Bytes(1) < Sectors(2),
                        lambda: Bytes(1) == Sectors(1),
                        lambda: Bytes(Sectors(1))):
            with self.assertRaises(TypeError):
                attempt()

    def test_comparisons(self) -> None:
        self.assertTrue(Bytes(1) < Bytes(2) <= Bytes(2))
        self.assertTrue(Bytes(2) > 1)
        self.assertTrue(Bytes(2) >= Bytes(2))
        self.assertNotEqual(Bytes(1), 'one')
        self.assertEqual({Bytes(5): 'x'}[Bytes(5)], 'x')

    def test_text(self) -> None:
        self.assertEqual('8', f'{Sectors(8)}')
        self.assertEqual('Sectors(8)', repr(Sectors(8)))
