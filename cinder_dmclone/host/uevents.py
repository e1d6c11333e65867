# SPDX-License-Identifier: Apache-2.0
"""Failed paths, as the kernel reports them.

The kernel tells at once when a multipath device loses its path
(``dm_path_uevent`` in dm-uevent.c): the lender of a source is away, or a
server has written to a gated front. Nobody has to poll.

A plain socket rather than pyudev: its monitor waits with ``select.poll``,
which is missing where eventlet has patched the process.
"""

from __future__ import annotations

import socket
import threading
import typing

from oslo_log import log as logging

from cinder_dmclone.location import LvUuid
from cinder_dmclone import names

LOG = logging.getLogger(__name__)

_NETLINK_KOBJECT_UEVENT = 15
# The group of events from the kernel itself (udev sends its own to another).
_KERNEL = 1
# One event; the kernel makes none that is longer (UEVENT_BUFFER_SIZE).
_SIZE = 4096


def listen(failed: typing.Callable[[LvUuid], None],
           lost: typing.Callable[[], None]) -> None:
    """Start a thread that reports failed paths of our devices.

    :param failed: gets the uuid of the LV whose device lost its path
    :param lost: events were dropped; anything may have failed
    """
    found = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM,
                          _NETLINK_KOBJECT_UEVENT)
    found.bind((0, _KERNEL))
    threading.Thread(target=_run, args=(found, failed, lost), daemon=True,
                     name='dmclone-uevents').start()


def _run(found: socket.socket, failed: typing.Callable[[LvUuid], None],
         lost: typing.Callable[[], None]) -> None:
    while True:
        try:
            _tell_next(found, failed, lost)
        except Exception:
            # Nobody else tells of the next one.
            LOG.exception('What the kernel reported is not looked at.')


def _tell_next(found: socket.socket,
               failed: typing.Callable[[LvUuid], None],
               lost: typing.Callable[[], None]) -> None:
    try:
        message, (_, group) = found.recvfrom(_SIZE)
    except OSError as error:
        # ENOBUFS: they came faster than they were read.
        LOG.warning('Kernel events were lost: %s', error)
        lost()
        return
    lv = failed_path(message) if group == _KERNEL else None
    if lv:
        failed(lv)


def failed_path(message: bytes) -> LvUuid | None:
    """The LV whose device of ours lost its path; None for other events."""
    fields = dict(field.split('=', 1) for field in message.decode(
        errors='replace').split('\0') if '=' in field)
    if fields.get('DM_ACTION') != 'PATH_FAILED':
        return None
    name = names.DeviceName.parse(fields.get('DM_NAME', ''))
    return name.lv if name else None
