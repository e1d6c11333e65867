# SPDX-License-Identifier: Apache-2.0
"""What the driver answers about snapshots that it cannot make or use."""

from __future__ import annotations

import types
import typing
import uuid

from tests.unit import base
from tests.unit.fake import database  # noqa: F401  registers the objects

from cinder_dmclone import driver  # noqa: E402
from cinder_dmclone import exceptions  # noqa: E402
from cinder_dmclone.location import VolumeId  # noqa: E402

VOLUME = '70000000-0000-4000-8000-000000000001'
SNAPSHOT: typing.Any = types.SimpleNamespace(
    id='70000000-0000-4000-8000-000000000002', volume_id=VOLUME)


class RefusalTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.driver = driver.DMCloneVolumeDriver.__new__(
            driver.DMCloneVolumeDriver)

    def test_it_names_the_volume(self) -> None:
        self.assertRaisesRegex(exceptions.UnmanageRefused, VOLUME,
                               self.driver.unmanage_snapshot, SNAPSHOT)


class LeftTest(base.CloudTestCase):

    def test_a_failed_snapshot_does_not_keep_a_volume(self) -> None:
        self.cloud.db.snapshot(self.volume, 'error')
        _, path = self.relocated()
        self.assert_data(self.b, path)
        self.cloud.settle()
        self.assert_settled()

    def test_a_volume_that_was_not_cloned_can_be_deleted(self) -> None:
        volume = VolumeId(str(uuid.uuid4()))
        self.cloud.db.volume(volume, f'{self.a.name}#pool',
                             status='error_deleting')
        self.cloud.delete(volume)
        self.assert_settled()
