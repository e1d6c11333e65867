# SPDX-License-Identifier: Apache-2.0
"""What only reads has a view: nothing is cut for it, and nothing torn."""

from __future__ import annotations

import typing

from cinder_dmclone import exceptions
from cinder_dmclone.host.iscsi import initiator
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import SnapshotId
from cinder_dmclone import names
from cinder_dmclone.reconcile import views as ends
from cinder_dmclone.service import connections
from cinder_dmclone.service import images
from cinder_dmclone.service import views
from cinder_dmclone.service import volumes
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import teardown
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.service import test_snapshots

OUTSIDE = {'host': 'x', 'initiator': 'iqn.1993-08.org.debian:01:X'}


class ViewTestCase(test_snapshots.SnapshotTestCase):

    def view(self, read_as: str | None = None,
             lv: LvUuid | None = None) -> names.DeviceName:
        return names.view(lv or self.lv, read_as or self.volume)

    def views(self, node: cloud.Node) -> list[str]:
        return [name for name in node.mapper.mapped if '-view-' in name]

    def connect(self, connector: dict[str, typing.Any],
                **row: typing.Any) -> dict[str, typing.Any]:
        """What cinder-backup asks for; the connection info."""
        self.cloud.db.update(self.volume, **row or {'status': 'backing-up'})
        return connections.connect(self.cloud.home(self.volume).service,
                                   self.volume, connector)

    def disconnect(self, connector: dict[str, typing.Any]) -> None:
        connections.disconnect(self.cloud.home(self.volume).service,
                               self.volume, connector)
        self.cloud.db.update(self.volume, status='available',
                             migration_status=None)

    def login(self, data: dict[str, typing.Any], serial: str) -> str:
        """Have b read what it was given; 'major:minor' of its disk."""
        size = units.Bytes.from_gib(1)
        return self.b.initiator.login(initiator.Source(
            data['target_iqn'], data['target_portal'], LvUuid(serial), size,
            self.a.group.block_size, data['auth_username'],
            data['auth_password']), 1.0).devnum

    def opened(self, **row: typing.Any) -> str:
        """The path of a view that somebody on a reads through."""
        info = self.connect(self.a.connector, **row)
        path = str(info['data']['device_path'])
        self.a.mapper.open(path)
        return path


class VolumeTest(ViewTestCase):

    def test_what_reads_cuts_nothing(self) -> None:
        snapshot = self.create()
        before = self.cloud.row(self.volume)
        for row in ({'status': 'backing-up'},
                    {'status': 'available', 'migration_status': 'migrating'},
                    {'status': 'retyping', 'migration_status': 'starting'}):
            with self.subTest(row):
                info = self.connect(self.a.connector, **row)
                path = info['data']['device_path']
                self.assertEqual(
                    ('local', self.a.mapper.link(str(self.view()))),
                    (info['driver_volume_type'], path))
                self.assertTrue(self.a.mapper.mapped[str(self.view())]
                                .readonly)
                self.assert_data(self.a, path)
                self.disconnect(self.a.connector)
                self.assertEqual({}, self.a.mapper.mapped)
                self.assertEqual(before, self.cloud.row(self.volume))
        self.delete(snapshot)
        self.cloud.settle()
        self.assert_settled()

    def test_elsewhere_it_is_read_over_iscsi(self) -> None:
        self.create()
        for connector in (OUTSIDE, self.b.connector):
            with self.subTest(connector['host']):
                data = self.connect(connector)['data']
                export = self.a.targets.exports[data['target_iqn']]
                self.assertEqual(
                    (self.view().path, True, connector['initiator'].lower(),
                     data['auth_password']),
                    (export.device, export.readonly,
                     export.grants[0].initiator, export.grants[0].password))
                self.disconnect(connector)
                self.assertEqual(({}, {}), (self.a.targets.exports,
                                            self.a.mapper.mapped))
        self.assertEqual(self.lv, self.cloud.row(self.volume).lv)

    def test_the_password_is_of_this_view_only(self) -> None:
        one = self.connect(OUTSIDE)['data']
        served = self.connect(OUTSIDE, status='restoring-backup')['data']
        self.assertNotEqual(
            (one['target_iqn'], one['auth_password']),
            (served['target_iqn'], served['auth_password']))

    def test_what_writes_still_cuts(self) -> None:
        self.create()
        self.connect(self.a.connector, status='restoring-backup')
        self.assertNotEqual(self.lv, self.cloud.row(self.volume).lv)
        self.assertEqual([], self.views(self.a))

    def test_a_server_that_connects_again_writes(self) -> None:
        """While its volume is backed up."""
        _, path = self.cloud.attach(self.volume, self.a)
        info = self.connect(self.a.connector)
        self.assertEqual(path, info['data']['device_path'])
        self.assertEqual([], self.views(self.a))

    def test_a_detach_leaves_the_view_of_an_upload(self) -> None:
        attachment, _ = self.cloud.attach(self.volume, self.a)
        self.cloud.db.update(self.volume, status='uploading')
        with images.readable(self.a.service, self.volume) as path:
            self.a.mapper.open(path)
            connections.disconnect(self.a.service, self.volume,
                                   self.a.connector)
            self.assert_data(self.a, path)
            self.assertEqual([str(self.view())], list(self.a.mapper.mapped))
            self.a.mapper.close(path)
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assert_settled()

    def test_an_upload_of_what_is_pinned_and_written(self) -> None:
        self.create()
        _, front = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(front)
        self.a.mapper.write(front, 0, 'later')
        self.cloud.db.update(self.volume, status='uploading')
        lv = self.cloud.row(self.volume).lv
        with images.readable(self.a.service, self.volume) as path:
            self.assertEqual(self.view(lv=lv).path, path)
            self.assert_data(self.a, path, ['later', *base.DATA[1:]])
            # Nobody has it open at the moment.
            self.cloud.settle()
            self.assert_data(self.a, path, ['later', *base.DATA[1:]])
        self.assertEqual(lv, self.cloud.row(self.volume).lv)
        self.assertEqual([], self.views(self.a))

    def test_while_it_hydrates(self) -> None:
        attachment, _ = self.relocated()
        self.cloud.detach(self.volume, attachment, self.b)
        info = self.connect(self.b.connector)
        self.assert_data(self.b, info['data']['device_path'])
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(self.volume).source)
        self.assert_data(self.b, info['data']['device_path'])
        self.disconnect(self.b.connector)
        self.cloud.settle()
        self.assert_settled()

    def test_one_that_is_open_is_not_taken_away(self) -> None:
        path = self.opened()
        self.assertRaises(exceptions.DeviceBusy, connections.disconnect,
                          self.a.service, self.volume, self.a.connector)
        self.assert_data(self.a, path)


class SnapshotTest(ViewTestCase):

    def ask_for(self, snapshot: SnapshotId,
                connector: dict[str, typing.Any]) -> dict[str, typing.Any]:
        """What cinder-backup asks the volume's home for."""
        self.cloud.db.update_snapshot(snapshot, status='backing-up')
        return views.connect(self.cloud.home(self.volume).service, snapshot,
                             connector)

    def end(self, snapshot: SnapshotId) -> None:
        views.disconnect(self.cloud.home(self.volume).service, snapshot,
                         self.b.connector)
        self.cloud.db.update_snapshot(snapshot, status='available')

    def moved(self) -> tuple[SnapshotId, str]:
        """A snapshot on a, and the front on b of its volume."""
        snapshot = self.create()
        _, path = self.relocated()
        self.b.mapper.open(path)
        self.b.mapper.write(path, 0, 'later')
        return snapshot, path

    def test_on_its_node_and_elsewhere(self) -> None:
        snapshot, front = self.moved()
        info = self.ask_for(snapshot, self.a.connector)
        self.assert_data(self.a, info['data']['device_path'])
        self.end(snapshot)
        data = self.ask_for(snapshot, self.b.connector)['data']
        disk = self.login(data, snapshot)
        self.assertEqual(list(base.DATA), [
            self.b.initiator.read(disk, region)
            for region in range(len(base.DATA))])
        self.b.initiator.logout(data['target_iqn'])
        self.end(snapshot)
        self.assertEqual([], self.views(self.a))
        self.cloud.settle()
        self.assert_data(self.b, front, ['later', *base.DATA[1:]])
        self.assert_snapshot(snapshot)

    def test_what_was_added_since_is_none_of_it(self) -> None:
        """A backup of more than the snapshot's size could not be restored."""
        snapshot = self.create()
        self.cloud.db.update(self.volume, status='extending')
        volumes.extend(self.a.service, self.volume, 2)
        self.cloud.db.update(self.volume, status='available', size=2)
        self.ask_for(snapshot, self.a.connector)
        found = self.a.mapper.mapped[str(self.view(snapshot))]
        self.assertEqual(units.Bytes.from_gib(1).to_sectors(),
                         found.table.length)

    def test_of_a_volume_in_use(self) -> None:
        """The volume's status says why: its snapshot is an ordinary one."""
        _, front = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(front)
        self.cloud.db.update(self.volume, status='backing-up')
        snapshot = self.create()
        self.a.mapper.write(front, 0, 'later')
        info = views.connect(self.a.service, snapshot, self.a.connector)
        path = info['data']['device_path']
        self.cloud.settle()
        self.assert_data(self.a, path)
        views.disconnect(self.a.service, snapshot, self.a.connector)
        self.cloud.db.update(self.volume, status='in-use')
        self.delete(snapshot)
        self.cloud.settle()
        self.assertEqual(1, len(self.a.group.volumes))

    def test_two_that_are_one_lv(self) -> None:
        first, second = self.create(), self.create()
        for snapshot in (first, second):
            self.ask_for(snapshot, self.a.connector)
        self.end(first)
        self.assertEqual([str(self.view(second))],
                         list(self.a.mapper.mapped))

    def test_what_cannot_be_read(self) -> None:
        snapshot = self.create()
        cases: typing.Iterable[tuple[typing.Callable[[], object], str]] = (
            (lambda: self.ask_for(snapshot, {'host': 'x'}),
             'no iSCSI initiator'),
            (lambda: self.ask_for(self.ask(), OUTSIDE), 'on no node'),
            (lambda: views.connect(self.b.service, SnapshotId('x'), OUTSIDE),
             'no such snapshot'),
            (lambda: self._asked_while_written(snapshot), 'still written'),
            (lambda: self._asked_while_overwritten(snapshot),
             'may be overwritten in part'),
            (lambda: self._asked_while_deleted(snapshot), 'being deleted'))
        for call, reason in cases:
            with self.subTest(reason), self.assertRaisesRegex(
                    exceptions.DMCloneException, reason):
                call()
            self.assertEqual([], self.views(self.a))

    def _asked_while_written(self, snapshot: SnapshotId) -> None:
        """The cut has not led everybody over yet."""
        host = self.a.process.world.host
        name = names.local_io(self.lv)
        consumers.consume(host, inspect.refresh(host, self.lv), name)
        try:
            self.ask_for(snapshot, OUTSIDE)
        finally:
            host.dm.remove(str(name))

    def _asked_while_overwritten(self, snapshot: SnapshotId) -> None:
        """The database was restored to before it was deleted."""
        name = names.data_lv(self.lv)
        tag = lv_tags.print_tag(lv_tags.ErasedTag(self.volume))
        self.a.group.retag(name, add=[tag])
        try:
            self.ask_for(snapshot, OUTSIDE)
        finally:
            self.a.group.retag(name, remove=[tag])

    def _asked_while_deleted(self, snapshot: SnapshotId) -> None:
        self.cloud.db.update_snapshot(snapshot, status='deleting')
        views.connect(self.a.service, snapshot, OUTSIDE)


class EndTest(ViewTestCase):
    """What nobody ends."""

    def test_a_backup_that_died(self) -> None:
        path = self.opened()
        self.cloud.settle()
        self.a.mapper.close(path)
        # The next start of cinder-backup says that it is none any more.
        self.cloud.settle()
        self.assert_data(self.a, path)
        self.cloud.db.update(self.volume, status='available')
        self.cloud.settle()
        self.assert_settled()

    def test_a_remote_one_that_died_and_one_here(self) -> None:
        """Its target would hide that somebody has the view open."""
        self.connect(OUTSIDE)
        path = self.opened()
        self.assertEqual({}, self.a.targets.exports)
        self.cloud.db.update(self.volume, status='available')
        self.cloud.settle()
        self.assert_data(self.a, path)

    def test_a_late_request_ends_nobody(self) -> None:
        """It is served as well, as long as somebody reads."""
        data = self.connect(self.b.connector)['data']
        disk = self.login(data, self.volume)
        for connector in (OUTSIDE, self.a.connector):
            self.connect(connector)
            connections.disconnect(self.a.service, self.volume, connector)
            self.assertEqual(base.DATA[0], self.b.initiator.read(disk, 0))
        self.b.initiator.logout(data['target_iqn'])
        self.disconnect(self.b.connector)
        self.assertEqual(({}, {}), (self.a.targets.exports,
                                    self.a.mapper.mapped))

    def test_a_status_that_comes_late(self) -> None:
        path = self.opened()
        self.a.mapper.close(path)
        self.cloud.db.update(self.volume, status='available')
        for _ in range(3):
            self.a.process.loop.run_once(everything=True)
            self.cloud.clock.sleep(ends.UNUSED_SECONDS / 3)
        self.assert_data(self.a, path)

    def test_what_is_read_is_not_taken_away(self) -> None:
        """Whatever the status says."""
        path = self.opened()
        self.cloud.db.update(self.volume, status='available')
        self.cloud.settle()
        self.assert_data(self.a, path)
        self.a.mapper.close(path)
        self.cloud.settle()
        self.assert_settled()

    def test_the_volume_goes_and_what_is_read_stays(self) -> None:
        path = self.opened()
        self.cloud.db.update(self.volume, status='available')
        _, front = self.relocated()
        self.b.mapper.open(front)
        self.b.mapper.write(front, 0, 'later')
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(self.volume).source)
        self.assert_data(self.a, path)
        self.assertEqual([], self.a.erased)
        self.a.mapper.close(path)
        self.cloud.settle()
        self.assert_settled(['later', *base.DATA[1:]])

    def test_the_volume_is_deleted(self) -> None:
        path = self.opened()
        self.cloud.delete(self.volume)
        self.cloud.settle()
        self.assert_data(self.a, path)
        self.a.mapper.close(path)
        self.cloud.settle()
        self.assert_clean(self.a, set())

    def test_no_disk_goes_with_a_session(self) -> None:
        """Also over iSCSI somebody reads as long as he is logged in."""
        data = self.connect(self.b.connector)['data']
        disk = self.login(data, self.volume)
        self.cloud.delete(self.volume)
        self.cloud.settle()
        host = self.a.process.world.host
        self.assertRaises(exceptions.DeviceBusy, teardown.strip, host,
                          inspect.refresh(host, self.lv))
        self.assertEqual(base.DATA[0], self.b.initiator.read(disk, 0))
        self.b.initiator.logout(data['target_iqn'])
        self.cloud.settle()
        self.assert_clean(self.a, set())


class LostPathTest(ViewTestCase):
    """The lender of what is read is away."""

    def hydrating(self, connector: dict[str, typing.Any]) -> None:
        attachment, _ = self.relocated()
        self.cloud.detach(self.volume, attachment, self.b)
        self.connect(connector)
        self.cloud.partition(self.a, self.b)
        self.cloud.settle()

    def waits(self) -> bool:
        host = self.b.process.world.host
        return inspect.refresh(host, self.cloud.row(self.volume).lv).queues

    def test_here_reads_wait(self) -> None:
        self.hydrating(self.b.connector)
        self.assertTrue(self.waits())

    def test_elsewhere_they_fail(self) -> None:
        """In the target they would keep others from logging in."""
        self.hydrating(OUTSIDE)
        self.assertFalse(self.waits())
