# SPDX-License-Identifier: Apache-2.0
"""Schedules that lost data, or left something behind, in an earlier draft.

The list is doc/source/contributor/holes.rst.
"""

from __future__ import annotations

import dataclasses
import typing
from unittest import mock

from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import table
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import activation
from cinder_dmclone.service import answers
from cinder_dmclone.service.base import Service
from cinder_dmclone.service import connections
from cinder_dmclone.service import endpoint
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import mapped
from tests.unit.fake import ports
from tests.unit.fake import storage

Fate = ports.Fate


class HoleTestCase(base.CloudTestCase):

    def lv_on_b(self) -> storage.Volume:
        return self.b.group.volumes[names.data_lv(
            self.cloud.row(self.volume).lv)]

    def lose_metadata_lv(self) -> None:
        name, = (name for name in self.b.group.volumes if 'meta' in name)
        del self.b.group.volumes[name]

    def lent_tags(self) -> list[str]:
        return [tag for lv in self.a.group.volumes.values()
                for tag in lv.tags if tag.startswith('dmclone.1.lent')]


class DeletionTest(HoleTestCase):

    def test_restored_database_deletes_nothing(self) -> None:
        """H3: the row is of yesterday, the data on b is of today."""
        self.relocated()
        self.cloud.settle()
        self.cloud.db.update(self.volume, host=f'{self.a.name}#pool',
                             _name_id=None, provider_id='1',
                             status='available')
        for node in (self.a, self.b):
            node.kill()
        self.cloud.restart()
        self.cloud.settle()
        lv, = self.b.group.volumes.values()
        self.assertEqual(base.DATA, [lv.read(r) for r in range(8)])

    def test_empty_database_deletes_nothing(self) -> None:
        """H3: cinder-volume was pointed at another database."""
        self.relocated()
        before = [set(node.group.volumes) for node in (self.a, self.b)]
        self.cloud.db.close()
        self.cloud.db = type(self.cloud.db)()
        self.addCleanup(self.cloud.db.close)
        for node in (self.a, self.b):
            node.kill()
        self.cloud.restart()
        self.cloud.settle()
        self.assertEqual(before, [set(node.group.volumes)
                                  for node in (self.a, self.b)])

    def test_reinstalled_borrower_is_no_proof(self) -> None:
        """H3, H30: b has a new volume group under the old name."""
        self.relocated()
        self.b.lose_power()
        self.b.group.volumes.clear()
        self.b.group.uuid = GroupUuid('another group')
        self.cloud.restart()
        self.cloud.settle()
        self.assertIn(names.data_lv(self.lv), self.a.group.volumes)

    def test_restored_database_while_hydrating(self) -> None:
        """H3: the lender does not hand out its stale copy."""
        attachment, path = self.relocated()
        self.cloud.settle(1)
        self.b.mapper.open(path)
        self.b.mapper.write(path, 1, 'newest')
        self.b.mapper.flush(path)
        self.cloud.db.update(self.volume, host=f'{self.a.name}#pool',
                             _name_id=None, provider_id='1',
                             status='available')
        self.cloud.db.drop_attachment(attachment)
        for node in (self.a, self.b):
            node.kill()
        self.cloud.restart()
        self.cloud.settle()
        again = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(exceptions.CannotServe, 'newer data'):
            self.cloud.connect(self.volume, again, self.a)
        self.b.kill()
        with self.assertRaisesRegex(exceptions.CannotServe,
                                    'does not answer'):
            self.cloud.connect(self.volume, again, self.a)
        self.assertEqual(2, len(self.b.group.volumes))

    def test_another_node_of_the_same_name(self) -> None:
        """H30: a message for one volume group is not for another."""
        def find_room(service: Service, request: messages.FindRoom) -> object:
            return dataclasses.replace(answers.find_room(service, request),
                                       group=GroupUuid('stolen'))
        attachment = self.cloud.reserve(self.volume)
        with mock.patch.dict(answers.ANSWERS,
                             {messages.FindRoom: find_room}):
            with self.assertRaisesRegex(exceptions.PeerRefused,
                                        'another node of this name'):
                self.cloud.connect(self.volume, attachment, self.b)
        self.assertEqual({}, self.b.group.volumes)
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_unmoved()


class ProofTest(HoleTestCase):

    def test_hydrated_in_core_is_not_on_the_disk(self) -> None:
        """H7: the count runs ahead; only a flushing status is believed."""
        self.relocated()
        self.cloud.deliver_late()
        self.b.process.loop.run_once()
        clone = self.clone()
        clone.phantom = set(range(8)) - clone.copied
        self.b.process.loop.enqueue(self.volume)
        self.b.process.loop.run_once()
        self.assertTrue(any('-clone-' in name
                            for name in self.b.mapper.mapped))
        self.assertIsNotNone(self.cloud.row(self.volume).source)
        self.cloud.settle()
        self.assert_settled()

    def test_its_end_is_on_the_disk_before_it_is_believed(self) -> None:
        """H7: also if the service died with the tag gone, but not flushed."""
        def kill(call: ports.Call) -> None:
            if call.node == self.b.name and call.method == 'retag' and (
                    not self.copied()):
                self.b.kill()
        _, path = self.relocated()
        self.cloud.after = kill
        self.cloud.settle()
        self.assertFalse(self.b.process.alive)
        self.assertEqual(1, len(self.a.group.volumes))
        self.cloud.after = lambda call: None
        self.cloud.restart()
        self.cloud.settle()
        self.assertEqual({}, self.a.group.volumes)
        self.b.lose_power()
        self.cloud.restart()
        self.assert_data(self.b, path)
        self.assert_settled()

    def copied(self) -> bool:
        """Whether the LV of b says that it hydrates."""
        return any('.from/' in tag for lv in self.b.group.volumes.values()
                   for tag in lv.tags)

    def clone(self) -> mapped.Mapped:
        found, = (found for name, found in self.b.mapper.mapped.items()
                  if '-clone-' in name)
        return found

    def test_lost_metadata_is_never_formatted_anew(self) -> None:
        """H8: an empty superblock would silently drop every write."""
        self.relocated()
        self.cloud.settle(1)
        self.b.lose_power()
        meta, = (lv for name, lv in self.b.group.volumes.items()
                 if 'meta' in name)
        for wreck in ('zeroed', 'overwritten', 'another size'):
            with self.subTest(wreck):
                if wreck == 'another size':
                    meta.superblock = storage.Superblock(
                        storage.REGION.to_sectors(),
                        storage.EXTENT.to_sectors())
                else:
                    meta.superblock = None
                    meta.zeroed = wreck == 'zeroed'
                self.cloud.restart()
                self.cloud.settle(5)
                self.assert_no_complaints()
                self.assertFalse(any('-clone-' in name
                                     for name in self.b.mapper.mapped))
                self.assertIn(names.data_lv(self.lv),
                              self.a.group.volumes)
                self.b.lose_power()

    def test_lost_metadata_lv_is_never_made_again(self) -> None:
        """H8: nothing is created for a committed copy."""
        self.relocated()
        self.cloud.settle(1)
        self.b.lose_power()
        self.lose_metadata_lv()
        self.cloud.restart()
        self.cloud.settle(5)
        self.assertEqual([names.data_lv(self.cloud.row(self.volume).lv)],
                         list(self.b.group.volumes))
        self.assertIn(names.data_lv(self.lv), self.a.group.volumes)

    def test_volume_that_needs_the_operator_can_be_detached(self) -> None:
        """H8: the alarm must not keep a server from letting go."""
        attachment, _ = self.relocated()
        self.cloud.settle(1)
        self.b.lose_power()
        self.lose_metadata_lv()
        self.cloud.restart()
        self.cloud.detach(self.volume, attachment, self.b)

    def test_acknowledged_write_in_the_lenders_cache(self) -> None:
        """H9: b's flushes do not reach a's disk; the seal flushes it."""
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.write(path, 6, 'not flushed by its server')
        self.cloud.detach(self.volume, attachment, self.a)
        _, path = self.relocated()
        self.a.lose_power()
        self.cloud.restart()
        self.cloud.settle()
        data = list(base.DATA)
        data[6] = 'not flushed by its server'
        self.assert_data(self.b, path, data)


class BootTest(HoleTestCase):

    def test_lender_boots_without_a_database(self) -> None:
        """H11: no front comes up on the stale copy."""
        attachment, _ = self.cloud.attach(self.volume, self.a)
        self.cloud.detach(self.volume, attachment, self.a)
        self.relocated()
        self.a.lose_power()
        self.a.up = True
        with self.cloud.db.away():
            self.boot(self.a)
        self.assertEqual([names.loan(
            self.lv, self.cloud.row(self.volume).lv)],
            [names.DeviceName.parse(name)
             for name in self.a.mapper.mapped])

    def boot(self, node: cloud.Node) -> None:
        process = type(node.process)(node)
        self.assertEqual({}, activation.activate(process.world))

    def test_borrower_boots_without_a_database(self) -> None:
        """H11: an uncommitted copy gets no front; a committed one does."""
        for commit in (False, True):
            with self.subTest(commit=commit):
                self.cloud.db.close()
                self.build()
                attachment = self.cloud.reserve(self.volume)
                if commit:
                    self.cloud.connect(self.volume, attachment, self.b)
                    self.cloud.settle(1)
                else:
                    self.fates('Prepare', Fate.UNANSWERED)
                    self.cloud.before = self.power_cut_before_withdraw
                    self.assertRaises(ports.Killed, self.cloud.connect,
                                      self.volume, attachment, self.b)
                self.b.lose_power()
                self.b.up = True
                with self.cloud.db.away():
                    self.boot(self.b)
                fronts = [name for name in self.b.mapper.mapped
                          if 'front' in name]
                self.assertEqual(int(commit), len(fronts))

    def power_cut_before_withdraw(self, call: ports.Call) -> None:
        if call.method == 'withdraw':
            self.cloud.before = lambda call: None
            self.a.lose_power()

    def test_loan_is_durable_before_the_copy_is_asked_for(self) -> None:
        """H11: a power cut at the moment of `prepare` keeps the tag."""
        def before(call: ports.Call) -> None:
            if call.method == 'Prepare':
                self.cloud.before = lambda call: None
                self.a.lose_power()
        self.cloud.before = before
        attachment = self.cloud.reserve(self.volume)
        self.assertRaises(ports.Killed, self.cloud.connect, self.volume,
                          attachment, self.b)
        self.assertEqual(1, len(self.lent_tags()))

    def test_own_is_durable_only_after_the_commit(self) -> None:
        """H11: tags are never less cautious than the row."""
        tags: list[str] = []

        def before(call: ports.Call) -> None:
            if call.method == 'commit':
                for lv in self.b.group.volumes.values():
                    tags.extend(lv.tags)
        self.cloud.before = before
        self.relocated()
        self.assertTrue(tags)
        self.assertFalse([tag for tag in tags if 'own' in tag])


class FrozenTest(HoleTestCase):

    def test_read_that_waits_for_a_dead_lender(self) -> None:
        """H16: the source is pointed at the data LV before the swap."""
        _, path = self.relocated()
        self.cloud.settle(1)
        self.a.lose_power()
        front = self.b.mapper.mapped[path.rpartition('/')[2]]
        for region in range(8):
            self.b.mapper.write(path, region, 'new')
        front.stuck = True
        for _ in range(4):
            self.cloud.tick()
        devnum = self.lv_on_b().devnum
        assert devnum
        self.assertEqual(table.Linear(devnum), front.target)
        self.assertIsNone(self.cloud.row(self.volume).source)
        self.assert_no_complaints()
        self.cloud.restart()
        self.cloud.settle()
        self.assert_settled(['new'] * 8)

    def test_teardown_with_the_lender_away_never_hangs(self) -> None:
        """H17: hydration off, no queueing, fronts, logout, clone, source.

        The copies under way end with the session, not before.
        """
        attachment, _ = self.relocated()
        self.cloud.settle(2)
        self.cloud.partition(self.a, self.b)
        self.cloud.detach(self.volume, attachment, self.b)
        start = len(self.cloud.calls)
        self.cloud.delete(self.volume)
        self.cloud.settle(3)
        calls = [call for call in self.cloud.calls[start:]
                 if call.node == self.b.name and not call.reads]
        steps = [call.arguments[1] if call.method == 'message'
                 else call.method + (call.arguments[0].split('-')[1]
                                     if call.port == 'dm' else '')
                 for call in calls if call.port in ('dm', 'initiator')]
        self.assertEqual(['removehold', 'removesluice', 'removestop',
                          'disable_hydration', 'fail_if_no_path', 'logout',
                          'removeclone', 'removesource'],
                         list(dict.fromkeys(steps)))
        self.assert_no_complaints()
        self.assertEqual({}, self.b.mapper.mapped)
        self.assertEqual({}, self.b.group.volumes)
        self.cloud.heal()
        self.cloud.settle()
        self.assertEqual({}, self.a.group.volumes)

    def test_one_unreadable_tag_does_not_stop_the_others(self) -> None:
        self.relocated()
        meta, = (lv for name, lv in self.b.group.volumes.items()
                 if 'meta' in name)
        meta.tags |= {'dmclone.1.meta/garbage'}
        self.cloud.settle(5)
        self.assertIsNotNone(self.cloud.row(self.volume).source)
        self.volume = self.cloud.create(self.a)
        self.relocated()
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(self.volume).source)

    def test_one_unreadable_row_does_not_stop_the_others(self) -> None:
        for provider_id in ('v2;1', 'nonsense'):
            with self.subTest(provider_id):
                self.build()
                self.relocated()
                self.cloud.db.update(self.volume, provider_id=provider_id)
                before = {name: set(node.group.volumes)
                          for name, node in self.cloud.nodes.items()}
                self.volume = self.cloud.create(self.a)
                self.relocated()
                self.cloud.settle()
                self.assertIsNone(self.cloud.row(self.volume).source)
                for name, node in self.cloud.nodes.items():
                    self.assertLessEqual(before[name],
                                         set(node.group.volumes))

    def test_source_is_read_only(self) -> None:
        """H25: a read-write multipath on a read-only disk fails."""
        self.relocated()
        found, = (found for name, found in self.b.mapper.mapped.items()
                  if '-source-' in name)
        self.assertTrue(found.readonly)
        loan, = (found for name, found in self.a.mapper.mapped.items()
                 if '-loan-' in name)
        self.assertTrue(loan.readonly)

    def test_questions_take_no_lock(self) -> None:
        """H21: a node that waits for an answer may hold the same lock."""
        self.relocated()
        for node in (self.a, self.b):
            with node.process.world.locks.volume(self.volume, 0):
                lv = self.cloud.row(self.volume).lv
                questions: tuple[messages.Request[typing.Any], ...] = (
                    messages.Identify(),
                    messages.FindRoom(units.Bytes(1 << 30)),
                    messages.Show(lv), messages.Notify(self.volume),
                    messages.Agree(self.volume,
                                   Location(NodeName('x'), lv)))
                for question in questions:
                    endpoint.answer(node.service, question)

    def test_only_the_home_node_holds_its_lock_across_a_message(
            self) -> None:
        """H21: both ends waiting for each other would take minutes."""
        held = []

        def before(call: ports.Call) -> None:
            if call.port == 'peers' and call.method in (
                    'Agree', 'Show', 'Connect', 'Disconnect'):
                try:
                    with self.cloud.nodes[
                            call.node].process.world.locks.volume(
                                self.volume, 0):
                        held.append(False)
                except exceptions.VolumeLocked:
                    held.append(True)
        self.cloud.before = before
        attachment = self.cloud.reserve(self.volume)
        self.cloud.connect(self.volume, attachment, self.b)
        connections.connect(self.a.service, self.volume, self.b.connector)
        self.cloud.settle()
        connections.disconnect(self.a.service, self.volume, self.b.connector)
        self.assertGreaterEqual(len(held), 3)
        self.assertEqual({False}, set(held))

    def test_parts_fit_into_the_budget(self) -> None:
        """H29: a driver call answers within 45 s."""
        budget = self.a.process.world.settings.budget
        self.assertLessEqual(budget, 45)
        self.assertLess(deadlines.LOGIN_SECONDS,
                        budget * deadlines.PREPARE_PART)
        self.assertLess(budget * deadlines.PREPARE_PART, budget / 1.5)
