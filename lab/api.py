# SPDX-License-Identifier: Apache-2.0
"""What tests ask of Cinder's public API, by plain HTTP."""
from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from lab import config
from lab.attached import AttachedVolume
from lab.errors import LabError
from lab.network import Network, mgmt_address
from lab.processes import wait_for
from lab.rest import Client, RestError

if TYPE_CHECKING:
    from lab.lab import LabNode


def connector(node: int) -> dict[str, Any]:
    """What Nova on node ``node`` (from 1) would say about itself."""
    return {'host': f'node{node}', 'ip': mgmt_address(node),
            'initiator': f'iqn.2026-01.lab.dmclone:node{node}',
            'multipath': False, 'enforce_multipath': False,
            'do_local_attach': False, 'os_type': 'linux',
            'platform': 'x86_64',
            'system uuid': str(uuid.UUID(int=node))}


class Api:
    """Requests to Cinder as the administrator.

    :ivar nodes: of the lab; requests have their numbers, from 1
    """

    nodes: list[LabNode]

    def __init__(self, network: Network) -> None:
        self.client = Client(network)

    def cinder(self, method: str, path: str, body: Any = None,
               microversion: str = '3.71', timeout: float = 600) -> Any:
        """A request; ``path`` follows /v3/<project>.  Raises RestError."""
        return self.client.cinder(method, path, body, microversion, timeout)

    def create_type(self, name: str, backend: str = config.BACKEND,
                    **more: str) -> str:
        """Make a public volume type bound to a backend's name; its id.

        ``more`` are further extra specs.
        """
        found = self.cinder('POST', '/types', {'volume_type': {
            'name': name,
            'extra_specs': {'volume_backend_name': backend, **more}}})
        return str(found['volume_type']['id'])

    def create_encrypted_type(self, name: str) -> None:
        """The same for volumes that os-brick encrypts."""
        found = self.create_type(name)
        self.cinder('POST', f'/types/{found}/encryption', {'encryption': {
            'provider': 'luks', 'control_location': 'front-end',
            'cipher': 'aes-xts-plain64', 'key_size': 256}})

    def unlimited(self) -> None:
        """Let the administrator's project have any number of volumes."""
        self.client.token()
        self.cinder('PUT', f'/os-quota-sets/{self.client.project_id}', {
            'quota_set': {'volumes': -1, 'gigabytes': -1}})

    def create_volume(self, gib: int, node: int | None = None,
                      wait: bool = True, backend: str = config.BACKEND,
                      **more: Any) -> str:
        """Create a volume, on node ``node`` (from 1) if given; its id."""
        body: dict[str, Any] = {'volume': {'size': gib, **more}}
        if node is not None:
            # One type for all nodes: the scheduler is told by a hint.
            host = f'node{node}@{backend}#{backend}'
            body['OS-SCH-HNT:scheduler_hints'] = {
                'query': json.dumps(['=', '$host', host])}
        volume = self.cinder('POST', '/volumes', body)['volume']['id']
        if wait:
            self.wait_volume(volume, 'available')
        return str(volume)

    def volume(self, volume: str) -> dict[str, Any]:
        """What the API shows of a volume."""
        found: dict[str, Any] = self.cinder('GET', f'/volumes/{volume}')
        return dict(found['volume'])

    def wait_volume(self, volume: str, *wanted: str) -> str:
        """Wait for one of the states; LabError if it ends in error."""
        def reached() -> str:
            status = str(self.volume(volume)['status'])
            if status.startswith('error') and status not in wanted:
                raise LabError(f'volume {volume}: status {status}')
            return status if status in wanted else ''
        return str(wait_for(f'volume {volume} to be {wanted}', reached,
                            600, 0.2))

    def extend_volume(self, volume: str, gib: int,
                      idle: str = 'available') -> None:
        """Extend a volume, and wait until that is done.

        :param idle: its status before and then
        """
        self.cinder('POST', f'/volumes/{volume}/action',
                    {'os-extend': {'new_size': gib}})
        self.wait_volume(volume, idle)

    def delete_volume(self, volume: str) -> None:
        """Delete a volume and wait until it is gone."""
        self.cinder('DELETE', f'/volumes/{volume}')
        wait_for(f'volume {volume} to be gone',
                 lambda: self._gone(volume), 600, 0.2)

    def _gone(self, volume: str) -> bool:
        try:
            status = self.volume(volume)['status']
        except RestError as exc:
            if exc.status == 404:
                return True
            raise
        if status == 'error_deleting':
            raise LabError(f'volume {volume}: error_deleting')
        return False

    def create_snapshot(self, volume: str, name: str = 'snapshot') -> str:
        """A snapshot of a volume, whoever uses it; its id."""
        made = self.cinder('POST', '/snapshots', {'snapshot': {
            'volume_id': volume, 'force': True, 'name': name}})
        snapshot = str(made['snapshot']['id'])
        wait_for(f'snapshot {snapshot}', lambda: self.snapshot_status(
            snapshot) == 'available', 600, 0.2)
        return snapshot

    def snapshot_status(self, snapshot: str) -> str:
        """What the API says of a snapshot; ``gone`` if it is.

        :raises LabError: if it is in error
        """
        try:
            found = self.cinder('GET', f'/snapshots/{snapshot}')
        except RestError as exc:
            if exc.status != 404:
                raise
            return 'gone'
        status = str(found['snapshot']['status'])
        if status.startswith('error'):
            raise LabError(f'snapshot {snapshot}: status {status}')
        return status

    def delete_snapshot(self, snapshot: str) -> None:
        """Delete a snapshot and wait until it is gone."""
        self.cinder('DELETE', f'/snapshots/{snapshot}')
        wait_for(f'end of snapshot {snapshot}', lambda: self.snapshot_status(
            snapshot) == 'gone', 600, 0.2)

    def reserve(self, volume: str, instance: str | None = None) -> str:
        """An attachment without a connector, as Nova makes first; its id."""
        body = {'volume_uuid': volume,
                'instance_uuid': instance or str(uuid.uuid4())}
        answer = self.cinder('POST', '/attachments', {'attachment': body})
        return str(answer['attachment']['id'])

    def connect(self, attachment: str, node: int,
                timeout: float = 600) -> dict[str, Any]:
        """Tell an attachment its connector; the connection info."""
        answer = self.cinder(
            'PUT', f'/attachments/{attachment}',
            {'attachment': {'connector': connector(node)}},
            timeout=timeout)
        return dict(answer['attachment']['connection_info'])

    def complete(self, attachment: str) -> None:
        """Say that the server has the volume."""
        self.cinder('POST', f'/attachments/{attachment}/action',
                    {'os-complete': None})

    def connected(self, attachment: str, volume: str,
                  node: int) -> AttachedVolume:
        """Tell an attachment its connector, and where the device is then."""
        return self._at(attachment, volume, node,
                        self.connect(attachment, node))

    def attach_volume(self, volume: str, node: int,
                      attachment: str | None = None) -> AttachedVolume:
        """All three steps of Nova, or those behind reserve()."""
        at = self.connected(attachment or self.reserve(volume), volume, node)
        self.complete(at.id)
        return at

    def attach_at_once(self, volume: str, node: int,
                       instance: str) -> AttachedVolume:
        """Attach where a server is about to go; it is not complete then."""
        answer = self.cinder('POST', '/attachments', {'attachment': {
            'volume_uuid': volume, 'instance_uuid': instance,
            'connector': connector(node)}})['attachment']
        return self._at(str(answer['id']), volume, node,
                        answer['connection_info'])

    def _at(self, attachment: str, volume: str, node: int,
            info: dict[str, Any]) -> AttachedVolume:
        return AttachedVolume(attachment, volume, self.nodes[node - 1],
                              info['device_path'])

    def detach_volume(self, attachment: str) -> None:
        """Delete an attachment."""
        self.cinder('DELETE', f'/attachments/{attachment}')
