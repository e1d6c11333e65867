# SPDX-License-Identifier: Apache-2.0
"""The services of the backend's nodes, as Cinder's database has them.

Cinder's ``services`` has an index on ``uuid`` only, and a row for every
service of the fleet. Which uuid a node's service has is kept: it never
changes, and a service that was removed and came back gets another row.
"""

from __future__ import annotations

import math
import time
import typing

from cinder.common import constants
from cinder import context as cinder_context
from cinder import exception
from cinder import objects

from cinder_dmclone.location import NodeName
from cinder_dmclone.releases import db_api
from cinder_dmclone.releases import models

# So many rows are read at once to learn all uuids.
PAGE = 50
# So long the names of all nodes are taken to be the same.
NAMES_SECONDS = 60.0


class Services:
    """Finds services by the name of their node."""

    def __init__(self) -> None:
        self._uuids: dict[str, str] = {}
        self._learnt = -math.inf

    def get(self, node: NodeName) -> objects.Service | None:
        """A node's volume service as it is now; None if there is none.

        :param node: ``host@backend``
        """
        found = self._known(node)
        if found is None:
            self._learn()
            found = self._known(node)
        return found

    def known(self, nodes: typing.Iterable[NodeName]) -> list[NodeName]:
        """Those that have, or had, a volume service; in order.

        Many that have none any more cost no more than one.
        """
        wanted = list(nodes)
        if not self._uuids.keys() >= set(wanted):
            self._learn()
        return [node for node in wanted if node in self._uuids]

    def nodes(self) -> list[NodeName]:
        """All nodes with a volume service, of whatever backend.

        One that came less than ``NAMES_SECONDS`` ago may be missing: who
        drains a node asks for each of its volumes.
        """
        if time.monotonic() - self._learnt >= NAMES_SECONDS:
            self._learn()
        return [NodeName(node) for node in self._uuids]

    def _learn(self) -> None:
        self._uuids = dict(_read_all())
        self._learnt = time.monotonic()

    def _known(self, node: NodeName) -> objects.Service | None:
        uuid = self._uuids.get(node)
        if uuid is None:
            return None
        try:
            return objects.Service.get_by_uuid(
                cinder_context.get_admin_context(), uuid)
        except exception.ServiceNotFound:
            return None


def _read_all() -> typing.Iterator[tuple[str, str]]:
    """Node and uuid of every volume service, page by page."""
    context, service = cinder_context.get_admin_context(), models.Service
    last, full = 0, True
    while full:
        with db_api.main_context_manager.reader.using(context) as session:
            page = session.query(
                service.id, service.host, service.uuid, service.binary,
                service.deleted).filter(service.id > last).order_by(
                    service.id).limit(PAGE).all()
        for last, host, uuid, binary, deleted in page:
            if binary == constants.VOLUME_BINARY and not deleted and uuid:
                yield host, uuid
        full = len(page) == PAGE
