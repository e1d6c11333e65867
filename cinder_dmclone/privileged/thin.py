# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of thin pools and thin volumes; starts no process.

What it does not tell, which blocks a volume has, is read from the disk.
"""

from __future__ import annotations

import errno
import re

from cinder_dmclone import exceptions
from cinder_dmclone import privileged
from cinder_dmclone.privileged import dm_ioctl
from cinder_dmclone.privileged import nodes
from cinder_dmclone.privileged import syscalls

# What LVM takes for the name of a group or a volume.
_NAME = re.compile(r'[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,127}')
# At once, of a pool's metadata.
BLOCKS = 256
_SECONDS = 10.0


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
    return _pool(group, name)


def _pool(group: str, name: str) -> tuple[str, str] | None:
    device = _mapped_name(group, name)
    for candidate in (f'{device}-tpool', device):
        found = _lines(dm_ioctl.STATUS_TABLE, candidate)
        if found.split()[2:3] == ['thin-pool']:
            return found, _lines(0, candidate)
    return None


def _parts(group: str, name: str) -> tuple[str, ...]:
    """The devices of a pool: what is below another one comes first."""
    device = _mapped_name(group, name)
    return f'{device}_tdata', f'{device}_tmeta', f'{device}-tpool', device


@privileged.context.entrypoint
def suspended(group: str, name: str) -> list[str]:
    """The devices of a pool that let I/O wait.

    They are asked, and not their targets, which may wait themselves.
    """
    return [part for part in _parts(group, name)
            if _flags(part) & dm_ioctl.SUSPENDED]


@privileged.context.entrypoint
def drop_tables(group: str, name: str) -> None:
    """Forget the tables that wait for the suspended devices of a pool.

    They are of a change that LVM may not have recorded. Whoever activates the
    pool would resume it with them, however small what is below is by then
    (``dm_tree_preload_children`` in libdm-deptree.c), and loads no others.
    """
    waiting = dm_ioctl.SUSPENDED | dm_ioctl.INACTIVE
    for part in _parts(group, name):
        if _flags(part) & waiting == waiting:
            dm_ioctl.ask(dm_ioctl.TABLE_CLEAR, part)


def _flags(name: str) -> int:
    reply = dm_ioctl.ask(dm_ioctl.DEV_STATUS, name)
    return reply.flags if reply else 0


@privileged.context.entrypoint
def status(devnum: str) -> str:
    """The line of a thin volume's status; empty if there is none.

    :param devnum: 'major:minor'
    """
    return _lines(0, dev=dm_ioctl.number(devnum))


@privileged.context.entrypoint
def table(devnum: str) -> str:
    """The line of a thin volume's table; empty if there is none.

    :param devnum: 'major:minor'
    """
    return _lines(dm_ioctl.STATUS_TABLE, dev=dm_ioctl.number(devnum))


@privileged.context.entrypoint
def metadata(group: str, name: str, numbers: list[int]) -> bytes:
    """Blocks of a pool's metadata, as they are on the disk now.

    :param numbers: at most ``BLOCKS``
    :raises CommandFailed: if the pool is not active, or one is not there
    """
    if len(numbers) > BLOCKS:
        raise ValueError(f'{len(numbers)} blocks are too many')
    found = _pool(group, name)
    if found is None:
        raise exceptions.CommandFailed(
            command=f'read metadata of {group}/{name}', code=errno.ENXIO,
            stderr='it is not active')
    # Start, length, kind, and then the device with the metadata.
    devnum = found[0].split()[3]
    mapped = (nodes.SYSFS / devnum / 'dm/name').read_text().strip()
    return syscalls.read(
        nodes.ready(f'/dev/mapper/{mapped}', devnum),
        [number * syscalls.BLOCK for number in numbers], _SECONDS)


def _lines(flags: int, name: str = '', dev: int = 0) -> str:
    # With a flush the pool would write its metadata first.
    reply = dm_ioctl.ask(dm_ioctl.TABLE_STATUS, name,
                         flags | dm_ioctl.NOFLUSH, dev=dev)
    return dm_ioctl.lines(reply) if reply else ''
