# SPDX-License-Identifier: Apache-2.0
"""Whoever meters a cloud, and hears what its services tell of themselves."""
from __future__ import annotations

import json
import typing

from lab.config import TRANSPORT
from lab.services import PythonService

_LISTENS = 'listening'
# As of the oslo.messaging manual; one message a line.
_PROGRAM = '''
import json
import sys
import time

from oslo_config import cfg
import oslo_messaging


class Endpoint:
    def info(self, context, publisher, event, payload, metadata):
        print(json.dumps([publisher, event, payload]), flush=True)


oslo_messaging.get_notification_listener(
    oslo_messaging.get_notification_transport(cfg.CONF, sys.argv[1]),
    [oslo_messaging.Target(topic='notifications')], [Endpoint()],
    executor='threading').start()
print(sys.argv[2], flush=True)
while True:
    time.sleep(3600)
'''


class Notification(typing.NamedTuple):
    """What one says, and who."""

    publisher: str
    event: str
    payload: dict[str, typing.Any]


class Listener(PythonService):
    """Takes all notifications there are, while it runs."""

    name = 'listener'

    def prepare(self) -> None:
        super().prepare()
        # It is written on; an earlier start is none.
        self.log.unlink(missing_ok=True)

    def command(self) -> list[str]:
        return [f'{self._venv}/bin/python', '-W', 'ignore', '-c', _PROGRAM,
                TRANSPORT, _LISTENS]

    def ready(self) -> bool:
        return _LISTENS in self._lines()

    def heard(self) -> list[Notification]:
        """All of them, in the order in which they came."""
        return [Notification(*json.loads(line)) for line in self._lines()
                if line.startswith('[')]

    def _lines(self) -> list[str]:
        # The last one may be half there.
        return self.log.read_text().split('\n')[:-1]
