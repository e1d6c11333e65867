# SPDX-License-Identifier: Apache-2.0
"""What LVM wrote about a volume group that it does not find.

LVM writes a description of a group behind the one before, in a ring, and then
in a header where it is, without a flush in between. A power cut that keeps the
second alone leaves a header that points to nothing whole. The description in
front of it is what the disks have: ``VolumeGroup`` begins no change before the
last one is flushed.
"""

from __future__ import annotations

import dataclasses
import datetime
import re

from cinder_dmclone import exceptions
from cinder_dmclone.privileged import pvck

_HOLDS = re.compile(r'^\s*metadata text at (\d+) crc ', re.MULTILINE)
_LISTED = re.compile(
    r'^\s*metadata at (\d+) length \d+ crc \w+ vg (\S+) seqno (\d+) id (\S+)'
    r'(?:\s*description = "(.*)"\s*creation_time = (\d+))?', re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Description:
    """A description of a group that can hold again.

    :ivar number: LVM's count of the group's changes
    :ivar torn: that of the description that is torn, if that can be told
    :ivar disks: those whose headers point to what is torn
    :ivar made: when and by what it was written, if that is known
    :ivar lvs: the names of the logical volumes that it has
    """

    group: str
    number: int
    torn: int | None
    disks: tuple[str, ...]
    made: str
    lvs: tuple[str, ...]
    text: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class _Listed:
    at: int
    group: str
    number: int
    uuid: str
    made: str


def find(group: str) -> Description:
    """The last description that is whole of a group that LVM does not find.

    :raises GroupUnrepaired: if there is none, or if something else is wrong
    """
    chosen: dict[str, tuple[_Listed, int | None]] = {}
    for disk in pvck.lost():
        listed = _listed(pvck.search(disk))
        if any(one.group == group for one in listed):
            chosen[disk] = _choose(group, disk, listed, pvck.headers(disk))
    if not chosen:
        raise _refusal(group, 'no disk that LVM finds has a description of '
                       'it and is in use by a group that is not found; see '
                       'whether its disk is there')
    if len({one.uuid for one, _ in chosen.values()}) > 1:
        raise _refusal(group, f'{" and ".join(sorted(chosen))} are of '
                       'different groups of that name')
    disk = max(chosen, key=lambda disk: chosen[disk][0].number)
    best, torn = chosen[disk]
    text, wrong = pvck.extract(disk, best.at)
    if wrong or not text:
        # It would be written all the same, over others.
        raise _refusal(group, f'description {best.number} on {disk}, which '
                       f'is in front of the torn one, is not whole: {wrong}')
    return Description(group, best.number, torn, tuple(sorted(chosen)),
                       best.made, _lvs(text), text)


def restore(found: Description) -> None:
    """Make a description the one that holds, durably.

    Stopped in between it can be done again.

    :raises CommandFailed: if a disk cannot be written
    """
    for disk in found.disks:
        pvck.replace(disk, found.text)


def _listed(text: str) -> list[_Listed]:
    return [_Listed(int(at), group, int(number), uuid, _made(said, seconds))
            for at, group, number, uuid, said, seconds
            in _LISTED.findall(text)]


def _made(said: str, seconds: str) -> str:
    when = datetime.datetime.fromtimestamp(int(seconds or 0))
    return f'{when} ({said})' if seconds else ''


def _choose(group: str, disk: str, listed: list[_Listed],
            headers: str) -> tuple[_Listed, int | None]:
    """The description in front of the torn one, and the number of that.

    :raises GroupUnrepaired: if there is none
    """
    holds = _HOLDS.search(headers)
    if holds is None:
        raise _refusal(group, f'the headers of {disk} say nothing about a '
                       'description: more than that is damaged')
    bad = int(holds[1])
    # Its beginning may have got there.
    torn = next((one.number for one in listed if one.at == bad), None)
    whole = sorted((one for one in listed if one.at != bad),
                   key=lambda one: one.at)
    # It is a ring.
    before = [one for one in whole if one.at < bad] or whole
    if not before:
        raise _refusal(group, f'{disk} has no description but the torn one')
    found = before[-1]
    if found.group != group:
        raise _refusal(group, f'what is in front of the torn description on '
                       f'{disk} is of group {found.group}')
    if torn is not None and found.number >= torn:
        raise _refusal(group, f'description {found.number} on {disk}, which '
                       f'is in front of {torn}, is none from before it')
    return found, torn


def _lvs(text: str) -> tuple[str, ...]:
    """The names in the section of logical volumes."""
    path: list[str] = []
    found = []
    for line in map(str.strip, text.splitlines()):
        if line.endswith('{'):
            path.append(line[:-1].strip())
            if len(path) == 3 and path[1] == 'logical_volumes':
                found.append(path[2])
        elif line == '}' and path:
            path.pop()
    return tuple(found)


def _refusal(group: str, reason: str) -> exceptions.GroupUnrepaired:
    return exceptions.GroupUnrepaired(group=group, reason=reason)
