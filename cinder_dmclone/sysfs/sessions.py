# SPDX-License-Identifier: Apache-2.0
"""What the kernel knows about iSCSI sessions, read from sysfs.

Reads only, as any user, without a process and without asking iscsid: the
answer is right even while iscsid is stuck or restarting.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing

from cinder_dmclone import names

SYSFS = pathlib.Path('/sys')

LOGGED_IN = 'LOGGED_IN'
# Of a disk whose session works, and that the kernel has given up.
OFFLINE = 'offline'

_OURS = re.compile(rf'iqn\.[0-9a-z.:-]+{names.IQN_MARK}[0-9a-f]{{8,64}}')


@dataclasses.dataclass(frozen=True)
class Disk:
    """The imported disk of a session.

    :ivar path: for example ``/dev/sda``; names are reused, so it is only
        valid together with ``devnum``
    :ivar devnum: 'major:minor'
    :ivar state: ``LOGGED_IN`` if I/O can flow. Otherwise the session's state
        (``FAILED`` while it reconnects and I/O waits, ``FREE`` when that has
        lasted for the replacement timeout and I/O fails; it goes on trying),
        or, if the session is well, the SCSI device's (``offline`` after
        failed error handling).
    """

    path: str
    devnum: str
    state: str


@dataclasses.dataclass(frozen=True)
class Session:
    """One session of the initiator with a target of ours."""

    sid: int
    iqn: str
    state: str
    host: int
    disk: Disk | None


def is_ours(iqn: str) -> bool:
    """Whether a target name is one that this driver makes."""
    return len(iqn) <= 223 and _OURS.fullmatch(iqn) is not None


def sessions() -> list[Session]:
    """Every session with a target of ours, by age.

    A session that comes or goes meanwhile is there or not, never an error.
    """
    return _sessions(is_ours)


def _sessions(wanted: typing.Callable[[str], bool]) -> list[Session]:
    found = []
    for path in _listed(SYSFS / 'class/iscsi_session'):
        try:
            iqn = _read(path / 'targetname')
            if wanted(iqn):
                found.append(_session(path, iqn))
        except (OSError, ValueError):
            # Without its device the session's path leads nowhere, and has no
            # number of a SCSI host in it.
            continue
    return sorted(found, key=lambda session: session.sid)


def by_use(found: typing.Iterable[Session]) -> list[Session]:
    """Sessions in order: those that work first."""
    return sorted(found, key=lambda session: (session.state != LOGGED_IN,
                                              session.disk is None))


def find(iqn: str) -> Session | None:
    """The session with this target; of several one that works first."""
    matches = by_use(_sessions(iqn.__eq__) if is_ours(iqn) else ())
    return matches[0] if matches else None


def size(disk: Disk) -> int | None:
    """How long (bytes) the kernel takes a disk to be, None if it is gone."""
    path = SYSFS / 'dev/block' / disk.devnum / 'size'
    try:
        return int(_read(path)) * 512
    except OSError:
        return None


def _session(path: pathlib.Path, iqn: str) -> Session:
    state = _read(path / 'state')
    device = (path / 'device').resolve()
    host = int(device.parent.name.removeprefix('host'))
    return Session(int(path.name.removeprefix('session')), iqn, state, host,
                   _disk(device, state))


def _disk(device: pathlib.Path, state: str) -> Disk | None:
    """The disk of a session in a state; one that comes or goes is not there.

    The kernel shows a disk before it tells its number (``device_add`` in
    drivers/base/core.c).
    """
    disk = None
    for scsi in sorted(device.glob('target*:*:*/*:*:*:0')):
        for block in _listed(scsi / 'block'):
            try:
                device_state = _read(scsi / 'state')
                devnum = _read(block / 'dev')
            except OSError:
                continue
            usable = state != LOGGED_IN or device_state == 'running'
            disk = Disk(f'/dev/{block.name}', devnum,
                        state if usable else device_state)
    return disk


def _listed(path: pathlib.Path) -> list[pathlib.Path]:
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _read(path: pathlib.Path) -> str:
    return path.read_text().strip()
