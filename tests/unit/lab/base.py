# SPDX-License-Identifier: Apache-2.0
"""A test of what is made of measurements."""
from __future__ import annotations

import unittest
from collections.abc import Sequence

from lab.figures import Figure


class FiguresTestCase(unittest.TestCase):
    """
    :ivar found: all figures
    """

    found: Sequence[Figure]

    def value(self, name: str) -> Figure:
        figure, = (one for one in self.found if one.name == name)
        return figure
