# SPDX-License-Identifier: Apache-2.0
"""The volumes of a group are deleted together, or none is."""

from __future__ import annotations

import types
import typing
from unittest import mock

from cinder_dmclone import driver
from cinder_dmclone import exceptions
from cinder_dmclone.service import volumes
from tests.unit import base


class DeleteTest(base.CloudTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.second = self.cloud.create(self.a)
        self.driver: typing.Any = types.SimpleNamespace(
            _service=self.a.service)

    def delete(self) -> tuple[dict[str, str], list[str]]:
        """What becomes of the group, and of its volumes."""
        found, updates = driver.DMCloneVolumeDriver.delete_group(
            self.driver, None, types.SimpleNamespace(status='deleting'),
            [types.SimpleNamespace(id=volume)
             for volume in (self.second, self.volume)])
        self.assertEqual([self.second, self.volume],
                         [update['id'] for update in updates])
        return found, [update['status'] for update in updates]

    def test_nobody_uses_them(self) -> None:
        self.assertEqual(({'status': 'deleting'}, ['deleted'] * 2),
                         self.delete())

    def test_one_that_is_in_use(self) -> None:
        """Its manager's own way would delete that one's row, too."""
        _, path = self.cloud.attach(self.volume, self.a)
        self.a.mapper.open(path)
        self.assertEqual(
            ({'status': 'error'}, ['error_deleting', 'available']),
            self.delete())
        self.assert_data(self.a, path)
        self.a.mapper.close(path)
        self.assertEqual(({'status': 'deleting'}, ['deleted'] * 2),
                         self.delete())

    def test_one_that_fails(self) -> None:
        def fail(service: object, volume_id: str) -> None:
            if volume_id == self.volume:
                raise exceptions.VolumeLocked(
                    volume=volume_id, node='a', seconds=1)
        with mock.patch.object(volumes, 'delete', fail):
            self.assertEqual(
                ({'status': 'error'}, ['error_deleting'] * 2),
                self.delete())
