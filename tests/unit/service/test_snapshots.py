# SPDX-License-Identifier: Apache-2.0
"""A snapshot is made, and goes, whatever its volume does."""

from __future__ import annotations

import typing
from unittest import mock

from oslo_db import exception as db_exc

from cinder_dmclone.database import changes
from cinder_dmclone.database import snapshots as records
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import SnapshotId
from cinder_dmclone import names
from cinder_dmclone.reconcile import activation
from cinder_dmclone.releases import models
from cinder_dmclone.relocation import pins
from cinder_dmclone.service import snapshots
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from tests.unit import base
from tests.unit.fake import cloud


class SnapshotTestCase(base.CloudTestCase):

    def ask(self, status: str = 'creating') -> SnapshotId:
        return self.cloud.db.snapshot(self.volume, status)

    def create(self, node: cloud.Node | None = None) -> SnapshotId:
        """What the manager on a node, or on the volume's, does."""
        snapshot = self.ask()
        node = node or self.cloud.home(self.volume)
        snapshots.create(node.service, self.volume, snapshot)
        self.cloud.db.update_snapshot(snapshot, status='available')
        return snapshot

    def delete(self, snapshot: SnapshotId,
               node: cloud.Node | None = None) -> None:
        self.cloud.db.update_snapshot(snapshot, status='deleting')
        node = node or self.cloud.home(self.volume)
        snapshots.delete(node.service, self.volume, snapshot)
        self.cloud.db.drop_snapshot(snapshot)

    def found(self, snapshot: SnapshotId) -> records.SnapshotRow:
        row = records.SnapshotStore().get(snapshot)
        assert row
        return row

    def tags(self, at: Location) -> lv_tags.Tags:
        node = self.cloud.nodes[at.node]
        return lv_tags.Tags.parse(
            node.group.volumes[names.data_lv(at.lv)].tags)

    def assert_snapshot(self, snapshot: SnapshotId,
                        data: typing.Sequence[str] = base.DATA) -> Location:
        """It is where its row says, durably, and holds these data."""
        at = self.found(snapshot).at
        assert at
        self.assertIn(snapshot, [tag.snapshot for tag in self.tags(at).snaps])
        lv = self.cloud.nodes[at.node].group.volumes[names.data_lv(at.lv)]
        self.assertEqual(list(data), [lv.durable.get(region)
                                      for region in range(len(data))])
        return at

    def detached(self, node: cloud.Node) -> None:
        attachment, _ = self.cloud.attach(self.volume, node)
        self.cloud.detach(self.volume, attachment, node)


class RestTest(SnapshotTestCase):
    """Nobody uses the volume."""

    def test_a_request_that_comes_twice(self) -> None:
        """Cinder makes one an error of which it is told one."""
        snapshot = self.create()
        before = self.found(snapshot)
        self.cloud.attach(self.volume, self.b)
        for node in (self.a, self.b):
            snapshots.create(node.service, self.volume, snapshot)
        self.assertEqual(before, self.found(snapshot))
        self.assert_snapshot(snapshot)

    def test_a_pin_moves_nothing(self) -> None:
        row = self.cloud.row(self.volume)
        snapshot = self.create()
        self.assertEqual(row.owner, self.assert_snapshot(snapshot))
        self.assertEqual(row, self.cloud.row(self.volume))
        self.assertEqual({names.data_lv(LvUuid(self.volume))},
                         set(self.a.group.volumes))

    def test_a_node_with_snapshots_sleeps(self) -> None:
        self.create()
        self.cloud.settle()
        before = len(self.cloud.calls)
        for _ in range(20):
            self.cloud.tick()
        self.assertEqual(before, len(self.cloud.calls))

    def test_it_goes_without_a_trace(self) -> None:
        self.delete(self.create())
        self.cloud.settle()
        self.assert_settled()

    def test_two_of_one_lv(self) -> None:
        first, second = self.create(), self.create()
        self.delete(first)
        self.cloud.settle()
        self.assert_snapshot(second)
        self.delete(second)
        self.cloud.settle()
        self.assert_settled()

    def test_a_repeated_request_changes_nothing(self) -> None:
        snapshot = self.ask()
        for _ in range(2):
            snapshots.create(self.a.service, self.volume, snapshot)
        self.assert_snapshot(snapshot)

    def test_a_request_that_comes_too_late(self) -> None:
        for status in ('error', 'deleting', 'available'):
            with self.subTest(status):
                snapshot = self.ask(status)
                self.assertRaises(
                    exceptions.CannotSnapshot, snapshots.create,
                    self.a.service, self.volume, snapshot)
                self.assertIsNone(self.found(snapshot).provider_id)
                self.cloud.db.drop_snapshot(snapshot)
        self.assert_settled()

    def test_a_volume_that_migrates(self) -> None:
        self.cloud.db.update(self.volume, migration_status='migrating')
        with self.assertRaisesRegex(exceptions.CannotSnapshot, 'migrating'):
            self.create()

    def test_a_front_of_a_snapshot_is_never_made(self) -> None:
        """The volume goes on in another LV."""
        snapshot = self.create()
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        self.a.mapper.write(path, 0, 'later')
        at = self.assert_snapshot(snapshot)
        self.assertNotEqual(at, self.cloud.row(self.volume).owner)
        self.cloud.settle()
        self.assert_snapshot(snapshot)
        self.assert_data(self.a, path, ['later', *base.DATA[1:]])
        self.assertIsNotNone(self.tags(at).past)

    def test_a_boot_without_the_database(self) -> None:
        """What was a snapshot last is not taken for the volume."""
        snapshot = self.create()
        self.detached(self.b)
        self.cloud.settle()
        self.assert_snapshot(snapshot)
        self.a.lose_power()
        self.a.up = True
        process = self.a.make_process()
        self.a.process = process
        with self.cloud.db.away():
            activation.activate(process.world)
        self.assertEqual({}, self.a.mapper.mapped)


class MovedTest(SnapshotTestCase):
    """The volume goes, the snapshot stays."""

    def test_the_old_copy_is_the_snapshot(self) -> None:
        snapshot = self.create()
        _, path = self.relocated()
        self.assert_data(self.b, path)
        self.cloud.settle()
        at = self.assert_snapshot(snapshot)
        self.assertEqual(self.a.name, at.node)
        past = self.tags(at).past
        assert past
        self.assertEqual(((), self.cloud.row(self.volume).lv),
                         (self.tags(at).lent, past.lv))

    def test_it_goes_when_the_snapshot_does(self) -> None:
        snapshot = self.create()
        self.relocated()
        self.cloud.settle()
        self.delete(snapshot)
        self.cloud.settle()
        self.assert_settled()

    def test_it_goes_while_the_volume_hydrates(self) -> None:
        """What is lent stays until the borrower has it."""
        snapshot = self.create()
        _, path = self.relocated()
        self.delete(snapshot)
        self.a.process.loop.run_once(everything=True)
        self.assert_data(self.b, path)
        self.cloud.settle()
        self.assert_settled()

    def test_a_node_that_was_away_finds_it_when_it_starts(self) -> None:
        snapshot = self.create()
        self.relocated()
        self.cloud.settle()
        self.a.lose_power()
        self.delete(snapshot)
        self.cloud.late.clear()
        self.cloud.restart()
        self.cloud.settle()
        self.assert_settled()

    def test_and_once_a_day(self) -> None:
        snapshot = self.create()
        self.relocated()
        self.cloud.settle()
        self.delete(snapshot)
        self.cloud.late.clear()
        self.cloud.settle()
        self.assertEqual(1, len(self.a.group.volumes))
        self.a.process.loop.run_once(everything=True)
        self.cloud.settle()
        self.assert_settled()

    def test_the_request_reaches_the_old_node(self) -> None:
        """H15: the volume has moved while it waited."""
        self.detached(self.b)
        snapshot = self.create(self.a)
        self.cloud.settle()
        self.assertEqual(self.b.name, self.assert_snapshot(snapshot).node)

    def test_the_deletion_reaches_the_old_node(self) -> None:
        snapshot = self.create()
        self.detached(self.b)
        self.cloud.settle()
        self.delete(snapshot, self.a)
        self.cloud.settle()
        self.assert_settled()

    def test_the_volume_is_deleted_first(self) -> None:
        """With its snapshots, as Cinder does: in one transaction."""
        self.create()
        self.detached(self.b)
        self.create()
        self.cloud.settle()
        for found in records.SnapshotStore().find(
                [row.id for row in self.cloud.db.all(models.Snapshot)
                 if row.volume_id == self.volume]):
            self.delete(found.id)
        self.cloud.delete(self.volume)
        self.cloud.settle()
        for node in self.cloud.nodes.values():
            self.assert_clean(node, set())

    def test_only_the_database_was_told(self) -> None:
        """The rows are gone, and no node was asked to delete anything."""
        self.create()
        self.detached(self.b)
        self.create()
        self.cloud.settle()
        self.cloud.db.destroy(self.volume)
        self.cloud.settle()
        for node in self.cloud.nodes.values():
            self.assertEqual(1, len(node.group.volumes))
            node.process.loop.run_once(everything=True)
        self.cloud.settle()
        for node in self.cloud.nodes.values():
            self.assert_clean(node, set())

    def test_a_restored_database_is_noticed(self) -> None:
        """All that is left of the volume's past is what was pinned."""
        self.create()
        before = self.cloud.row(self.volume)
        attachment, _ = self.relocated()
        self.cloud.settle()
        self.cloud.forget(self.volume, attachment)
        self.cloud.db.update(self.volume, host=before.host, _name_id=None,
                             provider_id=before.provider_id)
        with self.assertRaisesRegex(exceptions.CannotServe, 'back in time'):
            self.cloud.attach(self.volume, self.a)


class WriterTest(SnapshotTestCase):
    """A server writes: the volume is cut."""

    def test_what_was_written_before_is_in_it(self) -> None:
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        self.a.mapper.write(path, 0, 'before')
        snapshot = self.create()
        self.a.mapper.write(path, 0, 'after')
        self.assert_snapshot(snapshot, ['before', *base.DATA[1:]])
        self.cloud.settle()
        self.assert_snapshot(snapshot, ['before', *base.DATA[1:]])
        self.assert_data(self.a, path, ['after', *base.DATA[1:]])

    def test_a_server_that_is_stopped(self) -> None:
        """It asks nobody when it starts."""
        self.cloud.attach(self.volume, self.a)
        snapshot = self.create()
        at = self.assert_snapshot(snapshot)
        self.assertNotEqual(at, self.cloud.row(self.volume).owner)

    def test_a_live_migration_comes_first(self) -> None:
        """Its end needs the lock."""
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        attachment, _ = self.cloud.migrate(self.volume, self.b)

        def end(seconds: float) -> None:
            self.cloud.forget(self.volume, attachment)
            self.cloud.db.update(self.volume, status='in-use')
            self.a.process.loop.run_once(everything=True)
        snapshot = self.ask()
        with mock.patch.object(self.cloud.clock, 'sleep', end):
            snapshots.create(self.a.service, self.volume, snapshot)
        self.assert_snapshot(snapshot)

    def test_a_live_migration_that_does_not_end(self) -> None:
        self.cloud.attach(self.volume, self.a)
        self.cloud.migrate(self.volume, self.b)
        snapshot = self.ask()
        self.assertRaises(exceptions.LiveMigrated, snapshots.create,
                          self.a.service, self.volume, snapshot)
        self.assertIsNone(self.found(snapshot).provider_id)


class DoubtTest(SnapshotTestCase):
    """What came of a pin is not known."""

    later: typing.Callable[[], int]

    def lose(self, carried_out: bool) -> typing.Any:
        def make(*arguments: changes.Change) -> int:
            if arguments[0].model is models.Snapshot:
                self.later = lambda: original(*arguments)
                if carried_out:
                    original(*arguments)
                raise db_exc.DBConnectionError(Exception('gone away'))
            return original(*arguments)
        original = changes.make
        return mock.patch.object(changes, 'make', make)

    def test_it_was_not_made(self) -> None:
        snapshot = self.ask()
        with self.lose(False):
            self.assertRaises(exceptions.DatabaseAway, snapshots.create,
                              self.a.service, self.volume, snapshot)
        self.assertEqual(1, len(self.tags(
            self.cloud.row(self.volume).owner).snaps))
        self.cloud.db.update_snapshot(snapshot, status='error')
        self.cloud.settle()
        self.assert_settled()

    def test_it_comes_when_nobody_expects_it(self) -> None:
        """What was undone cannot be made any more."""
        snapshot = self.ask()
        with self.lose(False):
            self.assertRaises(exceptions.DatabaseAway, snapshots.create,
                              self.a.service, self.volume, snapshot)
        self.cloud.settle()
        self.assertEqual(0, self.later())
        self.assertIsNone(self.found(snapshot).at)
        self.assert_settled()

    def test_it_comes_before_it_is_undone(self) -> None:
        snapshot = self.ask()
        with self.lose(False):
            self.assertRaises(exceptions.DatabaseAway, snapshots.create,
                              self.a.service, self.volume, snapshot)
        self.assertEqual(1, self.later())
        self.cloud.settle()
        self.assert_snapshot(snapshot)

    def test_a_server_does_not_wait_for_the_reconciler(self) -> None:
        snapshot = self.ask()
        with self.lose(False):
            self.assertRaises(exceptions.DatabaseAway, snapshots.create,
                              self.a.service, self.volume, snapshot)
        row = self.cloud.row(self.volume)
        _, path = self.cloud.attach(self.volume, self.a)
        self.assert_data(self.a, path)
        self.assertEqual(row.owner, self.cloud.row(self.volume).owner)

    def test_what_no_row_knows_is_kept(self) -> None:
        """Row 32: a database that was restored to before the snapshot."""
        snapshot = self.create()
        self.relocated()
        self.cloud.settle()
        with mock.patch.object(records.SnapshotStore, '_query',
                               return_value=[]):
            self.a.process.loop.run_once(everything=True)
            self.cloud.settle()
        self.assert_snapshot(snapshot)

    def test_a_mark_alone_bars_a_front(self) -> None:
        """The manager dies between the tag and the row."""
        snapshot = self.ask()
        row = self.cloud.row(self.volume)
        pins.mark(self.a.process.world, row.lv, records.Pin(
            self.found(snapshot), row.owner))
        stack = inspect.refresh(self.a.process.world.host, row.lv)
        self.assertTrue(stack.frozen(None))
        self.assertFalse(stack.in_flight)
