# SPDX-License-Identifier: Apache-2.0
"""What the demo reads from a node."""
from __future__ import annotations

import unittest

from lab import journey


class TablesTest(unittest.TestCase):

    def test_devices_by_name(self) -> None:
        self.assertEqual(
            {'a': '0 8 linear 98:16 0', 'b-c': '0 8 clone 1:1 1:2 1:3 8'},
            journey.tables('a: 0 8 linear 98:16 0\n'
                           'b-c: 0 8 clone 1:1 1:2 1:3 8\n'))

    def test_no_devices(self) -> None:
        self.assertEqual({}, journey.tables('No devices found\n'))

    def test_a_stack_is_shown_from_above(self) -> None:
        wanted = ['dmclone-front-node2-x', 'dmclone-clone-x',
                  'dmclone-source-x', 'cinder--volumes-volume--x']
        self.assertEqual(wanted, sorted(reversed(wanted),
                                        key=journey.from_above))
