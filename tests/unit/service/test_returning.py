# SPDX-License-Identifier: Apache-2.0
"""An LV that was lent to a clone, and whose volume is another LV by now."""

from __future__ import annotations

import contextlib
import uuid

from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import activation
from cinder_dmclone.service import births
from cinder_dmclone.service import volumes
from cinder_dmclone.stack import inspect
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit.service import operators


class ReturningTest(operators.OperatorTestCase):
    """A clone on c hydrates from the volume, and is deleted."""

    hosts = ('a', 'b', 'c', 'd', 'e')

    def setUp(self) -> None:
        super().setUp()
        self.c, self.d, _ = self.others
        self.by = self.c

    def written(self) -> str:
        """The attachment of a server that has written on b."""
        attachment, path = self.relocated()
        self.b.process.loop.run_once(everything=True)
        self.b.mapper.write(path, 0, 'written on b')
        self.b.mapper.flush(path)
        return attachment

    def clone(self) -> VolumeId:
        clone = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(clone, f'{self.c.name}#{cloud.POOL}',
                             status='creating')
        births.clone(self.c.service, clone, self.volume)
        self.cloud.db.update(clone, status='available')
        return clone

    def take_back(self) -> None:
        peers = self.by.process.world.peers
        plan = peers.ask(self.a.name, messages.TakeBack(self.volume, ''))
        peers.ask(self.a.name, messages.TakeBack(self.volume, plan.record))

    def delete(self, clone: VolumeId) -> None:
        self.cloud.db.update(clone, status='deleting')
        volumes.delete(self.c.service, clone)
        self.cloud.db.destroy(clone)

    def assert_kept(self, node: cloud.Node, data: str) -> None:
        """Its only LV of data has what was written, and somebody is told."""
        self.cloud.settle()
        lv, = (lv for name, lv in node.group.volumes.items()
               if name.startswith('volume-'))
        self.assertEqual(data, lv.read(0))
        self.assertEqual([], node.erased)
        self.assertEqual(1, node.process.loop.attention())

    def test_on_a_node_that_was_lost(self) -> None:
        """Its volume was taken back by the lender meanwhile."""
        self.cloud.detach(self.volume, self.written(), self.b)
        clone = self.clone()
        self.lose(self.b)
        self.take_back()
        self.delete(clone)
        self.b.start()
        self.assert_kept(self.b, 'written on b')
        self.forget()

    def forget(self) -> None:
        """An operator has seen what the node has, and misses nothing."""
        lv, = (names.lv_uuid(name) for name in self.b.group.volumes
               if name.startswith('volume-'))
        assert lv
        self.down.clear()
        peers = self.c.process.world.peers
        plan = peers.ask(self.b.name, messages.Forget(lv, ''))
        peers.ask(self.b.name, messages.Forget(lv, plan.record))
        self.cloud.settle()
        self.assertEqual({}, self.b.group.volumes)

    def test_its_loan_to_a_clone_that_is_lost_is_released(self) -> None:
        """It gets no front at the next boot for all that."""
        self.cloud.detach(self.volume, self.written(), self.b)
        clone = self.clone()
        here = self.cloud.row(self.volume).lv
        self.lose(self.b)
        self.take_back()
        self.cloud.settle()
        self.lose(self.c)
        self.cloud.db.destroy(clone)
        self.down.discard(self.b.name)
        self.b.start()
        self.cloud.settle()
        peers = self.a.process.world.peers
        plan = peers.ask(self.b.name, messages.Release(here, ''))
        peers.ask(self.b.name, messages.Release(here, plan.record))
        self.assert_kept(self.b, 'written on b')
        stack = inspect.refresh(self.b.process.world.host, here)
        self.assertFalse(stack.tags.lent)
        self.assertFalse(activation.decide(self.b.host, stack).make)

    def test_taken_back_again_and_again(self) -> None:
        """At last by the lender of the one that did it before."""
        attachment, _ = self.relocated()
        self.b.process.loop.run_once(everything=True)
        self.cloud.detach(self.volume, attachment, self.b)
        lender, self.by = self.a, self.d
        self.a = self.b
        for lost in (self.c, self.cloud.nodes['e@dmclone']):
            attachment, _ = self.cloud.attach(self.volume, lost)
            self.cloud.detach(self.volume, attachment, lost)
            self.lose(lost)
            self.take_back()
            self.b.process.loop.run_once(everything=True)
            self.assertEqual(self.b.name, self.cloud.row(self.volume).node)
        self.lose(self.b)
        self.a = lender
        self.take_back()
        row = self.cloud.row(self.volume)
        self.assertEqual((lender.name, 7, ((3, 3), (5, 5), (2, 6))),
                         (row.node, row.generation, row.lost))

    def test_an_offer_was_open_when_its_node_was_lost(self) -> None:
        """The volume has the generation of that offer when it is taken back,
        and a later one when it has moved on since.
        """
        for moves in (False, True):
            with self.subTest(moves):
                self.setUp()
                self.offered_and_lost()
                if moves:
                    self.cloud.attach(self.volume, self.c)
                    self.cloud.settle()
                self.b.start()
                self.assert_kept(self.b, 'written on b')
                self.forget()

    def offered_and_lost(self) -> None:
        attachment = self.written()
        moving = self.cloud.db.attachment(self.volume)
        self.cloud.connect(self.volume, moving, self.c)
        row = self.cloud.row(self.volume)
        self.assertEqual(self.c.name, row.offer and row.offer.node)
        self.lose(self.b)
        self.take_back()
        for ended in (attachment, moving):
            self.cloud.db.drop_attachment(ended)
        self.cloud.db.update(self.volume, status='available')
        self.cloud.settle()
        self.assertEqual(self.a.name, self.cloud.row(self.volume).node)

    def test_on_a_node_with_another_name(self) -> None:
        """The host in the row is one that has no such LV."""
        clone = self.clone()
        self.cloud.db.update(self.volume, host=f'{self.b.name}#{cloud.POOL}')
        data = self.a.group.volumes[names.data_lv(self.lv)].read(0)
        self.delete(clone)
        self.assert_kept(self.a, data)


class NobodyWroteTest(operators.OperatorTestCase):
    """A copy that had become the volume when its node was lost."""

    hosts = ('a', 'b', 'c')

    def at_the_commit(self, call: ports.Call) -> None:
        if call.node == self.a.name and call.method == 'commit':
            self.b.kill()

    def at_a_removal(self, call: ports.Call) -> None:
        if (call.node, call.method) == (self.b.name, 'remove') and (
                str(call.arguments[0]).startswith('dmclone-meta-')):
            self.killed.append(call)
            self.cloud.before = lambda call: None
            self.b.kill()

    def test_it_goes_though_its_service_was_killed_once_more(self) -> None:
        """Its metadata were overwritten by then."""
        self.killed: list[ports.Call] = []
        self.cloud.before = self.at_the_commit
        self.relocated()
        self.lose(self.b)
        peers = self.others[0].process.world.peers
        plan = peers.ask(self.a.name, messages.TakeBack(self.volume, ''))
        peers.ask(self.a.name, messages.TakeBack(self.volume, plan.record))
        self.cloud.settle()
        self.down.clear()
        self.cloud.before = self.at_a_removal
        with contextlib.suppress(ports.Killed):
            self.b.start()
            self.cloud.settle()
        self.assertTrue(self.killed)
        self.b.start()
        self.cloud.settle()
        self.assertEqual(({}, 0), (self.b.group.volumes,
                                   self.b.process.loop.attention()))
