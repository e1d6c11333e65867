# SPDX-License-Identifier: Apache-2.0
"""What this node lacks to be one of the backend's; nothing is changed.

Each line says what mends it.
"""

from __future__ import annotations

import functools
import ipaddress
import os
import pathlib
import platform
import re
import shutil
import typing
import uuid

from cinder import exception
from cinder import version
from cinder.volume import configuration as cinder_configuration
from oslo_config import cfg
from oslo_utils import netutils
from oslo_utils import units as oslo_units

from cinder_dmclone import exceptions
from cinder_dmclone.host import erasure
from cinder_dmclone.host import lvm
from cinder_dmclone.host import thin_pool
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone import opts
from cinder_dmclone.ports import Host
from cinder_dmclone.sysfs import block_device
from cinder_dmclone.sysfs import sessions

CONF = cfg.CONF

# What is in front of the name of the class in ``volume_driver``.
DRIVER = 'cinder_dmclone.'

TARGETS = ('clone', 'delay', 'error', 'linear', 'multipath')

# What udev records of a device for which our rule has run (libdevmapper.h),
# and of one whose name the rules after it have linked.
_RULE_RAN = 'E:DM_UDEV_DISABLE_OTHER_RULES_FLAG=1'
_RULE_LATE = 'S:disk/by-id/dm-'

# The commands that the privileged helper runs, and whose they are.
_COMMANDS = {'blkdiscard': 'util-linux',
             'dmsetup': 'dmsetup or device-mapper',
             'iscsiadm': 'open-iscsi or iscsi-initiator-utils',
             'lvm': 'lvm2', 'modprobe': 'kmod', 'setpriv': 'util-linux'}

# Bytes: one volume of 1 GiB, and the metadata of one.
SMALLEST = {'volume_group': oslo_units.Gi,
            'dmclone_metadata_volume_group': 8 * oslo_units.Mi}

# Of about 510 KiB in a group made without --metadatasize. LVM takes half a KiB
# for an LV, a quarter for each of our longer tags, and a volume on its way has
# two LVs: enough for some forty that move before anybody has done something.
LEAST_MDA = 64 * oslo_units.Ki

# Of 2025.1: tests run beside no older one.
OLDEST_CINDER = 26

# Before, a device refused discards by a flag of its queue alone, which
# ``hide_discards`` in privileged/dm.py cannot take away: a server's would
# reach a clone that copies the region ("block: remove QUEUE_FLAG_DISCARD").
OLDEST_KERNEL = (5, 19)

# Where a multipath device lets I/O fail after a while without a path.
PATIENCE = pathlib.Path(
    '/sys/module/dm_multipath/parameters/queue_if_no_path_timeout_secs')

# Names of devices and targets differ in this part only.
_ANY_LV = LvUuid(str(uuid.UUID(int=0)))


def check(host: Host,
          service_opts: typing.Iterable[cfg.Opt]) -> None:
    """Find what is missing on this node, and say all of it; change nothing.

    :param service_opts: see ``problems``
    :raises VolumeBackendAPIException: one line for each problem
    """
    _refuse(problems(host, service_opts))


def check_pool(host: Host) -> None:
    """Find what is wrong with the thin pool of a group that is active.

    :raises VolumeBackendAPIException: one line for each problem
    """
    _refuse(list(pool_problems(host)))


def _refuse(found: list[str]) -> None:
    if found:
        raise exception.VolumeBackendAPIException(data='\n'.join(found))


def problems(host: Host, service_opts: typing.Iterable[cfg.Opt]) -> list[str]:
    """Without what the backend cannot be served here, one line for each.

    :param service_opts: those that tell the driver of a backend, as this
        process has them
    """
    # Commands may say more than one line.
    return [' '.join(line.split()) for check_one in (
        _check_groups, _check_pool_is_there,
        functools.partial(_check_neighbours, service_opts),
        _check_cinder, _check_kernel, _check_iscsi, _check_udev,
        _check_settings, _check_commands)
        for line in check_one(host)]


def _check_groups(host: Host) -> typing.Iterator[str]:
    groups = {'volume_group': host.group,
              'dmclone_metadata_volume_group': host.meta_group}
    lost = {}
    for option, group in groups.items():
        try:
            report = group.report(patient=True)
        except exceptions.DMCloneException as error:
            lost[option] = (f'Volume group {group.name} ({option}) cannot be '
                            f'read: {_said(error)}')
            if 'not found' in error.msg and not isinstance(
                    error, exceptions.GroupLost):
                lost[option] += (
                    f': vgcreate {group.name} DISK'
                    if group.changed_token() is None else
                    f'. It was there ({group.name} in /etc/lvm/backup): see '
                    'whether its disks are (pvs), bring its description back '
                    f'(vgcfgrestore {group.name}), and create nothing on them')
            continue
        if report.size < SMALLEST[option]:
            yield (f'Volume group {group.name} ({option}) is too small: it '
                   f'has {report.size} bytes, {SMALLEST[option]} are the '
                   'least.')
        sizes = {block_device.block_size(disk) for disk in report.disks
                 if os.path.exists(disk)}
        if option == 'volume_group' and len(sizes) > 1:
            yield (f'Volume group {group.name} ({option}) has disks with '
                   f'logical blocks of {min(sizes)} and of {max(sizes)} '
                   'bytes: no volume of it could move.')
    if 'volume_group' in lost:
        # Without the other one volumes at rest are still to be served.
        yield from lost.values()


def _check_pool_is_there(host: Host) -> typing.Iterator[str]:
    group = host.group
    try:
        report = group.report(patient=True) if group.pool else None
    except exceptions.DMCloneException:
        return  # that of the group itself is said
    if report is None or group.pool in report.pools:
        return
    making = thin_pool.making(group.name, group.pool)
    if group.pool in report.lvs:
        yield (f'Backend [{host.settings.backend}] wants thin volumes, but '
               f'{group.place} is no thin pool: set dmclone_thin_pool to '
               f'another name, and make one: {making}')
    else:
        yield (f'Backend [{host.settings.backend}] wants thin volumes, but '
               f'volume group {group.name} has no thin pool {group.pool} '
               f'(dmclone_thin_pool): {making}')


def pool_problems(host: Host) -> typing.Iterator[str]:
    """What the kernel has of the thin pool that it should not have.

    What it has nothing of is not active.
    """
    group = host.group
    if not group.pool or any(_check_pool_is_there(host)):
        return
    of = f'Backend [{host.settings.backend}]: thin pool {group.place}'
    try:
        usage = group.usage()
    except exceptions.PoolSuspended:
        return  # a problem of the group (``group_problems``)
    except exceptions.PoolUnusable:
        yield f'{of} is not active: lvchange --activate y {group.place}'
        return
    if usage.state:
        yield (f'{of} cannot be used, {usage.state}; see lvmthin(7), '
               f'"Metadata check and repair": lvconvert --repair '
               f'{group.place}')
    if not usage.zeroes:
        yield (f'{of} does not zero new blocks, so a volume would show what '
               f'another one has left: lvchange --zero y {group.place}')


def group_problems(host: Host) -> typing.Iterator[str]:
    """What keeps I/O, or changes, of groups that can be read from ending.

    No reason to refuse to start: cinder-volume lets such I/O go on, and what
    is there is served.
    """
    for group in host.groups:
        try:
            report = group.report(patient=True)
        except exceptions.DMCloneException:
            continue  # that is said by those who need it
        for pool in sorted(report.interrupted):
            # LVM alone would resume it with what is loaded.
            yield (f'All I/O of thin pool {report.name}/{pool} waits, since '
                   f'{thin_pool.INTERRUPTED}: restart cinder-volume')
        if group.pool and group.pool not in report.interrupted:
            try:
                group.require_running()
            except exceptions.PoolSuspended as error:
                yield error.msg.rstrip('.')
        for lv in report.lvs.values():
            if lv.suspended and lv.pool not in report.interrupted:
                yield (f'All I/O of LV {lv.name} of volume group '
                       f'{report.name} waits, since LVM was killed while it '
                       'changed it: restart cinder-volume, or vgchange '
                       f'--activate y {report.name}')
            if lv.health:
                yield (f'LVM misses a disk of LV {lv.name} of volume group '
                       f'{report.name} ({lv.health}): pvs says which; bring '
                       'it back, and restart cinder-volume')
        if report.mda_free < LEAST_MDA:
            yield (f'LVM can write {report.mda_free} bytes more about volume '
                   f'group {report.name}, and refuses all changes when there '
                   f'are none; {LEAST_MDA} are the least. Move volumes and '
                   'snapshots away, or all (cinder-dmclone drain), and make '
                   'the group anew: vgcreate --metadatasize 64m '
                   f'{report.name} DISK')


def _check_neighbours(service_opts: typing.Iterable[cfg.Opt],
                      host: Host) -> typing.Iterator[str]:
    """One backend would take what is another's for leftovers."""
    ours = {group.name for group in host.groups}
    for name in CONF.enabled_backends or ():
        if name == host.settings.backend:
            continue
        config = cinder_configuration.Configuration(
            [*service_opts, *opts.all_opts], config_group=name)
        if not (config.volume_driver or '').startswith(DRIVER):
            continue
        theirs = {config.volume_group, config.dmclone_metadata_volume_group}
        for group in sorted(ours & theirs):
            yield (f'Volume group {group} is used by the backend [{name}] '
                   'too: each needs groups of its own.')


def _said(error: exceptions.DMCloneException) -> str:
    """What a command said; its arguments are no help to anybody."""
    _, failed, said = error.msg.partition(' failed with status ')
    return said.partition(': ')[2] if failed else error.msg


def _check_cinder(_host: Host) -> typing.Iterator[str]:
    """With ``pip --no-deps``, or beside packages, nobody else looks."""
    found = version.version_string()
    if int(found.partition('.')[0]) < OLDEST_CINDER:
        yield (f'Cinder {found} is too old: {OLDEST_CINDER} (2025.1) is the '
               'least that this driver works with.')


def _check_kernel(host: Host) -> typing.Iterator[str]:
    found = tuple(map(int, re.findall(r'\d+', platform.release())[:2]))
    if found < OLDEST_KERNEL:
        yield (f'The kernel {platform.release()} is too old: '
               f'{".".join(map(str, OLDEST_KERNEL))} is the least that this '
               'driver works with. With an older one the discards of a server '
               'could destroy what it writes.')
    missing = set(TARGETS) - host.dm.targets()
    for target in sorted(missing):
        yield (f'The kernel {platform.release()} has no device-mapper target '
               f'"{target}": modprobe dm-{target}. If there is no such '
               'module, the page "Kernels" of the documentation names the '
               'package, or the recipe, for your distribution.')
    try:
        seconds = PATIENCE.read_text().strip()
    except OSError:
        seconds = '0'  # no module has it: nobody can have set it
    if seconds != '0':
        yield (f'{PATIENCE} is {seconds}: reads and writes that wait for '
               'another node would fail after so many seconds. Write 0 to it, '
               'and take the option out of the files of /etc/modprobe.d.')


def _check_iscsi(host: Host) -> typing.Iterator[str]:
    for port in (host.targets, host.initiator):
        try:
            port.check()
        except exceptions.DMCloneException as error:
            yield error.msg


def _check_udev(host: Host) -> typing.Iterator[str]:
    """Look at what the rule does, not for its file.

    The file may be there and not be read, or be that of a container, whose
    host has udev.
    """
    mend = ('the host would read tenants\' data. Run "cinder-dmclone '
            'install-files" on the host.')
    try:
        record = host.dm.probe()
    except exceptions.DMCloneException as error:
        yield ('What udev does with the devices of this driver cannot be '
               f'told, is it running? {_said(error)}')
        return
    if not record:
        yield ('udev has recorded nothing of a device that was made to see '
               'that: start systemd-udevd; a container needs /run/udev of '
               'its host.')
    elif _RULE_RAN not in record:
        yield f'The udev rule of cinder-dmclone is not in effect: {mend}'
    elif any(line.startswith(_RULE_LATE) for line in record):
        yield ('The udev rule of cinder-dmclone runs after the rules that '
               f'read devices: {mend}')


def _check_settings(host: Host) -> typing.Iterator[str]:
    size = host.settings.least_region
    if size & (size - 1):
        yield (f'dmclone_region_size_kib = {size // oslo_units.Ki} is not a '
               'power of two.')
    if not sessions.is_ours(names.serve_iqn(host.settings.target_prefix,
                                            _ANY_LV)):
        yield (f'target_prefix = {host.settings.target_prefix} makes names '
               'that LIO and open-iscsi do not agree about: it has to be '
               '"iqn." and lower case letters, digits, ".", "-" and ":".')
    if not _makes_names():
        yield (f'volume_name_template = {names.CONF.volume_name_template} '
               'makes names that no volume can have here: it has to be some '
               'letters, digits, ".", "_", "+" or "-", and "%s" at the end.')
    if not erasure.is_priority(host.settings.ionice):
        yield (f'volume_clear_ionice = {host.settings.ionice} is no option of '
               'ionice that says how to run a command, as -c3 is.')
    address = host.settings.portal.rpartition(':')[0].strip('[]')
    if netutils.is_valid_ip(address) and (
            ipaddress.ip_address(address).is_unspecified):
        yield (f'target_ip_address = {address} is no address that other '
               'nodes could connect to: set that of this node.')


def _makes_names() -> bool:
    """Whether LVs can be named as Cinder wants it, and be told by that."""
    try:
        name = names.data_lv(_ANY_LV)
    except (TypeError, ValueError):
        return False
    return lvm.is_name(name) and names.lv_uuid(name) == _ANY_LV


def _check_commands(_host: Host) -> typing.Iterator[str]:
    path = os.environ.get('PATH', '') + ':/usr/sbin:/sbin'
    for command, package in _COMMANDS.items():
        if not shutil.which(command, path=path):
            yield f'The command {command} is missing: install {package}.'
