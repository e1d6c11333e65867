# SPDX-License-Identifier: Apache-2.0
"""Live migration: two fronts on one volume, never two writers."""

from __future__ import annotations

import contextlib

from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import table
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.service import connections
from cinder_dmclone.service import endpoint
from cinder_dmclone.service import migrate
from cinder_dmclone.service import volumes
from cinder_dmclone.stack import state
from cinder_dmclone.stack import write_gate
from tests.unit.fake import mapped
from tests.unit.fake import ports
from tests.unit import migration


class GateTest(migration.MigrationTestCase):

    def test_writes_that_wait_are_counted(self) -> None:
        """Also where the host is tuned not to: nobody would claim them."""
        self.migrate()
        copy = self.cloud.row(self.volume).offer
        assert copy
        hold = self.b.mapper.mapped[str(names.hold(copy.lv))]
        self.assertTrue(hold.counts)
        hold.counts = False
        write_gate.rearm(self.b.process.world.host, state.Stack(copy.lv))
        self.assertTrue(hold.counts)

    def test_a_migration(self) -> None:
        self.migrate()
        self.write(self.a, self.old, 1)
        self.assert_data(self.b, self.new, self.data)
        self.assert_home(self.a)
        self.switch()
        self.assert_home(self.b)
        self.leave()
        self.assert_migrated()

    def test_the_other_node_is_not_served_over_iscsi(self) -> None:
        self.migrate()
        for node in (self.a, self.b):
            node.process.loop.enqueue(self.volume)
            self.cloud.settle(3)
            self.assertFalse([name for name in node.mapper.mapped
                              if '-serve-' in name])
            if node is self.a:
                self.switch()

    def test_nothing_is_hydrated_before_the_first_write(self) -> None:
        self.migrate()
        self.held(self.b, self.new)
        for _ in range(3):
            self.b.mapper.hydrate(8)
        clone, = (found for name, found in self.b.mapper.mapped.items()
                  if '-clone-' in name)
        self.assertEqual(set(), clone.copied)

    def test_a_server_that_does_not_write(self) -> None:
        """The end of the old attachment moves the volume, too."""
        self.migrate()
        self.leave()
        self.assert_home(self.b)
        self.cloud.settle()
        self.write(self.b, self.new)
        self.assert_migrated()

    def test_never_two_writers(self) -> None:
        """H2: the source's processors were resumed by mistake."""
        self.migrate()
        self.held(self.b, self.new)
        self.cloud.before = self._write_at_the_commit
        self.cloud.calls.clear()
        self.event(self.b, self.new)
        self.assertIn('commit', [call.method for call in self.cloud.calls])
        self.cloud.before = lambda call: None
        self.write(self.b, self.new)
        with self.assertRaises((mapped.Failed, mapped.Queued)):
            self.a.mapper.write(self.old, 1, 'by nobody')
        self.cloud.settle()
        with self.assertRaises(mapped.Failed):
            self.a.mapper.write(self.old, 1, 'by nobody')
        self.leave()
        self.assert_migrated()

    def _write_at_the_commit(self, call: ports.Call) -> None:
        if call.method == 'commit':
            self.held(self.a, self.old)
            self.held(self.b, self.new)
            self.assert_data(self.a, self.old, self.data)

    def test_the_gate_is_ready_before_a_server_waits(self) -> None:
        self.migrate()
        self.held(self.b, self.new)
        changed: list[str] = []
        self.cloud.before = lambda call: (
            changed.append(call.arguments[0]) if call.node == self.a.name
            and call.method in ('apply', 'remove') else None)
        self.event(self.b, self.new)
        self.assertEqual([self.old.rpartition('/')[2]], changed)

    def test_what_the_old_server_wrote_is_flushed(self) -> None:
        """H9: flushes on the borrower reach its own disk only."""
        self.migrate()
        self.data[1] = 'not flushed by the server'
        self.a.mapper.write(self.old, 1, self.data[1])
        self.switch()
        self.a.lose_power()
        self.a.start()
        self.cloud.settle(3)
        self.assert_data(self.b, self.new, self.data)

    def test_a_write_before_the_attachment_is_complete(self) -> None:
        """H2: luksFormat on a disk that could not be read, not a server."""
        self.rejected()

    def test_the_service_is_killed_while_it_rejects(self) -> None:
        """The server's own write waits all the same."""
        def kill(call: ports.Call) -> None:
            if 'fail_if_no_path' in call.arguments:
                self.cloud.after = lambda call: None
                self.b.kill()
        self.cloud.after = kill
        self.rejected()

    def rejected(self) -> None:
        attachment = self.cloud.db.attachment(self.volume)
        path = self.cloud.connect(self.volume, attachment, self.b)
        self.held(self.b, path)
        with contextlib.suppress(ports.Killed):
            self.event(self.b, path)
        self.cloud.restart()
        self.cloud.settle()
        hold, = (found for name, found in self.b.mapper.mapped.items()
                 if '-hold-' in name)
        self.assertFalse(hold.waiting)
        self.assertTrue(hold.table.queues)
        self.assert_home(self.a)
        self.cloud.complete(self.volume, attachment)
        self.second, self.new = attachment, path
        self.switch()
        self.leave()
        self.assert_migrated()

    def test_what_is_no_write_moves_nothing(self) -> None:
        """Whatever failed the path of the hold, no write waits there."""
        self.migrate()
        hold, = (found for name, found in self.b.mapper.mapped.items()
                 if '-hold-' in name)
        self.assert_data(self.b, f'/dev/mapper/{hold.name}', self.data)
        hold.path_failed = True
        self.event(self.b, self.new)
        self.assert_home(self.a)
        self.assertFalse(hold.path_failed)
        self.write(self.a, self.old)

    def test_a_repeated_request_finds_the_copy(self) -> None:
        attachment = self.cloud.db.attachment(self.volume)
        path = self.cloud.connect(self.volume, attachment, self.b)
        info = connections.connect(self.a.service, self.volume,
                                   self.b.connector)
        self.assertEqual(path, info['data']['device_path'])
        # The copy and its metadata.
        self.assertEqual(2, len(self.b.group.volumes))

    def test_a_lost_event_is_made_up_for(self) -> None:
        self.migrate()
        self.held(self.b, self.new)
        self.cloud.settle(3)
        self.assert_home(self.b)

    def test_a_lost_answer_to_the_claim(self) -> None:
        self.migrate()
        self.held(self.b, self.new)
        self.cloud.fate = lambda message: (
            ports.Fate.UNANSWERED if message.request == 'HandOver'
            else ports.Fate.ARRIVES)
        self.event(self.b, self.new)
        self.cloud.fate = lambda message: ports.Fate.ARRIVES
        self.cloud.settle(3)
        self.write(self.b, self.new)
        self.leave()
        self.assert_migrated()

    def test_a_claim_for_another_copy_is_refused(self) -> None:
        self.migrate()
        row = self.cloud.row(self.volume)
        assert row.offer
        copy = type(row.offer)(self.c.name, row.offer.lv)
        with self.assertRaises(exceptions.CannotRelocate):
            endpoint.answer(self.a.service, messages.HandOver(
                self.volume, copy, 'pool'))
        self.write(self.a, self.old)

    def test_another_writer_here_delays_the_server(self) -> None:
        """H4: the fence covers every writer."""
        self.migrate()
        known = names.serve(self.lv)
        self.a.mapper.apply(str(known), self.a.mapper.mapped[
            self.old.rpartition('/')[2]].table)
        self.a.mapper.open(known.path)
        self.held(self.b, self.new)
        self.event(self.b, self.new)
        self.assert_home(self.a)
        self.write(self.a, self.old, 1)
        self.a.mapper.close(known.path)
        self.cloud.settle(3)
        self.write(self.b, self.new)
        self.leave()
        self.assert_migrated()

    def test_others_wait_for_its_end(self) -> None:
        """H15: nothing that would miss writes of the server."""
        self.migrate()
        service = self.a.service
        for call in (lambda: volumes.extend(service, self.volume, 2),
                     lambda: migrate.migrate(service, self.volume,
                                             'c@dmclone#pool')):
            with self.assertRaisesRegex(exceptions.DMCloneException,
                                        'live-migrated'):
                call()
        waiting = self.cloud.db.attachment(self.volume, instance_uuid=None)
        with self.assertRaisesRegex(exceptions.DMCloneException,
                                    'live-migrated'):
            connections.connect(service, self.volume, {
                'host': 'elsewhere', 'initiator': 'iqn.x'})
        self.cloud.db.drop_attachment(waiting)
        self.switch()
        self.leave()
        self.assert_migrated()

    def test_two_segments(self) -> None:
        """A volume that was extended while it hydrated is gated whole."""
        self.migrate()
        front = self.b.mapper.mapped[self.new.rpartition('/')[2]]
        self.assertTrue(front.table.has(table.Gate))
