# SPDX-License-Identifier: Apache-2.0
"""Which node an iSCSI initiator is on, as the nodes themselves have said.

In Cinder's own table for what drivers know of initiators, which has an index
on them. A node adds its name and changes nothing: names that it had before
stay, without a service.
"""

from __future__ import annotations

from cinder.volume import driver_utils

from cinder_dmclone.location import NodeName
from cinder_dmclone.releases import db_api

NAMESPACE = 'cinder_dmclone'


class Initiators:
    """Finds nodes by their initiator."""

    def __init__(self) -> None:
        self._data = driver_utils.VolumeDriverUtils(NAMESPACE, db_api)

    def announce(self, initiator: str, node: NodeName) -> None:
        """Say that a node has this initiator. Idempotent."""
        self._data.insert_driver_initiator_data(initiator.lower(), node, '')

    def nodes(self, initiator: str) -> list[NodeName]:
        """Nodes that have said so, whatever their backend."""
        return [NodeName(found.key) for found in
                self._data.get_driver_initiator_data(initiator.lower())]
