# SPDX-License-Identifier: Apache-2.0
"""The device mapper, as root: one function per verb, for devices of ours only.

Questions and small changes go to the kernel directly; a process for each
would cost most of a relocation. What may wait in the kernel is done by a
process that can be killed: by one that stands by (``syscalls``), or by
dmsetup, which waits for udev too. That relies on the rule that keeps udev
from reading our devices (``files/cinder-dmclone.rules``): without it a source
without a path would keep dmsetup waiting for ever.
"""

from __future__ import annotations

import errno
import pathlib
import re
from typing import Any, NamedTuple
import uuid

from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone import privileged
from cinder_dmclone.privileged import dm_ioctl
from cinder_dmclone.privileged import links
from cinder_dmclone.privileged import nodes
from cinder_dmclone.privileged import process
from cinder_dmclone.privileged import syscalls

# What a clone and a multipath device understand.
_VERBS = frozenset([
    'enable_hydration', 'disable_hydration', 'fail_if_no_path',
    'queue_if_no_path', 'reinstate_path'])
MODULES = ('dm-clone', 'dm-delay', 'dm-multipath', 'dm-round-robin')

_NAME = re.compile(rf'{names.DM_PREFIX}[A-Za-z0-9_.+-]{{1,112}}')
_ARGUMENT = re.compile(r'\d+(:\d+)?')
# Tables of the targets that have more to tell than their table.
_TELLING = re.compile(r'\d+ \d+ (clone|multipath)\b')
_ABSENT = re.compile(r'No such device or address|Device does not exist')
_BUSY = re.compile(r'Device or resource busy|is in use')

_SECONDS = 10.0
# A change that cannot be made (a request is stuck below) must not keep a
# server's I/O waiting.
SWAP_SECONDS = 1.0
# What dmsetup tells udev at a resume: DM_UDEV_PRIMARY_SOURCE_FLAG, and that it
# has made the name itself if need be (libdevmapper.h).
_RESUME_EVENT = (0x40 | 0x20) << 16
# One command, in a session of its own: it comes to its end whoever is ended.
_PROBE = '''
dmsetup create "$1" --uuid "$2" --table "0 8 error" || exit
devnum=$(dmsetup info -c --noheadings --separator : -o major,minor "$1")
cat "/run/udev/data/b$devnum"
dmsetup remove --retry "$1"
'''
# It is asked when a service starts, perhaps with the machine: udev is busy.
_PROBE_SECONDS = 60.0
# A status that flushes writes the metadata and flushes the data device.
_FLUSH_SECONDS = 30.0


def _ours(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f'{name!r} is not a device of ours')
    return name


def _uuid(name: str) -> str:
    return names.UUID_PREFIX + _ours(name).removeprefix(names.DM_PREFIX)


class Found(NamedTuple):
    """A device as the kernel has it, with its live table's lines.

    ``status`` are the lines of its status, if it is of a kind that has one.
    """

    name: str
    devnum: str
    open_count: int
    suspended: bool
    readonly: bool
    pending: bool
    table: str
    status: str


@privileged.context.entrypoint
def inspect(name: str | None = None, part: str = ''
            ) -> list[tuple[Any, ...]]:
    """What there is of our devices, or of one: the fields of ``Found``.

    :param part: only devices with this in their names
    """
    wanted = [_ours(name)] if name else [
        each for each in dm_ioctl.names()
        if part in each and _NAME.fullmatch(each)]
    return [tuple(found) for found in map(_found, wanted) if found]


def _found(name: str) -> Found | None:
    reply = dm_ioctl.ask(dm_ioctl.TABLE_STATUS, name,
                         dm_ioctl.STATUS_TABLE | dm_ioctl.NOFLUSH)
    # It may have vanished since it was listed.
    if not reply or not reply.uuid.startswith(names.UUID_PREFIX):
        return None
    table = dm_ioctl.lines(reply)
    return Found(
        reply.name, reply.devnum, reply.open_count,
        bool(reply.flags & dm_ioctl.SUSPENDED),
        bool(reply.flags & dm_ioctl.READONLY),
        bool(reply.flags & dm_ioctl.INACTIVE), table,
        _state(name) if _TELLING.match(table) else '')


def _state(name: str) -> str:
    """Status lines of a device, without a flush; '' if it is gone."""
    reply = dm_ioctl.ask(dm_ioctl.TABLE_STATUS, name, dm_ioctl.NOFLUSH)
    return dm_ioctl.lines(reply) if reply else ''


@privileged.context.entrypoint
def open_count(devnum: str) -> int:
    """How many openers a dm device has, in the kernel and outside.

    :param devnum: 'major:minor', also of an LV
    :raises CommandFailed: if there is no such device
    """
    reply = dm_ioctl.ask(dm_ioctl.DEV_STATUS, dev=dm_ioctl.number(devnum))
    return _present(reply, devnum).open_count


def _present(reply: dm_ioctl.Reply | None, name: str) -> dm_ioctl.Reply:
    if reply is None:
        raise exceptions.CommandFailed(
            command=f'device-mapper ioctl {name}', code=errno.ENXIO,
            stderr='no such device')
    return reply


@privileged.context.entrypoint
def create(name: str, table: str, readonly: bool) -> None:
    """Make a device and wait until udev has made its name.

    :raises CommandFailed: if it exists, or the kernel refuses the table
    """
    process.run(['dmsetup', 'create', _ours(name), '--uuid', _uuid(name),
                 *_readonly(readonly)], _SECONDS, table)
    nodes.ready(f'/dev/mapper/{name}')


@privileged.context.entrypoint
def load(name: str, table: str, readonly: bool) -> None:
    """Put a table into the inactive slot; replaces one that is there.

    :raises CommandFailed: if there is no such device, or the kernel refuses
        the table
    :raises CommandTimeout: if an imported disk does not answer
    """
    _load(name, table, readonly)


def _load(name: str, table: str, readonly: bool) -> None:
    count, specs = dm_ioctl.pack_table(table)
    # The kernel opens the paths of a multipath device, and asks their disk
    # whether it may be written (``sd_open`` in sd.c).
    seconds = _SECONDS if ' multipath ' in table else None
    _present(dm_ioctl.ask(
        dm_ioctl.TABLE_LOAD, _ours(name),
        dm_ioctl.READONLY if readonly else 0, targets=count, data=specs,
        seconds=seconds), name)


def _readonly(readonly: bool) -> list[str]:
    return ['--readonly'] if readonly else []


@privileged.context.entrypoint
def exchange(name: str, table: str, readonly: bool, noflush: bool) -> None:
    """Load another table and make it the live one, in ``SWAP_SECONDS``.

    The kernel suspends, exchanges and resumes in one call. It waits for the
    requests under way; if it is interrupted meanwhile, the device goes on
    with its old table (``do_resume`` in dm-ioctl.c).

    The page cache is not written back first (``SKIP_LOCKFS``), which nothing
    could interrupt; there is never a file system on our side of the device.
    udev is not waited for: the name exists already.

    :raises CommandTimeout: if the requests under way did not end in time
    """
    _load(name, table, readonly)
    _present(dm_ioctl.ask(
        dm_ioctl.DEV_SUSPEND, _ours(name),
        dm_ioctl.SKIP_LOCKFS | (dm_ioctl.NOFLUSH if noflush else 0),
        event=_RESUME_EVENT, seconds=SWAP_SECONDS), name)


@privileged.context.entrypoint
def resume(name: str) -> None:
    """Drop the inactive table, if any, and let I/O run on the live one.

    :raises CommandFailed: if there is no such device
    """
    _present(dm_ioctl.ask(dm_ioctl.TABLE_CLEAR, _ours(name)), name)
    process.run(['dmsetup', 'resume', _ours(name)], _SECONDS)


@privileged.context.entrypoint
def activate(name: str) -> None:
    """Bring up the loaded table of a device that never had one.

    :raises CommandFailed: if there is no such device
    """
    process.run(['dmsetup', 'resume', _ours(name)], _SECONDS)
    nodes.ready(f'/dev/mapper/{name}')


@privileged.context.entrypoint
def remove(name: str) -> None:
    """Remove a device; an absent one is fine.

    :raises DeviceBusy: if it is open
    :raises CommandTimeout: if the kernel waits for requests of its own
    """
    try:
        process.run(['dmsetup', 'remove', _ours(name)], _SECONDS)
    except exceptions.CommandFailed as error:
        if _BUSY.search(str(error)):
            raise exceptions.DeviceBusy(device=name) from error
        if not _ABSENT.search(str(error)):
            raise
    links.drop(name)


@privileged.context.entrypoint
def link(name: str) -> str:
    """A path to a device that its user may replace (``links``)."""
    nodes.ready(f'/dev/mapper/{_ours(name)}')
    return links.make(name)


@privileged.context.entrypoint
def message(name: str, words: tuple[str, ...]) -> None:
    """Send a message to the device's target.

    :param words: one of the verbs of clone and multipath, and its argument
    """
    verb, *arguments = words
    if verb not in _VERBS or not all(map(_ARGUMENT.fullmatch, arguments)):
        raise ValueError(f'{words!r} is not a message we send')
    _present(dm_ioctl.message(_ours(name), words), name)


@privileged.context.entrypoint
def status(name: str, flush: bool) -> str:
    """Status lines of one device.

    :param flush: let a clone commit its metadata first
    """
    if flush:
        return process.run(['dmsetup', 'status', _ours(name)],
                           _FLUSH_SECONDS)
    reply = dm_ioctl.ask(dm_ioctl.TABLE_STATUS, _ours(name),
                         dm_ioctl.NOFLUSH)
    return dm_ioctl.lines(_present(reply, name))


@privileged.context.entrypoint
def targets() -> list[str]:
    """Target types of the kernel, after loading the modules for ours."""
    try:
        process.run(['modprobe', '--all', '--quiet', *MODULES], _SECONDS)
    except exceptions.CommandFailed:
        pass  # built in, or really missing: the list below tells
    return dm_ioctl.versions()


@privileged.context.entrypoint
def probe() -> str:
    """What udev records of a device of ours, which is there for a moment.

    :returns: lines of its database (sd_device_get_property_value(3) and
        ``device_update_db`` in systemd); '' if it recorded nothing
    :raises CommandTimeout: if udev does not answer
    """
    name = f'{names.DM_PREFIX}check-{uuid.uuid4()}'
    try:
        return process.run(['sh', '-c', _PROBE, 'sh', name, _uuid(name)],
                           _PROBE_SECONDS)
    except exceptions.DMCloneException:
        if dm_ioctl.ask(dm_ioctl.DEV_STATUS, name):
            process.run(['dmsetup', 'remove', '--noudevsync', '--retry',
                         name], _SECONDS)
        raise


@privileged.context.entrypoint
def hide_discards(name: str) -> None:
    """Make the device, and what is built on it later, refuse discards."""
    (_queue(name) / 'discard_max_bytes').write_text('0')


@privileged.context.entrypoint
def count_io(name: str) -> None:
    """Let the kernel count the requests that are under way in the device."""
    (_queue(name) / 'iostats').write_text('1')


def _queue(name: str) -> pathlib.Path:
    reply = dm_ioctl.ask(dm_ioctl.DEV_STATUS, _ours(name))
    return nodes.SYSFS / _present(reply, name).devnum / 'queue'


@privileged.context.entrypoint
def discard(name: str, ranges: list[tuple[int, int]]) -> None:
    """Discard parts of a device.

    :param ranges: first byte and length of each
    :raises CommandFailed: if the kernel refuses
    :raises CommandTimeout: if it does not answer
    """
    path = nodes.ready(f'/dev/mapper/{_ours(name)}')
    syscalls.discard(path, ranges, _SECONDS)
