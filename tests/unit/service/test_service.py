# SPDX-License-Identifier: Apache-2.0
"""What Cinder asks of a node: delete, extend, and serving in place."""

from __future__ import annotations

import types
import typing
from unittest import mock

from oslo_serialization import jsonutils

from cinder_dmclone import exceptions
from cinder_dmclone.location import SnapshotId
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.peers import messages
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import reader
from cinder_dmclone.reconcile import workers
from cinder_dmclone.service import births
from cinder_dmclone.service import connections
from cinder_dmclone.service import endpoint
from cinder_dmclone.service import images
from cinder_dmclone.service import manage
from cinder_dmclone.service import migrate
from cinder_dmclone.service import snapshots
from cinder_dmclone.service import volumes
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from tests.unit import base
from tests.unit.fake import cloud

from cinder_dmclone import driver  # noqa: E402


class RefusalTest(base.CloudTestCase):
    """Of a volume that needs a look, whatever is asked for."""

    def test_each_names_what_was_asked_for(self) -> None:
        self.a.group.volumes[names.data_lv(self.lv)].tags = frozenset(
            [lv_tags.print_tag(lv_tags.OwnTag(9, self.volume))])
        service, volume = self.a.service, self.volume
        snapshot = SnapshotId(self.cloud.db.snapshot(volume, 'creating'))
        born = VolumeId('12121212-0000-4000-8000-000000000000')
        self.cloud.db.volume(born, f'{self.a.name}#{cloud.POOL}')
        for asked, request in (
                ('connected', lambda: connections.connect(
                    service, volume, self.a.connector)),
                ('extended', lambda: volumes.extend(service, volume, 2)),
                ('made a snapshot', lambda: snapshots.create(
                    service, volume, snapshot)),
                ('cloned', lambda: births.clone(service, born, volume)),
                ('moved', lambda: migrate.migrate(
                    service, volume, self.b.name)),
                ('moved', lambda: migrate.leave(
                    service, self.cloud.row(volume),
                    messages.Leave(volume))),
                ('unmanaged', lambda: manage.unmanage(service, volume)),
                ('read', lambda: images.readable(
                    service, volume).__enter__()),
                ('written', lambda: images.local_path(
                    service, volume).__enter__())):
            with self.subTest(asked), self.assertRaisesRegex(
                    exceptions.DMCloneException,
                    f'^.*{volume} on a@dmclone cannot be {asked}: '):
                request()


class DetachTest(base.CloudTestCase):

    def test_a_look_before_cinder_has_deleted_the_attachment(self) -> None:
        """It justifies a front; without it nothing looks any more."""
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.cloud.settle()
        connections.disconnect(self.a.service, self.volume, self.a.connector)
        self.a.process.loop.run_once()
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assertNotIn(path.rpartition('/')[2], self.a.mapper.mapped)

    def test_the_row_goes_meanwhile(self) -> None:
        """The services were connected to another database."""
        self.cloud.attach(self.volume, self.a)
        none = observed.Rows([], self.a.name)
        with mock.patch.object(reader.Reader, 'rows',
                               return_value=none), self.assertRaisesRegex(
                                   exceptions.CannotServe, 'no such volume'):
            connections.disconnect(self.a.service, self.volume,
                                   self.a.connector)

    def test_a_look_that_was_under_way(self) -> None:
        """It waits for the lock of the request that ends the connection."""
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.cloud.settle()
        service, loop = self.a.service, self.a.process.loop
        stack = inspect.refresh(self.a.process.world.host, self.lv)
        began = self.cloud.clock.monotonic()
        connections.disconnect(service, self.volume, self.a.connector)
        decision, _ = loop._work(stack, workers.Lane.OTHER)
        loop._plan(decision, stack, began)
        self.assertIn(path.rpartition('/')[2], self.a.mapper.mapped)
        self.cloud.forget(self.volume, attachment)
        self.cloud.settle()
        self.assertNotIn(path.rpartition('/')[2], self.a.mapper.mapped)


class DeleteTest(base.CloudTestCase):

    def assert_nothing_left(self) -> None:
        self.cloud.settle()
        for node in self.cloud.nodes.values():
            self.assertEqual({}, node.group.volumes)
            self.assertEqual({}, node.mapper.mapped)
            self.assertEqual({}, node.targets.exports)
            self.assertEqual(set(), node.initiator.records())
        self.assert_no_complaints()

    def test_at_rest(self) -> None:
        self.cloud.delete(self.volume)
        self.assert_nothing_left()
        self.assertEqual([names.data_lv(self.lv)], self.a.erased)

    def test_twice(self) -> None:
        service = self.a.service
        self.cloud.db.update(self.volume, status='deleting')
        volumes.delete(service, self.volume)
        volumes.delete(service, self.volume)
        self.cloud.db.destroy(self.volume)
        volumes.delete(service, self.volume)
        self.assert_nothing_left()

    def test_while_hydrating(self) -> None:
        for ticks in range(6):
            with self.subTest(ticks=ticks):
                self.cloud.db.close()
                self.build()
                attachment, _ = self.relocated()
                self.cloud.settle(ticks)
                self.cloud.detach(self.volume, attachment, self.b)
                self.cloud.delete(self.volume)
                self.assert_nothing_left()

    def test_while_hydrating_with_the_lender_away(self) -> None:
        attachment, _ = self.relocated()
        self.cloud.settle(1)
        self.a.lose_power()
        self.cloud.detach(self.volume, attachment, self.b)
        self.cloud.delete(self.volume)
        self.cloud.restart()
        self.assert_nothing_left()

    def test_what_somebody_reads_is_not_overwritten(self) -> None:
        """Nor again with each try: it could not be removed."""
        self.cloud.delete(self.volume)
        with mock.patch.object(self.a.mapper, 'open_count', return_value=1):
            self.cloud.settle()
        self.assertEqual([], self.a.erased)
        self.assert_nothing_left()

    def test_of_an_attempt_that_failed(self) -> None:
        """Cinder makes the volume here once more, and then deletes it."""
        for status in ('creating', 'downloading'):
            self.cloud.db.update(self.volume, status=status)
            volumes.delete(self.a.service, self.volume)
            self.cloud.settle()
            self.assertIn(names.data_lv(self.lv), self.a.group.volumes)
        self.assertEqual([], self.a.erased)

    def test_with_the_borrower_away(self) -> None:
        """Others may hydrate from it: only it can say that none does."""
        attachment, _ = self.relocated()
        self.cloud.settle(1)
        self.cloud.forget(self.volume, attachment)
        self.b.lose_power()
        self.cloud.db.destroy(self.volume)
        endpoint.answer(self.a.service, messages.Notify(self.volume))
        self.cloud.settle()
        self.assertIn(names.data_lv(self.lv), self.a.group.volumes)
        self.cloud.restart()
        self.assert_nothing_left()

    def test_in_use(self) -> None:
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        self.cloud.db.update(self.volume, status='deleting')
        self.assertRaises(exceptions.DeviceBusy,
                          volumes.delete, self.a.service, self.volume)
        self.assert_data(self.a, path)


class RetypeTest(base.CloudTestCase):
    """Cinder's manager would write the host that the scheduler knew."""

    def retype(self) -> tuple[bool, dict[str, typing.Any]]:
        """The driver of a is asked, where the volume was then."""
        asked = driver.DMCloneVolumeDriver.__new__(driver.DMCloneVolumeDriver)
        asked._service = self.a.service
        return asked.retype(None, types.SimpleNamespace(id=self.volume),
                            None, {}, {'host': f'{self.a.name}#pool'})

    def test_where_the_volume_is_by_now(self) -> None:
        self.assertEqual((True, {'host': f'{self.a.name}#pool'}),
                         self.retype())
        self.relocated()
        self.assertEqual((True, {'host': f'{self.b.name}#pool'}),
                         self.retype())

    def test_during_a_live_migration(self) -> None:
        self.cloud.attach(self.volume, self.a)
        self.cloud.migrate(self.volume, self.b)
        self.assertRaises(exceptions.LiveMigrated, self.retype)


class InPlaceTest(base.CloudTestCase):
    """A connector that is no peer's server is served over iSCSI."""

    backup = {'host': 'elsewhere', 'initiator': 'iqn.backup'}

    def connect(self, **connector: typing.Any) -> dict[str, typing.Any]:
        return connections.connect(self.cloud.home(self.volume).service,
                                   self.volume, self.backup | connector)

    def disconnect(self, **connector: typing.Any) -> bool:
        return connections.disconnect(self.cloud.home(self.volume).service,
                                      self.volume, self.backup | connector)

    def test_with_a_secret_and_for_one_initiator(self) -> None:
        self.cloud.db.update(self.volume, status='restoring-backup')
        info = self.connect()
        self.assertEqual('iscsi', info['driver_volume_type'])
        data = info['data']
        export = self.a.targets.exports[data['target_iqn']]
        grant, = export.grants
        self.assertEqual(
            ('iqn.backup', data['auth_username'], data['auth_password']),
            (grant.initiator, grant.user, grant.password))
        self.assertEqual('CHAP', data['auth_method'])
        self.assertNotIn(grant.password, repr(export))
        self.assertFalse(export.readonly)
        self.assertFalse(self.disconnect())
        self.cloud.db.update(self.volume, status='available')
        self.assert_settled()

    def test_the_own_services_get_a_path_that_they_may_replace(self) -> None:
        """As os-brick does for an encrypted volume; a server's stays."""
        self.cloud.db.update(self.volume, status='downloading')
        path = self.connect(**self.a.connector)['data']['device_path']
        self.assertEqual(
            f'/run/cinder-dmclone/io-{self.lv}', path)
        self.assert_data(self.a, path)
        self.assertFalse(self.disconnect(**self.a.connector))
        self.cloud.db.update(self.volume, status='available')
        self.assert_settled()
        _, path = self.cloud.attach(self.volume, self.a)
        self.assertTrue(path.startswith('/dev/mapper/'), path)

    def test_export_outlives_a_long_restoration(self) -> None:
        self.cloud.db.update(self.volume, status='restoring-backup')
        self.connect()
        self.a.process.loop.run_once(everything=True)
        self.cloud.settle(5)
        self.assertEqual(1, len(self.a.targets.exports))

    def test_an_export_that_somebody_takes_away_comes_back(self) -> None:
        """As ``targetctl clear`` does, when its service is restarted."""
        attachment = self.cloud.reserve(self.volume)
        self.connect()
        self.cloud.db.update_attachment(
            attachment, connector=jsonutils.dumps(self.backup))
        self.cloud.complete(self.volume, attachment)
        self.cloud.settle()
        granted = dict(self.a.targets.exports)
        self.a.targets.exports.clear()
        self.cloud.settle(3)
        self.assertEqual(granted, self.a.targets.exports)

    def test_leftover_export_goes(self) -> None:
        self.cloud.db.update(self.volume, status='restoring-backup')
        self.connect()
        self.cloud.db.update(self.volume, status='available')
        self.a.process.loop.run_once(everything=True)
        self.cloud.settle()
        self.assert_settled()

    def test_two_initiators(self) -> None:
        self.cloud.db.update(self.volume, status='restoring-backup')
        self.connect()
        self.connect(initiator='iqn.other')
        export, = self.a.targets.exports.values()
        self.assertEqual(2, len(export.grants))
        self.assertTrue(self.disconnect())
        self.assertFalse(self.disconnect(initiator='iqn.other'))
        self.assert_settled()

    def test_connector_without_initiator(self) -> None:
        with self.assertRaisesRegex(exceptions.CannotServe,
                                    'names no iSCSI initiator'):
            self.connect(initiator=None)
        self.assert_settled()

    def test_empty_connector(self) -> None:
        self.assertRaises(exceptions.CannotServe,
                          connections.connect, self.a.service, self.volume, {})
        self.assert_settled()

    def test_unknown_fields(self) -> None:
        self.connect(colour='blue', nested={'x': [1]}, host='Ünïcode')
        self.assertFalse(self.disconnect())
        self.assert_settled()

    def test_disconnect_everybody(self) -> None:
        self.connect()
        connections.disconnect(self.a.service, self.volume, None)
        self.assert_settled()

    def test_disconnect_twice(self) -> None:
        self.connect()
        for _ in range(2):
            self.assertFalse(self.disconnect())
        self.assert_settled()

    def test_home_answers_for_the_others(self) -> None:
        """A request that an old address brought to the wrong node."""
        self.cloud.db.update(self.volume, status='restoring-backup')
        info = connections.connect(self.b.service, self.volume, self.backup)
        self.assertEqual('a:3260', info['data']['target_portal'])
        connections.disconnect(self.b.service, self.volume, self.backup)
        self.assertEqual({}, self.a.targets.exports)

    def test_a_request_is_passed_on_once(self) -> None:
        """Two nodes with different views must not play ping-pong."""
        for request in (messages.Connect(self.volume, self.backup),
                        messages.Disconnect(self.volume, self.backup)):
            self.assertRaises(exceptions.NotHome, endpoint.answer,
                              self.b.service, request)

    def test_status_error_is_refused(self) -> None:
        attachment = self.cloud.reserve(self.volume)
        self.cloud.db.update(self.volume, status='error')
        with self.assertRaisesRegex(exceptions.CannotServe,
                                    'status is error'):
            connections.connect(self.a.service, self.volume, self.b.connector)
        self.assertEqual(self.a.name, self.cloud.row(self.volume).node)
        self.cloud.forget(self.volume, attachment)

    def test_no_such_volume(self) -> None:
        with self.assertRaisesRegex(exceptions.CannotServe,
                                    'no such volume'):
            connections.connect(self.a.service, VolumeId('x'),
                                self.backup)
