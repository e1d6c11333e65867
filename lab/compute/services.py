# SPDX-License-Identifier: Apache-2.0
"""The processes of Nova's control plane."""
from __future__ import annotations

from collections.abc import Mapping

from lab.compute import config
from lab.services import (NOVA_PORT, PLACEMENT_PORT, PythonService,
                          WebService)


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
