# SPDX-License-Identifier: Apache-2.0
"""What tests ask of Nova's public API, by plain HTTP."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lab.api import Api
from lab.errors import LabError
from lab.processes import wait_for
from lab.rest import RestError

FLAVOR = 'tiny'
MICROVERSION = '2.95'
_ENDED = {'completed', 'error', 'failed', 'cancelled'}


class Servers(Api):
    """Requests to Nova and Cinder as the administrator.

    Whatever waits for something raises LabError if Nova gives it up.
    """

    def nova(self, method: str, path: str, body: Any = None,
             microversion: str = MICROVERSION, timeout: float = 300) -> Any:
        """A request; ``path`` follows /v2.1.  Raises RestError."""
        return self.client.nova(method, path, body, microversion, timeout)

    def create_flavor(self) -> None:
        """A flavor with one CPU and no disk; its id is its name."""
        self.nova('POST', '/flavors', {'flavor': {
            'id': FLAVOR, 'name': FLAVOR, 'vcpus': 1, 'ram': 128, 'disk': 0}})

    # One server

    def set_bootable(self, volume: str) -> None:
        """Say that a server can boot from a volume."""
        self.cinder('POST', f'/volumes/{volume}/action',
                    {'os-set_bootable': {'bootable': True}})

    def create_server(self, volume: str, node: int) -> str:
        """A server that boots from ``volume`` on a node (from 1); its id."""
        server = self.ask_server(volume, host=f'node{node}')
        self.wait_server(server, 'ACTIVE')
        return server

    def ask_server(self, volume: str, *disks: dict[str, Any],
                   **more: Any) -> str:
        """Have a server made that boots from ``volume``; its id.

        ``disks`` are further block device mappings, ``more`` what else the
        request has.
        """
        root = {'boot_index': 0, 'uuid': volume, 'source_type': 'volume',
                'destination_type': 'volume'}
        return self.ask_server_of('', root, *disks, **more)

    def ask_server_of(self, image: str, *disks: dict[str, Any],
                      **more: Any) -> str:
        """Have a server made whose disks an image names, or ``disks``."""
        body = {'name': 'server', 'imageRef': image, 'flavorRef': FLAVOR,
                'networks': 'none',
                **({'block_device_mapping_v2': disks} if disks else {}),
                **more}
        made = self.nova('POST', '/servers', {'server': body})
        return str(made['server']['id'])

    def server(self, server: str) -> dict[str, Any]:
        """What the API shows of a server."""
        return dict(self.nova('GET', f'/servers/{server}')['server'])

    def node_of(self, server: str) -> int:
        """The number (from 1) of the node that has the server."""
        host = self.server(server)['OS-EXT-SRV-ATTR:host']
        if not host:
            raise LabError(f'server {server} is on no node')
        return int(host.removeprefix('node'))

    def wait_server(self, server: str, *wanted: str) -> str:
        """Wait until the server rests in one of the states."""
        return self._wait(server, wanted, 300, lambda: '')

    def _wait(self, server: str, wanted: Sequence[str], timeout: float,
              failure: Callable[[], str]) -> str:
        def reached() -> str:
            found = self.server(server)
            status = str(found['status'])
            if status == 'ERROR' and status not in wanted:
                why = found.get('fault', {}).get('message', 'no reason given')
                raise LabError(f'server {server}: ERROR: {why}')
            if found['OS-EXT-STS:task_state'] is not None:
                return ''
            if status in wanted:
                return status
            why = failure()
            if why:
                raise LabError(f'server {server}: {status}: {why}')
            return ''
        return str(wait_for(f'server {server} to be {wanted}', reached,
                            timeout, 0.2))

    def act(self, server: str, action: str, arguments: Any = None) -> Any:
        """A server action as the API reference names it."""
        return self.nova('POST', f'/servers/{server}/action',
                         {action: arguments})

    def _act(self, server: str, action: str, arguments: Any,
             *wanted: str) -> None:
        self.act(server, action, arguments)
        self._wait(server, wanted, 600, lambda: self.action_error(server))

    def action_error(self, server: str) -> str:
        """Why the server's last action failed; nothing if it did not."""
        action, events = self._last_action(server)
        if action['message'] != 'Error':
            return ''
        errors = [event.get('details') or event.get('traceback')
                  for event in events if event['result'] == 'Error']
        return str(errors[0]) if errors else 'no reason given'

    def wait_action(self, server: str) -> str:
        """Wait until the last action is over; why it failed, if it did."""
        def over() -> bool:
            events = self._last_action(server)[1]
            return bool(events) and all(event['finish_time']
                                        for event in events)
        wait_for(f'the end of the last action of server {server}', over,
                 300, 0.5)
        return self.action_error(server)

    def _last_action(self, server: str
                     ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """An action and its events."""
        path = f'/servers/{server}/os-instance-actions'
        action = self.nova('GET', path)['instanceActions'][0]
        found = self.nova('GET', f'{path}/{action["request_id"]}')
        return action, found['instanceAction']['events']

    def start_server(self, server: str) -> None:
        """Switch a server on."""
        self._act(server, 'os-start', None, 'ACTIVE')

    def stop_server(self, server: str) -> None:
        """Switch a server off."""
        self._act(server, 'os-stop', None, 'SHUTOFF')

    def reboot_server(self, server: str) -> None:
        """Reboot a server without asking it."""
        self._act(server, 'reboot', {'type': 'HARD'}, 'ACTIVE')

    def delete_server(self, server: str) -> None:
        """Delete a server and wait until it is gone; its volumes stay."""
        self.nova('DELETE', f'/servers/{server}')
        wait_for(f'server {server} to be gone',
                 lambda: _missing(lambda: self.server(server)), 300, 0.2)

    # Moves

    def live_migrate(self, server: str, node: int | None,
                     wait: bool = True) -> None:
        """Move a running server; Nova chooses where if no node is given."""
        self.act(server, 'os-migrateLive', {
            'host': node and f'node{node}',
            'block_migration': 'auto'})
        if wait:
            status = self.wait_migration(server)
            if status != 'completed':
                raise LabError(f'live migration of server {server}: {status}'
                               f': {self.action_error(server)}')

    def wait_migration(self, server: str) -> str:
        """Wait for the end of the server's last migration; its status.

        That is "completed", "error", "failed" or "cancelled".
        """
        def ended() -> str:
            # That it migrates is known before there is a migration.
            if self.server(server)['OS-EXT-STS:task_state'] is not None:
                return ''
            status = str(self.migrations(server)[0]['status'])
            return status if status in _ENDED else ''
        return str(wait_for(f'end of the migration of server {server}',
                            ended, 600, 0.5))

    def migrations(self, server: str) -> list[dict[str, Any]]:
        """All migrations of a server, the newest first."""
        found = self.nova('GET', f'/os-migrations?instance_uuid={server}')
        return sorted(found['migrations'], key=lambda each: each['id'],
                      reverse=True)

    def migrate(self, server: str, node: int) -> None:
        """Move a server cold; confirm() or revert() it then."""
        self._act(server, 'migrate', {'host': f'node{node}'},
                  'VERIFY_RESIZE')

    def confirm(self, server: str) -> None:
        """Keep what migrate() did."""
        self._act(server, 'confirmResize', None, 'ACTIVE', 'SHUTOFF')

    def revert(self, server: str) -> None:
        """Undo what migrate() did."""
        self._act(server, 'revertResize', None, 'ACTIVE', 'SHUTOFF')

    def shelve(self, server: str) -> None:
        """Take a server off its node."""
        self._act(server, 'shelve', None, 'SHELVED_OFFLOADED')

    def unshelve(self, server: str, node: int) -> None:
        """Put a shelved server on a node."""
        self._act(server, 'unshelve', {'host': f'node{node}'}, 'ACTIVE')

    def evacuate(self, server: str, node: int) -> None:
        """Let a server be taken from a node that is down to another."""
        self.act(server, 'evacuate', {'host': f'node{node}'})

    # Volumes

    def add_volume(self, server: str, volume: str) -> None:
        """Attach a volume to a server."""
        self.nova('POST', f'/servers/{server}/os-volume_attachments',
                  {'volumeAttachment': {'volumeId': volume}})
        self.wait_volume(volume, 'in-use')

    def remove_volume(self, server: str, volume: str) -> None:
        """Detach a volume from a server."""
        path = f'/servers/{server}/os-volume_attachments/{volume}'

        def gone() -> bool:
            missing = _missing(lambda: self.nova('GET', path))
            why = '' if missing else self.action_error(server)
            if why:
                raise LabError(f'server {server}: volume {volume} stays: '
                               f'{why}')
            return missing
        self.nova('DELETE', path)
        wait_for(f'server {server} to be without volume {volume}', gone,
                 300, 0.5)
        self.wait_volume(volume, 'available')

    # Services

    def force_down(self, node: int, down: bool = True) -> None:
        """Say that a node's nova-compute is dead, whatever it does."""
        found = self.nova('GET', f'/os-services?host=node{node}'
                                 '&binary=nova-compute')
        self.nova('PUT', f'/os-services/{found["services"][0]["id"]}',
                  {'forced_down': down})


def _missing(look: Callable[[], object]) -> bool:
    """Whether a look finds nothing (404)."""
    try:
        look()
    except RestError as exc:
        if exc.status == 404:
            return True
        raise
    return False
