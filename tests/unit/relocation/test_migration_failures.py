# SPDX-License-Identifier: Apache-2.0
"""Live migrations that fail, and crashes while they run."""

from __future__ import annotations

import typing
from unittest import mock

from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import table
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import offers
from cinder_dmclone.reconcile import schedule
from cinder_dmclone.releases import models
from cinder_dmclone.service import connections
from cinder_dmclone.service import endpoint
from oslo_db import exception as db_exc
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import mapped
from tests.unit.fake import ports
from tests.unit import migration


class FailureTest(migration.MigrationTestCase):
    """Migrations that Nova gives up, and what it forgets to say."""

    def undo(self) -> None:
        """A rollback: the server runs on a, as if nothing had been."""
        self.b.mapper.close(self.new)
        connections.disconnect(self.a.service, self.volume, self.b.connector)
        self.cloud.db.drop_attachment(self.second)

    def assert_unmoved_and_open(self) -> None:
        self.cloud.settle()
        self.assert_home(self.a)
        self.write(self.a, self.old, 2)
        self.assert_settled(self.data)

    def test_rollback(self) -> None:
        self.migrate()
        self.undo()
        self.assert_unmoved_and_open()
        self.migrate()
        self.switch()
        self.leave()
        self.assert_migrated()

    def test_a_volume_that_was_put_into_a_group_meanwhile(self) -> None:
        """Cinder deletes the volumes of a group on the group's node alone."""
        self.migrate()
        self.cloud.db.update(self.volume, group_id='group of a')
        self.switch()
        self.assert_home(self.b)
        volume, = self.cloud.db.all(models.Volume)
        self.assertIsNone(volume.group_id)

    def test_rollback_with_a_write_held(self) -> None:
        """H13: it was never acknowledged, so it may be forgotten."""
        self.migrate()
        self.held(self.b, self.new)
        self.undo()
        self.assert_unmoved_and_open()

    def test_no_commit_after_the_rollback(self) -> None:
        self.migrate()
        self.held(self.b, self.new)
        # The destination's server still runs.
        connections.disconnect(self.a.service, self.volume, self.b.connector)
        self.cloud.db.drop_attachment(self.second)
        self.event(self.b, self.new)
        self.assert_home(self.a)
        self.b.mapper.close(self.new)
        self.assert_unmoved_and_open()

    def test_server_left_behind_on_a_copy_that_was_withdrawn(self) -> None:
        """One that waited in a read could not even be ended."""
        self.withdrawn()

    def test_nobody_tells_that_a_copy_was_withdrawn(self) -> None:
        """The same is found by a look."""
        self.fates('Discard', ports.Fate.LOST)
        self.withdrawn()

    def withdrawn(self) -> None:
        self.migrate()
        connections.disconnect(self.a.service, self.volume, self.b.connector)
        self.cloud.db.drop_attachment(self.second)
        self.cloud.settle(3)
        self.cloud.lose_paths()
        with self.assertRaises(mapped.Failed):
            self.b.mapper.read(self.new, 5)
        self.b.mapper.close(self.new)
        self.assert_unmoved_and_open()

    def lose(self) -> str:
        """A request whose answer Nova did not get; its attachment."""
        lost = self.cloud.db.attachment(self.volume)
        self.cloud.connect(self.volume, lost, self.b)
        return lost

    def test_second_try_after_a_lost_answer(self) -> None:
        lost = self.lose()
        self.migrate()
        self.switch()
        self.leave()
        self.cloud.detach(self.volume, lost, self.b)
        self.assert_migrated()

    def test_second_try_to_a_node_that_the_first_has_filled(self) -> None:
        lost = self.lose()
        self.b.group.size -= self.b.group.report().free
        self.migrate()
        self.switch()
        self.leave()
        self.cloud.detach(self.volume, lost, self.b)
        self.assert_migrated()

    def test_end_of_the_old_attachment_asks_for_no_room(self) -> None:
        self.migrate()
        self.b.group.size -= self.b.group.report().free
        self.leave()
        self.assert_migrated()

    def test_second_try_of_a_server_that_never_writes(self) -> None:
        """The attachment that is complete counts."""
        self.lose()
        self.migrate()
        self.leave()
        self.cloud.settle()
        self.assert_home(self.b)

    def test_lost_attachment_deleted_during_the_second_try(self) -> None:
        lost = self.lose()
        self.migrate()
        self.cloud.detach(self.volume, lost, self.b)
        self.switch()
        self.leave()
        self.assert_migrated()

    def test_old_attachment_deleted_while_the_server_is_here(self) -> None:
        """Nova's hard reboot after a rollback that was lost."""
        self.migrate()
        with self.assertRaises(exceptions.ServerHere) as caught:
            connections.disconnect(self.a.service, self.volume,
                                   self.a.connector)
        self.assertIn(f'attachment on {self.b.name} that has to go',
                      caught.exception.msg)
        self.assert_home(self.a)
        self.write(self.a, self.old)

    def test_destination_detached_after_the_commit(self) -> None:
        """H13: an ordinary detach, never a way back to old data."""
        self.migrate()
        self.switch()
        self.b.mapper.close(self.new)
        connections.disconnect(self.b.service, self.volume, self.b.connector)
        self.cloud.db.drop_attachment(self.second)
        self.leave()
        self.cloud.settle()
        self.assert_home(self.b)
        self.assert_settled(self.data)

    def test_source_detached_after_the_commit(self) -> None:
        self.migrate()
        self.switch()
        self.leave()
        self.assert_migrated()

    def test_forced_detach_of_everything(self) -> None:
        self.migrate()
        service = self.a.service
        with self.assertRaises(exceptions.DeviceBusy):
            connections.disconnect(service, self.volume, None)
        self.a.mapper.close(self.old)
        self.b.mapper.close(self.new)
        connections.disconnect(service, self.volume, None)
        for attachment in (self.first, self.second):
            self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_unmoved()

    def test_attachment_that_nova_never_knew(self) -> None:
        """H23: the request timed out; Cinder leaves the attachment."""
        attachment = self.cloud.db.attachment(self.volume)
        connections.connect(self.a.service, self.volume, self.b.connector)
        self.cloud.settle(3)
        self.assertIsNotNone(self.cloud.row(self.volume).offer)
        self.cloud.clock.sleep(offers.OFFER_SECONDS)
        self.a.process.loop.enqueue(self.volume)
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(self.volume).offer)
        self.assert_unmoved_and_open()
        # It does not stand in the way of the next try.
        self.migrate()
        self.switch()
        self.assert_home(self.b)
        self.cloud.db.drop_attachment(attachment)

    def test_detach_of_a_former_attachment(self) -> None:
        """Its request waited for long; the migration goes on."""
        self.migrate()
        connections.disconnect(self.a.service, self.volume, self.c.connector)
        self.switch()
        self.leave()
        self.assert_migrated()

    def test_another_node_while_one_is_offered(self) -> None:
        self.migrate()
        with self.assertRaisesRegex(exceptions.DMCloneException,
                                    'attachment'):
            self.cloud.migrate(self.volume, self.c)

    def test_lender_away_at_the_first_write(self) -> None:
        """The write waits, then goes on."""
        self.migrate()
        self.held(self.b, self.new)
        self.a.kill()
        self.event(self.b, self.new)
        self.cloud.settle(3)
        self.assert_home(self.a)
        self.held(self.b, self.new)
        self.a.start()
        self.cloud.settle(3)
        self.write(self.b, self.new)
        self.leave()
        self.assert_migrated()

    def adopted_with_a_read_that_waits(self) -> mapped.Mapped:
        """The lender is away since the commit; returns the front."""
        self.migrate()
        self.held(self.b, self.new)
        front = self.b.mapper.mapped[self.new.rpartition('/')[2]]

        def after(call: ports.Call) -> None:
            if call.method == 'commit':
                self.cloud.partition(self.a, self.b)
                front.stuck = 1
        self.cloud.after = after
        self.event(self.b, self.new)
        self.cloud.settle(5)
        self.assert_home(self.b)
        self.write(self.b, self.new)
        return front

    def test_read_that_waits_when_the_copy_is_adopted(self) -> None:
        """It keeps the front from being led past the gate, nothing else."""
        front = self.adopted_with_a_read_that_waits()
        self.cloud.heal()
        self.cloud.settle(3)
        source, = (found for name, found in self.b.mapper.mapped.items()
                   if '-source-' in name)
        self.assertFalse(source.path_failed)
        front.stuck = 0
        self.leave()
        self.assert_migrated()

    def test_read_that_waits_in_the_session(self) -> None:
        """It is not tried to lead the front past the gate again and again."""
        # No read has failed: dm-multipath knows of nothing.
        with mock.patch.object(self.cloud, 'lose_paths'):
            front = self.adopted_with_a_read_that_waits()
        before = len(self.cloud.calls)
        self.cloud.settle(5)
        self.assertNotIn(front.name, [
            call.arguments[0] for call in self.cloud.calls[before:]
            if call.method == 'apply'])
        self.cloud.heal()
        front.stuck = 0
        self.cloud.settle(3)
        self.leave()
        self.assert_migrated()

    def test_server_left_behind_on_a_lender(self) -> None:
        """H18: neither its lender nor its borrower may wait for its end."""
        self.migrate()
        self.switch()
        self.leave()
        third, path = self.cloud.migrate(self.volume, self.c)
        self.c.mapper.open(path)
        self.held(self.c, path)
        self.event(self.c, path)
        self.write(self.c, path)
        self.cloud.settle(2)
        self.a.lose_power()
        self.cloud.lose_paths()
        self.b.process.loop.enqueue_all()
        self.cloud.settle(4)
        source, = (found for name, found in self.b.mapper.mapped.items()
                   if '-source-' in name)
        self.assertFalse(source.table.queues)
        self.a.start()
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(self.volume).source)
        front = self.b.mapper.mapped[self.new.rpartition('/')[2]]
        self.assertTrue(front.table.has(table.Error))
        self.b.mapper.close(self.new)
        self.cloud.detach(self.volume, self.second, self.b)
        self.cloud.settle()
        self.assert_settled(self.data)

    def test_commit_whose_answer_comes_late(self) -> None:
        """H10: the other node has finished before it is read back."""
        self.migrate()
        original = volumes.RowStore._update_once

        def update(values: dict[str, typing.Any], *rest: typing.Any) -> int:
            count = original(values, *rest)
            if 'host' in values:
                for _ in range(10):
                    self.cloud.clock.sleep(schedule.LATEST)
                    self.b.mapper.hydrate(8)
                    self.b.process.loop.run_once(everything=True)
                self.assertIsNone(self.cloud.row(self.volume).source)
                raise db_exc.DBConnectionError(Exception('gone away'))
            return count
        self.held(self.b, self.new)
        with mock.patch.object(volumes.RowStore, '_update_once',
                               staticmethod(update)):
            offer = self.cloud.row(self.volume).offer
            assert offer
            endpoint.answer(self.a.service, messages.HandOver(
                self.volume, offer, 'pool'))
        with self.assertRaises((mapped.Queued, mapped.Failed)):
            self.a.mapper.write(self.old, 3, 'on a stale copy')
        self.write(self.b, self.new)
        self.leave()
        self.assert_migrated()

    def _lose_the_database_at_the_commit(self) -> None:
        self.migrate()
        self.cloud.settle()
        self.held(self.b, self.new)

        def cut(call: ports.Call) -> None:
            if call.method == 'commit':
                self.cloud.db._away = True
        self.cloud.before = cut
        self.event(self.b, self.new)
        self.held(self.a, self.old)
        self.cloud.before = lambda call: None
        self.cloud.db._away = False

    def test_database_away_at_the_commit(self) -> None:
        self._lose_the_database_at_the_commit()
        self.cloud.settle(3)
        self.assert_home(self.b)
        self.write(self.b, self.new)
        self.leave()
        self.assert_migrated()

    def test_database_away_at_the_commit_and_the_other_node_too(
            self) -> None:
        """The server here does not wait for what nobody asks for again."""
        self._lose_the_database_at_the_commit()
        self.b.kill()
        self.cloud.tick()
        self.cloud.tick()
        self.assert_home(self.a)
        self.write(self.a, self.old, 2)


class CrashTest(migration.MigrationTestCase):
    """A crash of either node before every change of a migration."""

    def changes(self) -> int:
        """How many changes a migration makes that is not disturbed."""
        return self.run_until(None, lambda node: None)

    def run_until(self, at: int | None, crash: typing.Callable[
            [cloud.Node], None]) -> int:
        seen = 0

        def count(call: ports.Call) -> None:
            nonlocal seen
            if call.reads or call.port == 'locks':
                return
            seen += 1
            if seen == at:
                crash(self.cloud.nodes[call.node])
        self.cloud.before = count
        try:
            self.attempt()
        except (ports.Killed, exceptions.DMCloneException):
            pass
        self.cloud.before = lambda call: None
        return seen

    def attempt(self) -> None:
        self.migrate()
        try:
            self.b.mapper.write(self.new, 3, 'first')
        except mapped.Queued:
            pass
        try:
            self.event(self.b, self.new)
        except ports.Killed:
            pass
        for _ in range(12):
            self.cloud.tick()

    def test_kill_of_either_service(self) -> None:
        total = self.changes()
        self.assertGreater(total, 30)
        for at in range(1, total + 1, 1 if base.LONG else 3):
            with self.subTest(at=at):
                self.setUp()
                self.run_until(at, lambda node: node.kill())
                self.finish()

    def finish(self) -> None:
        """The server ends up where its data is; nothing is lost."""
        self.cloud.restart()
        self.cloud.settle()
        second = [a for a in self.cloud.row(self.volume).attachments
                  if a.id != self.first]
        home = self.cloud.home(self.volume)
        if home is self.b:
            self.write(self.b, self.new)
            self.leave()
            self.assert_migrated()
            return
        # Nova gives up: the request has failed, or the server never moved.
        for found in second:
            if found.connected:
                if hasattr(self, 'new') and self.new.rpartition('/')[2] in (
                        self.b.mapper.mapped):
                    self.b.mapper.mapped[
                        self.new.rpartition('/')[2]].openers = 0
                connections.disconnect(self.a.service, self.volume,
                                       self.b.connector)
            self.cloud.db.drop_attachment(found.id)
        self.a.process.loop.enqueue(self.volume)
        self.cloud.settle()
        self.assert_home(self.a)
        self.write(self.a, self.old, 2)
        self.assert_settled(self.data)
