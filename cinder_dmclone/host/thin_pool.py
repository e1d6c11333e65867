# SPDX-License-Identifier: Apache-2.0
"""A thin pool as the kernel counts it, and what makes one fit for tenants.

What is said of tables and status is that of
``Documentation/admin-guide/device-mapper/thin-provisioning.rst`` and of
``pool_status`` in dm-thin.c.
"""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import typing

from cinder_dmclone.units import Bytes
from cinder_dmclone.units import Sectors

# What part of a pool's data or metadata may be in use, in percent, when
# anything new begins in it; and from where on somebody has to act.
MOST = 80.0
ALARM = 95.0

# That of a pool (lv_layout in lvmreport(7)).
LAYOUT = 'thin,pool'
TIMEOUT = pathlib.Path(
    '/sys/module/dm_thin_pool/parameters/no_space_timeout')
# Of the pool's own metadata.
_BLOCK = 4096


@dataclasses.dataclass(frozen=True)
class Usage:
    """How full a pool is.

    :ivar size: what it has for data
    :ivar used: what of that its volumes have written
    :ivar zeroes: whether a volume reads nothing of what was there before
    :ivar state: why nothing new can be in it; empty if it can
    """

    size: Bytes
    used: Bytes
    metadata_size: Bytes
    metadata_used: Bytes
    zeroes: bool
    state: str = ''

    @classmethod
    def parse(cls, table: str, status: str) -> typing.Self:
        """From the lines of its table and of its status."""
        block, _low, _count, *features = table.split()[5:]
        zeroes = 'skip_block_zeroing' not in features
        fields = status.split()[3:]
        if len(fields) < 5:
            # "Fail" or "Error".
            nothing = Bytes(0)
            return cls(nothing, nothing, nothing, nothing, zeroes,
                       'the kernel says that it has failed')
        metadata_used, metadata_size = map(int, fields[1].split('/'))
        used, size = map(int, fields[2].split('/'))
        chunk = Sectors(int(block)).to_bytes()
        state = ''
        if 'ro' in fields[4:]:
            state = 'it is read-only'
        if 'needs_check' in fields[4:]:
            state = 'its metadata have to be checked'
        return cls(Bytes(size * chunk), Bytes(used * chunk),
                   Bytes(metadata_size * _BLOCK),
                   Bytes(metadata_used * _BLOCK), zeroes, state)

    @property
    def free(self) -> Bytes:
        """What of its data nobody has."""
        return Bytes(self.size - self.used)

    @property
    def percent(self) -> float:
        """How much of its data is in use."""
        return _percent(self.used, self.size)

    @property
    def metadata_percent(self) -> float:
        """How much of its metadata is in use."""
        return _percent(self.metadata_used, self.metadata_size)

    def __str__(self) -> str:
        return (f'{self.percent:.0f} percent of its data and '
                f'{self.metadata_percent:.0f} percent of its metadata')

    def above(self, percent: float) -> bool:
        """Whether more of its data or of its metadata is in use."""
        return max(self.percent, self.metadata_percent) > percent


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 100.0


def mapped(status: str) -> Bytes | None:
    """What a thin volume takes of its pool, from the line of its status.

    :returns: None if the line does not tell
    """
    fields = status.split()[2:]
    if fields[:1] != ['thin'] or not fields[1:2] or not fields[1].isdecimal():
        return None
    return Sectors(int(fields[1])).to_bytes()


# Why its I/O waits, if cinder-volume lets it go on.
INTERRUPTED = 'LVM was killed while it changed it'


def interrupted(rows: typing.Iterable[dict[str, str]]) -> frozenset[str]:
    """The pools that LVM may have left suspended, from its report on LVs.

    LVM suspends from the top, an LV or the pool's own device first, and
    resumes from the bottom (``dm_tree_suspend_children`` in libdm-deptree.c):
    if it was killed that one is suspended, too. Not if activations leave it
    out: then only an operator ends the change.
    """
    found = {row['lv_name'] if row['lv_layout'] == LAYOUT else row['pool_lv']
             for row in rows if row['lv_suspended'] == 'suspended'
             and not row['lv_skip_activation']}
    return frozenset(filter(None, found))


def why_suspended(devices: typing.Sequence[str], by_lvm: bool) -> str:
    """Why its I/O waits.

    :param devices: those that are suspended, by name
    """
    if by_lvm:
        return INTERRUPTED
    found = ' '.join(devices)
    return (f'somebody has suspended {found}, and it is not known what for: '
            f'dmsetup resume {found}')


def making(group: str, name: str) -> str:
    """The command that makes a pool as this driver wants it.

    Small chunks: a disk writes a larger one in pieces, and then the pool
    writes zeros to all of it first. Some of the group is left for the
    metadata of clones.
    """
    return (f'lvcreate --type thin-pool --name {name} --extents 95%FREE '
            f'--chunksize 64k --zero y {group}')


def advice() -> typing.Iterator[str]:
    """What a node with a thin pool should have, and can do without."""
    try:
        seconds = TIMEOUT.read_text().strip()
    except OSError:
        seconds = '0'  # the module is not loaded: no pool is active
    if seconds != '0':
        yield ('When a thin pool is full, the writes of servers wait for '
               f'{seconds} s, then they fail. To let them wait until it is '
               f'extended: echo 0 > {TIMEOUT}, and the line "options '
               'dm_thin_pool no_space_timeout=0" in a file *.conf of '
               '/etc/modprobe.d.')
    if not shutil.which('thin_check', path='/usr/sbin:/sbin:/usr/bin:/bin'):
        yield ('The command thin_check is missing, by which LVM looks at the '
               'metadata of a thin pool before it activates it: install '
               'thin-provisioning-tools or device-mapper-persistent-data.')
