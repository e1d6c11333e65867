# SPDX-License-Identifier: Apache-2.0
"""Room for one, and two that want it at the same moment: one has it."""

from __future__ import annotations

import threading
import typing
import uuid

from cinder_dmclone import exceptions
from cinder_dmclone.location import VolumeId
from cinder_dmclone.service import connections
from cinder_dmclone.service import volumes
from cinder_dmclone import units
from tests.unit import base
from tests.unit.fake import ports
from tests.unit.fake import storage

GIB = units.Bytes.from_gib(1)
# What is more than enough for a thread to wait.
SECONDS = 30.0


class RoomTest(base.CloudTestCase):

    options: typing.Mapping[str, typing.Any] = {'lock_wait': SECONDS}

    def setUp(self) -> None:
        super().setUp()
        self.second = self.cloud.create(self.a)
        self.refused: list[str] = []
        for volume in (self.volume, self.second):
            self.cloud.reserve(volume)
        # The second one waits for the first, and the first until it does.
        self.other = threading.Thread(target=self.move, args=(self.second,))
        self.waits = threading.Event()

    def move(self, volume: VolumeId) -> None:
        try:
            connections.connect(self.a.service, volume, self.b.connector)
        except exceptions.DMCloneException as error:
            self.refused.append(error.msg)

    def disturb(self, call: ports.Call) -> None:
        """When the first has looked for room the second asks for it."""
        if threading.current_thread() is self.other:
            if call.method == 'room':
                self.waits.set()
        elif call.method == 'create' and not self.other.ident:
            self.other.start()
            self.assertTrue(self.waits.wait(SECONDS))

    def race(self) -> None:
        self.cloud.before = self.disturb
        self.move(self.volume)
        self.other.join(SECONDS)
        self.assertFalse(self.other.is_alive())
        rows = [self.cloud.row(volume)
                for volume in (self.volume, self.second)]
        self.assertEqual([self.b.name, self.a.name],
                         [row.node for row in rows])
        self.assertEqual([None, None], [row.offer for row in rows])
        why, = self.refused
        self.assertIn('not enough room', why)

    def test_lvs_with_all_their_room(self) -> None:
        # So much that the data of both would fit, and no metadata then.
        self.b.group.size = units.Bytes(2 * GIB)
        self.race()
        self.assertEqual(2, len(self.b.group.volumes))

    def test_a_thin_pool(self) -> None:
        self.b.group.pool = 'thin'
        self.b.group.pool_size = units.Bytes(2 * GIB - storage.REGION)
        self.race()
        self.assertEqual(2, len(self.b.group.volumes))

    def test_a_new_volume_comes_between(self) -> None:
        """It waits for nobody; who moves is told that there is no room."""
        def create(call: ports.Call) -> None:
            if call.method == 'create':
                self.cloud.before = lambda call: None
                volume = VolumeId(str(uuid.uuid4()))
                self.cloud.db.volume(volume, f'{self.b.name}#pool')
                volumes.create(self.b.service, volume)
        for gib in 1, 2:
            with self.subTest(gib=gib):
                self.b.group.size = units.Bytes.from_gib(gib + 1)
                self.cloud.before = create
                self.move(self.volume)
                self.assertEqual(self.a.name,
                                 self.cloud.row(self.volume).node)
                self.assertIn('not enough room', self.refused.pop())
                self.assertEqual(gib, len(self.b.group.volumes))
