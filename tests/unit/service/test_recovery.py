# SPDX-License-Identifier: Apache-2.0
"""A node is lost: what an operator decides about its volumes."""

from __future__ import annotations

import dataclasses
from unittest import mock

from oslo_serialization import jsonutils

from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import SnapshotId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.releases import models
from cinder_dmclone.relocation import recovery
from cinder_dmclone.service import connections
from cinder_dmclone.service import snapshots
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.unit.fake import cloud
from tests.unit.fake import mapped
from tests.unit.fake import ports
from tests.unit.service import operators


class LostTestCase(operators.OperatorTestCase):
    """The volume is attached on b and has not hydrated."""

    def setUp(self) -> None:
        super().setUp()
        self.attachment, self.path = self.relocated()
        self.refusal = f'olume {self.volume} .*'
        # As the API writes it down.
        self.cloud.db.update_attachment(
            self.attachment,
            connection_info=jsonutils.dumps({'driver_volume_type': 'local'}))
        self.b.process.loop.run_once(everything=True)
        self.b.mapper.write(self.path, 0, 'written on b')

    def ask(self, record: str = '', node: cloud.Node | None = None,
            by: cloud.Node | None = None) -> messages.Plan:
        asked, asking = node or self.a, by or self.others[0]
        return asking.process.world.peers.ask(
            asked.name, messages.TakeBack(self.volume, record))


class NeverAdoptedTest(operators.OperatorTestCase):
    """The node was lost before it had written down that it is the owner."""

    hosts = ('a', 'b', 'c')

    options = {'own_metadata': True}

    def killed(self, call: ports.Call) -> None:
        if call.node == self.a.name and call.method == 'commit':
            self.b.kill()

    def take_back(self) -> None:
        peers = self.others[0].process.world.peers
        plan = peers.ask(self.a.name, messages.TakeBack(self.volume, ''))
        peers.ask(self.a.name, messages.TakeBack(self.volume, plan.record))
        self.cloud.settle()

    def lost(self, *regions: int, group_lost: bool = False) -> str:
        """The name of what the node has when it is back.

        :param regions: a server had written them
        :param group_lost: whether its metadata group is lost then
        """
        self.cloud.before = self.killed
        _, path = self.relocated()
        for region in regions:
            self.b.mapper.write(path, region, 'acknowledged')
            self.b.mapper.flush(path)
        found = names.data_lv(self.cloud.row(self.volume).lv)
        self.lose(self.b)
        self.take_back()
        self.down.clear()
        self.b.meta_group.lost = group_lost
        self.b.start()
        self.cloud.settle()
        return found

    def test_what_a_server_wrote_is_kept(self) -> None:
        found = self.lost(0, 3)
        self.assertEqual('acknowledged',
                         self.b.group.volumes[found].durable[3])
        problem, = self.b.process.loop._told.reported.values()
        self.assertIn('it was written', problem)

    def test_a_server_that_is_still_there_is_cut_off(self) -> None:
        """Only the service of its node was down."""
        self.cloud.before = self.killed
        _, path = self.relocated()
        self.b.mapper.open(path)
        self.b.mapper.write(path, 0, 'acknowledged')
        self.b.mapper.flush(path)
        self.down.add(self.b.name)
        with mock.patch.object(recovery, '_require_unused'):
            self.take_back()
        self.down.clear()
        self.b.start()
        self.cloud.settle()
        with self.assertRaises(mapped.Failed):
            self.b.mapper.write(path, 1, 'not any more')

    def test_it_cannot_be_told_whether_anything_was_written(self) -> None:
        """Its metadata is where no group is found."""
        self.assertIn(self.lost(0, group_lost=True), self.b.group.volumes)

    def test_what_nobody_wrote_is_not(self) -> None:
        found = self.lost()
        self.assertNotIn(found, self.b.group.volumes)


class TakeBackTest(LostTestCase):

    hosts = ('a', 'b', 'c')

    def taken_back(self) -> messages.Plan:
        plan = self.ask()
        self.ask(plan.record)
        return plan

    def detach(self) -> None:
        """End the attachment on what is lost."""
        self.cloud.detach(self.volume, self.attachment, self.b)

    def test_a_plan_changes_nothing(self) -> None:
        self.lose(self.b)
        before = self.state()
        plan = self.ask()
        row = self.cloud.row(self.volume)
        self.assertEqual(before, self.state())
        self.assertEqual(
            f'Volume {self.volume} becomes a@dmclone/{self.lv} again, as it '
            f'was when it moved to {row.owner} (generation 2). Make sure '
            'that b@dmclone is off, and stays off.', plan.does)
        self.assertEqual(
            ['all that was written to it since, on b@dmclone'], plan.gives_up)

    def test_it_is_what_it_was_before_the_move(self) -> None:
        self.lose(self.b)
        self.taken_back()
        row = self.cloud.row(self.volume)
        self.assertEqual((Location(self.a.name, self.lv), 3, None, None),
                         (row.owner, row.generation, row.source, row.offer))
        self.detach()
        _, path = self.cloud.attach(self.volume, self.a)
        self.assert_data(self.a, path)

    def test_it_leaves_the_group_of_the_lost_node(self) -> None:
        """Which Cinder can neither delete nor take it out of any more."""
        self.cloud.db.update(self.volume, group_id='group of b')
        self.lose(self.b)
        self.taken_back()
        volume, = self.cloud.db.all(models.Volume)
        self.assertIsNone(volume.group_id)

    def test_it_has_gone_on_there_for_a_snapshot(self) -> None:
        """Of what it hydrates then the lost node has all."""
        found = SnapshotId(self.cloud.db.snapshot(self.volume, 'creating'))
        self.b.mapper.open(self.path)
        snapshots.create(self.b.service, self.volume, found)
        row = self.cloud.row(self.volume)
        assert row.source
        self.assertEqual((3, self.b.name), (row.generation, row.source.node))
        self.lose(self.b)
        with self.assertRaisesRegex(exceptions.PeerRefused, 'recover'):
            self.others[0].process.world.peers.ask(
                self.a.name, messages.Release(self.lv, ''))
        plan = self.taken_back()
        self.assertIn('(generation 2)', plan.does)
        self.assertEqual(3, len(plan.gives_up), plan.gives_up)
        row = self.cloud.row(self.volume)
        self.assertEqual((Location(self.a.name, self.lv), 4, None),
                         (row.owner, row.generation, row.source))
        self.cloud.settle()
        self.assertEqual(
            {lv_tags.print_tag(lv_tags.OwnTag(4, self.volume))},
            self.a.group.volumes[names.data_lv(self.lv)].tags)
        self.detach()
        _, path = self.cloud.attach(self.volume, self.others[0])
        self.assert_data(self.others[0], path)

    def test_nothing_is_left_on_the_lender(self) -> None:
        self.lose(self.b)
        self.taken_back()
        self.cloud.settle()
        lv = self.a.group.volumes[names.data_lv(self.lv)]
        self.assertEqual(
            {lv_tags.print_tag(lv_tags.OwnTag(3, self.volume))}, lv.tags)
        self.assertEqual(({}, {}), (self.a.targets.exports,
                                    self.a.mapper.mapped))

    def test_it_can_be_used_elsewhere_at_once(self) -> None:
        """Before the reconciler has looked."""
        self.lose(self.b)
        self.taken_back()
        self.detach()
        _, path = self.cloud.attach(self.volume, self.others[0])
        self.assert_data(self.others[0], path)

    def test_what_still_hydrates_itself_waits_for_its_lender(self) -> None:
        """As a lender it let reads fail while its own was away."""
        self.cloud.detach(self.volume, self.attachment, self.b)
        middle = self.cloud.row(self.volume).lv
        c = self.others[0]
        self.attachment, _ = self.cloud.attach(self.volume, c)
        self.cloud.partition(self.a, self.b)
        self.b.process.loop.run_once(everything=True)
        source = self.b.mapper.mapped[str(names.source(middle))]
        self.assertFalse(source.table.queues)
        self.lose(c)
        self.ask(self.ask('', self.b, self.b).record, self.b, self.b)
        self.cloud.detach(self.volume, self.attachment, c)
        attachment = self.cloud.reserve(self.volume)
        path = self.cloud.connect(self.volume, attachment, self.b)
        with self.assertRaises(mapped.Queued):
            self.b.mapper.read(path, 1)
        self.assertEqual('written on b', self.b.mapper.read(path, 0))

    def test_a_node_installed_anew_has_lost_it(self) -> None:
        """It answers, and has no such LV."""
        self.b.lose_power()
        for group in (self.b.group, self.b.meta_group):
            group.volumes.clear()
            group._durable.clear()
        self.b.start()
        self.taken_back()
        self.assertEqual(self.a.name, self.cloud.row(self.volume).node)

    def test_it_grows_to_what_it_was_extended_to(self) -> None:
        self.cloud.db.update(self.volume, size=2)
        self.lose(self.b)
        self.taken_back()
        lv = self.a.group.volumes[names.data_lv(self.lv)]
        self.assertEqual(units.Bytes.from_gib(2), lv.size)

    def test_snapshots_that_are_lost_are_named(self) -> None:
        self.detach()
        found = SnapshotId(self.cloud.db.snapshot(self.volume, 'creating'))
        snapshots.create(self.b.service, self.volume, found)
        self.lose(self.b)
        at = self.cloud.row(self.volume).owner
        self.assertIn(f'its snapshot {found}, which is {at}',
                      self.ask().gives_up)

    # -- who may come back --------------------------------------------------

    def test_a_node_that_works(self) -> None:
        with self.refused(r'b@dmclone is logged in to this node and reads it'):
            self.ask()

    def test_a_node_whose_service_alone_died(self) -> None:
        """Its kernel goes on, and so does a server."""
        self.b.kill()
        self.down.add(self.b.name)
        with self.refused('is logged in to this node'):
            self.ask()

    def test_a_node_that_is_only_cut_off(self) -> None:
        self.cloud.partition(self.a, self.b)
        self.cloud.cut.add(frozenset((self.a.name, self.b.name)))
        with self.refused('does not answer, but has reported in within '
                          'service_down_time'):
            self.ask()

    def test_a_node_that_answers_though_it_does_not_report(self) -> None:
        self.down.add(self.b.name)
        with mock.patch.object(self.cloud, 'logged_in', return_value=set()
                               ), self.refused(
                r'b@dmclone answers, and has it \(hydrating\)'):
            self.ask()

    def test_who_comes_back_is_cut_off(self) -> None:
        """It has no front, and a server that has one writes no more."""
        self.lose(self.b)
        self.taken_back()
        self.cloud.settle()
        self.b.start()
        name = self.b.mapper.named(self.path)
        self.assertNotIn(name, self.b.mapper.mapped)

    def test_a_server_that_was_started_there_writes_no_more(self) -> None:
        lost = names.data_lv(self.cloud.row(self.volume).lv)
        self.lose(self.b)
        self.taken_back()
        with mock.patch.object(type(self.b.process.loop), 'run_once'):
            self.b.start()
        self.b.mapper.open(self.path)
        self.b.process.loop.run_once(everything=True)
        with self.assertRaises(mapped.Failed):
            self.b.mapper.write(self.path, 1, 'of nobody')
        self.assertIn(lost, self.b.group.volumes)

    def test_a_host_that_is_served_from_there_writes_no_more(self) -> None:
        """The node was not off, and its target still has a session."""
        self.detach()
        there = self.cloud.row(self.volume).lv
        connector = {'host': 'elsewhere', 'initiator': 'iqn.elsewhere'}
        attachment = self.cloud.reserve(self.volume)
        connections.connect(self.b.service, self.volume, connector)
        self.cloud.db.update_attachment(
            attachment, connector=jsonutils.dumps(connector))
        self.cloud.complete(self.volume, attachment)
        self.down.add(self.b.name)
        self.b.kill()
        self.cloud.partition(self.a, self.b)
        with mock.patch.object(self.cloud, 'logged_in', return_value=set()):
            self.taken_back()
        self.cloud.heal()
        serve = str(names.serve(there))
        self.assertIn(serve, self.b.mapper.mapped)
        with mock.patch.object(self.cloud, 'logged_in',
                               return_value={'iqn.elsewhere'}):
            self.b.start()
        self.assertEqual({}, self.b.targets.exports)
        self.assertNotIn(serve, self.b.mapper.mapped)

    # -- what cannot be taken back ------------------------------------------

    def test_a_volume_that_is_here(self) -> None:
        self.cloud.settle()
        with self.refused('it is on this node, as'):
            self.ask(node=self.b)

    def test_a_node_that_has_lent_nothing(self) -> None:
        self.lose(self.b)
        with self.refused('this node has nothing that was lent'):
            self.ask(node=self.others[0])

    def test_what_is_overwritten(self) -> None:
        """All had arrived, and its removal has begun."""
        self.cloud.after = lambda call: (
            self.lose(self.b) if call.port == 'erase' else None)
        with mock.patch.object(self.a.process.world.host.group, 'remove',
                               side_effect=exceptions.DeviceBusy(device='x')):
            self.cloud.settle()
        self.assertIn(names.data_lv(self.lv), self.a.erased)
        with self.refused('this node has nothing that was lent'):
            self.ask()

    def test_what_somebody_has_open_here(self) -> None:
        self.lose(self.b)
        name = names.front('a', self.lv)
        with mock.patch('cinder_dmclone.stack.state.Stack.of_kind',
                        lambda stack, *kinds: [name]), mock.patch(
                'cinder_dmclone.stack.state.Stack.is_held',
                return_value=True), self.refused('is in use here'):
            self.ask()

    def test_a_status_in_which_something_works_on_it(self) -> None:
        self.lose(self.b)
        plan = self.ask()
        self.cloud.db.update(self.volume, status='deleting')
        with self.refused('its status is deleting'):
            self.ask(plan.record)

    def test_no_volume(self) -> None:
        with self.assertRaisesRegex(exceptions.PeerRefused,
                                    'the database has no such volume'):
            self.others[0].process.world.peers.ask(
                self.a.name, messages.TakeBack(
                    type(self.volume)('x'), ''))

    # -- two operators ------------------------------------------------------

    def test_only_what_was_agreed_to_is_done(self) -> None:
        self.lose(self.b)
        plan = self.ask()
        self.cloud.db.update(self.volume, size=2)
        with self.refused('when that was agreed to'):
            self.ask(plan.record)

    def test_an_owner_that_went_on_in_the_meantime(self) -> None:
        """Its commit has the same generation, and our answer was lost."""
        self.lose(self.b)
        plan = self.ask()
        row = self.cloud.row(self.volume)
        other = dataclasses.replace(row, host='c@dmclone#pool',
                                    provider_id='3')
        with mock.patch.object(volumes.RowStore, 'take_back',
                               return_value=other), self.refused(
                'it is c@dmclone/.* by now'):
            self.ask(plan.record)

    def test_the_second_of_two_operators(self) -> None:
        self.lose(self.b)
        plans = [self.ask(), self.ask()]
        self.ask(plans[0].record)
        with self.refused('it is on this node'):
            self.ask(plans[1].record)

    def test_both_at_once(self) -> None:
        """One has the lock."""
        self.lose(self.b)
        with self.a.service.locked(self.volume), self.refused(
                'Another operation on volume'):
            self.ask()
