# SPDX-License-Identifier: Apache-2.0
"""A snapshot moves to another node, as an operator wants it to."""

from __future__ import annotations

import typing
from unittest import mock


from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.snapshot_messages import MoveSnapshot
from cinder_dmclone.reconcile import activation
from cinder_dmclone.service import births
from cinder_dmclone.service import reverts
from cinder_dmclone.service import views
from cinder_dmclone.service import volumes
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit.service import operators
from tests.unit.service import test_snapshots

CLONE = VolumeId('c10e0000-0000-4000-8000-000000000000')


class MoveTestCase(test_snapshots.SnapshotTestCase,
                   operators.OperatorTestCase):
    """A snapshot of the volume on a; who asks is on c."""

    hosts = ('a', 'b', 'c')
    refusal = (r'Snapshot [-0-9a-f]+ stays on a@dmclone: .*\. '
               r'Nothing was changed\.')

    def setUp(self) -> None:
        super().setUp()
        self.snapshot = self.create()

    @property
    def c(self) -> cloud.Node:
        return self.others[0]

    @property
    def at(self) -> Location:
        found = self.found(self.snapshot).at
        assert found
        return found

    def state(self) -> object:
        return super().state(), self.found(self.snapshot)

    def want(self, peer: str = 'b@dmclone', record: str = '',
             node: cloud.Node | None = None) -> messages.Plan:
        """What the operator asks for, and is told."""
        return self.c.process.world.peers.ask(
            (node or self.a).name, MoveSnapshot(
                self.volume, self.snapshot, NodeName(peer), record))

    def move(self, peer: str = 'b@dmclone',
             node: cloud.Node | None = None) -> messages.Plan:
        return self.want(peer, self.want(peer, node=node).record, node)

    def gone(self) -> None:
        """The volume leaves the node of the snapshot."""
        self.cloud.detach(self.volume, self.relocated()[0], self.b)
        self.cloud.settle()

    def born(self, node: cloud.Node) -> None:
        self.cloud.db.volume(CLONE, f'{node.name}#{cloud.POOL}')
        births.from_snapshot(node.service, CLONE, self.snapshot)
        self.cloud.db.update(CLONE, status='available')


class MoveTest(MoveTestCase):

    def test_the_plan_changes_nothing(self) -> None:
        before = self.state()
        plan = self.want()
        self.assertEqual(
            f'Snapshot {self.snapshot} of volume {self.volume} (1 GiB) is '
            f'copied from {self.at} to b@dmclone, and is there when all of '
            'it has arrived. Its logical volume is deleted then, unless it '
            'is the volume.', plan.does)
        self.assertEqual([], plan.gives_up)
        self.assertEqual(before, self.state())

    def test_of_a_volume_at_rest(self) -> None:
        """The volume is written in place again, afterwards."""
        self.move()
        self.cloud.settle()
        self.assertEqual('b@dmclone', self.assert_snapshot(
            self.snapshot).node)
        self.assertEqual({names.data_lv(self.lv)}, set(self.a.group.volumes))
        self.assertEqual({lv_tags.print_tag(lv_tags.OwnTag(1, self.volume))},
                         self.a.group.volumes[names.data_lv(self.lv)].tags)
        _, path = self.cloud.attach(self.volume, self.a)
        self.assertEqual(self.lv, self.cloud.row(self.volume).lv)
        self.a.mapper.open(path)
        self.a.mapper.write(path, 0, 'later')
        self.assert_snapshot(self.snapshot)

    def test_what_the_volume_has_left_goes(self) -> None:
        self.gone()
        self.move('c@dmclone')
        self.cloud.settle()
        self.assertEqual('c@dmclone', self.assert_snapshot(
            self.snapshot).node)
        self.assertEqual({}, self.a.group.volumes)
        self.assertIn(names.data_lv(self.lv), self.a.erased)
        self.delete(self.snapshot)
        self.cloud.settle()
        self.assert_settled()

    def test_one_of_two_on_the_same_lv(self) -> None:
        other = self.create()
        plan = self.move()
        self.assertIn(f'Its logical volume stays for snapshot {other}.',
                      plan.does)
        self.cloud.settle()
        self.assertEqual('a@dmclone', self.assert_snapshot(other).node)
        self.assertEqual('b@dmclone', self.assert_snapshot(
            self.snapshot).node)

    def test_it_moves_again(self) -> None:
        self.move()
        self.cloud.settle()
        self.move('c@dmclone', self.b)
        self.cloud.settle()
        self.assertEqual('c@dmclone', self.assert_snapshot(
            self.snapshot).node)
        self.assertEqual({}, self.b.group.volumes)
        self.assertEqual(f'3;at={self.at}',
                         self.found(self.snapshot).provider_id)

    def test_any_node_that_has_room(self) -> None:
        self.cloud.create(self.b, gib=2)
        with mock.patch.object(ports.Peers, 'taking_in', lambda *rest: [
                self.b.name, self.c.name]):
            self.assertIn('to c@dmclone', self.want('').does)
        with mock.patch.object(ports.Peers, 'taking_in',
                               lambda *rest: []), self.refused(
                                   'no other node'):
            self.want('')

    def test_a_node_with_moved_snapshots_sleeps(self) -> None:
        self.move()
        self.cloud.settle()
        before = len(self.cloud.calls)
        for _ in range(20):
            self.cloud.tick()
        self.assertEqual(before, len(self.cloud.calls))

    def test_of_a_volume_that_was_extended(self) -> None:
        """It has what the snapshot has, and no more."""
        self.cloud.db.update(self.volume, status='extending')
        volumes.extend(self.a.service, self.volume, 2)
        self.cloud.db.update(self.volume, size=2, status='available')
        self.move()
        self.cloud.settle()
        at = self.assert_snapshot(self.snapshot)
        self.assertEqual(units.Bytes.from_gib(1), self.b.group.volumes[
            names.data_lv(at.lv)].size)


class UsedTest(MoveTestCase):
    """What reads it goes on."""

    def test_a_volume_that_begins_while_it_moves(self) -> None:
        self.move()
        self.born(self.c)
        self.cloud.settle()
        self.assertEqual('b@dmclone', self.assert_snapshot(
            self.snapshot).node)
        self.assert_born()

    def assert_born(self) -> None:
        row = self.cloud.row(CLONE)
        self.assertIsNone(row.source)
        lv = self.cloud.nodes[row.node].group.volumes[names.data_lv(row.lv)]
        self.assertEqual(base.DATA, [lv.read(r) for r in range(base.REGIONS)])

    def test_a_volume_that_begins_afterwards(self) -> None:
        self.move()
        self.cloud.settle()
        self.born(self.c)
        self.delete(self.snapshot)
        self.b.process.loop.run_once(everything=True)
        self.cloud.settle()
        self.assert_born()
        self.assertEqual({}, self.b.group.volumes)

    def late(self, what: str) -> typing.Any:
        """It arrives just before a request reaches where it was."""
        def before(call: ports.Call) -> None:
            if call.method == what:
                self.cloud.before = lambda call: None
                self.cloud.settle()
        self.cloud.before = before

    def test_a_request_to_where_it_was(self) -> None:
        self.move()
        self.late('Lend')
        self.born(self.c)
        self.assertEqual(self.at, self.cloud.row(CLONE).source)
        self.cloud.settle()
        self.assert_born()

    def test_a_backup_of_where_it_was(self) -> None:
        self.move()
        self.late('ConnectSnapshot')
        info = views.connect(self.c.service, self.snapshot, self.b.connector)
        self.assertEqual('local', info['driver_volume_type'])
        self.assertEqual('b@dmclone', self.at.node)
        views.disconnect(self.c.service, self.snapshot, self.b.connector)

    def test_it_waits_for_a_backup(self) -> None:
        self.move()
        self.cloud.db.update_snapshot(self.snapshot, status='backing-up')
        self.cloud.settle()
        self.assertEqual('a@dmclone', self.assert_snapshot(
            self.snapshot).node)
        self.cloud.db.update_snapshot(self.snapshot, status='available')
        self.cloud.settle()
        self.assertEqual('b@dmclone', self.assert_snapshot(
            self.snapshot).node)

    def test_a_revert_to_where_it_has_moved(self) -> None:
        self.gone()
        self.move('c@dmclone')
        self.cloud.settle()
        self.cloud.db.update(self.volume, status='reverting')
        self.cloud.db.update_snapshot(self.snapshot, status='restoring')
        reverts.revert(self.b.service, self.volume, self.snapshot)
        self.cloud.db.update(self.volume, status='available')
        self.assertEqual(self.at, self.cloud.row(self.volume).source)
        self.cloud.settle()
        self.assertEqual('b@dmclone', self.cloud.row(self.volume).node)

    def test_it_is_deleted_while_it_moves(self) -> None:
        for gone in (False, True):
            with self.subTest(gone):
                if gone:
                    self.build()
                    self.snapshot = self.create()
                    self.gone()
                self.move('c@dmclone')
                self.delete(self.snapshot)
                self.cloud.settle()
                self.assert_settled()

    def test_a_boot_without_the_database(self) -> None:
        """It is lent to those who need it, and gets no front."""
        self.move()
        self.cloud.settle()
        self.born(self.c)
        self.b.lose_power()
        self.b.up = True
        self.b.process = self.b.make_process()
        with self.cloud.db.away():
            self.assertEqual({}, activation.activate(self.b.process.world))
        loan, = self.b.mapper.mapped
        self.assertEqual(str(names.loan(
            self.at.lv, self.cloud.row(CLONE).lv)), loan)
        self.assertEqual(1, len(self.b.targets.exports))


class RefusedTest(MoveTestCase):
    """In one line, and nothing is changed."""

    def test_where_it_is(self) -> None:
        with self.refused('it is there'):
            self.want('a@dmclone')

    def test_a_node_that_is_down(self) -> None:
        self.lose(self.b)
        with self.refused('b@dmclone is down, or there is no such node'):
            self.want()

    def test_a_node_of_another_backend(self) -> None:
        with self.refused('b@other is no node of this backend'):
            self.want('b@other')

    def test_without_room(self) -> None:
        self.cloud.create(self.b, gib=99)
        with self.refused('has not enough room|not enough room'):
            self.want()

    def test_other_blocks(self) -> None:
        self.b.group.block_size = 4096
        with self.refused('the disks of b@dmclone have 4096-byte blocks'):
            self.want()

    def test_something_is_done_with_it(self) -> None:
        for status in ('backing-up', 'restoring', 'deleting', 'error'):
            self.cloud.db.update_snapshot(self.snapshot, status=status)
            with self.refused(f'its status is {status}'):
                self.want()

    def test_it_hydrates(self) -> None:
        self.relocated()
        self.snapshot = self.create()
        self.assertEqual('b@dmclone', self.at.node)
        before = self.state()
        with self.assertRaisesRegex(exceptions.PeerRefused,
                                    'it hydrates from a@dmclone'):
            self.want('c@dmclone', node=self.b)
        self.assertEqual(before, self.state())

    def test_it_moves_already(self) -> None:
        self.move()
        for peer in ('b@dmclone', 'c@dmclone'):
            with self.refused('it moves to b@dmclone/.* already; with '
                              'a@dmclone as the node that is taken back'):
                self.want(peer)

    def test_it_is_elsewhere(self) -> None:
        self.move()
        self.cloud.settle()
        with self.refused('it is b@dmclone/.*, says the database'):
            self.want('c@dmclone')

    def test_it_was_deleted(self) -> None:
        self.cloud.db.drop_snapshot(self.snapshot)
        with self.refused('the database has no such snapshot'):
            self.want()

    def test_a_record_that_cannot_be_read(self) -> None:
        self.cloud.db.update_snapshot(self.snapshot, provider_id='v2;3')
        with self.refused('Upgrade cinder-dmclone'):
            self.want()

    def test_another_operator_was_faster(self) -> None:
        plan = self.want()
        self.move()
        self.want('a@dmclone', self.want('a@dmclone').record)
        self.cloud.settle()
        self.want('c@dmclone', plan.record)
        with self.refused('it moves to c@dmclone'):
            self.want('b@dmclone', plan.record)
        with self.refused('it is not as it was when that was agreed to'):
            self.want('a@dmclone', plan.record)
