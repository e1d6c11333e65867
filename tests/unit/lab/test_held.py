# SPDX-License-Identifier: Apache-2.0
"""What a node holds open is told apart from what others do."""
from __future__ import annotations

import collections
import unittest

from lab import held
from lab.account import Cost, Statements

A, B = '10.0.0.1', '10.0.0.2'
# As rabbitmqctl lists them.
CONNECTIONS = [['<1.1>', A], ['<1.2>', A], ['<1.3>', B]]
CHANNELS = [['<2.1>', '<1.1>'], ['<2.2>', '<1.2>'], ['<2.3>', '<1.3>']]
CONSUMERS = [['shared', '<2.1>'], ['shared', '<2.3>'], ['a', '<2.1>'],
             ['a', '<2.2>'], ['b', '<2.3>'], ['c', '<2.3>']]


class HeldTest(unittest.TestCase):

    def test_of_a_node(self) -> None:
        for address, wanted in ((A, held.Held(3, 2, 2, 2)),
                                (B, held.Held(0, 1, 1, 3)),
                                ('10.0.0.3', held.Held(0, 0, 0, 0))):
            self.assertEqual(wanted, held.Held.of(
                address, {A: 3}, CONNECTIONS, CHANNELS, CONSUMERS))

    def test_the_most_of_all_counts(self) -> None:
        start = Cost(60.0, collections.Counter(), Statements(6, 30))
        found = {figure.name: figure.value for figure in held.figures_of(
            'defaults', start, [held.Held(1, 5), held.Held(2, 4)],
            [held.Held(3, 6), held.Held(7, 5), held.Held(4, 9)])}
        self.assertEqual(15, found['SQL statements, a start, defaults'])
        self.assertEqual(2, found['database connections, at rest, defaults'])
        self.assertEqual(5, found['bus connections, at rest, defaults'])
        self.assertEqual(7, found['database connections, busy, defaults'])
        self.assertEqual(9, found['bus connections, busy, defaults'])
