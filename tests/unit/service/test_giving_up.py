# SPDX-License-Identifier: Apache-2.0
"""The lender is lost: what had not arrived is given up."""

from __future__ import annotations

import json
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import table
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers import wire
from cinder_dmclone.service import births
from cinder_dmclone.service import recovery
from cinder_dmclone.service import snapshots
from cinder_dmclone.stack import clones
from cinder_dmclone.stack import lv_tags
from tests.unit.fake import cloud
from tests.unit.fake import mapped
from tests.unit.fake import ports
from tests.unit.fake import storage
from tests.unit.service import test_recovery


class GivenUpTestCase(test_recovery.LostTestCase):
    """The lender is lost. Regions 0 and 3 were written on b."""

    hosts = ('a', 'b', 'c')

    def setUp(self) -> None:
        super().setUp()
        self.b.mapper.write(self.path, 3, 'written on b')

    def give(self, record: str = '') -> messages.Plan:
        return self.others[0].process.world.peers.ask(
            self.b.name, messages.GiveUp(self.volume, record))

    def given_up(self) -> messages.Plan:
        self.lose(self.a)
        plan = self.give()
        self.give(plan.record)
        self.b.process.loop.run_once(everything=True)
        return plan

    def read(self, region: int) -> str:
        return self.b.mapper.read(self.path, region)

    @property
    def source(self) -> table.Table:
        lv = self.cloud.row(self.volume).lv
        return self.b.mapper.mapped[str(names.source(lv))].table


class GiveUpTest(GivenUpTestCase):

    def test_a_plan_lists_what_is_missing_and_changes_nothing(self) -> None:
        self.lose(self.a)
        before = self.state()
        plan = self.give()
        self.assertEqual(before, self.state())
        self.assertTrue(self.source.queues)
        row = self.cloud.row(self.volume)
        self.assertEqual(
            f'Reads of what has not arrived of volume {self.volume} on '
            f'b@dmclone fail from now on: its lender {row.source} is lost.',
            plan.does)
        size = int(storage.REGION)
        self.assertEqual([f'{6 * size} bytes in 2 ranges',
                          f'bytes {size} to {3 * size - 1}',
                          f'bytes {4 * size} to {8 * size - 1}'],
                         plan.gives_up)

    def test_a_plan_of_very_many_ranges_is_short(self) -> None:
        """Each second region was written."""
        self.lose(self.a)
        size, count = 4096, 1 << 18
        with mock.patch.object(clones, 'missing', lambda host, stack: (
                (2 * number * size, (2 * number + 1) * size)
                for number in range(count))):
            plan = self.give()
        self.assertEqual(f'{count * size} bytes in {count} ranges',
                         plan.gives_up[0])
        self.assertEqual(f'{count - recovery.RANGES} ranges behind these',
                         plan.gives_up[-1])
        self.assertLess(len(json.dumps(wire.pack(plan))), 1 << 14)

    def test_reads_of_what_is_missing_fail(self) -> None:
        with self.assertRaises(mapped.Queued):
            self.lose(self.a)
            self.read(1)
        self.given_up()
        self.assertEqual('written on b', self.read(3))
        with self.assertRaises(mapped.Failed):
            self.read(1)
        self.b.mapper.write(self.path, 1, 'again')
        self.assertEqual('again', self.read(1))

    def test_a_session_that_cannot_be_ended(self) -> None:
        """iscsid was restarted while the lender was away."""
        def refuse(call: ports.Call) -> None:
            if (call.port, call.method) == ('initiator', 'disconnect'):
                raise exceptions.InitiatorUnusable(reason='test')
        self.cloud.before = refuse
        self.given_up()
        self.assertTrue(self.source.has(table.Error))
        self.assertEqual('written on b', self.read(3))

    def test_the_devices(self) -> None:
        clone = names.clone(self.cloud.row(self.volume).lv)
        before = self.b.mapper.mapped[str(clone)].table
        self.given_up()
        self.assertEqual(
            '0 2097152 error', str(self.source))
        found = self.b.mapper.mapped[str(clone)]
        self.assertEqual((before, False), (found.table, found.hydration))
        self.assertEqual({}, self.b.initiator.sessions_)

    def test_it_outlives_a_boot(self) -> None:
        self.given_up()
        self.b.mapper.flush(self.path)
        self.b.lose_power()
        calls = len(self.cloud.calls)
        with mock.patch.object(type(self.b.process.loop), 'run_once'):
            self.b.start()
        self.assertTrue(self.source.has(table.Error))
        self.assertEqual('written on b', self.read(3))
        with self.assertRaises(mapped.Failed):
            self.read(1)
        # Nobody tries to log in to what is lost.
        self.assertNotIn('relogin', {
            call.method for call in self.cloud.calls[calls:]})
        self.b.process.loop.run_once(everything=True)
        self.assertTrue(self.source.has(table.Error))

    def test_when_all_was_written_it_is_whole(self) -> None:
        self.given_up()
        for region in range(8):
            self.b.mapper.write(self.path, region, f'new {region}')
        self.cloud.settle()
        row = self.cloud.row(self.volume)
        self.assertIsNone(row.source)
        lv = self.b.group.volumes[names.data_lv(row.lv)]
        self.assertEqual(
            {lv_tags.print_tag(lv_tags.OwnTag(2, self.volume))}, lv.tags)
        self.assertEqual([f'new {region}' for region in range(8)],
                         [self.read(region) for region in range(8)])

    def test_a_read_that_waits_does_not_keep_it_from_getting_whole(
            self) -> None:
        """H16: all is written before the reconciler has looked."""
        self.lose(self.a)
        plan = self.give()
        with mock.patch.object(type(self.b.process.loop), 'run_once'):
            self.give(plan.record)
        front = self.b.mapper.mapped[self.b.mapper.named(self.path)]
        front.stuck = 1
        for region in range(8):
            self.b.mapper.write(self.path, region, f'new {region}')
        self.b.process.loop.run_once(everything=True)
        self.assertIsNone(self.cloud.row(self.volume).source)
        self.assertEqual('new 1', self.read(1))

    def test_it_can_be_deleted(self) -> None:
        self.given_up()
        self.cloud.detach(self.volume, self.attachment, self.b)
        self.cloud.delete(self.volume)
        self.cloud.settle()
        self.assertEqual(({}, {}, {}), (
            self.b.group.volumes, self.b.mapper.mapped,
            self.b.initiator.records_))

    def test_it_is_told_again(self) -> None:
        """What is missing still, and nothing is done."""
        plan = self.given_up()
        self.b.mapper.write(self.path, 1, 'again')
        before = self.state()
        again = self.give()
        self.assertIn('fail already', again.does)
        self.assertEqual(plan.gives_up[2:], again.gives_up[2:])
        self.assertNotEqual(plan.gives_up[1], again.gives_up[1])
        self.give(again.record)
        self.assertEqual(before, self.state())

    def test_it_stays_where_it_is(self) -> None:
        """A copy of it could never be complete."""
        self.given_up()
        self.cloud.detach(self.volume, self.attachment, self.b)
        for host in (self.others[0], self.b):
            attachment = self.cloud.reserve(self.volume)
            if host is self.b:
                self.cloud.connect(self.volume, attachment, host)
                break
            with self.assertRaisesRegex(exceptions.CannotRelocate,
                                        'what has not arrived was given up'):
                self.cloud.connect(self.volume, attachment, host)
            self.cloud.forget(self.volume, attachment)

    def test_no_snapshot_of_it(self) -> None:
        self.given_up()
        found = SnapshotId(self.cloud.db.snapshot(self.volume, 'creating'))
        with self.assertRaisesRegex(exceptions.CannotSnapshot,
                                    'what has not arrived was given up'):
            snapshots.create(self.b.service, self.volume, found)

    def test_no_clone_of_it(self) -> None:
        self.given_up()
        born = VolumeId('12121212-0000-4000-8000-000000000000')
        self.cloud.db.volume(born, f'{self.b.name}#{cloud.POOL}')
        with self.assertRaisesRegex(exceptions.DMCloneException,
                                    'what has not arrived was given up'):
            births.clone(self.b.service, born, self.volume)
        self.assertEqual(1, sum(name.startswith('volume-') for name in
                                self.b.group.volumes))

    def test_a_lender_that_nobody_has_read_since(self) -> None:
        """Its path counts as usable until a read fails."""
        with mock.patch.object(self.cloud, 'lose_paths'):
            self.lose(self.a)
        self.assertNotEqual([], self.give().gives_up)

    # -- what is not given up -----------------------------------------------

    def test_a_lender_that_works(self) -> None:
        with self.refused('a@dmclone can be reached, and read'):
            self.give()
        self.assertTrue(self.source.queues)

    def test_a_lender_that_is_back(self) -> None:
        """Nobody has noticed yet; its service is still down."""
        self.a.lose_power()
        self.a.start()
        self.a.kill()
        self.down.add(self.a.name)
        with self.refused('a@dmclone can be reached, and read'):
            self.give()

    def test_a_lender_that_is_only_cut_off(self) -> None:
        self.cloud.partition(self.a, self.b)
        with self.refused('does not answer, but has reported in within '
                          'service_down_time'):
            self.give()

    def test_what_is_offered(self) -> None:
        self.lose(self.a)
        row = self.cloud.row(self.volume)
        self.cloud.db.update(self.volume, provider_id=f'{row.provider_id};'
                             f'offer=c@dmclone/{self.lv}', status='in-use')
        self.cloud.db.attachment(self.volume)
        with self.refused('it is offered to c@dmclone'):
            self.give()

    def test_what_others_need(self) -> None:
        self.cloud.detach(self.volume, self.attachment, self.b)
        found = SnapshotId(self.cloud.db.snapshot(self.volume, 'creating'))
        snapshots.create(self.b.service, self.volume, found)
        self.lose(self.a)
        with self.refused(f'snapshot {found} would be torn as well'):
            self.give()

    def test_what_is_whole(self) -> None:
        self.cloud.settle()
        self.lose(self.a)
        with self.refused('all of it is here'):
            self.give()

    def test_another_node_than_its_own(self) -> None:
        self.lose(self.a)
        with self.assertRaisesRegex(exceptions.PeerRefused,
                                    'belongs to b@dmclone'):
            self.others[0].process.world.peers.ask(
                self.others[0].name, messages.GiveUp(self.volume, ''))

    def test_only_what_was_agreed_to_is_given_up(self) -> None:
        self.lose(self.a)
        with self.refused('when that was agreed to'):
            self.give('another')

    def test_metadata_that_makes_no_sense(self) -> None:
        self.lose(self.a)
        with mock.patch.object(storage.Superblock, 'pack',
                               return_value=b'x' * 4096), self.refused(
                'cannot be assembled: it has no superblock'):
            self.give()
