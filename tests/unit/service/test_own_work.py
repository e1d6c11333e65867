# SPDX-License-Identifier: Apache-2.0
"""A node's own work on a volume, of which no attachment and no status tells.

Cinder's manager makes a volume of a snapshot for itself when it makes a
server's disk anew (``_revert_to_snapshot_generic``): ``in-use``, without an
attachment.
"""

from __future__ import annotations

import functools
import uuid

from oslo_utils import timeutils

from cinder_dmclone import exceptions
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.reconcile import views
from cinder_dmclone.service import births
from cinder_dmclone.service import connections
from cinder_dmclone.service import images
from tests.unit import base
from tests.unit.fake import cloud
from tests.unit.fake import ports


class OwnWorkTest(base.CloudTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.cloud.db.update(self.volume, status='in-use')
        info = connections.connect(self.a.service, self.volume,
                                   self.a.connector)
        self.path = str(info['data']['device_path'])
        self.name = str(names.local_io(self.lv))

    def look(self, seconds: float = 0.0) -> bool:
        """After a while; whether the device is there."""
        self.cloud.clock.now += seconds
        self.a.process.loop.run_once(everything=True)
        return self.name in self.a.mapper.mapped

    def test_what_is_not_open_yet_stays(self) -> None:
        self.assertTrue(self.look())
        self.assertTrue(self.look(views.UNUSED_SECONDS / 2))
        self.assert_data(self.a, self.path)

    def test_what_nobody_opens_goes(self) -> None:
        """Who was to open it has died."""
        self.look()
        self.assertFalse(self.look(views.UNUSED_SECONDS + 1))

    def test_what_is_open_stays(self) -> None:
        self.look()
        self.a.mapper.open(self.path)
        self.assertTrue(self.look(views.UNUSED_SECONDS + 1))
        self.a.mapper.close(self.path)
        # From here on it counts.
        self.assertTrue(self.look())
        self.assertTrue(self.look(views.UNUSED_SECONDS / 2))
        self.assertFalse(self.look(views.UNUSED_SECONDS))

    def test_a_server_comes(self) -> None:
        """What is left over then is no matter of this."""
        self.cloud.db.update(self.volume, status='available')
        _, path = self.cloud.attach(self.volume, self.a)
        self.assert_data(self.a, path)


class ImageTest(base.CloudTestCase):

    def test_nobody_leads_a_device_elsewhere_that_goes(self) -> None:
        locks, removed = self.a.process.world.locks, []

        def before(call: ports.Call) -> None:
            if call.method == 'remove':
                removed.append(call.arguments[0])
                with self.assertRaises(exceptions.VolumeLocked), (
                        locks.volume(self.volume, 0.0)):
                    self.fail('somebody else could have it')
        self.cloud.before = before
        self.cloud.db.update(self.volume, status='downloading')
        for use in images.local_path, images.readable:
            with use(self.a.service, self.volume):
                pass
        self.assertEqual([str(names.local_io(self.lv)),
                          str(names.view(self.lv, self.volume))], removed)

    def test_nothing_is_written_that_is_not_asked_for_any_more(self) -> None:
        """Cinder copies an image at any time; a server may have it."""
        self.cloud.attach(self.volume, self.a)
        before = dict(self.a.mapper.mapped)
        for status in ('in-use', 'reserved', 'available', 'error'):
            self.cloud.db.update(self.volume, status=status)
            with self.assertRaisesRegex(exceptions.NotWritten, status):
                images.local_path(self.a.service, self.volume).__enter__()
        self.assertEqual(before, self.a.mapper.mapped)
        self.assertFalse(self.a.service.copying)

    def test_one_that_is_reserved_before_its_image_is_there(self) -> None:
        self.cloud.db.update(self.volume, status='downloading')
        attachment = self.cloud.reserve(self.volume)
        with images.local_path(self.a.service, self.volume):
            pass
        self.cloud.db.drop_attachment(attachment)
        for launched, name in ((timeutils.utcnow(), None), (None, self.lv)):
            self.cloud.db.update(self.volume, status='available',
                                 launched_at=launched, _name_id=name)
            with self.assertRaises(exceptions.NotWritten):
                images.local_path(self.a.service, self.volume).__enter__()

    def test_nobody_is_given_what_cinder_encrypts(self) -> None:
        """It connects by itself, and copies an image; also a new one."""
        self.cloud.db.update(self.volume, status='downloading',
                             launched_at=timeutils.utcnow())
        info = connections.connect(self.a.service, self.volume,
                                   self.a.connector)
        self.a.mapper.open(info['data']['device_path'])
        attachment = self.cloud.reserve(self.volume)
        with self.assertRaisesRegex(exceptions.CannotServe,
                                    'an image is being copied'):
            connections.connect(self.a.service, self.volume, self.a.connector)
        self.a.mapper.close(info['data']['device_path'])
        self.cloud.connect(self.volume, attachment, self.a)

    def test_nobody_is_given_it_meanwhile(self) -> None:
        """Cinder reserves a volume that is still `downloading`."""
        self.cloud.db.update(self.volume, status='downloading')
        with images.local_path(self.a.service, self.volume):
            attachment = self.cloud.reserve(self.volume)
            for connector in (self.a.connector, {'host': 'x',
                                                 'initiator': 'iqn.x'}):
                with self.assertRaisesRegex(exceptions.CannotServe,
                                            'an image is being copied'):
                    connections.connect(self.a.service, self.volume,
                                        connector)
        self.cloud.connect(self.volume, attachment, self.a)

    def test_the_image_cache_keeps_nothing_else(self) -> None:
        """What somebody wrote before it was cloned for that."""
        self.cloud.db.update(self.volume, status='downloading')
        with images.local_path(self.a.service, self.volume):
            pass
        attachment, _ = self.cloud.attach(self.volume, self.a)
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{self.a.name}#{cloud.POOL}',
                             status='creating')
        clone = functools.partial(births.clone, self.a.service, volume,
                                  self.volume)
        self.assertRaisesRegex(exceptions.CannotBear, 'more than its image',
                               clone)
        self.cloud.detach(self.volume, attachment, self.a)
        self.assertRaises(exceptions.CannotBear, clone)
        self.cloud.db.update(self.volume, launched_at=timeutils.utcnow())
        clone()

    def test_it_is_attached_when_the_image_cache_has_begun(self) -> None:
        self.cloud.db.update(self.volume, status='downloading')
        with images.local_path(self.a.service, self.volume):
            pass
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{self.a.name}#{cloud.POOL}',
                             status='creating')

        def before(call: ports.Call) -> None:
            if (call.port, call.method) == ('rows', 'begin'):
                self.cloud.db.attachment(self.volume)
        self.cloud.before = before
        self.assertRaises(exceptions.CannotBear, births.clone, self.a.service,
                          volume, self.volume)
        self.cloud.settle()
        self.assertEqual({names.data_lv(self.lv)}, set(self.a.group.volumes))

    def test_what_the_image_cache_may_keep_is_forgotten(self) -> None:
        """A copy of an image is noted as long as it matters."""
        self.cloud.db.update(self.volume, status='downloading')
        self.a.service.imaged[VolumeId('other')] = self.cloud.clock.now
        self.cloud.clock.now += images.IMAGED_SECONDS + 1
        with images.local_path(self.a.service, self.volume):
            pass
        self.assertEqual({self.volume}, set(self.a.service.imaged))

    def test_what_is_made_with_a_group_is_cloned(self) -> None:
        """Cinder never writes that it was launched."""
        self.cloud.db.update(self.volume, status='downloading',
                             _name_id=self.lv)
        with images.local_path(self.a.service, self.volume):
            pass
        self.assertFalse(self.a.service.imaged)

    def test_copied_while_the_volume_is_cloned(self) -> None:
        """It ends when its device is about to be led to the copy."""
        self.cloud.db.update(self.volume, status='downloading')
        copying = images.local_path(self.a.service, self.volume)
        self.a.mapper.write(copying.__enter__(), 0, 'image')

        def before(call: ports.Call) -> None:
            if call.method == 'apply' and 'joint' in call.arguments[0]:
                self.cloud.before = lambda call: None
                copying.__exit__(None, None, None)
        self.cloud.before = before
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{self.a.name}#{cloud.POOL}',
                             status='creating')
        births.clone(self.a.service, volume, self.volume)
        self.assertFalse(self.a.service.copying)
        self.cloud.db.update(self.volume, status='available')
        self.cloud.settle()
        self.cloud.clock.now += views.UNUSED_SECONDS + 1
        self.cloud.settle()
        self.assertEqual({}, self.a.mapper.mapped)
