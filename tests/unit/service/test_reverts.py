# SPDX-License-Identifier: Apache-2.0
"""A volume goes back to its latest snapshot, or stays what it is."""

from __future__ import annotations

import contextlib
import functools
import typing
from unittest import mock

from oslo_db import exception as db_exc

from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.reconcile import reconciler
from cinder_dmclone.relocation import birth
from cinder_dmclone.relocation import revert as protocol
from cinder_dmclone.service import births
from cinder_dmclone.service import reverts
from cinder_dmclone.stack import lv_tags
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import ports
from tests.unit.service import test_snapshots

LATER = ['later', *base.DATA[1:]]


class RevertTestCase(test_snapshots.SnapshotTestCase):

    def ask_back(self, snapshot: SnapshotId,
                 node: cloud.Node | None = None) -> None:
        """What API and manager do, as far as the driver is asked."""
        self.cloud.db.update(self.volume, status='reverting')
        self.cloud.db.update_snapshot(snapshot, status='restoring')
        reverts.revert((node or self.cloud.home(self.volume)).service,
                       self.volume, snapshot)
        self.cloud.db.update(self.volume, status='available')
        self.cloud.db.update_snapshot(snapshot, status='available')

    def moved(self, node: cloud.Node, settle: bool = True) -> None:
        """The volume is on a node, where a server has written to it."""
        attachment, path = self.cloud.attach(self.volume, node)
        node.mapper.write(path, 0, 'later')
        if settle:
            self.cloud.settle()
        self.cloud.detach(self.volume, attachment, node)

    def assert_content(self, data: typing.Sequence[str],
                       node: cloud.Node) -> None:
        """What a server gets there; it keeps nothing in flight."""
        attachment, path = self.cloud.attach(self.volume, node)
        self.assert_data(node, path, data)
        self.cloud.detach(self.volume, attachment, node)
        self.cloud.settle()

    def assert_kept(self, status: str = 'available') -> None:
        """The volume is what it was, and nothing is left of the attempt."""
        row = self.cloud.row(self.volume)
        self.assertEqual((status, None), (row.status, row.offer))
        self.cloud.heal()
        self.cloud.fate = lambda message: ports.Fate.ARRIVES
        self.cloud.db.update(self.volume, status='available')
        self.cloud.restart()
        self.cloud.settle()
        self.assertEqual((), self.tags(row.owner).lent)
        self.assert_lvs(row.node, row.owner)

    def assert_lvs(self, node: str, *wanted: Location) -> None:
        self.assertEqual({names.data_lv(at.lv) for at in wanted},
                         set(self.cloud.nodes[node].group.volumes))


class MadeTest(RevertTestCase):

    def test_the_snapshot_is_on_another_node(self) -> None:
        snapshot = self.create()
        self.moved(self.b)
        former = self.cloud.row(self.volume).owner
        self.ask_back(snapshot)
        row = self.cloud.row(self.volume)
        self.assertEqual((self.b.name, 3, Location(self.a.name, self.lv)),
                         (row.node, row.generation, row.source))
        # It stays until the copy is complete.
        self.assertIn(names.data_lv(former.lv), self.b.group.volumes)
        self.cloud.settle()
        self.assert_content(base.DATA, self.b)
        self.assert_lvs(self.b.name, row.owner)
        at = self.assert_snapshot(snapshot)
        self.assertEqual(lv_tags.PastTag(3, self.volume, row.node, row.lv),
                         self.tags(at).past)
        self.assertEqual({}, self.b.initiator.records_)
        self.delete(snapshot)
        self.cloud.settle()
        self.assert_settled()

    def test_the_snapshot_is_on_the_same_node(self) -> None:
        snapshot = self.create()
        self.moved(self.a)
        self.ask_back(snapshot)
        self.cloud.settle()
        self.assert_content(base.DATA, self.a)
        self.delete(snapshot)
        self.cloud.settle()
        self.assert_settled()

    def test_what_is_written_then_is_no_matter_of_the_snapshot(self) -> None:
        snapshot = self.create()
        self.moved(self.b)
        self.ask_back(snapshot)
        self.moved(self.b, settle=False)
        self.cloud.settle()
        self.assert_snapshot(snapshot)
        self.assert_content(LATER, self.b)

    def test_nobody_wrote_since(self) -> None:
        snapshot = self.create()
        before = self.cloud.row(self.volume)
        self.ask_back(snapshot)
        self.assertEqual((before.owner, before.generation), (
            self.cloud.row(self.volume).owner,
            self.cloud.row(self.volume).generation))
        self.assert_lvs(self.a.name, before.owner)

    def test_it_hydrates_from_what_it_will_need_no_more(self) -> None:
        """Nobody waits for that, nor is it fetched."""
        snapshot = self.create()
        self.moved(self.b, settle=False)
        former = self.cloud.row(self.volume).owner
        self.ask_back(snapshot)
        self.cloud.tick()
        self.assertEqual([], [
            str(name) for name in self.b.mapper.mapped
            if name.startswith('dmclone-loan')])
        self.cloud.settle()
        self.assertNotIn(names.data_lv(former.lv), self.b.group.volumes)
        self.assert_content(base.DATA, self.b)

    def test_others_need_what_it_was(self) -> None:
        """It stays for them, and knows where the volume went."""
        snapshot = self.create()
        self.moved(self.b)
        former = self.cloud.row(self.volume).owner
        born = VolumeId('70000000-0000-4000-8000-00000000000b')
        self.cloud.db.volume(born, f'{self.a.name}#{cloud.POOL}')
        births.clone(self.a.service, born, self.volume)
        with mock.patch.object(self.a.mapper, 'hydrate'):
            self.ask_back(snapshot)
            self.cloud.settle()
            home = self.cloud.row(self.volume)
            self.assertEqual(
                lv_tags.PastTag(3, self.volume, home.node, home.lv),
                self.tags(former).past)
        self.cloud.db.update(born, status='available')
        self.cloud.settle()
        self.assertNotIn(names.data_lv(former.lv), self.b.group.volumes)


class RefusedTest(RevertTestCase):

    def test_requests_that_come_late(self) -> None:
        snapshot = self.create()
        self.moved(self.b)
        row = self.cloud.row(self.volume)
        found = self.found(snapshot)
        self.cloud.db.update(self.volume, status='reverting')
        self.cloud.db.update_snapshot(snapshot, status='restoring')
        db, other = self.cloud.db, self.cloud.create(self.a)
        changes: typing.Iterable[tuple[typing.Callable[[], None], str]] = (
            (lambda: db.update(self.volume, status='available'),
             'its status is available'),
            (lambda: db.update_snapshot(snapshot, status='available'),
             'status of the snapshot is available'),
            (lambda: db.update_snapshot(snapshot, provider_id='nonsense'),
             'nonsense'),
            (lambda: db.update_snapshot(snapshot, provider_id=None),
             'on no node'),
            (lambda: db.update_snapshot(snapshot, volume_id=other),
             'it is one of volume'),
            (lambda: db.update(self.volume, size=2), 'it has 2 GiB'),
            (lambda: db.drop_snapshot(snapshot), 'was deleted'))
        for change, reason in changes:
            with self.subTest(reason):
                db.update(self.volume, status='reverting', size=1)
                db.update_snapshot(
                    snapshot, status='restoring', volume_id=self.volume,
                    provider_id=found.provider_id)
                change()
                with self.assertRaisesRegex(exceptions.CannotRevert, reason):
                    reverts.revert(self.b.service, self.volume, snapshot)
                self.assertEqual('available',
                                 self.cloud.row(self.volume).status)
        self.assertEqual(row.owner, self.cloud.row(self.volume).owner)

    def test_somebody_has_it_without_an_attachment(self) -> None:
        snapshot = self.create()
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        self.cloud.forget(self.volume, attachment)
        with self.assertRaisesRegex(exceptions.CannotRevert, 'is in use'):
            self.ask_back(snapshot)
        self.a.mapper.close(path)
        self.assert_kept_with(snapshot)

    def assert_kept_with(self, snapshot: SnapshotId) -> None:
        self.assertEqual('available', self.cloud.row(self.volume).status)
        self.cloud.settle()
        self.assert_snapshot(snapshot)
        self.assert_content(base.DATA, self.a)

    def test_an_attachment(self) -> None:
        """Somebody has reset the status meanwhile: not even that is ours."""
        snapshot = self.create()
        self.moved(self.b)
        self.cloud.db.attachment(self.volume)
        with self.assertRaisesRegex(exceptions.CannotRevert, 'the attachment'):
            self.ask_back(snapshot)
        self.assertEqual('reverting', self.cloud.row(self.volume).status)

    def test_who_was_just_given_it_keeps_its_device(self) -> None:
        """Cinder has yet to write down who."""
        snapshot = self.create()
        self.moved(self.b)
        path = self.cloud.connect(
            self.volume, self.cloud.reserve(self.volume), self.b)
        with self.assertRaisesRegex(exceptions.CannotRevert, 'the attachment'):
            self.ask_back(snapshot)
        self.b.mapper.open(path)

    def test_the_lender_is_away(self) -> None:
        snapshot = self.create()
        self.moved(self.b)
        self.cloud.fate = lambda message: ports.Fate.LOST
        with self.assertRaises(exceptions.PeerUnreachable):
            self.ask_back(snapshot)
        self.assert_kept()
        self.assert_content(LATER, self.b)

    def test_the_answer_of_the_lender_is_lost(self) -> None:
        """It forgets the loan."""
        snapshot = self.create()
        self.moved(self.b)
        self.cloud.fate = lambda message: (
            ports.Fate.UNANSWERED if message.request == 'Lend'
            else ports.Fate.ARRIVES)
        with self.assertRaises(exceptions.PeerUnreachable):
            self.ask_back(snapshot)
        self.assert_kept()
        self.assertEqual({}, self.a.targets.exports)
        self.assert_content(LATER, self.b)

    def test_without_room(self) -> None:
        snapshot = self.create()
        self.moved(self.b)
        self.b.group.create(names.data_lv(self.lv), self.b.group.report().free,
                            [])
        with self.assertRaises(exceptions.NoRoom):
            self.ask_back(snapshot)
        self.assertEqual('available', self.cloud.row(self.volume).status)

    def test_once_more_before_it_has_hydrated(self) -> None:
        """Twice; what it was is gone when it has, all of it."""
        snapshot = self.create()
        self.moved(self.b)
        with mock.patch.object(self.b.mapper, 'hydrate'):
            for _ in range(2):
                self.ask_back(snapshot)
                self.cloud.settle(2)
            with self.assertRaisesRegex(exceptions.CannotRevert,
                                        'reverted 2 times'):
                self.ask_back(snapshot)
        self.cloud.db.update(self.volume, status='available')
        self.cloud.db.update_snapshot(snapshot, status='available')
        self.assertEqual(3, len([name for name in self.b.group.volumes
                                 if name.startswith('volume-')]))
        self.cloud.settle()
        self.assert_lvs(self.b.name, self.cloud.row(self.volume).owner)
        self.assert_content(base.DATA, self.b)

    def test_somebody_works_on_it(self) -> None:
        snapshot = self.create()
        self.moved(self.b)
        with self.b.process.world.locks.volume(self.volume, 0.0):
            with self.assertRaises(exceptions.VolumeLocked):
                self.ask_back(snapshot)
        self.assert_kept()

    def test_on_another_node_than_its_own(self) -> None:
        """What its home does with it is not disturbed."""
        snapshot = self.create()
        self.moved(self.b)
        with self.assertRaises(exceptions.NotHome):
            self.ask_back(snapshot, self.a)
        self.assertEqual('reverting', self.cloud.row(self.volume).status)

    def test_a_loan_whose_copy_is_being_made_is_no_riddle(self) -> None:
        """The node of the snapshot waits for it, and reports nothing."""
        snapshot = self.create()
        self.moved(self.b)
        with mock.patch.object(protocol, 'finish',
                               side_effect=self._look):
            with self.assertRaises(exceptions.CannotRevert):
                self.ask_back(snapshot)

    def _look(self, *rest: typing.Any) -> typing.NoReturn:
        self.a.process.loop.enqueue(self.lv)
        with mock.patch.object(reconciler.LOG, 'error') as reported:
            self.a.process.loop.run_once()
        reported.assert_not_called()
        raise exceptions.CannotRevert(volume=self.volume, node='b',
                                      reason='test')


class CopiesTest(RevertTestCase):

    hosts = ('a', 'b', 'c', 'd')

    def test_each_node_is_left_with_copies(self) -> None:
        """A revert makes nobody forget what the volume was before."""
        snapshot = self.create()
        with contextlib.ExitStack() as stack:
            for node in self.cloud.nodes.values():
                stack.enter_context(mock.patch.object(node.mapper, 'hydrate'))
            for node in (self.b, self.cloud.nodes['c@dmclone']):
                attachment, _ = self.cloud.attach(self.volume, node)
                self.cloud.detach(self.volume, attachment, node)
                self.ask_back(snapshot)
                self.cloud.settle(2)
            attachment = self.cloud.reserve(self.volume)
            with self.assertRaisesRegex(exceptions.CannotRelocate,
                                        'there are 3 copies of it already'):
                self.cloud.connect(self.volume, attachment,
                                   self.cloud.nodes['d@dmclone'])
            self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.cloud.attach(self.volume, self.cloud.nodes['d@dmclone'])


class UnknownTest(RevertTestCase):
    """The answer of the database to the commit is lost."""

    def setUp(self) -> None:
        super().setUp()
        self.snapshot = self.create()
        self.moved(self.b)
        self.former = self.cloud.row(self.volume).owner
        self.commit: typing.Callable[[], int] | None = None

    @contextlib.contextmanager
    def lost(self, before_withdrawal: bool = False) -> typing.Iterator[None]:
        def update(values: dict[str, typing.Any], *rest: typing.Any) -> int:
            if 'host' in values:
                self.commit = functools.partial(original, values, *rest)
                raise db_exc.DBConnectionError(Exception('gone away'))
            if self.commit and before_withdrawal:
                self.commit()
            return original(values, *rest)
        original = volumes.RowStore._update_once
        with mock.patch.object(volumes.RowStore, '_update_once',
                               staticmethod(update)):
            yield

    def test_it_comes_too_late(self) -> None:
        with self.lost(), self.assertRaises(exceptions.RowChanged):
            self.ask_back(self.snapshot)
        assert self.commit
        self.assertEqual(0, self.commit())
        self.assert_kept()
        self.assert_content(LATER, self.b)

    def test_it_comes_before_it_is_taken_back(self) -> None:
        with self.lost(before_withdrawal=True):
            self.ask_back(self.snapshot)
        self.cloud.settle()
        self.assert_content(base.DATA, self.b)
        self.assertNotEqual(self.former, self.cloud.row(self.volume).owner)

    def test_the_database_stays_away(self) -> None:
        """The row decides when it is back; the status is Cinder's."""
        def update(values: dict[str, typing.Any], *rest: typing.Any) -> int:
            if 'host' in values:
                away.enter_context(self.cloud.db.away())
            return original(values, *rest)
        original = volumes.RowStore._update_once
        with contextlib.ExitStack() as away, mock.patch.object(
                volumes.RowStore, '_update_once', staticmethod(update)):
            with self.assertRaises(exceptions.DatabaseAway):
                self.ask_back(self.snapshot)
        self.assertEqual('reverting', self.cloud.row(self.volume).status)
        self.b.process.loop.enqueue(self.volume)
        self.cloud.settle()
        self.assert_kept('reverting')
        self.assert_content(LATER, self.b)

    def test_the_node_dies_after_the_commit(self) -> None:
        with mock.patch.object(birth, 'adopt', side_effect=KeyError):
            with self.assertRaises(KeyError):
                self.ask_back(self.snapshot)
        self.b.lose_power()
        self.b.start()
        self.cloud.settle()
        self.cloud.db.update(self.volume, status='available')
        self.assert_content(base.DATA, self.b)
        self.assert_lvs(self.b.name, self.cloud.row(self.volume).owner)
