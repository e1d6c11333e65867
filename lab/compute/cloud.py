# SPDX-License-Identifier: Apache-2.0
"""Nova's control plane in a lab."""
from __future__ import annotations

import pathlib

from lab.compute import config
from lab.compute.node import ComputeService, make_key
from lab.compute.services import (Gateway, NovaAPI, NovaConductor,
                                  NovaScheduler, Placement)
from lab.network import Network
from lab.node import Node
from lab.services import Service


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
