# SPDX-License-Identifier: Apache-2.0
"""An LV of the operator's becomes a volume, and a volume the operator's."""

from __future__ import annotations

import logging
import types
import typing
import uuid

from tests.unit import base
from tests.unit.fake.bomb import Bomb
from tests.unit.fake import cloud
from tests.unit.fake import ports

from cinder import exception  # noqa: E402

from cinder_dmclone import driver  # noqa: E402
from cinder_dmclone import exceptions  # noqa: E402
from cinder_dmclone.location import VolumeId  # noqa: E402
from cinder_dmclone import names  # noqa: E402
from cinder_dmclone.service import connections  # noqa: E402
from cinder_dmclone.service import manage  # noqa: E402
from cinder_dmclone.service import volumes  # noqa: E402
from cinder_dmclone.stack import lv_tags  # noqa: E402
from cinder_dmclone import units  # noqa: E402

FOUND = 'data'
REFERENCE = {'source-name': FOUND}
GIB = units.GIB


class ManageTestCase(base.CloudTestCase):
    """Beside the volume there is an LV that is not the driver's."""

    def build(self) -> None:
        super().build()
        self.a.group.create(FOUND, units.Bytes(GIB - (64 << 20)), [])
        self.a.group.volumes[FOUND].blocks = dict(enumerate(base.DATA))
        self.a.group.volumes[FOUND].flush()
        self.a.group.flush()
        self.before = self.found()
        self.driver = driver.DMCloneVolumeDriver.__new__(
            driver.DMCloneVolumeDriver)
        self.driver._service = self.a.service

    def found(self) -> dict[str, tuple[int, frozenset[str]]]:
        """All LVs of a, with size and tags."""
        return {name: (lv.size, lv.tags)
                for name, lv in self.a.group.volumes.items()}

    def row_of(self, **values: typing.Any) -> VolumeId:
        """A row as the API leaves it for ``manage``."""
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, **{
            'host': f'{self.a.name}#pool', 'size': 0, 'status': 'managing',
            **values})
        return volume

    def manage(self, volume: VolumeId, name: str = FOUND) -> None:
        """What Cinder's manager does (flows/manager/manage_existing.py)."""
        reference = {'source-name': name}
        service = self.a.service
        size = manage.size_of(service, reference)
        record = manage.manage(service, volume, reference)
        self.cloud.db.update(volume, size=size, provider_id=record,
                             status='available')

    def unmanage(self, volume: VolumeId) -> None:
        """What Cinder's manager does (``VolumeManager.delete_volume``)."""
        manage.unmanage(self.cloud.home(volume).service, volume)
        self.cloud.db.destroy(volume)

    def assert_kept(self, node: cloud.Node, name: str) -> None:
        """An LV is nobody's, has its data, and stays."""
        for other in self.cloud.nodes.values():
            other.process.loop.run_once(everything=True)
        self.cloud.settle()
        lv = node.group.volumes[name]
        self.assertEqual(frozenset(), lv.tags)
        self.assertEqual(base.DATA, [lv.read(r) for r in range(base.REGIONS)])
        self.assertEqual([], node.erased)


class ManageTest(ManageTestCase):

    def test_it_moves_like_any_other(self) -> None:
        volume = self.row_of()
        self.manage(volume)
        self.assertEqual((1, '1'), (self.cloud.row(volume).size,
                                    self.cloud.row(volume).provider_id))
        lv = self.a.group.volumes[names.data_lv(self.cloud.row(volume).lv)]
        self.assertEqual(GIB, lv.size)
        self.cloud.settle()
        _, path = self.cloud.attach(volume, self.b)
        self.assert_data(self.b, path)
        self.cloud.settle()
        self.assert_data(self.b, path)
        self.assertNotIn(FOUND, self.a.group.volumes)

    def test_what_is_refused(self) -> None:
        group = self.a.group
        group.create('pool', units.Bytes(GIB), [])
        group.volumes['pool'].plain = False
        group.create('still', units.Bytes(GIB), [])
        group.volumes['still'].devnum = None
        group.create('skipped', units.Bytes(GIB), [])
        group.volumes['skipped'].skipped = True
        tag = lv_tags.print_tag(lv_tags.OwnTag(1, self.volume))
        group.create('tagged', units.Bytes(GIB), [tag])
        lost = names.data_lv(self.cloud.row(self.row_of(size=1)).lv)
        group.create(lost, units.Bytes(GIB), [])
        group.create('large', units.Bytes(93 * GIB + 4096), [])
        self.before = self.found()
        cases: list[tuple[typing.Any, str]] = [
            (None, 'has to be'), ({}, 'has to be'), ('data', 'has to be'),
            ({'source-name': ''}, 'has to be'),
            ({'source-id': 'x'}, 'has to be'),
            ({'source-name': 'missing'}, 'has no such LV'),
            ({'source-name': ['data']}, 'has no such LV'),
            ({'source-name': 'volumes/data'}, 'not part of the name'),
            ({'source-name': 'pool'}, 'more than a linear'),
            ({'source-name': 'still'}, 'not active'),
            ({'source-name': 'skipped'}, '--setactivationskip n'),
            ({'source-name': 'tagged'}, f'--deltag {tag}'),
            ({'source-name': names.meta_lv(self.lv)}, 'no such LV'),
            ({'source-name': lost}, 'rename it'),
            ({'source-name': 'large'}, 'are free in volume group volumes')]
        self.cloud.db.update(VolumeId(lost.removeprefix('volume-')),
                             host=self.b.name)
        for reference, reason in cases:
            with self.subTest(reference), self.assertRaisesRegex(
                    exception.ManageExistingInvalidReference, reason):
                self.driver.manage_existing(
                    types.SimpleNamespace(id=self.row_of()), reference)
            self.assertEqual(self.before, self.found())
        with self.assertRaises(exception.ManageExistingAlreadyManaged):
            self.driver.manage_existing_get_size(
                None, {'source-name': names.data_lv(self.lv)})

    def test_in_use(self) -> None:
        attachment, path = self.cloud.attach(self.volume, self.a)
        self.cloud.settle()
        # Something is built on it.
        lv = self.a.group.volumes.pop(names.data_lv(self.lv))
        lv.name, lv.tags = 'used', frozenset()
        self.a.group.volumes['used'] = lv
        with self.assertRaisesRegex(
                exception.ManageExistingInvalidReference, 'in use'):
            manage.size_of(self.a.service, {'source-name': 'used'})
        self.cloud.forget(self.volume, attachment)

    def test_a_row_that_is_not_being_managed(self) -> None:
        """A request may have waited for long."""
        gone = self.row_of()
        self.cloud.db.destroy(gone)
        for volume, kind in (
                (self.row_of(status='error_managing'),
                 exception.ManageExistingInvalidReference),
                (self.row_of(host=f'{self.b.name}#pool'), exceptions.NotHome),
                (gone, exceptions.CannotServe)):
            with self.subTest(kind):
                self.assertRaises(kind, manage.manage, self.a.service,
                                  volume, REFERENCE)
        self.assertEqual(self.before, self.found())

    def test_two_requests_for_one(self) -> None:
        """The rename decides: the second finds no such LV."""
        first, second = self.row_of(), self.row_of()

        def before(call: ports.Call) -> None:
            if call.method == 'rename':
                self.cloud.before = lambda call: None
                self.manage(first)
        self.cloud.before = before
        self.assertRaises(exceptions.CommandFailed, manage.manage,
                          self.a.service, second, REFERENCE)
        self.assertEqual({names.data_lv(self.lv),
                          names.data_lv(self.cloud.row(first).lv)},
                         set(self.a.group.volumes))
        self.assert_settled_but(first)

    def assert_settled_but(self, volume: VolumeId) -> None:
        _, path = self.cloud.attach(volume, self.a)
        self.assert_data(self.a, path)

    def test_a_command_that_fails_before_or_after_its_work(self) -> None:
        """The LV has its name again; it may have grown."""
        for hook in ('before', 'after'):
            for method in ('rename', 'extend', 'retag', 'flush'):
                with self.subTest(hook=hook, method=method):
                    self.cloud.db.close()
                    self.build()
                    self._fail_once(hook, method)
                    self.assertRaises(exceptions.CommandTimeout, self.manage,
                                      self.row_of())
                    self.assertEqual(self.before.keys(), self.found().keys())
                    self.assert_kept(self.a, FOUND)

    def _fail_once(self, hook: str, method: str) -> None:
        def fail(call: ports.Call) -> None:
            if (call.port, call.method) == ('group', method):
                setattr(self.cloud, hook, lambda call: None)
                raise exceptions.CommandTimeout(command=method, seconds=30)
        setattr(self.cloud, hook, fail)


class ListTest(ManageTestCase):

    def test_what_is_listed(self) -> None:
        self.a.group.create('pool', units.Bytes(2 * GIB), [])
        self.a.group.volumes['pool'].plain = False
        listed = self.driver.get_manageable_volumes(
            [], None, 10, 0, ['size'], ['asc'])
        self.assertEqual([(FOUND, 1, True), ('pool', 2, False)], [
            (entry['reference']['source-name'], entry['size'],
             entry['safe_to_manage']) for entry in listed])
        self.assertIn('more than', listed[1]['reason_not_safe'])
        self.assertEqual(listed[1:], self.driver.get_manageable_volumes(
            [], {'source-name': FOUND}, 10, 0, ['size'], ['asc']))


class UnmanageTest(ManageTestCase):

    def test_where_it_has_moved(self) -> None:
        attachment, _ = self.relocated()
        self.cloud.settle()
        self.cloud.detach(self.volume, attachment, self.b)
        self.cloud.settle()
        self.unmanage(self.volume)
        self.assert_kept(self.b, f'unmanaged-{self.volume}')
        self.assertEqual({}, self.b.mapper.mapped)
        self.unmanage(self.volume)

    def test_what_is_needed_stays(self) -> None:
        """And the volume with it, for Cinder and for its users."""
        attachment, _ = self.relocated()
        self.cloud.detach(self.volume, attachment, self.b)
        self.driver._service = self.b.service
        volume: typing.Any = types.SimpleNamespace(id=self.volume, name='x')
        self.cloud.db.update(self.volume, status='unmanaging')
        logging.disable(logging.NOTSET)
        with self.assertLogs(driver.__name__) as logs, self.assertRaises(
                exception.VolumeIsBusy):
            self.driver.unmanage(volume)
        self.assertIn('it hydrates', logs.output[0])
        self.cloud.db.update(self.volume, status='available')
        _, path = self.relocated()
        self.assert_data(self.b, path)
        self.cloud.settle()
        self.assertIsNone(self.cloud.row(self.volume).source)
        self.assert_data(self.b, path)

    def test_read_by_a_backup_that_nobody_waits_for(self) -> None:
        self.cloud.db.update(self.volume, status='backing-up')
        info = connections.connect(self.a.service, self.volume,
                                   self.a.connector)
        view, = self.a.mapper.mapped
        self.assertIn('view', info['data']['device_path'])
        self.a.mapper.open(f'/dev/mapper/{view}')
        self.cloud.db.update(self.volume, status='unmanaging')
        with self.assertRaisesRegex(exceptions.CannotUnmanage, 'backup'):
            manage.unmanage(self.a.service, self.volume)
        self.assertEqual(self.before, self.found())

    def test_open(self) -> None:
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        self.assertRaises(exceptions.DeviceBusy, manage.unmanage,
                          self.a.service, self.volume)
        self.assert_data(self.a, path)

    def test_lost(self) -> None:
        """Its row is what is left of it."""
        self.a.group.remove(names.data_lv(self.lv))
        with self.assertRaisesRegex(exceptions.CannotUnmanage, 'is gone'):
            manage.unmanage(self.a.service, self.volume)
        self.cloud.complaints.clear()

    def test_on_the_wrong_node(self) -> None:
        with self.assertRaisesRegex(exceptions.CannotUnmanage, 'belongs to'):
            manage.unmanage(self.b.service, self.volume)
        self.assertEqual(self.before, self.found())

    def test_a_snapshot(self) -> None:
        snapshot: typing.Any = types.SimpleNamespace(id='s', name='s')
        logging.disable(logging.NOTSET)
        with self.assertLogs(driver.__name__) as logs, self.assertRaises(
                exception.SnapshotIsBusy):
            self.driver.unmanage_snapshot(snapshot)
        self.assertIn('need not have a logical volume of its own',
                      logs.output[0])
        with self.assertRaisesRegex(
                exception.ManageExistingInvalidReference, 'of its own'):
            self.driver.manage_existing_snapshot_get_size(
                snapshot, {'source-name': names.data_lv(self.lv)})
        self.assertEqual([], self.driver.get_manageable_snapshots(
            [], None, 10, 0, [], []))


class CrashTest(ManageTestCase):
    """A crash at each change, and what an operator can do then."""

    def every_crash(self, scenario: typing.Callable[
            [typing.Callable[[], None]], None]) -> None:
        """Repeat a scenario until its crash would come after it.

        One after a change is one before the next.

        :param scenario: it is given what arms the crash
        """
        for how in ('kill', 'lose_power'):
            for at in range(20):
                with self.subTest(how=how, at=at):
                    bomb = Bomb(getattr(self.a, how), at)
                    scenario(lambda: setattr(self.cloud, 'before', bomb))
                self.cloud.db.close()
                self.build()
                if not bomb.where:
                    break
            self.assertGreater(at, 3)

    def killed(self, call: typing.Callable[[], None]) -> bool:
        """Whether a crash has ended a call; everything runs then."""
        try:
            call()
        except ports.Killed:
            return True
        finally:
            self.cloud.before = lambda call: None
            self.cloud.restart()
            self.cloud.settle()
        return False

    def test_manage_and_then_delete(self) -> None:
        """What was not managed is not erased, though its status was reset."""
        self.every_crash(self._manage)

    def _manage(self, arm: typing.Callable[[], None]) -> None:
        volume = self.row_of()
        arm()
        if not self.killed(lambda: self.manage(volume)):
            return
        self.delete(volume, 'deleting')
        self.assert_nameless()

    def delete(self, volume: VolumeId, status: str) -> None:
        self.cloud.db.update(volume, status=status)
        volumes.delete(self.a.service, volume)
        self.cloud.db.destroy(volume)

    def test_a_failure_of_cinder_after_the_drivers_work(self) -> None:
        """With its size written, as when the quota cannot be committed."""
        volume = self.row_of()
        self.manage(volume)
        self.delete(volume, 'error_managing_deleting')
        self.assert_nameless()

    def assert_nameless(self) -> None:
        """It has a name with which it can be managed."""
        name, = set(self.a.group.volumes) - {names.data_lv(self.lv)}
        self.assert_kept(self.a, name)
        volume = self.row_of()
        self.manage(volume, name)
        _, path = self.cloud.attach(volume, self.a)
        self.assert_data(self.a, path)

    def test_delete_of_what_was_not_managed(self) -> None:
        self.every_crash(self._delete)

    def _delete(self, arm: typing.Callable[[], None]) -> None:
        volume = self.row_of()
        manage.manage(self.a.service, volume, REFERENCE)
        self.cloud.db.update(volume, status='deleting')
        arm()
        while self.killed(lambda: volumes.delete(self.a.service, volume)):
            pass
        self.cloud.db.destroy(volume)
        self.assert_nameless()

    def test_unmanage_and_then_once_more(self) -> None:
        """Cinder leaves the row alone; an operator resets its status."""
        self.every_crash(self._unmanage)

    def _unmanage(self, arm: typing.Callable[[], None]) -> None:
        self.cloud.db.update(self.volume, status='unmanaging')
        arm()
        while self.killed(lambda: manage.unmanage(self.a.service,
                                                  self.volume)):
            self.assertEqual([], self.a.erased)
            self.cloud.db.update(self.volume, status='available')
        self.cloud.db.destroy(self.volume)
        self.assert_kept(self.a, f'unmanaged-{self.volume}')

    def test_unmanage_and_then_delete(self) -> None:
        """From the rename on its LV is kept, whatever becomes of the row."""
        self.every_crash(self._delete_after)

    def _delete_after(self, arm: typing.Callable[[], None]) -> None:
        arm()
        self.killed(lambda: manage.unmanage(self.a.service, self.volume))
        renamed = names.data_lv(self.lv) not in self.a.group.volumes
        self.cloud.delete(self.volume)
        self.cloud.settle()
        self.assertEqual(not renamed, bool(self.a.erased))
        self.assertEqual(renamed, f'unmanaged-{self.volume}'
                         in self.a.group.volumes)
