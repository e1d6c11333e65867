# SPDX-License-Identifier: Apache-2.0
"""What is made of the times that births take."""
from __future__ import annotations

import unittest

from lab import births


class FiguresTest(unittest.TestCase):

    def test_a_large_one_is_compared_with_a_small_one(self) -> None:
        (figure,) = births.made_of(
            {'clone': {'1 GiB': [2.0, 4.0, 2.0], '64 GiB': [2.2, 6.0, 2.0]}},
            '1 GiB', '64 GiB')
        self.assertEqual([1.1, 1.5, 1.0], figure.pairs())
        self.assertEqual(1.1, figure.value)
        self.assertFalse(figure.missed)
