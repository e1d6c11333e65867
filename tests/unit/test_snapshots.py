# SPDX-License-Identifier: Apache-2.0
"""What this driver cannot make leaves nothing that stays."""

from __future__ import annotations

import types
import typing
import uuid

from tests.unit import base
from tests.unit.fake import database  # noqa: F401  registers the objects

from cinder.volume import manager  # noqa: E402
from cinder_dmclone import driver  # noqa: E402
from cinder_dmclone import exceptions  # noqa: E402

VOLUME = '70000000-0000-4000-8000-000000000001'
SNAPSHOT: typing.Any = types.SimpleNamespace(
    id='70000000-0000-4000-8000-000000000002', volume_id=VOLUME)


class RefusalTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.driver = driver.DMCloneVolumeDriver.__new__(
            driver.DMCloneVolumeDriver)
        self.manager: typing.Any = types.SimpleNamespace(
            driver=self.driver,
            driver_delete_snapshot=self.driver.delete_snapshot)

    def test_each_names_the_volume(self) -> None:
        for call, kind in (
                (lambda: self.driver.create_snapshot(SNAPSHOT),
                 exceptions.NoSnapshots),
                (lambda: self.driver.create_volume_from_snapshot(
                    types.SimpleNamespace(id='new'), SNAPSHOT),
                 exceptions.NoSnapshots),
                (lambda: self.driver.create_cloned_volume(
                    types.SimpleNamespace(id='new'),
                    types.SimpleNamespace(id=VOLUME)),
                 exceptions.NoClones),
                (lambda: self.driver.create_group_from_src(
                    None, None, [None], group_snapshot=object(),
                    snapshots=[SNAPSHOT]), exceptions.NoSnapshots),
                (lambda: self.driver.create_group_from_src(
                    None, None, [None], source_group=object(),
                    source_vols=[types.SimpleNamespace(id=VOLUME)]),
                 exceptions.NoClones)):
            with self.subTest(kind.__name__), (
                    self.assertRaisesRegex(kind, VOLUME)):
                call()

    def test_a_group_snapshot_can_be_deleted(self) -> None:
        """Cinder's own code for groups, on top of this driver."""
        group = types.SimpleNamespace(status='deleting')
        made = manager.VolumeManager._create_group_snapshot_generic(
            self.manager, None, group, [SNAPSHOT])
        self.assertEqual(
            ({'status': 'error'}, [{'id': SNAPSHOT.id, 'status': 'error'}]),
            made)
        gone = manager.VolumeManager._delete_group_snapshot_generic(
            self.manager, None, group, [SNAPSHOT])
        self.assertEqual(
            ({'status': 'deleting'},
             [{'id': SNAPSHOT.id, 'status': 'deleted'}]), gone)


class LeftTest(base.CloudTestCase):

    def test_a_failed_snapshot_does_not_keep_a_volume(self) -> None:
        self.cloud.db.snapshot(self.volume, 'error')
        _, path = self.relocated()
        self.assert_data(self.b, path)
        self.cloud.settle()
        self.assert_settled()

    def test_a_volume_that_was_not_cloned_can_be_deleted(self) -> None:
        volume = str(uuid.uuid4())
        self.cloud.db.volume(volume, f'{self.a.name}#pool',
                             status='error_deleting')
        self.cloud.delete(volume)
        self.assert_settled()
