# SPDX-License-Identifier: Apache-2.0
"""What is asked of Cinder, each until it is so.

What is asked for may be lost with its answer, and be done or not: so each try
looks first at what there is.
"""
from __future__ import annotations

import typing
import uuid

from lab.attached import AttachedVolume
from lab.rest import RestError
from lab.soak.model import Step
from lab.soak.patience import Lost, Patience

if typing.TYPE_CHECKING:
    from lab.lab import Lab

_RESET: dict[str, dict[str, str]] = {
    'volumes': {'status': 'available', 'attach_status': 'detached',
                'migration_status': 'none'},
    'snapshots': {'status': 'error'}}


class Requests:
    """Requests about volumes and snapshots, by the model's names."""

    def __init__(self, lab: Lab, patience: Patience) -> None:
        self._lab = lab
        self._patience = patience
        self._ids: dict[str, str] = {}

    def id(self, name: str) -> str:
        """Of a volume or a snapshot."""
        return self._ids[name]

    # -- what there is ------------------------------------------------------

    def _shown(self, kind: str, name: str) -> dict[str, typing.Any] | None:
        """A volume or snapshot as the API shows it, if there is one."""
        try:
            found = self._lab.cinder('GET', f'/{kind}/{self._ids[name]}')
        except RestError as error:
            if error.status != 404:
                raise
            return None
        return dict(found[kind[:-1]])

    def _status(self, kind: str, name: str) -> str:
        found = self._shown(kind, name)
        return str(found['status']) if found else 'gone'

    def _settled(self, kind: str, name: str) -> str:
        return self._patience.settled(
            f'{kind[:-1]} {name}', lambda: self._status(kind, name))

    def _reset(self, kind: str, name: str) -> None:
        """Say that nobody works on it, as an operator does."""
        self._lab.cinder(
            'POST', f'/{kind}/{self._ids[name]}/action',
            {'os-reset_status': _RESET[kind]})

    def _attachments(self, volume: str) -> list[tuple[str, str]]:
        """Id and status of a volume's attachments."""
        return [(str(found), str(status)) for found, status in self._lab.sql(
            'select id, attach_status from volume_attachment where deleted '
            f"= 0 and volume_id = '{self._ids[volume]}'")]

    # -- refused ------------------------------------------------------------

    def ask(self, step: Step) -> None:
        """Ask once for what has to be refused.

        :raises RestError: it is
        """
        name, source = step.name, step.source
        if step.verb == 'delete':
            self._lab.cinder('DELETE', f'/volumes/{self._ids[name]}')
        elif step.verb == 'attach':
            self._lab.reserve(self._ids[name])
        elif step.verb == 'extend':
            self._extend(name, step.gib)
        elif step.verb == 'revert':
            self._revert(name, source)
        else:
            self._lab.create_volume(step.gib, wait=False,
                                    **self._source(step))

    # -- making and deleting ------------------------------------------------

    def _source(self, step: Step) -> dict[str, typing.Any]:
        key = {'clone': 'source_volid', 'born': 'snapshot_id'}
        return ({key[step.verb]: self._ids[step.source]} if step.source
                else {})

    def make(self, step: Step) -> None:
        """Try to make a volume or a snapshot.

        :raises Lost: what was made is of no use, and has been removed
        """
        kind = 'snapshots' if step.verb == 'snapshot' else 'volumes'
        if not self._found(kind, step.name):
            self._create(step)
        try:
            status = self._settled(kind, step.name)
        except Lost:
            self.remove(kind, step.name)
            raise
        if status != 'available':
            self.remove(kind, step.name)
            raise Lost(f'{step.name} was {status}')

    def _found(self, kind: str, name: str) -> bool:
        """Whether a try has made it, whose answer was lost."""
        found = self._lab.cinder('GET', f'/{kind}?all_tenants=1&name={name}')
        for each in found[kind]:
            self._ids[name] = str(each['id'])
        return bool(found[kind])

    def _create(self, step: Step) -> None:
        if step.verb == 'snapshot':
            self._ids[step.name] = str(self._lab.cinder(
                'POST', '/snapshots', {'snapshot': {
                    'volume_id': self._ids[step.source], 'force': True,
                    'name': step.name}})['snapshot']['id'])
            return
        self._ids[step.name] = self._lab.create_volume(
            step.gib, step.node or None, wait=False, name=step.name,
            **self._source(step))

    def remove(self, kind: str, name: str) -> None:
        """Try to delete something, in whatever state.

        :raises Lost: it is not deleted
        """
        status = self._status(kind, name)
        if status == 'gone':
            return
        if status not in ('available', 'error'):
            if status != 'deleting':
                self._reset(kind, name)
        if status != 'deleting':
            self._lab.cinder('DELETE', f'/{kind}/{self._ids[name]}')
        try:
            status = self._settled(kind, name)
        except Lost:
            self._reset(kind, name)
            raise
        if status != 'gone':
            raise Lost(f'{name} is {status}, not deleted')

    # -- changing -----------------------------------------------------------

    def _extend(self, name: str, gib: int) -> None:
        self._lab.cinder('POST', f'/volumes/{self._ids[name]}/action',
                         {'os-extend': {'new_size': gib}})

    def extend(self, name: str, gib: int) -> None:
        """Try to make a volume larger.

        :raises Lost: it is not
        """
        self.at_rest(name)
        if self._size(name) != gib:
            self._extend(name, gib)
            self.at_rest(name)
        if self._size(name) != gib:
            raise Lost(f'{name} is not larger')

    def _size(self, name: str) -> int:
        found = self._shown('volumes', name)
        return int(found['size']) if found else 0

    def at_rest(self, name: str) -> None:
        """Have a volume that nobody works on be available.

        :raises Lost: it had to be told so
        """
        try:
            status = self._settled('volumes', name)
        except Lost:
            self._reset('volumes', name)
            raise
        if status != 'available':
            self._reset('volumes', name)
            raise Lost(f'{name} was {status}')

    def _revert(self, name: str, snapshot: str) -> None:
        self._lab.cinder('POST', f'/volumes/{self._ids[name]}/action',
                         {'revert': {'snapshot_id': self._ids[snapshot]}})

    def revert(self, name: str, snapshot: str) -> None:
        """Try to make a volume what a snapshot is.

        :raises Lost: whether it was done is not known
        """
        self.at_rest(name)
        if self._status('snapshots', snapshot) != 'available':
            self._lab.cinder(
                'POST', f'/snapshots/{self._ids[snapshot]}/action',
                {'os-reset_status': {'status': 'available'}})
        node = self._node_of(name)
        begin = node.volume.log.stat().st_size
        self._revert(name, snapshot)
        self.at_rest(name)
        with node.volume.log.open('rb') as file:
            file.seek(begin)
            log = file.read().decode(errors='replace')
        for line in log.splitlines():
            # Cinder says so nowhere else.
            if f'Volume {self._ids[name]} was not reverted' in line:
                raise Lost(line)
        if self._settled('snapshots', snapshot) != 'available':
            raise Lost(f'{snapshot} is not available after a revert')

    def _node_of(self, name: str) -> typing.Any:
        (host,), = self._lab.sql('select host from volumes where id = '
                                 f"'{self._ids[name]}'")
        return next(node for node in self._lab.nodes
                    if node.volume.host == str(host).partition('#')[0])

    # -- servers ------------------------------------------------------------

    def attach(self, name: str, node: int, instance: str = '',
               beside: str = '') -> AttachedVolume:
        """Try to attach as Nova does.

        :param instance: the server; a new one if it is left out
        :param beside: an attachment that it has already, elsewhere
        """
        volume = self._ids[name]
        mine = [(found, status) for found, status in self._attachments(name)
                if found != beside]
        if beside and 'attached' not in [status for _, status in mine]:
            # Cinder takes a connector for a second one only at once.
            for attachment, _ in mine:
                self.detach(attachment)
            at = self._lab.attach_at_once(volume, node, instance)
            self._lab.complete(at.id)
            return at
        if not mine:
            mine = [(self._lab.reserve(volume, instance or str(uuid.uuid4())),
                     'reserved')]
        (attachment, status), = mine
        if status != 'attached':
            at = self._lab.connected(attachment, volume, node)
            self._lab.complete(attachment)
            return at
        info = self._lab.cinder('GET', f'/attachments/{attachment}')
        return AttachedVolume(
            attachment, volume, self._lab.nodes[node - 1],
            info['attachment']['connection_info']['device_path'])

    def detach(self, attachment: str) -> None:
        """Try to delete an attachment."""
        try:
            self._lab.detach_volume(attachment)
        except RestError as error:
            if error.status != 404:
                raise

    def left(self) -> list[str]:
        """Volumes and snapshots that Cinder still has, in words."""
        return [f'{table}: {found} is {status}'
                for table in ('volumes', 'snapshots')
                for found, status in self._lab.sql(
                    f'select id, status from {table} where deleted = 0')]
