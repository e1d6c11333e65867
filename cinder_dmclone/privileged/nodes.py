# SPDX-License-Identifier: Apache-2.0
"""The way to a device node that may not be there yet.

A device exists in the kernel before its node does: the node of a new disk is
made a moment after its entry in sysfs, and its other names by udev, whenever
that comes to it. A node of an earlier device may still be there instead. So
a path is used only when it leads to the device that is meant.
"""

from __future__ import annotations

import os
import pathlib
import platform
import re
import stat
import time

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import dm_ioctl

SYSFS = pathlib.Path('/sys/dev/block')

# udev on a busy node takes its time.
SECONDS = 5.0
_PAUSE = 0.01
# The parts of '/dev/GROUP/LV'; one more has '/dev/disk/by-id/...'.
_OF_LVS = 4
_NAME = re.compile(r'^DEVNAME=(.+)$', re.MULTILINE)


def ready(path: str, devnum: str = '') -> str:
    """Wait until a path leads to its device; returns the path.

    :param devnum: 'major:minor' that it must have. For the names of dm
        devices and LVs the kernel is asked; what no number is known of must
        only be a device that exists.
    :raises NoSuchDevice: if the device mapper has no such device
    :raises NodeLate: if it does not lead there in ``SECONDS``
    :raises ValueError: if there is something else than a block device
    """
    wanted = devnum or _mapped(path)
    deadline = time.monotonic() + SECONDS
    while True:
        found = _number(path)
        if found and (found == wanted
                      or not wanted and _stands_for_itself(path, found)):
            return path
        if time.monotonic() > deadline:
            raise exceptions.NodeLate(
                path=path, node=platform.node(), seconds=SECONDS,
                devnum=wanted or 'that exists', found=found or 'nothing')
        time.sleep(_PAUSE)


def _stands_for_itself(path: str, devnum: str) -> bool:
    """Whether a path is right though the device mapper does not know it.

    The link of an LV that is not active may still lead to the number that it
    had, which another one has now.
    """
    device = SYSFS / devnum
    return device.exists() and not (
        len(path.split('/')) == _OF_LVS and (device / 'dm').exists())


def kernels(devnum: str) -> str:
    """The path that the kernel itself gives a device; '' if it has gone.

    :param devnum: 'major:minor'
    """
    try:
        found = _NAME.search((SYSFS / devnum / 'uevent').read_text())
    except OSError:
        return ''
    return f'/dev/{found[1]}' if found else ''


def _number(path: str) -> str:
    """'major:minor' of a node; '' if there is none."""
    try:
        node = os.stat(path)
    except OSError:
        return ''
    if not stat.S_ISBLK(node.st_mode):
        raise ValueError(f'{path} is not a block device')
    return f'{os.major(node.st_rdev)}:{os.minor(node.st_rdev)}'


def _mapped(path: str) -> str:
    """The number that the kernel has for a path of the device mapper.

    '' for other paths.
    """
    _, _, folder, *names = path.split('/')
    if len(names) != 1:
        return ''
    if folder == 'mapper':
        reply = dm_ioctl.ask(dm_ioctl.DEV_STATUS, names[0])
        if not reply:
            raise exceptions.NoSuchDevice(device=names[0])
        return reply.devnum
    # As LVM calls an LV (dm_build_dm_name in libdevmapper).
    lv = '-'.join(word.replace('-', '--') for word in (folder, *names))
    reply = dm_ioctl.ask(dm_ioctl.DEV_STATUS, lv)
    return reply.devnum if reply else ''
