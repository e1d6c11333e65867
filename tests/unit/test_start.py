# SPDX-License-Identifier: Apache-2.0
"""A service that starts while the message bus is away."""

from __future__ import annotations

from unittest import mock

from cinder_dmclone import driver
from cinder_dmclone.host import uevents
from cinder_dmclone.service import endpoint
from tests.unit import base


class StartTest(base.TestCase):

    def test_what_is_here_does_not_wait_for_the_bus(self) -> None:
        """Until RabbitMQ is there, the call that serves does not return."""
        service = driver.DMCloneVolumeDriver.__new__(
            driver.DMCloneVolumeDriver)
        service.configuration = mock.Mock(dmclone_metrics_port=None)
        service._loop = service._world = service._service = mock.Mock()
        service._world.peers.sharing.return_value = []
        with (mock.patch.object(endpoint, 'serve',
                                side_effect=TimeoutError),
              mock.patch.object(uevents, 'listen') as listen):
            self.assertRaises(TimeoutError, service.set_initialized)
        service._loop.start.assert_called_once_with()
        listen.assert_called_once()
