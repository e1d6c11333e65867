# SPDX-License-Identifier: Apache-2.0
"""A row of ``volume_attachment``: who has a volume, or waits for it."""

from __future__ import annotations

import dataclasses
import typing

from cinder.objects.fields import VolumeAttachStatus
from oslo_serialization import jsonutils


@dataclasses.dataclass(frozen=True)
class Attachment:
    """One row of ``volume_attachment``; ``host`` is the connector's.

    ``kind`` is how it is served, its ``driver_volume_type``; the API writes it
    down a little later than the connector.
    """

    id: str
    status: str
    instance: str | None
    connected: bool
    host: str | None
    initiator: str | None
    kind: str | None = None

    @property
    def attached(self) -> bool:
        """Whether whoever it is for has said that it has the volume."""
        return bool(self.status == VolumeAttachStatus.ATTACHED)

    @property
    def given(self) -> bool:
        """Whether whoever it is for may have got Cinder's answer.

        The API writes that down before it gives it
        (``attachment_update`` of cinder/volume/api.py).
        """
        return self.connected and (self.attached or self.kind is not None)

    @property
    def over_iscsi(self) -> bool:
        """Whether it was served over iSCSI, as far as is written down."""
        return self.kind == 'iscsi'

    @property
    def asked_for(self) -> bool:
        """Whether a connection for it is wanted, or being made."""
        return self.status in (VolumeAttachStatus.RESERVED,
                               VolumeAttachStatus.ATTACHING)


def read_attachment(attachment_id: str, status: str, instance: str | None,
                    connector: str | None,
                    connection_info: str | None = None) -> Attachment:
    """A row of ``volume_attachment``, whose JSON may be absent."""
    found = jsonutils.loads(connector) if connector else {}
    info = jsonutils.loads(connection_info) if connection_info else {}
    # Initiator names are compared in lower case, as LIO has them (RFC 3722).
    initiator = (found.get('initiator') or '').lower() or None
    return Attachment(attachment_id, status, instance, bool(found),
                      found.get('host'), initiator,
                      info.get('driver_volume_type'))


def read_attachments(found: typing.Iterable[typing.Any]
                     ) -> dict[str, list[Attachment]]:
    """Such rows, each after the id of its volume, by that."""
    by_volume: dict[str, list[Attachment]] = {}
    for volume_id, *fields in found:
        by_volume.setdefault(volume_id, []).append(read_attachment(*fields))
    return by_volume
