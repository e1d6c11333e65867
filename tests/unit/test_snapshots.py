# SPDX-License-Identifier: Apache-2.0
"""What is left of snapshots and volumes that could not be made."""

from __future__ import annotations

import uuid

from cinder_dmclone.location import VolumeId
from tests.unit import base


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
