# SPDX-License-Identifier: Apache-2.0
"""The processes of Nova's control plane."""
from __future__ import annotations

import contextlib
import pathlib
import uuid
from collections.abc import Iterator, Mapping

from lab.compute import config, gateway
from lab.network import CONTROLLER
from lab.processes import wait_for
from lab.services import (CINDER_PORT, GATEWAY_PORT, NOVA_PORT,
                          PLACEMENT_PORT, PythonService, WebService)


class Placement(WebService):
    """Placement."""

    name = application = 'placement'
    port = PLACEMENT_PORT

    def prepare(self) -> None:
        super().prepare()
        (self.directory / 'placement.conf').write_text(config.placement())

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(),
                'OS_PLACEMENT_CONFIG_DIR': str(self.directory)}


class NovaAPI(WebService):
    """nova-api."""

    name = 'nova-api'
    application = 'nova'
    port = NOVA_PORT

    def environment(self) -> Mapping[str, str]:
        files = (self._venv / 'etc' / 'nova' / 'api-paste.ini',
                 self.directory.parent / 'nova.conf')
        return {**super().environment(),
                'OS_NOVA_CONFIG_FILES': ';'.join(map(str, files))}


class NovaConductor(PythonService):
    """nova-conductor; who needs it waits for it."""

    name = 'nova-conductor'

    def ready(self) -> bool:
        return True

    def command(self) -> list[str]:
        return [f'{self._venv}/bin/{self.name}', '--config-file',
                str(self.directory.parent / 'nova.conf')]


class NovaScheduler(NovaConductor):
    """nova-scheduler."""

    name = 'nova-scheduler'


class Gateway(PythonService):
    """Where Nova finds cinder-api, and where its requests can fail."""

    name = 'gateway'
    port = GATEWAY_PORT

    def command(self) -> list[str]:
        return [f'{self._venv}/bin/python', gateway.__file__, CONTROLLER,
                str(self.port), str(CINDER_PORT), str(self.directory)]

    @contextlib.contextmanager
    def fault(self, method: str, path: str, when: str = gateway.BEFORE,
              status: int = 500, times: int = 1) -> Iterator[Met]:
        """A fault as long as the block lasts; see gateway.Fault."""
        file = self.directory / f'{uuid.uuid4()}.json'
        part = file.with_suffix('.part')
        part.write_text(
            gateway.Fault(method, path, when, status, times).print())
        part.rename(file)
        try:
            yield Met(file)
        finally:
            file.unlink()

    def held(self, method: str, path: str, when: str = gateway.BEFORE
             ) -> contextlib.AbstractContextManager[Met]:
        """Let one request wait as long as the block lasts."""
        return self.fault(method, path, when, status=0)


class Met:
    """What a fault has met."""

    def __init__(self, file: pathlib.Path) -> None:
        self._file = file.with_suffix(gateway.HITS)

    def requests(self) -> list[str]:
        """Method and path of each request, in their order."""
        if not self._file.exists():
            return []
        return self._file.read_text().splitlines()

    def wait(self, count: int = 1, timeout: float = 300) -> None:
        """Wait until it has met so many requests."""
        wait_for(f'{count} requests to meet a fault',
                 lambda: len(self.requests()) >= count, timeout, 0.1)
