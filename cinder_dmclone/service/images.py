# SPDX-License-Identifier: Apache-2.0
"""A node's own work on the bytes of a volume."""

from __future__ import annotations

import contextlib
import typing

from oslo_log import log as logging

from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.relocation import cut
from cinder_dmclone.service.base import Service
from cinder_dmclone.stack import consumers

LOG = logging.getLogger(__name__)

# Cinder has the end of a volume's creation written down long before.
IMAGED_SECONDS = 3600.0


@contextlib.contextmanager
def local_path(service: Service, volume_id: VolumeId) -> typing.Iterator[str]:
    """A device for this node's own work on a volume, as image copies.

    Meanwhile the volume does not move.

    :raises NotWritten: unless its status says that an image is to be written:
        Cinder checks nothing when it carries that out (``VolumeManager
        .reimage``), and a server may have had the volume since it was asked
    """
    with service.home(volume_id, 'written') as (row, stack):
        # Cinder still makes it. It may be reserved meanwhile (``downloading``
        # in ``_attachment_reserve`` of cinder/volume/api.py), which its status
        # says instead.
        made = not row.name_id and service.world.rows.unmade(row.id)
        if row.status not in rows.BEING_MADE and not (
                made and not any(a.connected for a in row.attachments)):
            raise exceptions.NotWritten(volume=row.id, node=service.node,
                                        status=row.status)
        _, stack = cut.writable(service.world, row, stack)
        name = names.local_io(stack.known_as)
        consumers.consume(service.host, stack, name)
        service.copying.add(volume_id)
    try:
        yield name.path
    finally:
        if made:
            _note(service, volume_id)
        try:
            _remove(service, volume_id, name)
        finally:
            service.copying.discard(volume_id)


def _note(service: Service, volume_id: VolumeId) -> None:
    now, imaged = service.world.clock.monotonic(), service.imaged
    for known in [each for each, at in list(imaged.items())
                  if now - at > IMAGED_SECONDS]:
        imaged.pop(known, None)
    imaged[volume_id] = now


def require_clean(service: Service, volume_id: VolumeId,
                  source: VolumeId) -> None:
    """See that what the image cache keeps is the image.

    Cinder clones a volume for it that it has just made of one, when somebody
    may have been given it already (see ``local_path``): all later volumes of
    that image would begin with what he wrote.

    :raises CannotBear: if somebody has, or had, the source
    """
    if source in service.imaged and (
            service.world.rows.unmade(source, had=True)):
        raise exceptions.CannotBear(
            volume=volume_id, node=service.node,
            reason=f'volume {source} is not all made yet, and was attached '
            'already: it may have more than its image')


@contextlib.contextmanager
def readable(service: Service, volume_id: VolumeId) -> typing.Iterator[str]:
    """A device to read a volume through, whoever writes it or needs it.

    It leads to the LV that the volume is now, wherever the volume goes.
    """
    with service.home(volume_id, 'read') as (_, stack):
        name = names.view(stack.lv, volume_id)
        consumers.read_here(service.host, stack, name)
    try:
        yield name.path
    finally:
        _remove(service, volume_id, name)


def _remove(service: Service, volume_id: VolumeId,
            name: names.DeviceName) -> None:
    """Remove a device that was closed.

    Whoever holds the volume's lock may be about to lead it elsewhere, and
    would fail, or make it again.
    """
    try:
        with service.locked(volume_id):
            service.host.dm.remove(str(name))
    except exceptions.VolumeLocked as error:
        # What is done with it was done well; the reconciler removes what
        # nobody has open.
        LOG.debug('%(device)s is left: %(error)s',
                  {'device': name, 'error': error.msg})
    finally:
        service.loop.enqueue(volume_id)
