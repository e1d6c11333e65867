# SPDX-License-Identifier: Apache-2.0
"""A volume that moves on, or back, before it has hydrated."""

from __future__ import annotations

import typing

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone.reconcile import activation
from cinder_dmclone.service import connections
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import ports


class ChainTest(base.CloudTestCase):
    """Three nodes; each move leaves a write behind on the way."""

    hosts = ('a', 'b', 'c')
    options = {'max_copies': 5}

    def setUp(self) -> None:
        super().setUp()
        self.c, = self.others
        self.data = list(base.DATA)
        self.moves = 0
        # Where the last one went.
        self.node = self.a
        self.attachment = ''

    def move(self, node: cloud.Node) -> None:
        """Detach wherever it is, attach on a node, write and flush."""
        if self.moves:
            self.cloud.detach(self.volume, self.attachment, self.node)
        self.moves += 1
        self.node = node
        self.attachment, self.path = self.cloud.attach(self.volume, node)
        self.assert_data(node, self.path, self.data)
        self.data[self.moves] = f'move {self.moves}'
        node.mapper.write(self.path, self.moves, self.data[self.moves])
        node.mapper.flush(self.path)

    def assert_moved(self) -> None:
        self.cloud.settle()
        self.assert_data(self.node, self.path, self.data)
        self.assert_settled(self.data)
        self.assertEqual((self.node.name, self.moves + 1),
                         (self.cloud.row(self.volume).node,
                          self.cloud.row(self.volume).generation))

    def test_on_to_a_third_node(self) -> None:
        self.move(self.b)
        self.move(self.c)
        self.assert_moved()

    def test_back_to_the_lender(self) -> None:
        """H28: onto a new LV beside the one that is lent."""
        self.move(self.b)
        self.move(self.a)
        # Both, and the metadata of the new one.
        self.assertEqual(3, len(self.a.group.volumes))
        self.assert_moved()

    def test_through_all_nodes_and_back(self) -> None:
        for node in (self.b, self.c, self.a, self.b):
            self.move(node)
        self.assert_moved()

    def test_copies_go_only_when_nobody_needs_them(self) -> None:
        """H14: the row names only the last lender."""
        self.move(self.b)
        self.move(self.c)
        self.cloud.before = self._check_removal
        self.cloud.calls.clear()
        self.assert_moved()
        self.assertLessEqual({self.a.name, self.b.name}, {
            call.node for call in self.cloud.calls
            if (call.port, call.method) == ('group', 'remove')})

    def _check_removal(self, call: ports.Call) -> None:
        if (call.port, call.method) == ('group', 'remove'):
            lv = str(call.arguments[0])
            node = self.cloud.nodes[call.node]
            borrowers = [disk for other in self.cloud.nodes.values()
                         for disk in other.initiator.sessions_
                         if other is not node]
            self.assertFalse(
                [iqn for iqn in node.targets.exports if iqn in borrowers],
                f'{lv} on {call.node} is still read')

    def test_every_node_loses_power_in_turn(self) -> None:
        for victim in (0, 1, 2):
            with self.subTest(victim=victim):
                self.setUp()
                self.move(self.b)
                self.move(self.c)
                self.cloud.tick()
                node = (self.a, self.b, self.c)[victim]
                node.lose_power()
                self.cloud.tick()
                node.start()
                self.assert_moved()

    def test_request_between_the_swap_and_its_record(self) -> None:
        """Nothing leads to the clone again, which would keep it."""
        self.move(self.b)
        self.b.mapper.open(self.path)
        self.cloud.before = self._kill_before_the_record
        self.cloud.settle()
        self.cloud.before = lambda call: None
        self.b.process = self.b.make_process()
        attachment = self.cloud.db.attachment(self.volume)
        connections.connect(self.b.service, self.volume, self.c.connector)
        self.cloud.db.drop_attachment(attachment)
        self.cloud.settle()
        self.assert_settled(self.data)

    def test_on_between_the_swap_and_its_record(self) -> None:
        """What was swapped out counts neither as a writer nor as a reader."""
        self.move(self.b)
        self.cloud.before = self._kill_before_the_record
        self.cloud.settle()
        self.cloud.before = lambda call: None
        self.b.process = self.b.make_process()
        self.move(self.c)
        self.assert_moved()

    def _kill_before_the_record(self, call: ports.Call) -> None:
        if (call.port, call.method) == ('initiator', 'logout'):
            self.cloud.nodes[call.node].kill()

    def test_delete_in_a_chain(self) -> None:
        self.move(self.b)
        self.move(self.c)
        self.cloud.detach(self.volume, self.attachment, self.c)
        self.cloud.delete(self.volume)
        self.cloud.settle()
        self.assert_no_complaints()
        for node in self.cloud.nodes.values():
            self.assertEqual({}, node.group.volumes, node.name)
            self.assertEqual({}, node.mapper.mapped, node.name)

    def test_the_middle_does_not_queue(self) -> None:
        """H18: reads that wait in its target would keep others out."""
        self.move(self.b)
        self.move(self.c)
        self.a.lose_power()
        self.cloud.lose_paths()
        self.b.process.loop.enqueue(self.volume)
        self.cloud.settle(4)
        source, = (found for name, found in self.b.mapper.mapped.items()
                   if '-source-' in name)
        self.assertFalse(source.table.queues)
        clone, = (found for name, found in self.b.mapper.mapped.items()
                  if '-clone-' in name)
        self.assertFalse(clone.hydration)
        waits, = (found for name, found in self.c.mapper.mapped.items()
                  if '-source-' in name)
        self.assertTrue(waits.table.queues)
        self.a.start()
        self.assert_moved()

    def test_the_middle_while_the_database_is_away(self) -> None:
        """Nor does it then, and what it lends can be read when that may."""
        self.move(self.b)
        self.move(self.c)
        self.a.lose_power()
        self.cloud.lose_paths()
        with self.cloud.db.away():
            self.look_in_vain()
            self.assertEqual({'b': False, 'c': True}, {
                node.host: found.table.queues for node in (self.b, self.c)
                for name, found in node.mapper.mapped.items()
                if '-source-' in name})
            self.a.up = True
            activation.activate(self.a.make_process().world, ports.in_turn)
            self.look_in_vain()
            self.assert_data(self.c, self.path, self.data)

    def look_in_vain(self) -> None:
        for node in (self.b, self.c):
            with self.assertRaises(exceptions.DatabaseAway):
                node.process.loop.run_once(everything=True)

    def test_kill_of_any_service_at_any_change(self) -> None:
        total = self._disturbed(None)
        self.assertGreater(total, 40)
        for at in range(1, total + 1, 3 if base.LONG else 10):
            with self.subTest(at=at):
                self.setUp()
                self._disturbed(at)
                self.cloud.restart()
                self.assert_chain_ends()

    def _disturbed(self, at: int | None) -> int:
        seen = 0

        def count(call: ports.Call) -> None:
            nonlocal seen
            if not call.reads and call.port != 'locks':
                seen += 1
                if seen == at:
                    self.cloud.nodes[call.node].kill()
        self.move(self.b)
        self.cloud.detach(self.volume, self.attachment, self.b)
        self.moves = 0
        attachment = self.cloud.reserve(self.volume)
        self.cloud.before = count
        try:
            self.cloud.connect(self.volume, attachment, self.c)
        except (ports.Killed, Exception):
            pass
        for _ in range(12):
            self.cloud.tick()
        self.cloud.before = lambda call: None
        self.cloud.forget(self.volume, attachment)
        return seen

    def assert_chain_ends(self) -> None:
        for node in self.cloud.nodes.values():
            node.process.loop.enqueue(self.volume)
            for lv in self.lvs(node):
                node.process.loop.enqueue(lv)
        self.cloud.settle()
        self.assert_settled(self.data)

    @staticmethod
    def lvs(node: cloud.Node) -> typing.Iterator[str]:
        for name in node.group.volumes:
            lv = names.lv_uuid(name)
            if lv:
                yield lv


class LimitTest(base.CloudTestCase):
    """Copies that nobody pays for do not fill other tenants' nodes."""

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        self.c, = self.others

    def hop(self, node: cloud.Node) -> str:
        """Attach and detach; the refusal if there is one."""
        attachment = self.cloud.reserve(self.volume)
        try:
            self.cloud.connect(self.volume, attachment, node)
        except exceptions.CannotRelocate as refusal:
            self.cloud.forget(self.volume, attachment)
            return refusal.msg
        self.cloud.complete(self.volume, attachment)
        self.cloud.detach(self.volume, attachment, node)
        return ''

    def copies(self) -> int:
        return sum(lv.startswith('volume-') for node in
                   self.cloud.nodes.values() for lv in node.group.volumes)

    def test_hops_end_with_a_refusal(self) -> None:
        refusals = [self.hop((self.b, self.c, self.a)[hop % 3])
                    for hop in range(12)]
        self.assertEqual(['', ''], refusals[:2])
        self.assertRegex(refusals[2], 'wait until the hydration has ended '
                         r'\(0 % have arrived from b@')
        # One was for the way back.
        self.assertEqual(4, self.copies())
        self.cloud.settle()
        self.assert_settled()
        self.assertEqual('', self.hop(self.a))

    def test_hops_between_two_nodes_end_too(self) -> None:
        """The chain leads through the home node itself."""
        refusals = [self.hop((self.b, self.a)[hop % 2]) for hop in range(12)]
        self.assertIn('dmclone_max_copies', refusals[3])
        self.assertEqual(4, self.copies())

    def test_a_resize_can_be_reverted_at_the_limit(self) -> None:
        for node in (self.b, self.c, self.b):
            self.assertEqual('', self.hop(node))
        self.assertIn('dmclone_max_copies', self.hop(self.c))
        self.cloud.settle()
        self.assert_settled()

    def test_live_migration_makes_no_copy_beyond_the_limit(self) -> None:
        for node in (self.b, self.c):
            self.assertEqual('', self.hop(node))
        _, path = self.cloud.attach(self.volume, self.c)
        self.c.mapper.open(path)
        with self.assertRaisesRegex(exceptions.CannotRelocate,
                                    'dmclone_max_copies'):
            self.cloud.migrate(self.volume, self.a)
        self.assertEqual(3, self.copies())

    def test_a_lender_that_is_away_holds_up_no_relocation(self) -> None:
        self.hop(self.b)
        self.a.kill()
        self.assertEqual('', self.hop(self.c))


class ReserveTest(base.CloudTestCase):
    """``reserved_percentage`` is for what Cinder's scheduler places."""

    options = {
        'reserved_percentage': 50}

    def test_relocations_leave_the_reserve_alone(self) -> None:
        size = self.a.group.volumes[names.data_lv(self.lv)].size
        self.b.group.size = units.Bytes(2 * size)
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(exceptions.CannotRelocate,
                                    'not enough room'):
            self.cloud.connect(self.volume, attachment, self.b)
        self.b.group.size = units.Bytes(3 * size)
        self.cloud.connect(self.volume, attachment, self.b)
