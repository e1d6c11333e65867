# SPDX-License-Identifier: Apache-2.0
"""From cinder.conf to what the code works on."""

from __future__ import annotations

import os
import secrets
import time
import typing

from oslo_config import cfg
from oslo_utils import units as oslo_units

from cinder_dmclone.database import snapshots
from cinder_dmclone.database import volumes
from cinder_dmclone import deadlines
from cinder_dmclone.events import moves
from cinder_dmclone.events import notifications
from cinder_dmclone.host.dm import device
from cinder_dmclone.host import erasure
from cinder_dmclone.host.iscsi import targets
from cinder_dmclone.host.iscsi import initiator
from cinder_dmclone.host import lvm
from cinder_dmclone.location import NodeName
from cinder_dmclone import locks
from cinder_dmclone.peers import client
from cinder_dmclone.ports import Host
from cinder_dmclone.settings import Rates
from cinder_dmclone.settings import Settings
from cinder_dmclone import units
from cinder_dmclone.world import World

CONF = cfg.CONF

KEY_FILE = 'dmclone.key'


def make_host(configuration: typing.Any, node: NodeName,
              key: bytes | None = None) -> Host:
    """What one backend has on this node; needs no control plane.

    :param node: ``host@backend``
    :param key: in place of the node's own, which is made if there is none
    """
    config = configuration
    group = lvm.VolumeGroup(config.volume_group, pool=_thin_pool(config))
    exported = targets.Targets(config.target_ip_address, config.target_port)
    settings = Settings(
        node=node,
        pool=config.safe_get('volume_backend_name') or 'dmclone',
        target_prefix=config.target_prefix,
        portal=exported.portal,
        least_region=units.Bytes(
            config.dmclone_region_size_kib * oslo_units.Ki),
        hydration_threshold=units.Bytes(
            config.dmclone_hydration_threshold_mib * oslo_units.Mi),
        hydration_batch=units.Bytes(
            config.dmclone_hydration_batch_mib * oslo_units.Mi),
        rates=lambda: Rates(
            units.Bytes(config.dmclone_hydration_floor_mib * oslo_units.Mi),
            units.Bytes(
                config.dmclone_hydration_ceiling_mib * oslo_units.Mi)),
        budget=CONF.rpc_response_timeout * deadlines.CALL_PART,
        max_copies=config.dmclone_max_copies,
        serves_the_full=config.dmclone_no_room == 'serve',
        reserved_percentage=config.reserved_percentage,
        key=_key() if key is None else key,
        ionice=config.volume_clear_ionice or '')
    meta = config.dmclone_metadata_volume_group
    return Host(
        settings=settings,
        group=group,
        meta_group=(lvm.VolumeGroup(meta) if meta and meta != group.name
                    else group),
        dm=device.DeviceMapper(),
        targets=exported,
        initiator=initiator.Initiator(),
        erase=erasure.Eraser.of(config))


def make_world(configuration: typing.Any, node: NodeName) -> World:
    """The ports of one backend of this node.

    :param node: ``host@backend``
    """
    host = make_host(configuration, node)
    told = moves.Moves()
    told.listen(notifications.Sender(node))
    return World(host=host, rows=volumes.RowStore(),
                 snapshots=snapshots.SnapshotStore(),
                 peers=client.Peers(host.settings.backend),
                 locks=locks.Locks(node), clock=time, moves=told)


def _thin_pool(config: typing.Any) -> str:
    """The pool for what holds data; empty if that is not thin."""
    if config.dmclone_lvm_type != 'thin':
        return ''
    return config.dmclone_thin_pool or f'{config.volume_group}-pool'


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
        # With another key nobody who has borrowed could log in again.
        folder = os.open(CONF.state_path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    with open(path, 'rb') as key_file:
        return key_file.read()
