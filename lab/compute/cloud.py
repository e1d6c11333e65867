# SPDX-License-Identifier: Apache-2.0
"""Nova's control plane in a lab."""
from __future__ import annotations

import json
import pathlib

from lab.api import connector
from lab.compute import config
from lab.compute.node import ComputeService, make_key
from lab.compute.services import (Gateway, NovaAPI, NovaConductor,
                                  NovaScheduler, Placement)
from lab.network import Network
from lab.node import Node
from lab.processes import run
from lab.services import Service, environment


class Cloud:
    """What a lab in ``directory`` has more if there is a Nova."""

    def __init__(self, directory: pathlib.Path, network: Network,
                 venv: pathlib.Path) -> None:
        self.gateway = Gateway(directory, network, venv)
        self.services: list[Service] = [self.gateway]
        self.services += [
            kind(directory, network, venv)
            for kind in (NovaConductor, Placement, NovaAPI, NovaScheduler)]
        self._directory = directory
        self._network = network
        self._venv = venv
        self._key = directory / 'key'

    def compute(self, node: Node) -> ComputeService:
        """The service of a node."""
        return ComputeService(node, self._venv, self._key)

    def prepare(self) -> None:
        """Write what all services need before any of them starts."""
        (self._directory / 'nova' / 'lock').mkdir(parents=True)
        (self._directory / 'nova.conf').write_text(
            config.controller(self._directory / 'nova'))
        make_key(self._key)

    def refresh_attachment(self, server: str, volume: str, node: int) -> None:
        """Give a stopped server a new attachment of a volume on its node.

        This is the operator's ``nova-manage volume_attachment refresh``.
        """
        path = self._directory / f'connector-{server}.json'
        path.write_text(json.dumps(connector(node)))
        try:
            run(*self._network.argv(
                f'{self._venv}/bin/nova-manage', '--config-file',
                str(self._directory / 'nova.conf'), 'volume_attachment',
                'refresh', server, volume, str(path)), env=environment())
        finally:
            path.unlink()
