# SPDX-License-Identifier: Apache-2.0
"""What the lab's drivers do other than the product's."""
from __future__ import annotations

import unittest
from unittest import mock

from cinder_dmclone import units
from cinder_dmclone.host.dm import table
from cinder_dmclone.location import LvUuid
from cinder_dmclone.peers import messages
from lab import faulty


class PortTest(unittest.TestCase):

    def test_a_point_of_a_request_has_its_name(self) -> None:
        """A test that waits for another point would wait for ever."""
        port = faulty._Port('peers', mock.Mock())
        with mock.patch.object(faulty, '_pass') as passed:
            port.ask('b@dmclone', messages.Show(LvUuid('an lv')))
            port.ask_each({'b@dmclone': [messages.Show(LvUuid('an lv'))]})
            port.notify('b@dmclone', 'a volume')
        self.assertEqual(
            2 * ['peers.Show:before', 'peers.Show:after'] + [
                'peers.notify:before', 'peers.notify:after'],
            [call.args[0] for call in passed.call_args_list])


class StillTest(unittest.TestCase):

    def applied(self, target: table.Target) -> table.Table:
        real = mock.Mock()
        faulty._Still(real).apply('name', table.Table.single(
            units.Sectors(8), target), readonly=True)
        (name, found), named = real.apply.call_args
        self.assertEqual(('name', {'readonly': True}), (name, named))
        return found

    def test_a_clone_may_copy_nothing_and_is_else_the_same(self) -> None:
        core = {'hydration_threshold': 256, 'hydration_batch_size': 64}
        clone = table.Clone('1:0', '1:1', '1:2', units.Sectors(128),
                            frozenset({'no_hydration'}), core)
        text = str(table.Table.single(units.Sectors(8), clone))
        self.assertEqual(text.replace('hydration_threshold 256',
                                      'hydration_threshold 0'),
                         str(self.applied(clone)))

    def test_another_table_is_the_same(self) -> None:
        linear = table.Linear('1:1', units.Sectors(0))
        self.assertEqual(table.Table.single(units.Sectors(8), linear),
                         self.applied(linear))
