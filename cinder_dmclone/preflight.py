# SPDX-License-Identifier: Apache-2.0
"""What this node lacks to be one of the backend's; nothing is changed."""

from __future__ import annotations

import functools
import glob
import ipaddress
import os
import shutil
import typing
import uuid

from cinder import exception
from cinder.volume import configuration as cinder_configuration
from oslo_config import cfg
from oslo_utils import netutils
from oslo_utils import units as oslo_units

from cinder_dmclone import exceptions
from cinder_dmclone.host import lvm
from cinder_dmclone.location import LvUuid
from cinder_dmclone import names
from cinder_dmclone import opts
from cinder_dmclone.ports import Host
from cinder_dmclone.sysfs import sessions

CONF = cfg.CONF

# Distributions number the rule differently.
RULES = '*-cinder-dmclone.rules'
RULE_FOLDERS = ('/etc/udev/rules.d', '/run/udev/rules.d',
                '/usr/lib/udev/rules.d', '/lib/udev/rules.d')

# What is in front of the name of the class in ``volume_driver``.
DRIVER = 'cinder_dmclone.'

TARGETS = ('clone', 'delay', 'error', 'linear', 'multipath')

# Bytes: one volume of 1 GiB, and the metadata of one.
SMALLEST = {'volume_group': oslo_units.Gi,
            'dmclone_metadata_volume_group': 8 * oslo_units.Mi}

# Names of devices and targets differ in this part only.
_ANY_LV = LvUuid(str(uuid.UUID(int=0)))


def check(host: Host,
          service_opts: typing.Iterable[cfg.Opt]) -> None:
    """Find what is missing on this node, and say all of it; change nothing.

    :param service_opts: those that tell the driver of a backend, as this
        process has them
    :raises VolumeBackendAPIException: one line for each problem
    """
    # Commands may say more than one line.
    problems = [' '.join(line.split()) for check_one in (
        _check_groups, functools.partial(_check_neighbours, service_opts),
        _check_kernel, _check_iscsi, _check_udev, _check_settings,
        _check_commands)
        for line in check_one(host)]
    if problems:
        raise exception.VolumeBackendAPIException(data='\n'.join(problems))


def _check_groups(host: Host) -> typing.Iterator[str]:
    groups = {'volume_group': host.group,
              'dmclone_metadata_volume_group': host.meta_group}
    lost = {}
    for option, group in groups.items():
        try:
            report = group.report()
        except exceptions.DMCloneException as error:
            lost[option] = (f'Volume group {group.name} ({option}) cannot be '
                            f'read: {_said(error)}')
            continue
        if report.size < SMALLEST[option]:
            yield (f'Volume group {group.name} ({option}) is too small: it '
                   f'has {report.size} bytes, {SMALLEST[option]} are the '
                   'least.')
        sizes = {lvm.block_size(disk) for disk in report.disks
                 if os.path.exists(disk)}
        if option == 'volume_group' and len(sizes) > 1:
            yield (f'Volume group {group.name} ({option}) has disks with '
                   f'logical blocks of {min(sizes)} and of {max(sizes)} '
                   'bytes: no volume of it could move.')
    if 'volume_group' in lost:
        # Without the other one volumes at rest are still to be served.
        yield from lost.values()


def _check_neighbours(service_opts: typing.Iterable[cfg.Opt],
                      host: Host) -> typing.Iterator[str]:
    """One backend would take what is another's for leftovers."""
    ours = {host.group.name, host.meta_group.name}
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


def _check_kernel(host: Host) -> typing.Iterator[str]:
    missing = set(TARGETS) - host.dm.targets()
    for target in sorted(missing):
        yield (f'The kernel has no device-mapper target "{target}": '
               f'load or install the module dm-{target}.')


def _check_iscsi(host: Host) -> typing.Iterator[str]:
    for port in (host.targets, host.initiator):
        try:
            port.check()
        except exceptions.DMCloneException as error:
            yield error.msg


def _check_udev(host: Host) -> typing.Iterator[str]:
    if not any(glob.glob(os.path.join(folder, RULES))
               for folder in RULE_FOLDERS):
        yield ('The udev rule 56-cinder-dmclone.rules is not installed: '
               'without it the host would read tenants\' data. See '
               '"Installation" in the documentation.')


def _check_settings(host: Host) -> typing.Iterator[str]:
    size = host.settings.region_size
    if size & (size - 1):
        yield (f'dmclone_region_size_kib = {size // oslo_units.Ki} is not a '
               'power of two.')
    if not sessions.is_ours(names.serve_iqn(host.settings.target_prefix,
                                            _ANY_LV)):
        yield (f'target_prefix = {host.settings.target_prefix} makes names '
               'that LIO and open-iscsi do not agree about: it has to be '
               '"iqn." and lower case letters, digits, ".", "-" and ":".')
    address = host.settings.portal.rpartition(':')[0].strip('[]')
    if netutils.is_valid_ip(address) and (
            ipaddress.ip_address(address).is_unspecified):
        yield (f'target_ip_address = {address} is no address that other '
               'nodes could connect to: set that of this node.')


def _check_commands(_host: Host) -> typing.Iterator[str]:
    if not shutil.which('setpriv'):
        yield 'The command setpriv is missing: install util-linux.'
