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


def delete(service: Service, volume_ids: typing.Iterable[VolumeId]
           ) -> dict[VolumeId, str]:
    """See that nobody uses the volumes of a group, nor will; idempotent.

    :returns: the status of each one that cannot be deleted: as after a request
        to delete it alone
    """
    left = {}
    for volume_id in volume_ids:
        try:
            volumes.delete(service, volume_id)
        except Exception as error:
            busy = isinstance(error, exceptions.DeviceBusy)
            left[volume_id] = (VolumeStatus.AVAILABLE if busy
                               else VolumeStatus.ERROR_DELETING)
            LOG.exception('Volume %s of a group was not deleted.', volume_id)
    return left
