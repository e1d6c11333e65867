# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of thin pools and thin volumes; starts no process."""

from __future__ import annotations

import os
import re

from cinder_dmclone import privileged
from cinder_dmclone.privileged import dm_ioctl

# What LVM takes for the name of a group or a volume.
_NAME = re.compile(r'[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,127}')
_DEVNUM = re.compile(r'\d+:\d+')


def _mapped_name(*parts: str) -> str:
    """A name as LVM makes it of parts (``dm_build_dm_name``)."""
    for part in parts:
        if not _NAME.fullmatch(part) or part in ('.', '..'):
            raise ValueError(f'{part!r} is not a name of LVM')
    return '-'.join(part.replace('-', '--') for part in parts)


@privileged.context.entrypoint
def pool(group: str, name: str) -> tuple[str, str] | None:
    """The lines of a pool's table and of its status; None if not active.

    A pool that never had a volume is the device of that name, any other is
    below it (``lv_is_new_thin_pool`` in LVM).
    """
    device = _mapped_name(group, name)
    for candidate in (f'{device}-tpool', device):
        table = _lines(dm_ioctl.STATUS_TABLE, candidate)
        if table.split()[2:3] == ['thin-pool']:
            return table, _lines(0, candidate)
    return None


@privileged.context.entrypoint
def status(devnum: str) -> str:
    """The line of a thin volume's status; empty if there is none.

    :param devnum: 'major:minor'
    """
    if not _DEVNUM.fullmatch(devnum):
        raise ValueError(f'{devnum!r} is not a device number')
    major, minor = map(int, devnum.split(':'))
    return _lines(0, dev=os.makedev(major, minor))


def _lines(flags: int, name: str = '', dev: int = 0) -> str:
    # With a flush the pool would write its metadata first.
    reply = dm_ioctl.ask(dm_ioctl.TABLE_STATUS, name,
                         flags | dm_ioctl.NOFLUSH, dev=dev)
    return dm_ioctl.lines(reply) if reply else ''
