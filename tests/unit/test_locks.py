# SPDX-License-Identifier: Apache-2.0
"""Locks of volumes, with the real coordinator."""

from __future__ import annotations

import os
import unittest.mock

from cinder import coordination

from cinder_dmclone import driver
from cinder_dmclone import exceptions
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone import locks
from tests.unit import base

VOLUME = VolumeId('70000000-0000-4000-8000-000000000001')
OTHER = VolumeId('70000000-0000-4000-8000-000000000002')
# In seconds.
SHORT, LONG = 0.05, 60


class LocksTest(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.files = self.folder()
        self.enterContext(unittest.mock.patch.object(
            locks.CONF, 'state_path', self.files, create=True))
        self.a, self.b = (locks.Locks(NodeName(f'{host}@dmclone'))
                          for host in 'ab')

    def test_a_node_that_asks_another_does_not_wait_for_itself(self) -> None:
        with self.a.volume(VOLUME, LONG), self.b.volume(VOLUME, LONG):
            pass

    def test_another_machine_is_not_asked(self) -> None:
        """It might lose a lock while its holder works."""
        self.enterContext(unittest.mock.patch.object(
            coordination, 'COORDINATOR', None))
        with self.a.volume(VOLUME, LONG):
            pass

    def test_one_at_a_time_on_a_node(self) -> None:
        with self.a.volume(VOLUME, LONG):
            with self.a.volume(OTHER, LONG):
                pass
            again = self.a.volume(VOLUME, SHORT)
            self.assertRaises(exceptions.VolumeLocked, again.__enter__)
        with self.a.volume(VOLUME, LONG):
            pass

    def test_a_deleted_volume_leaves_no_files(self) -> None:
        for volume in (VOLUME, OTHER):
            with self.a.volume(volume, LONG), self.b.volume(volume, LONG):
                pass
        driver.DMCloneVolumeDriver.clean_volume_file_locks(VOLUME)
        self.assertEqual(
            [f'cinder-dmclone-{node}@dmclone-{OTHER}' for node in 'ab'],
            sorted(name for name in os.listdir(self.files)
                   if name.startswith('cinder-')))
