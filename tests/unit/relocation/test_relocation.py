# SPDX-License-Identifier: Apache-2.0
"""A move from one node to another, and repeated requests for one."""

from __future__ import annotations

import threading
import typing
import uuid

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import table
from cinder_dmclone.location import Location
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.service import connections
from cinder_dmclone.service import migrate
from tests.unit import base
from tests.unit.fake import mapped
from tests.unit.fake import ports

Fate = ports.Fate


class MoveTest(base.CloudTestCase):

    def test_attach_elsewhere(self) -> None:
        attachment, path = self.relocated()
        self.b.mapper.open(path)
        self.assert_data(self.b, path)
        self.assertEqual(
            names.front('b', self.cloud.row(self.volume).lv).path, path)
        data = list(base.DATA)
        self.b.mapper.write(path, 5, 'later')
        data[5] = 'later'
        self.b.mapper.flush(path)
        self.assert_data(self.b, path, data)
        self.cloud.settle()
        self.assert_data(self.b, path, data)
        self.assert_settled(data)
        row = self.cloud.row(self.volume)
        self.assertEqual((self.b.name, 2), (row.node, row.generation))
        self.assertEqual([names.data_lv(self.lv)], self.a.erased)

    def test_hydration_waits_for_the_commit(self) -> None:
        copied: list[set[int]] = []

        def before(call: ports.Call) -> None:
            if call.method == 'commit':
                self.b.mapper.hydrate(8)
                copied.extend(
                    set(found.copied) for name, found
                    in self.b.mapper.mapped.items() if '-clone-' in name)
        self.cloud.before = before
        self.relocated()
        self.assertEqual([set()], copied)

    def test_there_and_back_again(self) -> None:
        data = list(base.DATA)
        for generation, node in enumerate((self.b, self.a, self.b), 2):
            attachment, path = self.cloud.attach(self.volume, node)
            self.assert_data(node, path, data)
            data[generation] = f'generation {generation}'
            node.mapper.write(path, generation, data[generation])
            self.cloud.settle()
            self.cloud.detach(self.volume, attachment, node)
            self.cloud.settle()
            self.assert_settled_flushed(node, data)
            row = self.cloud.row(self.volume)
            self.assertEqual((node.name, generation),
                             (row.node, row.generation))

    def assert_settled_flushed(self, node: typing.Any,
                               data: list[str]) -> None:
        for lv in node.group.volumes.values():
            lv.flush()
        self.assert_settled(data)

    def test_an_attachment_that_a_failed_request_left(self) -> None:
        """It is not in the way of its server, but of every other."""
        self.cloud.reserve(self.volume)
        _, path = self.relocated()
        self.assert_data(self.b, path)
        self.assertEqual(self.b.name, self.cloud.row(self.volume).node)

    def test_another_server_has_it(self) -> None:
        self.cloud.db.attachment(self.volume, instance_uuid='other')
        with self.assertRaises(exceptions.CannotServe):
            self.relocated()

    def test_no_discards_while_hydrating(self) -> None:
        """A discard would show what another tenant left."""
        _, path = self.relocated()
        self.assertFalse(any(
            found.discards for name, found in self.b.mapper.mapped.items()
            if '-clone-' in name))

    def test_no_discards_after_a_boot_that_was_interrupted(self) -> None:
        _, path = self.relocated()
        self.b.lose_power()

        def kill(call: ports.Call) -> None:
            if call.method == 'hide_discards':
                self.b.kill()
        self.cloud.before = kill
        self.cloud.restart()
        self.assertFalse(self.b.process.alive)
        self.cloud.before = lambda call: None
        self.cloud.restart()
        clone, = (found for name, found in self.b.mapper.mapped.items()
                  if '-clone-' in name)
        self.assertIn(path.rpartition('/')[2], self.b.mapper.mapped)
        self.assertFalse(clone.discards)
        self.assert_no_complaints()

    def test_a_clone_that_was_half_made_is_made(self) -> None:
        """dmsetup ended between the device and its table."""
        _, path = self.relocated()
        self.b.lose_power()
        self.halved = 2

        def halve(call: ports.Call) -> None:
            if call.method != 'apply' or '-clone-' not in call.arguments[0]:
                return
            if self.halved:
                self.halved -= 1
                name = call.arguments[0]
                self.b.mapper.mapped[name] = mapped.Mapped(
                    name, self.b.number(), table.Table(()), False)
                raise exceptions.CommandTimeout(command='dmsetup', seconds=10)
        self.cloud.before = halve
        self.cloud.restart()
        self.cloud.settle()
        self.assertEqual(0, self.halved)
        self.assert_data(self.b, path)
        self.assert_settled()

    def test_two_volumes_in_opposite_directions(self) -> None:
        other = self.cloud.create(self.b)
        self.relocated()
        self.cloud.attach(other, self.a)
        self.cloud.settle()
        for volume, node in ((self.volume, self.b), (other, self.a)):
            row = self.cloud.row(volume)
            self.assertEqual((node.name, None), (row.node, row.source))
        self.assertEqual({self.a.name: 1, self.b.name: 1},
                         {name: len(node.group.volumes)
                          for name, node in self.cloud.nodes.items()})
        self.assert_no_complaints()

    def test_own_metadata_group(self) -> None:
        self.options = {'own_metadata': True}
        self.cloud.db.close()
        self.build()
        _, path = self.relocated()
        self.assertEqual(1, len(self.b.meta_group.volumes))
        self.assertEqual(1, len(self.b.group.volumes))
        self.cloud.settle()
        self.assert_settled()

    def test_nothing_of_the_metadata_is_left_where_a_volume_may_be(
            self) -> None:
        """Cinder writes no zeros when it restores a backup to a new one."""
        for own in (False, True):
            self.options = {'own_metadata': own}
            self.cloud.db.close()
            self.build()
            self.relocated()
            meta, = (name for name in self.b.meta_group.volumes
                     if name.startswith('dmclone-meta-'))
            self.cloud.calls.clear()
            self.cloud.settle()
            self.assertEqual(
                ['remove'] if own else ['zero', 'remove'],
                [call.method for call in self.cloud.calls
                 if call.method in ('remove', 'zero')
                 and call.arguments[:1] == (meta,)])

    def test_detach_while_hydrating(self) -> None:
        attachment, path = self.relocated()
        self.cloud.detach(self.volume, attachment, self.b)
        self.assertNotIn(path.rpartition('/')[2], self.b.mapper.mapped)
        self.cloud.settle()
        self.assert_settled()

    def test_front_in_use_is_not_taken_away(self) -> None:
        attachment, path = self.relocated()
        self.b.mapper.open(path)
        self.assertRaises(exceptions.DeviceBusy, self.cloud.detach,
                          self.volume, attachment, self.b)
        self.assert_data(self.b, path)

    def test_migrate_without_a_server(self) -> None:
        self.cloud.db.update(self.volume, migration_status='migrating')
        moved = migrate.migrate(self.a.service, self.volume,
                                f'{self.b.name}#pool')
        self.assertTrue(moved)
        self.assertEqual(self.b.name, self.cloud.row(self.volume).node)
        self.cloud.db.update(self.volume, migration_status='success')
        self.cloud.settle()
        self.assert_settled()
        self.assertEqual(self.b.name, self.cloud.row(self.volume).node)

    def test_the_lock_is_that_of_the_row(self) -> None:
        """H14: a generic migration exchanges the ids of two rows."""
        self.cloud.db.update(self.volume, migration_status='migrating')
        self.assertTrue(migrate.migrate(
            self.a.service, self.volume, f'{self.b.name}#pool'))
        renamed = VolumeId(str(uuid.uuid4()))
        self.cloud.db.update(self.volume, id=renamed,
                             migration_status='success')
        locked: dict[str, list[str]] = {}
        held: set[str] = set()

        def watch(call: ports.Call) -> None:
            if call.port == 'locks':
                locked.setdefault(call.node, []).append(call.arguments[0])
            elif call.method in ('message', 'complete'):
                held.add(locked[call.node][-1])
        self.cloud.before = watch
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(renamed).source)
        self.assertEqual({renamed}, held)

    def test_migrate_to_another_backend_is_left_to_cinder(self) -> None:
        self.assertFalse(migrate.migrate(self.a.service, self.volume,
                                         'b@other#pool'))

    def test_outage_of_the_lender_while_hydrating(self) -> None:
        _, path = self.relocated()
        self.cloud.tick()
        self.cloud.partition(self.a, self.b)
        for _ in range(5):
            self.cloud.tick()
        self.cloud.heal()
        self.cloud.settle()
        self.assert_data(self.b, path)
        self.assert_settled()


class RetryTest(base.CloudTestCase):

    options = {'lock_wait': 30.0}

    def test_five_calls_at_once(self) -> None:
        """Retries join the attempt that runs and get its result."""
        attachment = self.cloud.reserve(self.volume)
        results: list[object] = []
        start = threading.Barrier(5)

        def connect() -> None:
            start.wait()
            try:
                results.append(connections.connect(
                    self.a.service, self.volume,
                    self.b.connector)['data']['device_path'])
            except Exception as error:
                results.append(error)
        threads = [threading.Thread(target=connect) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(5, len(results))
        self.assertEqual(1, len(set(results)), results)
        path = self.cloud.connect(self.volume, attachment, self.b)
        self.assertEqual([path], list(set(results)))
        self.assertEqual(2, self.cloud.row(self.volume).generation)
        self.cloud.complete(self.volume, attachment)
        self.cloud.settle()
        self.assert_data(self.b, path)
        self.assert_settled()

    def test_retry_after_the_commit_gets_the_same_path(self) -> None:
        attachment = self.cloud.reserve(self.volume)
        path = self.cloud.connect(self.volume, attachment, self.b)
        for home in (self.a, self.b):
            info = connections.connect(home.service, self.volume,
                                       self.b.connector)
            self.assertEqual(path, info['data']['device_path'])

    def test_retry_after_a_failure_is_a_new_attempt(self) -> None:
        """H6: a copy's LV is never offered twice."""
        offered = []

        def before(call: ports.Call) -> None:
            if call.method == 'offer':
                offered.append(call.arguments[1])
        self.cloud.before = before
        fates = iter([Fate.UNANSWERED, Fate.UNANSWERED])
        self.cloud.fate = lambda message: (
            next(fates, Fate.ARRIVES) if message.request == 'Prepare'
            else Fate.ARRIVES)
        attachment = self.cloud.reserve(self.volume)
        for _ in range(2):
            self.assertRaises(exceptions.PeerUnreachable, self.cloud.connect,
                              self.volume, attachment, self.b)
        self.cloud.connect(self.volume, attachment, self.b)
        self.assertEqual(3, len(set(offered)))
        self.cloud.complete(self.volume, attachment)
        self.cloud.settle()
        self.assert_settled()

    def test_a_disk_that_the_kernel_has_given_up(self) -> None:
        """Its session is back, and nobody else lets I/O flow again."""
        self.relocated()
        self.cloud.tick()
        self.b.initiator.offline_.update(self.b.initiator.sessions_.values())
        self.b.mapper.lose_paths()
        self.cloud.settle()
        self.assert_settled()


class LeaveTest(base.CloudTestCase):
    """A volume that was to leave its node stays, and was wanted meanwhile."""

    def withdrawn(self, status: str, wanted: bool = False) -> None:
        """An offer is taken back.

        :param wanted: whether there is an attachment
        """
        store = self.a.process.world.rows
        row = store.offer(self.cloud.row(self.volume),
                          Location.never_used(self.b.name), rows.Leave())
        self.cloud.db.update(self.volume, status=status)
        if wanted:
            self.cloud.db.attachment(self.volume)
        store.withdraw(row)
        self.a.process.loop.enqueue(self.lv)

    def after(self, seconds: float) -> str:
        """The status when the node has looked for so long."""
        for _ in range(4):
            self.cloud.clock.now += seconds / 4
            self.a.process.loop.run_once()
        return str(self.cloud.row(self.volume).status)

    def test_who_wanted_it_has_gone(self) -> None:
        """Cinder leaves the status as it is while it migrates."""
        self.withdrawn('reserved')
        # The API has yet to write down who wants it.
        self.assertEqual('reserved', self.after(20))
        self.assertEqual('available', self.after(240))

    def test_who_wants_it_is_there(self) -> None:
        self.withdrawn('reserved', wanted=True)
        self.assertEqual('reserved', self.after(3600))

    def test_somebody_begins_to_want_it(self) -> None:
        """Between the look and the change."""
        self.withdrawn('reserved')
        row = self.cloud.row(self.volume)
        self.cloud.db.attachment(self.volume)
        with self.assertRaisesRegex(exceptions.RowChanged, 'attachment'):
            self.a.process.world.rows.let_go(row)

    def test_what_else_is_done_with_it(self) -> None:
        self.withdrawn('backing-up')
        self.assertEqual('backing-up', self.after(3600))
