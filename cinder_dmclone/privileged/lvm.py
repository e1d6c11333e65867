# SPDX-License-Identifier: Apache-2.0
"""LVM, as root: one function per verb, for logical volumes of ours only.

LVM looks for physical volumes on every block device. On a source whose
lender is away that read never ends, so our commands skip our devices and the
imported disks, on top of what the host's configuration says.
"""

from __future__ import annotations

import functools
import json
import pathlib
import re
import time
from typing import Any, NamedTuple

from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone import names
from cinder_dmclone import privileged
from cinder_dmclone.privileged import dm_ioctl
from cinder_dmclone.privileged import nodes
from cinder_dmclone.privileged import process
from cinder_dmclone.privileged import syscalls
from cinder_dmclone.sysfs import block_device

BACKUPS = pathlib.Path('/etc/lvm/backup')
DEVICES = pathlib.Path('/etc/lvm/devices')
CONFIGURATION = (pathlib.Path('/etc/lvm/lvm.conf'),
                 pathlib.Path('/etc/lvm/lvmlocal.conf'))

_SECONDS = 30.0
# With a thin pool thin_check reads all of its metadata first.
_ACTIVATION_SECONDS = 600.0
_ACTIVATION_WAIT = 650
# A thin volume gives each of its blocks back.
_REMOVAL_SECONDS = 120.0
_REMOVAL_WAIT = 200
# Zeros for a metadata LV of a few hundred MiB on a busy disk.
_WRITE_SECONDS = 120.0
# Within how many seconds a call has to begin; and how long its caller waits,
# for the two or three commands that it consists of.
_BEGUN = 10
_WAIT_SECONDS = 100
_ZERO_SECONDS = 150
_PATIENT_SECONDS = 200
_READ_LIMIT = 1 << 20
# Less than another node waits that has asked (``deadlines.QUERY_PART``).
_PROBE_SECONDS = 8.0
# Enough of a backup file for its identity, which is at the top.
_BACKUP_HEAD = 1 << 16

_GROUP = re.compile(r'[A-Za-z0-9_+.][A-Za-z0-9_+.-]*')
# Every LV of ours is named after a uuid.
NAME = re.compile(r'[A-Za-z0-9_+.][A-Za-z0-9_+.-]*'
                  r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
# What LVM takes for a name.
_ANY_NAME = re.compile(r'[A-Za-z0-9_+.][A-Za-z0-9_+.-]{0,127}')
# What uuids of LVM's devices begin with (UUID_PREFIX in its lvm-string.h).
_UUID = 'LVM-'
# '@' is what one misses here; LVM refuses it.
_TAG = re.compile(r'[A-Za-z0-9_+.][A-Za-z0-9_+.\-/=!:&#]{0,1022}')
# Roles of what LVM removes with all that needs it (lvmreport(7)).
NEEDED = frozenset(['thickorigin', 'extthinorigin'])
_ABSENT = re.compile(r'Failed to find logical volume')
_BUSY = re.compile(r'in use|is used by another device')
# Up to LVM 2.03.16, and since (``lv_resize`` in lib/metadata/lv_manip.c).
_SAME_SIZE = re.compile(r'matches existing size|No size change')
_IDENTITY = re.compile(r'\bid = "([^"]+)"\s+seqno = (\d+)')

SYS_BLOCK = pathlib.Path('/sys/block')
# The names of our dm devices. LVM rejects a disk for any of its names, and one
# of the group may be called after this driver.
_REJECT = (f'r!/{names.DM_PREFIX}'
           f'({"|".join(kind.value for kind in names.Kind)}|check)-!')
_ACCEPT_ALL = frozenset(['a|.*|', 'a|.*/|', 'a/.*/', 'a|.|', 'a/./'])

_REPORT = ('--reportformat', 'json', '--units', 'b', '--nosuffix',
           '--configreport', 'vg', '-o',
           'vg_name,vg_uuid,vg_seqno,vg_size,vg_free,vg_extent_size,'
           'vg_mda_free',
           '--configreport', 'pv', '-o', 'pv_name',
           '--configreport', 'lv', '-o',
           'lv_name,lv_size,lv_tags,lv_kernel_major,lv_kernel_minor,'
           'lv_device_open,lv_suspended,lv_skip_activation,lv_layout,lv_role,'
           'pool_lv,lv_health_status',
           '--configreport', 'pvseg', '-o,', '--configreport', 'seg', '-o,')


def _group(name: str) -> str:
    if not _GROUP.fullmatch(name) or name in ('.', '..'):
        raise ValueError(f'{name!r} is not a volume group name')
    return name


def _volume(group: str, name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f'{name!r} is not a logical volume of ours')
    return f'{_group(group)}/{name}'


def _any(name: str) -> str:
    if not _ANY_NAME.fullmatch(name) or name in ('.', '..'):
        raise ValueError(f'{name!r} is not a logical volume name')
    return name


def _tags(option: str, tags: tuple[str, ...]) -> list[str]:
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise ValueError(f'{tag!r} cannot be an LVM tag')
    return [word for tag in tags for word in (option, tag)]


def _filter() -> str:
    """The host's ``devices/filter`` with our devices rejected first.

    ``global_filter`` stays in force beside it.
    """
    # An imported disk has no name of ours, but the exporter's as its model.
    # The kernel makes partitions of what looks like their table in a tenant's
    # data.
    imported = sorted(
        model.parent.parent.name for model in SYS_BLOCK.glob(
            'sd*/device/model') if _model(model).startswith('dmclone'))
    disks = [f'r!^/dev/({"|".join(imported)})[0-9]*$!'] if imported else []
    return 'devices/filter=' + json.dumps([_REJECT, *disks, *_host_filter()])


def _model(path: pathlib.Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ''  # the disk has just gone


def _host_filter() -> list[str]:
    """The host's ``devices/filter``, read when its files have changed.

    A trailing accept-all is dropped: it is what LVM does anyway, and it would
    accept our devices by their other names.

    :raises CommandFailed: if LVM cannot read them; it would do nothing else
    """
    patterns = _read_filter(tuple(map(_version, CONFIGURATION)))
    if patterns and patterns[-1] in _ACCEPT_ALL:
        patterns = patterns[:-1]
    return patterns


@functools.lru_cache(maxsize=1)
def _read_filter(_versions: tuple[tuple[int, ...], ...]) -> list[str]:
    return _setting('filter')


def _version(path: pathlib.Path) -> tuple[int, ...]:
    """It differs when the file has changed."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _setting(name: str, *options: str) -> list[str]:
    """What the host has set in the section ``devices``; [] if nothing.

    :raises CommandFailed: if LVM cannot read its configuration
    """
    try:
        text = process.run(['lvm', 'lvmconfig', *options, f'devices/{name}'],
                           _SECONDS)
    except exceptions.CommandFailed as error:
        if 'not found' in error.msg:
            return []
        raise
    found = json.loads(text.partition('=')[2])
    return [str(one) for one in (
        found if isinstance(found, list) else [found])]


def config() -> list[str]:
    """The options that each of our commands has."""
    # A relocation is many changes, and LVM would keep the whole group's text
    # of each for 30 days. The backup, of the last one, stays.
    return ['--config', f'backup/archive=0 {_filter()}']


def _lvm(*words: str, seconds: float = _SECONDS) -> str:
    return process.run(['lvm', *words, *config()], seconds)


@functools.cache
def _no_autoactivation() -> tuple[str, ...]:
    """Since LVM 2.03.12 a volume can opt out of activation at boot."""
    usage = process.run(['lvm', 'lvcreate', '--help'], _SECONDS)
    if '--setautoactivation' not in usage:
        return ()
    return ('--setautoactivation', 'n')


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def report(group: str) -> str:
    """The group, its physical and logical volumes, as JSON."""
    return _lvm('fullreport', *_REPORT, _group(group))


@privileged.timely(_PATIENT_SECONDS, _BEGUN)
def report_patiently(group: str) -> str:
    """The same, for callers who can wait until another command has ended."""
    return _lvm('fullreport', *_REPORT, _group(group),
                seconds=deadlines.PATIENCE_SECONDS)


class Scan(NamedTuple):
    """What LVM may read on this host: ``global_filter``, or a devices file.

    :ivar disks: the physical volumes that it finds
    """

    patterns: list[str]
    devices_file: bool
    disks: list[str]


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def host_scan() -> tuple[Any, ...]:
    """The fields of a ``Scan``."""
    return (_setting('global_filter'),
            _setting('use_devicesfile', '--typeconfig', 'full') == ['1']
            and any(DEVICES.glob('*')),
            _lvm('pvs', '--noheadings', '-o', 'pv_name').split())


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def create(group: str, name: str, size: int, tags: tuple[str, ...],
           pool: str = '') -> None:
    """Make a volume, active, with tags from its first moment.

    What is on the disk there is neither looked at nor changed.

    :param size: bytes
    :param pool: the thin pool that it is in; without one it is linear
    """
    _volume(group, name)
    form = ['--zero', 'n', *_no_autoactivation(), '--name', name,
            '--size', f'{int(size)}b']
    if pool:
        # Until 2.03.33 LVM refuses --setautoactivation for thin volumes, and
        # --zero is for pools.
        form = ['--name', name, '--virtualsize', f'{int(size)}b',
                '--thinpool', _any(pool)]
    _lvm('lvcreate', '--yes', '--quiet', '--wipesignatures', 'n', *form,
         *_tags('--addtag', tags), group)


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def snapshot(group: str, name: str, origin: str,
             tags: tuple[str, ...]) -> None:
    """Make a snapshot of a thin volume, active, with tags from its first
    moment.

    LVM suspends the origin for it. If it is killed then, I/O of the origin
    waits until the group is activated (``_lv_activate`` in LVM's activate.c).

    :raises CommandFailed: if it exists, or the pool takes nothing new
    """
    _volume(group, name)
    # By default a snapshot is left out of activations (lvmthin(7)).
    _lvm('lvcreate', '--yes', '--quiet', '--snapshot', '--setactivationskip',
         'n', '--name', name, *_tags('--addtag', tags),
         _volume(group, origin))


@privileged.timely(_REMOVAL_WAIT, _BEGUN)
def remove(group: str, name: str) -> None:
    """Remove a volume; an absent one is fine.

    :raises DeviceBusy: if it is open, or others need it (which LVM would
        remove with it): snapshots, unless they are thin, or thin volumes that
        it is the external origin of
    """
    volume = _volume(group, name)
    try:
        roles = _lvm('lvs', '--noheadings', '-o', 'lv_role', volume)
        if NEEDED.intersection(roles.strip().split(',')):
            raise exceptions.DeviceBusy(device=volume)
        _lvm('lvremove', '--yes', '--quiet', volume,
             seconds=_REMOVAL_SECONDS)
    except exceptions.CommandFailed as error:
        if _BUSY.search(str(error)):
            raise exceptions.DeviceBusy(device=volume) from error
        if not _ABSENT.search(str(error)):
            raise


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def retag(group: str, name: str, add: tuple[str, ...],
          remove: tuple[str, ...]) -> None:
    """Add and remove tags in one change of the metadata.

    :raises CommandFailed: if there is no such volume
    """
    _lvm('lvchange', '--yes', '--quiet', *_tags('--deltag', remove),
         *_tags('--addtag', add), _volume(group, name))


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def rename(group: str, name: str, new_name: str) -> None:
    """Give a volume another name; one of both is a name of ours.

    :raises CommandFailed: if it does not exist, or the new name does
    """
    for one in (name, new_name):
        _any(one)
    _volume(group, new_name if NAME.fullmatch(new_name) else name)
    _lvm('lvrename', '--yes', '--quiet', group, name, new_name)


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def extend(group: str, name: str, size: int) -> None:
    """Grow a volume to ``size`` bytes; it may have that size already.

    :raises CommandFailed: if there is no room, or no such volume
    """
    try:
        _lvm('lvextend', '--yes', '--quiet', '--size', f'{int(size)}b',
             _volume(group, name))
    except exceptions.CommandFailed as error:
        if not _SAME_SIZE.search(str(error)):
            raise


@privileged.timely(_ACTIVATION_WAIT, _BEGUN)
def activate(group: str) -> None:
    """Make all volumes of the group usable on this node, suspended ones too.
    """
    _lvm('vgchange', '--yes', '--quiet', '--activate', 'y', _group(group),
         seconds=_ACTIVATION_SECONDS)


@privileged.timely(_ZERO_SECONDS, _BEGUN)
def zero(group: str, name: str) -> None:
    """Overwrite a whole volume with zeros, durably.

    :raises CommandFailed: if the disk reports an error
    """
    path = nodes.ready(f'/dev/{_volume(group, name)}')
    size = block_device.size(path)
    process.run(['dd', 'if=/dev/zero', f'of={path}', 'bs=1M',
                 f'count={size}', 'iflag=count_bytes', 'oflag=direct',
                 'conv=nocreat,fsync', 'status=none'], _WRITE_SECONDS)


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def read(group: str, name: str, first: int, size: int) -> bytes:
    """Some bytes of a volume, from the disk rather than a cache.

    :param first: where, a multiple of 4096
    :param size: a multiple of 4096, at most 1 MiB
    :raises CommandFailed: if the disk reports an error, or ends before that
    """
    if not 0 < size <= _READ_LIMIT or size % 4096 or (
            first < 0 or first % 4096):
        raise ValueError(f'cannot read {size} bytes at {first}')
    path = nodes.ready(f'/dev/{_volume(group, name)}')
    return syscalls.read(path, range(first, first + size, syscalls.BLOCK),
                         _SECONDS)


@privileged.timely(_WAIT_SECONDS, _BEGUN)
def probe(group: str, name: str) -> str:
    """Read both ends of a volume, and a block of each disk that it lies on.

    Of those that the kernel has it on: LVM may have found one of them again
    under another number, which is no use to who reads the volume.

    :returns: what does not answer, and why; empty if all do
    """
    path = nodes.ready(f'/dev/{_volume(group, name)}')
    places = {path: [0, block_device.size(path) - syscalls.BLOCK]}
    lies_on = dm_ioctl.below(block_device.folder(path).name, _UUID)
    for disk in sorted(lies_on):
        found = nodes.kernels(disk)
        if not found:
            return f'disk {disk} has gone'
        places[nodes.ready(found, disk)] = [0]
    deadline = time.monotonic() + _PROBE_SECONDS
    for where, blocks in places.items():
        try:
            syscalls.read(where, blocks, max(deadline - time.monotonic(), 0))
        except (exceptions.CommandFailed,
                exceptions.CommandTimeout) as error:
            return error.msg
    return ''


@privileged.context.entrypoint
def backup_identity(group: str) -> tuple[str, int] | None:
    """Uuid and sequence number of the group in LVM's own backup of it.

    LVM writes that file after each change, unless the host's configuration
    forbids it. Reading it starts no process.

    :returns: None if there is no such file
    """
    try:
        with open(BACKUPS / _group(group), errors='replace') as backup:
            found = _IDENTITY.search(backup.read(_BACKUP_HEAD))
    except OSError:
        return None
    return (found[1], int(found[2])) if found else None
