# SPDX-License-Identifier: Apache-2.0
"""Groups of Cinder: their volumes are deleted together."""

from __future__ import annotations

import typing

from cinder.objects.fields import VolumeStatus
from oslo_log import log as logging

from cinder_dmclone import exceptions
from cinder_dmclone.location import VolumeId
from cinder_dmclone.service.base import Service
from cinder_dmclone.service import volumes

LOG = logging.getLogger(__name__)

# Cinder has no name for it, as the status of a volume.
DELETED = 'deleted'


def delete(service: Service, volume_ids: typing.Iterable[VolumeId]
           ) -> dict[VolumeId, str]:
    """See that nobody uses the volumes of a group, nor will; idempotent.

    :returns: the status of each: ``deleted`` only if that of all is
    """
    found: dict[VolumeId, str] = {}
    for volume_id in volume_ids:
        found[volume_id] = DELETED
        try:
            volumes.delete(service, volume_id)
        except Exception as error:
            busy = isinstance(error, exceptions.DeviceBusy)
            found[volume_id] = (VolumeStatus.AVAILABLE if busy
                                else VolumeStatus.ERROR_DELETING)
            LOG.exception('Volume %s of a group was not deleted.', volume_id)
    if not left(found):
        return found
    # What else they were before Cinder does not tell.
    return {volume_id: VolumeStatus.ERROR_DELETING
            if status == DELETED else status
            for volume_id, status in found.items()}


def left(found: typing.Mapping[VolumeId, str]) -> bool:
    """Whether any was not deleted."""
    return any(status != DELETED for status in found.values())
