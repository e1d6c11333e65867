# SPDX-License-Identifier: Apache-2.0
"""dmsetup, as root: one function per verb, for devices of ours only.

Tables are given on standard input. Commands that wait for udev rely on the
rule that keeps udev from reading our devices (``56-cinder-dmclone.rules``):
without it a source without a path would keep them waiting for ever.
"""

from __future__ import annotations

import re

from cinder_dmclone import exceptions
from cinder_dmclone import privileged
from cinder_dmclone.privileged import block
from cinder_dmclone.privileged import process

UUID_PREFIX = 'CINDER-DMCLONE-'

# Between the columns of ``inspect``; in no name or uuid of ours.
SEPARATOR = '|'
COLUMNS = ('name', 'uuid', 'major', 'minor', 'open', 'suspended', 'readonly',
           'tables_loaded')

# What a clone and a multipath device understand.
_VERBS = frozenset([
    'enable_hydration', 'disable_hydration', 'fail_if_no_path',
    'queue_if_no_path', 'reinstate_path'])
_MODULES = ('dm-clone', 'dm-delay', 'dm-multipath', 'dm-round-robin')

_NAME = re.compile(r'dmclone-[A-Za-z0-9_.+-]{1,112}')
_ARGUMENT = re.compile(r'\d+(:\d+)?')
_ABSENT = re.compile(r'No such device or address|Device does not exist')
_BUSY = re.compile(r'Device or resource busy|is in use')

_SECONDS = 10.0
# A change that cannot be made (a request is stuck below) must not keep a
# server's I/O waiting.
SWAP_SECONDS = 1.0
# A status that flushes writes the metadata and flushes the data device.
_FLUSH_SECONDS = 30.0


def _ours(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f'{name!r} is not a device of ours')
    return name


def _uuid(name: str) -> str:
    return UUID_PREFIX + _ours(name).removeprefix('dmclone-')


@privileged.context.entrypoint
def inspect(name: str | None = None) -> tuple[str, str]:
    """Rows of ``COLUMNS`` and tables of our devices, or of one.

    :returns: what ``dmsetup info`` and ``dmsetup table`` print; for one
        device the latter is not prefixed with its name. Both are empty if
        there is none.
    """
    which = [_ours(name)] if name else []
    select = [] if name else ['--select', f'uuid=~"^{UUID_PREFIX}"']
    try:
        info = process.run(
            ['dmsetup', 'info', '-c', '--noheadings', '--separator',
             SEPARATOR, '-o', ','.join(COLUMNS), *select, *which], _SECONDS)
        return info, process.run(['dmsetup', 'table', *which], _SECONDS)
    except exceptions.CommandFailed as error:
        if name and _ABSENT.search(str(error)):
            return '', ''
        raise


@privileged.context.entrypoint
def open_count(devnum: str) -> int:
    """How many openers a dm device has, in the kernel and outside.

    :param devnum: 'major:minor', also of an LV
    """
    if not _ARGUMENT.fullmatch(devnum):
        raise ValueError(f'{devnum!r} is not a device number')
    major, minor = devnum.split(':')
    return int(process.run(
        ['dmsetup', 'info', '-c', '--noheadings', '-o', 'open',
         '--major', major, '--minor', minor], _SECONDS))


@privileged.context.entrypoint
def create(name: str, table: str, readonly: bool) -> None:
    """Make a device and wait until udev has made its name."""
    process.run(['dmsetup', 'create', _ours(name), '--uuid', _uuid(name),
                 *_readonly(readonly)], _SECONDS, table)


@privileged.context.entrypoint
def load(name: str, table: str, readonly: bool) -> None:
    """Put a table into the inactive slot; replaces one that is there."""
    process.run(['dmsetup', 'load', _ours(name), *_readonly(readonly)],
                _SECONDS, table)


def _readonly(readonly: bool) -> list[str]:
    return ['--readonly'] if readonly else []


@privileged.context.entrypoint
def swap(name: str, noflush: bool) -> None:
    """Make the inactive table the live one, within ``SWAP_SECONDS``.

    The kernel suspends, exchanges and resumes in one call. It waits for the
    requests under way; if dmsetup is killed meanwhile, the device goes on
    with its old table (``do_resume`` in dm-ioctl.c). So dmsetup must not
    outlive this daemon either: it dies with the thread that started it.

    The page cache is not written back first (``--nolockfs``), which nothing
    could interrupt; there is never a file system on our side of the device.
    udev is not waited for: the name exists already.

    :raises CommandTimeout: if the requests under way did not end in time
    """
    process.run(['setpriv', '--pdeathsig', 'KILL',
                 'dmsetup', 'resume', '--noudevsync', '--nolockfs',
                 *(['--noflush'] if noflush else []), _ours(name)],
                SWAP_SECONDS)


@privileged.context.entrypoint
def resume(name: str) -> None:
    """Drop the inactive table, if any, and let I/O run on the live one."""
    process.run(['dmsetup', 'clear', _ours(name)], _SECONDS)
    process.run(['dmsetup', 'resume', _ours(name)], _SECONDS)


@privileged.context.entrypoint
def activate(name: str) -> None:
    """Bring up the loaded table of a device that never had one."""
    process.run(['dmsetup', 'resume', _ours(name)], _SECONDS)


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


@privileged.context.entrypoint
def message(name: str, words: tuple[str, ...]) -> None:
    """Send a message to the device's target.

    :param words: one of the verbs of clone and multipath, and its argument
    """
    verb, *arguments = words
    if verb not in _VERBS or not all(map(_ARGUMENT.fullmatch, arguments)):
        raise ValueError(f'{words!r} is not a message we send')
    process.run(['dmsetup', 'message', _ours(name), '0', *words], _SECONDS)


@privileged.context.entrypoint
def status(name: str, flush: bool) -> str:
    """Status lines of one device.

    :param flush: let a clone commit its metadata first
    """
    if flush:
        return process.run(['dmsetup', 'status', _ours(name)],
                           _FLUSH_SECONDS)
    return process.run(['dmsetup', 'status', '--noflush', _ours(name)],
                       _SECONDS)


@privileged.context.entrypoint
def statuses() -> str:
    """Status lines of all devices, with their names, without a flush."""
    return process.run(['dmsetup', 'status', '--noflush'], _SECONDS)


@privileged.context.entrypoint
def targets() -> str:
    """Target types of the kernel, after loading the modules for ours."""
    try:
        process.run(['modprobe', '--all', '--quiet', *_MODULES], _SECONDS)
    except exceptions.CommandFailed:
        pass  # built in, or really missing: the list below tells
    return process.run(['dmsetup', 'targets'], _SECONDS)


@privileged.context.entrypoint
def hide_discards(name: str) -> None:
    """Make the device, and what is built on it later, refuse discards."""
    device = block.sysfs(f'/dev/mapper/{_ours(name)}')
    (device / 'queue/discard_max_bytes').write_text('0')
