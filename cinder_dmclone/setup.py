# SPDX-License-Identifier: Apache-2.0
"""Bring a node's ports together, and say what it lacks."""

from __future__ import annotations

import functools
import glob
import os
import secrets
import time
import typing

from cinder import exception
from cinder.volume import configuration as cinder_configuration
from cinder.volume import volume_utils
from oslo_config import cfg
from oslo_utils import netutils
from oslo_utils import units as oslo_units

from cinder_dmclone.database import volumes
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.host.dm import device
from cinder_dmclone.host.iscsi import exporter
from cinder_dmclone.host.iscsi import importer
from cinder_dmclone.host import lvm
from cinder_dmclone import locks
from cinder_dmclone import opts
from cinder_dmclone.peers import client
from cinder_dmclone.ports import Host
from cinder_dmclone.privileged import block
from cinder_dmclone.settings import Settings
from cinder_dmclone import units
from cinder_dmclone.world import World

CONF = cfg.CONF

# Distributions number the rule differently.
RULES = '*-cinder-dmclone.rules'
RULE_FOLDERS = ('/etc/udev/rules.d', '/run/udev/rules.d',
                '/usr/lib/udev/rules.d', '/lib/udev/rules.d')

# What is in front of the name of the class in ``volume_driver``.
DRIVER = 'cinder_dmclone.'

KEY_FILE = 'dmclone.key'
TARGETS = ('clone', 'delay', 'error', 'linear', 'multipath')

# Bytes: one volume of 1 GiB, and the metadata of one.
SMALLEST = {'volume_group': oslo_units.Gi,
            'dmclone_metadata_volume_group': 8 * oslo_units.Mi}


def make_host(configuration: typing.Any, node: str) -> Host:
    """What one backend has on this node; needs no control plane.

    :param node: ``host@backend``
    """
    config = configuration
    group = lvm.VolumeGroup(config.volume_group)
    settings = Settings(
        node=node,
        pool=config.safe_get('volume_backend_name') or 'dmclone',
        target_prefix=config.target_prefix,
        portal=_portal(config),
        region_size=units.Bytes(
            config.dmclone_region_size_kib * oslo_units.Ki),
        hydration_threshold=units.Bytes(
            config.dmclone_hydration_threshold_mib * oslo_units.Mi),
        hydration_batch=units.Bytes(
            config.dmclone_hydration_batch_mib * oslo_units.Mi),
        budget=CONF.rpc_response_timeout * deadlines.CALL_PART,
        key=_key())
    meta = config.dmclone_metadata_volume_group
    return Host(
        settings=settings,
        group=group,
        meta_group=(lvm.VolumeGroup(meta) if meta and meta != group.name
                    else group),
        dm=device.DeviceMapper(),
        exporter=exporter.Exporter(config.target_ip_address,
                                   config.target_port),
        importer=importer.Importer(),
        erase=_eraser(config))


def make_world(configuration: typing.Any, node: str) -> World:
    """The ports of one backend of this node.

    :param node: ``host@backend``
    """
    host = make_host(configuration, node)
    return World(host=host, rows=volumes.RowStore(),
                 peers=client.Peers(host.settings.backend),
                 locks=locks.Locks(node), clock=time)


def _portal(config: typing.Any) -> str:
    ip = netutils.escape_ipv6(config.target_ip_address)
    return f'{ip}:{config.target_port}'


def _key() -> bytes:
    """This node's secret, from which it derives CHAP passwords.

    A temporary file and a link make it whole or absent after a crash, and
    the same for two backends that start at once.
    """
    path = os.path.join(CONF.state_path, KEY_FILE)
    if not os.path.exists(path):
        draft = f'{path}.{os.getpid()}'
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, 'wb') as draft_file:
            draft_file.write(secrets.token_bytes(32))
            draft_file.flush()
            if os.geteuid() == 0:
                # An operator may be the first to run anything here.
                owner = os.stat(CONF.state_path)
                os.fchown(handle, owner.st_uid, owner.st_gid)
            os.fsync(handle)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            os.unlink(draft)
    with open(path, 'rb') as key_file:
        return key_file.read()


def _eraser(config: typing.Any) -> typing.Callable[[str, units.Bytes], None]:
    def erase(path: str, size: units.Bytes) -> None:
        if config.volume_clear != 'none':
            # Without a node a file would be made in its place.
            block.ready(path)
            volume_utils.clear_volume(
                size // oslo_units.Mi, path,
                volume_clear=config.volume_clear,
                volume_clear_size=config.volume_clear_size)
    return erase


def check(host: Host,
          service_opts: typing.Iterable[cfg.Opt]) -> None:
    """Find what is missing on this node and say all of it; activate the LVs.

    :param service_opts: those that tell the driver of a backend, as this
        process has them
    :raises VolumeBackendAPIException: one line for each problem
    """
    # Commands may say more than one line.
    problems = [' '.join(line.split()) for check_one in (
        _check_groups, functools.partial(_check_neighbours, service_opts),
        _check_kernel, _check_iscsi, _check_udev, _check_settings)
        for line in check_one(host)]
    if problems:
        raise exception.VolumeBackendAPIException(data='\n'.join(problems))
    for group in (host.group, host.meta_group):
        group.activate()


def _check_groups(host: Host) -> typing.Iterator[str]:
    for group, option in ((host.group, 'volume_group'),
                          (host.meta_group,
                           'dmclone_metadata_volume_group')):
        try:
            report = group.report()
        except exceptions.DMCloneException as error:
            yield (f'Volume group {group.name} ({option}) cannot be read: '
                   f'{_said(error)}')
            continue
        if report.size < SMALLEST[option]:
            yield (f'Volume group {group.name} ({option}) is too small: it '
                   f'has {report.size} bytes, {SMALLEST[option]} are the '
                   'least.')


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
    for port in (host.exporter, host.importer):
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
