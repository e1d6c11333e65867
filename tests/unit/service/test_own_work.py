# SPDX-License-Identifier: Apache-2.0
"""A node's own work on a volume, of which no attachment and no status tells.

Cinder's manager makes a volume of a snapshot for itself when it makes a
server's disk anew (``_revert_to_snapshot_generic``): ``in-use``, without an
attachment.
"""

from __future__ import annotations

from cinder_dmclone import names
from cinder_dmclone.reconcile import views
from cinder_dmclone.service import connections
from tests.unit import base


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
