# SPDX-License-Identifier: Apache-2.0
"""What Nova, Placement and Cinder are asked, with what nova.conf has."""

from __future__ import annotations

import functools
import typing

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as keystone_exceptions
from keystoneauth1 import loading
import nova.conf
from nova import context
from nova import exception
from nova import objects
from nova.scheduler.client import report as placement

from cinder_dmclone.nova import rooms
from cinder_dmclone.nova.knowledge import Knowledge
from cinder_dmclone.nova.placements import Placements
from cinder_dmclone.nova.planning import Planner

CONF = nova.conf.CONF
_SECTION = nova.conf.cinder.cinder_group.name

# In seconds, of each connection and each answer. Without it Nova's own
# clients wait for ever.
TIMEOUT = 5


class Cinder:
    """The API, as the user of ``[cinder]`` in nova.conf.

    All that is asked for is for administrators by default: pools, the host of
    a volume, extra specs of types.
    """

    def report(self) -> rooms.Report:
        """All pools and types."""
        return rooms.Report(
            self._get('/scheduler-stats/get_pools?detail=True')['pools'],
            self._get('/types?is_public=None')['volume_types'],
            self._default_type())

    def _default_type(self) -> str | None:
        try:
            found = self._get('/types/default')['volume_type']
        except keystone_exceptions.NotFound:
            return None
        return str(found['id'])

    def volume(self, volume: str) -> rooms.Volume | None:
        """A volume by its id; None if it does not exist."""
        try:
            found = self._get(f'/volumes/{volume}')['volume']
        except keystone_exceptions.NotFound:
            return None
        return rooms.Volume(
            volume, rooms.node(found['os-vol-host-attr:host'] or ''),
            found['size'], frozenset(
                one['server_id'] for one in found['attachments']))

    def _get(self, path: str) -> typing.Any:
        return self._client.get(path).json()

    @functools.cached_property
    def _client(self) -> adapter.Adapter:
        options = CONF[_SECTION]
        auth = loading.load_auth_from_conf_options(CONF, _SECTION)
        if auth is None:
            raise keystone_exceptions.MissingAuthPlugin(
                f'auth_type in [{_SECTION}] of nova.conf is not set, which '
                'nova-scheduler needs here')
        session = loading.load_session_from_conf_options(
            CONF, _SECTION, auth=auth, timeout=TIMEOUT)
        kind, name, interface = options.catalog_info.split(':')
        return adapter.Adapter(
            session, service_type=kind, service_name=name or None,
            interface=interface, region_name=options.os_region_name,
            endpoint_override=options.endpoint_template)


def disks(server: str) -> typing.Iterable[typing.Any]:
    """The block device mappings of a server, which may not exist yet."""
    admin = context.get_admin_context()
    try:
        request = objects.BuildRequest.get_by_instance_uuid(admin, server)
        return request.block_device_mappings
    except exception.BuildRequestNotFound:
        pass
    try:
        mapping = objects.InstanceMapping.get_by_instance_uuid(admin, server)
    except exception.InstanceMappingNotFound:
        return ()
    if not mapping.cell_mapping:
        return ()
    with context.target_cell(admin, mapping.cell_mapping) as cell:
        return objects.BlockDeviceMappingList.get_by_instance_uuid(
            cell, server)


def providers(server: str) -> typing.Iterable[str]:
    """The resource providers on which something is claimed for a server."""
    client = placement.report_client_singleton()
    found = client.get_allocs_for_consumer(context.get_admin_context(),
                                           server)
    return found['allocations']


@functools.cache
def planner() -> Planner:
    """That of this process."""
    return Planner(Knowledge(Cinder()), Placements(providers), disks)
