# SPDX-License-Identifier: Apache-2.0
"""A volume is made, or that is broken off."""

from __future__ import annotations

import functools
import typing
import uuid

from cinder import exception

from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.service import volumes
from cinder_dmclone.stack import lv_tags
from tests.unit import base
from tests.unit.fake import ports


class CreateTest(base.CloudTestCase):

    def create(self) -> VolumeId:
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{self.a.name}#pool')
        volumes.create(self.a.service, volume)
        return volume

    def test_one_whose_creation_was_interrupted(self) -> None:
        """It can be used, and move, if an administrator resets its status."""
        created = []

        def kill(call: ports.Call) -> None:
            if (call.port, call.method) == ('rows', 'create'):
                created.append(call.arguments[0].id)
                self.a.kill()
        self.cloud.before = kill
        self.assertRaises(ports.Killed, self.create)
        self.cloud.before = lambda call: None
        found, = created
        self.cloud.db.update(found, status='error')
        self.a.start()
        self.assertIsNone(self.cloud.row(found).provider_id)
        self.cloud.db.update(found, status='available')
        attachment, path = self.cloud.attach(found, self.a)
        self.a.mapper.write(path, 0, 'data')
        self.cloud.detach(found, attachment, self.a)
        self.assertEqual(1, self.cloud.row(found).generation)
        _, path = self.cloud.attach(found, self.b)
        self.assertEqual('data', self.b.mapper.read(path, 0))

    def retried(self, volume: VolumeId, host: str | None) -> None:
        """Cinder has it made anew, and asks the node that has failed."""
        self.cloud.db.update(volume, status='creating', host=host)
        volumes.delete(self.a.service, volume)
        self.cloud.settle()

    def test_nothing_is_left_of_one_that_is_made_elsewhere(self) -> None:
        """Or will be: the scheduler may be faster than Cinder's request."""
        for host, begun in ((None, False), (f'{self.b.name}#pool', False),
                            (f'{self.b.name}#pool', True)):
            volume = self.create()
            if begun:
                self.cloud.db.update(volume, host=host)
                volumes.create(self.b.service, volume)
            self.retried(volume, host)
            self.assertNotIn(names.data_lv(LvUuid(volume)),
                             self.a.group.volumes)
            self.cloud.db.update(volume, host=f'{self.a.name}#pool')
            volumes.create(self.a.service, volume)

    def test_what_may_be_wanted_is_kept(self) -> None:
        """It is made here again, or somebody has it."""
        volume = self.create()
        self.retried(volume, f'{self.a.name}#pool')
        attachment = self.cloud.db.attachment(volume)
        self.retried(volume, None)
        self.cloud.db.drop_attachment(attachment)
        self.a.group.retag(names.data_lv(LvUuid(volume)), [lv_tags.print_tag(
            lv_tags.OwnTag(2, volume))], [lv_tags.print_tag(
                lv_tags.OwnTag(1, volume))])
        self.retried(volume, None)
        self.assertIn(names.data_lv(LvUuid(volume)), self.a.group.volumes)

    def test_one_that_is_asked_for_twice(self) -> None:
        """Cinder would ask another node, and forget that this one has it."""
        volume = self.create()
        lvs, row = dict(self.a.group.volumes), self.cloud.row(volume)
        for status in ('available', 'in-use', 'error'):
            self.cloud.db.update(volume, status=status)
            with self.assertRaises(exception.MetadataUpdateFailure):
                volumes.create(self.a.service, volume)
        self.cloud.db.update(volume, status='creating')
        with self.assertRaises(exception.MetadataUpdateFailure):
            volumes.create(self.b.service, volume)
        self.assertEqual(lvs, self.a.group.volumes)
        self.assertEqual(row.provider_id, self.cloud.row(volume).provider_id)

    def copied(self, **values: typing.Any) -> VolumeId:
        """A row as Cinder makes it for a volume that it migrates here."""
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{self.a.name}#pool', **{
            'provider_id': f'3;from={self.b.name}/{uuid.uuid4()}',
            'migration_status': f'target:{self.volume}', **values})
        return volume

    def test_it_is_newer_than_what_it_is_a_copy_of(self) -> None:
        for record, generation in (('3', 4), ('of another driver', 1)):
            volume = self.copied(provider_id=record)
            volumes.create(self.a.service, volume)
            row = self.cloud.row(volume)
            self.assertEqual(str(generation), row.provider_id)
            self.assertEqual(
                {lv_tags.print_tag(lv_tags.OwnTag(generation, volume))},
                self.a.group.volumes[names.data_lv(row.lv)].tags)

    def test_one_whose_row_was_copied_and_says_nothing_of_it(self) -> None:
        """It goes when it is deleted, and can be used if it is reset."""
        for status in ('error', 'available'):
            volume = self.copied()
            self.cloud.before = lambda call: (
                self.a.kill() if call.method == 'create'
                and call.port == 'rows' else None)
            self.assertRaises(ports.Killed, volumes.create, self.a.service,
                              volume)
            self.cloud.before = lambda call: None
            self.cloud.db.update(volume, status=status)
            self.a.start()
            self.cloud.settle()
            if status == 'available':
                self.assertEqual('4', self.cloud.row(volume).provider_id)
            self.cloud.delete(volume)
            self.cloud.settle()
            self.assertNotIn(names.data_lv(LvUuid(volume)),
                             self.a.group.volumes)
            self.assert_no_complaints()

    def test_nothing_is_left_of_one_that_is_not_durable(self) -> None:
        """Cinder tries another node: this one's LV would be a stranger."""
        found = dict(self.a.group.volumes)

        def fail(call: ports.Call) -> None:
            if (call.port, call.method) == ('group', 'flush'):
                raise exceptions.CommandTimeout(command='fsync', seconds=30)
        self.cloud.before = fail
        self.assertRaises(exceptions.CommandTimeout, self.create)
        self.assertEqual(found, self.a.group.volumes)

    def made_late(self, call: ports.Call) -> None:
        """LVM makes an LV, and is killed before it says so."""
        if (call.port, call.method) == ('group', 'create'):
            raise exceptions.CommandTimeout(command='lvm', seconds=30)

    def test_nothing_is_left_of_what_lvm_was_killed_for(self) -> None:
        found = dict(self.a.group.volumes)
        self.cloud.after = self.made_late
        self.assertRaises(exceptions.CommandTimeout, self.create)
        self.assertEqual(found, self.a.group.volumes)

    def test_nothing_is_left_of_one_that_was_deleted_meanwhile(self) -> None:
        """Its row is not changed, whatever its service does then."""
        found = dict(self.a.group.volumes)
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{self.a.name}#pool')

        def delete(call: ports.Call) -> None:
            if (call.port, call.method) == ('group', 'create'):
                self.cloud.db.destroy(volume)
        self.cloud.after = delete
        self.assertRaises(exceptions.RowChanged, volumes.create,
                          self.a.service, volume)
        self.assertEqual(found, self.a.group.volumes)

    def test_a_volume_that_exists_is_kept(self) -> None:
        volume = self.create()
        again = functools.partial(volumes.create, self.a.service, volume)
        self.assertRaises(exceptions.CommandFailed, again)
        self.cloud.before = self.made_late
        self.assertRaises(exceptions.CommandTimeout, again)
        self.assertIn(names.data_lv(LvUuid(volume)), self.a.group.volumes)
