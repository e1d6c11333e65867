# SPDX-License-Identifier: Apache-2.0
"""What the demo reads from a node."""
from __future__ import annotations

import unittest

from lab import journey


class StackTest(unittest.TestCase):

    def test_a_stack_is_shown_from_above(self) -> None:
        wanted = ['dmclone-front-node2-x', 'dmclone-clone-x',
                  'dmclone-source-x', 'cinder--volumes-volume--x']
        self.assertEqual(wanted, sorted(reversed(wanted),
                                        key=journey.from_above))
