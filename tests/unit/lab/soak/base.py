# SPDX-License-Identifier: Apache-2.0
"""A test of what a soak knows, in which a volume's content is small."""
from __future__ import annotations

import unittest
from unittest import mock

from lab import ledger


class SmallTestCase(unittest.TestCase):
    """
    :cvar area: bytes that a server writes of a volume
    """

    area = 4096

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.object(ledger, 'AREA', self.area))
