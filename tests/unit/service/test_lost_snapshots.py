# SPDX-License-Identifier: Apache-2.0
"""A snapshot that the database does not know ends when an operator says so.
"""

from __future__ import annotations

import contextlib
import typing
from unittest import mock

from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import SnapshotId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.releases import models
from cinder_dmclone.service import snapshots
from cinder_dmclone.stack import lv_tags
from tests.unit.fake import cloud
from tests.unit.service import test_releasing

NOWHERE = LvUuid('07e40000-0000-4000-8000-000000000000')


class LostSnapshotTestCase(test_releasing.ReleaseTestCase):
    """The volume on a has a snapshot, of which nobody knows any more."""

    def setUp(self) -> None:
        super().setUp()
        self.snapshot = self.create()
        self.cloud.db.purge(models.Snapshot, self.snapshot)

    def create(self) -> SnapshotId:
        found = self.cloud.db.snapshot(self.volume, 'creating')
        home = self.cloud.home(self.volume)
        snapshots.create(home.service, self.volume, found)
        self.cloud.db.update_snapshot(found, status='available')
        return found

    def forget(self, record: str = '') -> messages.Plan:
        return self.b.process.world.peers.ask(
            self.a.name, messages.Forget(self.lv, record))


class AtHomeTest(LostSnapshotTestCase):
    """The volume is still there."""

    def test_a_plan_changes_nothing(self) -> None:
        before = self.state()
        plan = self.ask()
        self.assertEqual(
            f'LV volume-{self.lv} on a@dmclone is no more snapshot '
            f'{self.snapshot}, of which the database knows nothing. It stays '
            f'volume {self.volume}.', plan.does)
        self.assertEqual([f'snapshot {self.snapshot} of volume {self.volume},'
                          ' 1073741824 bytes'], plan.gives_up)
        self.assertEqual(before, self.state())

    def test_the_volume_is_written_where_it_is(self) -> None:
        self.release()
        self.assertEqual((), self.tags().snaps)
        _, path = self.cloud.attach(self.volume, self.a)
        self.assert_data(self.a, path)
        self.cloud.settle()
        self.assert_settled()

    def test_one_that_the_database_knows_stays(self) -> None:
        known = self.create()
        self.release()
        self.assertEqual([known],
                         [tag.snapshot for tag in self.tags().snaps])
        with self.refused(f'it is snapshot {known}, as its row says'):
            self.ask()

    def test_one_that_was_deleted_goes_by_itself(self) -> None:
        known = self.create()
        self.release()
        self.cloud.db.drop_snapshot(known)
        with self.refused('knows what is to become of snapshot'):
            self.ask()

    def test_a_database_that_went_back_in_time(self) -> None:
        """It may have known the snapshot before."""
        own = self.tags().own
        assert own
        self.a.group.retag(names.data_lv(self.lv), add=[
            lv_tags.print_tag(lv_tags.OwnTag(4, self.volume))],
            remove=[lv_tags.print_tag(own)])
        self.a.group.flush()
        with self.refused('may have known snapshot'):
            self.ask()

    def test_an_empty_database(self) -> None:
        self.down.add(self.a.name)
        with self.refused('it may be the wrong one'):
            self.ask()

    def test_the_row_is_there_again(self) -> None:
        """Of a database that was restored between the plan and the deed."""
        record = self.ask().record
        self.cloud.db.snapshot(self.volume, id=self.snapshot,
                               provider_id=f'1;at=a@dmclone/{self.lv}')
        with self.refused('as its row says'):
            self.ask(record)

    def test_a_crash_at_each_step(self) -> None:
        record, reached = self.ask().record, []
        for step in range(20):
            left = [step]

            def crash(call: typing.Any) -> None:
                if call.node == self.a.name and not call.reads:
                    left[0] -= 1
                    if left[0] == -1:
                        reached.append(call.method)
                        self.a.lose_power()
            self.cloud.before = crash
            with contextlib.suppress(exceptions.PeerUnreachable):
                self.ask(record)
            self.cloud.before = lambda call: None
            if left[0] >= 0:
                break
            self.a.start()
            self.assertEqual(1, len(self.tags().snaps))
        self.assertIn('retag', reached)
        self.assertEqual((), self.tags().snaps)
        _, path = self.cloud.attach(self.volume, self.a)
        self.assert_data(self.a, path)


class ElsewhereTest(LostSnapshotTestCase):
    """The snapshot has a row, which says that it is another LV."""

    def row(self, at: Location) -> None:
        self.cloud.db.snapshot(self.volume, id=self.snapshot,
                               provider_id=f'1;at={at}')

    def other(self, node: cloud.Node) -> Location:
        return Location(node.name, LvUuid(self.cloud.create(node)))

    def test_that_is_there(self) -> None:
        for node in (self.a, self.b):
            with self.subTest(node.name):
                self.row(self.other(node))
                self.assertIn(f'which is {node.name}/', self.ask().does)
                self.cloud.db.purge(models.Snapshot, self.snapshot)
        self.row(self.other(self.b))
        self.release()
        self.assertEqual((), self.tags().snaps)

    def test_that_is_not_there(self) -> None:
        for node in (self.a, self.b):
            with self.subTest(node.name):
                self.row(Location(node.name, NOWHERE))
                with self.refused('not there: if it is this LV, '
                                  '"cinder-dmclone adopt"'):
                    self.ask()
                self.cloud.db.purge(models.Snapshot, self.snapshot)

    def test_whose_node_does_not_answer(self) -> None:
        self.row(self.other(self.b))
        self.lose(self.b)
        with self.refused('b@dmclone did not answer'):
            self.others[0].process.world.peers.ask(
                self.a.name, messages.Release(self.lv, ''))

    def test_that_the_database_does_not_name(self) -> None:
        self.cloud.db.snapshot(self.volume, id=self.snapshot)
        with self.refused('knows what is to become'):
            self.ask()


class MovedTest(LostSnapshotTestCase):
    """The volume has left the LV, which is kept for the snapshot alone."""

    def setUp(self) -> None:
        super().setUp()
        attachment, _ = self.cloud.attach(self.volume, self.b)
        self.cloud.settle()
        self.cloud.detach(self.volume, attachment, self.b)
        self.cloud.settle()
        self.assertIsNotNone(self.tags().past)

    def test_it_is_deleted(self) -> None:
        self.assertIn('nobody else needs it, it is deleted if',
                      self.release().does)
        self.cloud.settle()
        self.assert_settled()

    def test_at_a_boot_it_is_not_taken_for_the_volume(self) -> None:
        self.release()
        self.assertTrue(self.tags().bars_front or not self.tags().own)

    def test_its_volume_was_purged(self) -> None:
        self.cloud.db.purge(models.Volume, self.volume)
        self.assertIn('until it is forgotten', self.release().does)
        self.assertTrue(self.tags().bars_front)
        self.forget(self.forget().record)
        self.a.process.loop.run_once(everything=True)
        self.assertEqual({}, self.a.group.volumes)

    def lose_past(self) -> None:
        past = self.tags().past
        assert past
        self.a.group.retag(names.data_lv(self.lv),
                           remove=[lv_tags.print_tag(past)])
        self.a.group.flush()

    def test_where_the_volume_went_is_not_known(self) -> None:
        """Without its last tag it would be the volume at a boot."""
        self.lose_past()
        with self.refused('where its volume went is not known'):
            self.ask()
        plan = self.forget()
        self.assertIn(f'snapshot {self.snapshot} of volume {self.volume}, of '
                      'which the database knows nothing', plan.gives_up)
        self.forget(plan.record)
        self.cloud.settle()
        self.assert_settled()

    def test_it_is_forgotten_and_the_row_comes_back(self) -> None:
        """Of a database that was restored before it was deleted."""
        with mock.patch.object(type(self.a.process.loop), 'run_once'):
            self.forget(self.forget().record)
        self.cloud.db.snapshot(self.volume, id=self.snapshot,
                               provider_id=f'1;at=a@dmclone/{self.lv}')
        self.cloud.settle()
        self.assertIn(names.data_lv(self.lv), self.a.group.volumes)
        decision, _ = self.a.process.loop.judge(self.lv, self.volume)
        self.assertEqual((Verdict.REPORT, 'it was forgotten by an operator, '
                          'and others need it'),
                         (decision.step, decision.why))
