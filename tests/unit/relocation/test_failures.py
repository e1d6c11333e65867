# SPDX-License-Identifier: Apache-2.0
"""Before the commit every failure is withdrawn with nothing left behind."""

from __future__ import annotations

import dataclasses
import typing
from unittest import mock

from oslo_db import exception as db_exc

from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm
from cinder_dmclone import names
from cinder_dmclone.releases import models
from cinder_dmclone.service import images
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import lv_tags
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import ports
from tests.unit.fake import storage

Fate = ports.Fate


class FailureTest(base.CloudTestCase):
    """Before the commit every failure is withdrawn with nothing left."""

    def assert_fails(self, kind: type[Exception], text: str = '') -> None:
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(kind, text):
            self.cloud.connect(self.volume, attachment, self.b)
        # One error message for the user.
        self.messages = self.cloud.db.all(models.Message)
        self.cloud.before = lambda call: None
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_unmoved()

    def fail_at(self, port: str, method: str, error: Exception,
                node: typing.Any = None) -> None:
        wanted = (node or self.b).name

        def before(call: ports.Call) -> None:
            if (call.node, call.port, call.method) == (wanted, port, method):
                self.cloud.before = lambda call: None
                raise error
        self.cloud.before = before

    def test_no_room(self) -> None:
        self.b.group.size = storage.EXTENT
        self.assert_fails(exceptions.CannotRelocate, 'not enough room')
        self.assertEqual(1, len(self.messages))

    def test_room_that_metadata_takes(self) -> None:
        size = self.a.group.volumes[names.data_lv(self.lv)].size
        self.b.group.size = size
        self.assert_fails(exceptions.CannotRelocate, 'not enough room')

    def test_copy_that_would_end_with_what_another_tenant_left(self) -> None:
        report = self.b.group.report

        def odd(patient: bool = False) -> lvm.Report:
            return dataclasses.replace(report(),
                                       extent_size=units.Bytes(3 << 20))
        with mock.patch.object(self.b.group, 'report', odd):
            self.assert_fails(exceptions.PeerRefused, 'extents')

    def test_block_sizes_differ(self) -> None:
        """H20: a server that aligned its I/O to 512 would freeze."""
        self.b.group.block_size = 4096
        self.assert_fails(exceptions.CannotRelocate, '4096-byte blocks')

    def test_peer_is_down(self) -> None:
        with mock.patch.object(ports.Peers, 'is_up', return_value=False):
            self.assert_fails(exceptions.CannotServe, 'is down')
        self.assertEqual(1, len(self.messages))

    def test_peer_does_not_answer(self) -> None:
        self.b.kill()
        attachment = self.cloud.reserve(self.volume)
        self.assertRaises(exceptions.PeerUnreachable, self.cloud.connect,
                          self.volume, attachment, self.b)
        self.assertIsNone(self.cloud.row(self.volume).offer)
        self.cloud.forget(self.volume, attachment)
        self.cloud.restart()
        self.cloud.settle()
        self.assert_unmoved()

    def test_every_step_of_the_lender(self) -> None:
        error = exceptions.CommandFailed(command='x', code=1, stderr='y')
        for port, method in (
                ('group', 'retag'), ('group', 'flush'), ('dm', 'apply'),
                ('targets', 'ensure'), ('dm', 'open_count'),
                ('peers', 'FindRoom'), ('peers', 'Prepare')):
            with self.subTest(method):
                self.cloud.db.close()
                self.build()
                self.fail_at(port, method, error, self.a)
                self.assert_fails(exceptions.CommandFailed)

    def test_every_step_of_the_borrower(self) -> None:
        error = exceptions.CommandFailed(command='x', code=1, stderr='y')
        for port, method in (
                ('group', 'create'), ('initiator', 'login'), ('dm', 'apply'),
                ('dm', 'flush'), ('group', 'retag'), ('group', 'flush'),
                ('group', 'report'), ('dm', 'hide_discards')):
            with self.subTest(method):
                self.cloud.db.close()
                self.build()
                self.fail_at(port, method, error)
                self.assert_fails(exceptions.PeerRefused)

    def test_commit_refused(self) -> None:
        def before(call: ports.Call) -> None:
            if call.method == 'commit':
                self.cloud.db.update(self.volume, size=2)
        self.cloud.before = before
        attachment = self.cloud.reserve(self.volume)
        self.assertRaises(exceptions.RowChanged, self.cloud.connect,
                          self.volume, attachment, self.b)
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_unmoved()

    def test_detached_in_the_middle(self) -> None:
        """A detach that Cinder does not tell the driver about."""
        attachment = self.cloud.reserve(self.volume)

        def before(call: ports.Call) -> None:
            if call.method == 'seal' or (call.node, call.method) == (
                    self.a.name, 'open_count'):
                self.cloud.before = lambda call: None
                self.cloud.forget(self.volume, attachment)
        self.cloud.before = before
        self.assertRaises(exceptions.CannotRelocate, self.cloud.connect,
                          self.volume, attachment, self.b)
        self.cloud.settle()
        self.assert_unmoved()

    def test_database_away_before_the_commit(self) -> None:
        """H10: with the outcome unknown nothing is changed."""
        attachment = self.cloud.reserve(self.volume)
        away = self.cloud.db.away()

        def before(call: ports.Call) -> None:
            if call.method == 'commit':
                self.cloud.before = lambda call: None
                away.__enter__()
        self.cloud.before = before
        self.assertRaises(exceptions.DatabaseAway, self.cloud.connect,
                          self.volume, attachment, self.b)
        self.assertEqual(2, len(self.b.group.volumes))
        away.__exit__(None, None, None)
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_unmoved()

    def test_database_away_after_the_commit(self) -> None:
        """H10: the committed copy survives the lost answer."""
        attachment = self.cloud.reserve(self.volume)
        away = self.cloud.db.away()
        original = volumes.RowStore._update_once

        def update(values: dict[str, typing.Any], *rest: typing.Any) -> int:
            count = original(values, *rest)
            if 'host' in values:
                away.__enter__()
                raise db_exc.DBConnectionError(Exception('gone away'))
            return count
        with mock.patch.object(volumes.RowStore, '_update_once',
                               staticmethod(update)):
            self.assertRaises(exceptions.DatabaseAway, self.cloud.connect,
                              self.volume, attachment, self.b)
        away.__exit__(None, None, None)
        path = self.cloud.connect(self.volume, attachment, self.b)
        self.assert_data(self.b, path)
        self.cloud.complete(self.volume, attachment)
        self.cloud.settle()
        self.assert_settled()

    def test_restored_database_with_an_offer(self) -> None:
        """H3: what was offered then is the volume now, and lent to it."""
        attachment, _ = self.relocated()
        self.cloud.settle(1)
        copy = self.cloud.row(self.volume).owner
        self.cloud.db.update(self.volume, host=f'{self.a.name}#pool',
                             _name_id=None, provider_id=f'1;offer={copy}',
                             status='available')
        self.cloud.db.drop_attachment(attachment)
        self.cloud.settle()
        lv, = self.a.group.volumes.values()
        self.assertTrue(lv_tags.Tags.parse(lv.tags).lent)
        again = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(exceptions.CannotServe, 'newer data'):
            self.cloud.connect(self.volume, again, self.a)

    def test_prepare_took_too_long(self) -> None:
        def before(call: ports.Call) -> None:
            if call.method == 'login':
                self.cloud.clock.sleep(30)
        self.cloud.before = before
        self.assert_fails(exceptions.PeerRefused, 'longer than 25')

    def test_lender_that_shows_another_disk(self) -> None:
        """Size, serial, block size and write protection are checked."""
        error = exceptions.SourceMismatch(iqn='iqn.x', reason='serial')
        self.fail_at('initiator', 'login', error)
        self.assert_fails(exceptions.PeerRefused, "not the lender's volume")

    def test_a_disk_that_makes_nothing_durable(self) -> None:
        self.fail_at('dm', 'flush', exceptions.CommandFailed(
            command='fsync x', code=5, stderr='Input/output error'), self.a)
        self.assert_fails(exceptions.CannotRelocate,
                          'durable.*Input/output error.*kernel')

    def test_volume_in_use_here(self) -> None:
        """H4: the fence sees every writer of the LV, not only the front."""
        self.cloud.db.update(self.volume, status='downloading')
        copying = images.local_path(self.a.service, self.volume)
        path = copying.__enter__()
        self.a.mapper.open(path)
        # The copying process outlives the service that started it.
        self.a.kill()
        self.assertRaises(ports.Killed, copying.__exit__, None, None, None)
        self.cloud.restart()
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(exceptions.CannotRelocate, 'in use'):
            self.cloud.connect(self.volume, attachment, self.b)
        self.assertIsNone(self.cloud.row(self.volume).offer)
        self.a.mapper.close(path)
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_unmoved()

    def test_image_copy_that_has_not_opened_its_device(self) -> None:
        """H4: Cinder reserves a volume that is still `downloading`."""
        self.cloud.db.update(self.volume, status='downloading')
        with images.local_path(self.a.service, self.volume) as path:
            attachment = self.cloud.reserve(self.volume)
            with self.assertRaisesRegex(exceptions.CannotRelocate,
                                        'image'):
                self.cloud.connect(self.volume, attachment, self.b)
            self.a.mapper.write(path, 0, base.DATA[0])
        self.a.group.volumes[names.data_lv(self.lv)].flush()
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_unmoved()

    def test_who_opens_a_device_for_a_moment_is_no_writer(self) -> None:
        original, counts = consumers.openers, [1]

        def openers(*known: typing.Any) -> int:
            return original(*known) + (counts.pop() if counts else 0)
        with mock.patch.object(consumers, 'openers', openers):
            self.relocated()
        self.assertEqual([], counts)

    def test_front_that_is_open_for_a_moment_is_no_servers(self) -> None:
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.cloud.forget(self.volume, attachment)
        self.a.mapper.open(path)
        sleep = self.cloud.clock.sleep
        slept: list[float] = []

        def close(seconds: float) -> None:
            if not slept:
                self.a.mapper.close(path)
            slept.append(seconds)
            sleep(seconds)
        with mock.patch.object(self.cloud.clock, 'sleep', close):
            self.relocated()
        self.assertTrue(slept)

    def test_writer_that_is_not_ours(self) -> None:
        """H4: the kernel's open count of the LV is what counts."""
        def open_count(devnum: str) -> int:
            return original(devnum) + 1
        original = self.a.mapper.open_count
        with mock.patch.object(self.a.mapper, 'open_count', open_count):
            attachment = self.cloud.reserve(self.volume)
            with self.assertRaisesRegex(exceptions.CannotRelocate,
                                        'open 2 times instead of 1'):
                self.cloud.connect(self.volume, attachment, self.b)
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_unmoved()
