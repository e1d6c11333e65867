# SPDX-License-Identifier: Apache-2.0
"""Cinder's API and volume manager, as far as the driver meets them.

The API routes by ``volume.host`` and gives up after a minute; the manager
calls the driver and writes down what came of it. What a message meets on its
way is the fault plan's choice.
"""

from __future__ import annotations

import contextlib
import typing

from cinder import exception
from cinder.volume import configuration  # noqa: F401 (registers options)
from oslo_serialization import jsonutils

from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers import client
from cinder_dmclone.relocation import cut
from cinder_dmclone.service import connections
from cinder_dmclone.service import manage
from cinder_dmclone.service import migrate
from cinder_dmclone.service import volumes
from tests.simulation import cloud as cloud_module
from tests.simulation import outside
from tests.simulation import snaps
from tests.simulation import truth as truth_module
from tests.unit.fake import cloud as unit_cloud
from tests.unit.fake import ports

# rpc_response_timeout
TIMEOUT = client.CONF.rpc_response_timeout if (
    'rpc_response_timeout' in client.CONF) else 60.0

# What a call does before and after it waits for another node.
SLACK = 2.0
# Nobody waits for what the API only casts, but a story has to go on.
CAST_SECONDS = 300.0


class Refused(Exception):
    """The API answers with an error; the text says why."""


class Api:
    """Requests for one volume."""

    def __init__(self, cloud: cloud_module.Cloud, volume: VolumeId) -> None:
        self.cloud = cloud
        self.tables = cloud.tables
        self.volume = volume
        # What knows of its snapshots, if it may have any.
        self.truth: truth_module.Truth | None = None
        # For which node an attachment was connected last.
        self.asked: dict[str, outside.Host] = {}
        # Whether Cinder itself has moved it.
        self.moved = False
        self.fate: typing.Callable[[str], ports.Fate] = (
            lambda what: ports.Fate.ARRIVES)

    # -- routing ------------------------------------------------------------

    def call(self, what: str, run: typing.Callable[
            [cloud_module.Process], typing.Any],
            once: bool = False, seconds: float = TIMEOUT) -> typing.Any:
        """An RPC call to the service of the volume's host.

        What comes twice is a request that the client has repeated:
        oslo.messaging drops a second copy of a message.
        """
        target = self.cloud.row(self.volume).node

        def answer(process: cloud_module.Process) -> tuple[bool, typing.Any]:
            began = self.cloud.clock.monotonic() - self.cloud.delayed
            generation = self.cloud.row(self.volume).generation
            try:
                if self.tables.hidden:
                    raise Refused('VolumeNotFound')
                return True, run(process)
            except Exception as error:
                self._check_error(what, process, generation, error)
                return False, error
            finally:
                self._check_time(what, process, began)
        fate = self.fate(what)
        if once and fate is ports.Fate.TWICE:
            fate = ports.Fate.ARRIVES
        future = self.cloud.send(what, target, fate, TIMEOUT,
                                 answer, lambda: self.cloud.nodes[target].up)
        if not future.wait(seconds):
            raise Refused(f'{what}: no answer')
        good, result = future.value
        if not good:
            raise Refused(f'{what}: {result}')
        return result

    def _check_time(self, what: str, process: cloud_module.Process,
                    began: float) -> None:
        took = self.cloud.clock.monotonic() - self.cloud.delayed - began
        # Nobody waits for these: they wait for a live migration, or a node.
        if process.alive and took > TIMEOUT + SLACK and what not in (
                'snapshot', 'revert', 'extend', 'create'):
            raise truth_module.Violation(
                'I8 slow', f'{what} took {took:.0f} s on {process.node.name}')

    def _check_error(self, what: str, process: cloud_module.Process,
                     generation: int, error: Exception) -> None:
        """Errors that are no answer, and errors after a commit."""
        if not isinstance(error, (*cloud_module.ANSWERS, Refused)):
            raise error

    # -- attachments --------------------------------------------------------

    def reserve(self, instance: str) -> str:
        """POST /attachments without a connector."""
        row = self.tables.volumes[self.volume]
        mine = any(found['instance_uuid'] == instance
                   for found in self.tables.attachments_of(self.volume))
        free = ['available', 'downloading']
        if row['multiattach']:
            free.append('in-use')
        if row['deleted'] or (not mine and row['status'] not in free):
            raise Refused(f'reserve: the volume is {row["status"]}')
        if row['status'] in free and (row['multiattach'] or not mine):
            row['status'] = 'reserved'
        return self.tables.attachment(self.volume, instance_uuid=instance)

    def connected(self, attachment: str | None) -> bool:
        return bool(attachment and not self.tables.attachments[
            attachment]['deleted'])

    def connect(self, attachment: str, node: outside.Host,
                once: bool = False) -> dict[str, typing.Any]:
        """PUT /attachments/ID: the connection info.

        :param once: it comes with the attachment's creation, and each
            creation makes another attachment
        """
        def manager(process: cloud_module.Process) -> dict[str, typing.Any]:
            info = connections.connect(process.service, self.volume,
                                       node.connector)
            # It is written down only now.
            self.cloud.take_time()
            process.check_alive()
            found = self.tables.attachments[attachment]
            if found['deleted']:
                raise Refused('the attachment is gone')
            found.update(connector=jsonutils.dumps(node.connector),
                         attach_status='attaching')
            self.tables.volumes[self.volume]['status'] = 'attaching'
            return info
        if self.tables.attachments[attachment]['deleted']:
            raise Refused('connect: the attachment is gone')
        if not once:
            self.asked[attachment] = node
        info = self.call('connect', manager, once)
        # The API writes that down, the manager the connector.
        if self.tables.volumes[self.volume]['multiattach']:
            self.cloud.take_time()
        self.tables.update_attachment(
            attachment, connection_info=jsonutils.dumps(info))
        return info

    def complete(self, attachment: str) -> None:
        found = self.tables.attachments[attachment]
        if found['deleted'] or found['attach_status'] != 'attaching':
            raise Refused(f'complete: it is {found["attach_status"]}')
        found['attach_status'] = 'attached'
        self.tables.volumes[self.volume]['status'] = 'in-use'

    def complete_again(self, attachment: str) -> None:
        """After a repeated update, which makes it one that waits."""
        if self.connected(attachment) and self.tables.attachments[
                attachment]['attach_status'] == 'attaching':
            self.complete(attachment)

    def disconnect(self, attachment: str) -> None:
        """DELETE /attachments/ID."""
        found = self.tables.attachments[attachment]
        if found['deleted']:
            return
        if found['attach_status'] != 'reserved':
            self.call('disconnect', lambda process: self._terminate(
                process, found))
        else:
            self._drop(found)

    def _terminate(self, process: cloud_module.Process,
                   found: dict[str, typing.Any]) -> None:
        if found['deleted']:
            # attachment_delete in cinder/volume/manager.py reads it again.
            raise Refused('the attachment is gone')
        connections.disconnect(process.service, self.volume,
                               jsonutils.loads(found['connector']))
        process.check_alive()
        self._drop(found)

    def _drop(self, found: dict[str, typing.Any]) -> None:
        found['deleted'] = True
        row = self.tables.volumes[self.volume]
        if not self.tables.attachments_of(self.volume):
            if row['migration_status'] in (None, 'success', 'error'):
                row['status'] = 'available'
        elif any(other['attach_status'] == 'attached'
                 for other in self.tables.attachments_of(self.volume)):
            row['status'] = 'in-use'

    # -- volumes ------------------------------------------------------------

    def begin(self, what: str, status: str) -> dict[str, typing.Any]:
        row = self.tables.volumes[self.volume]
        if row['deleted'] or row['status'] != 'available' or (
                self.tables.attachments_of(self.volume)):
            raise Refused(f'{what}: the volume is {row["status"]}')
        row['status'] = status
        return row

    def delete(self) -> None:
        row = self.tables.volumes[self.volume]
        if row['status'] == 'error':
            row['status'] = 'deleting'
        elif row['status'] != 'deleting':
            row = self.begin('delete', 'deleting')
        if row['deleted']:
            return
        if self.tables.real:
            # The newest data would be kept for ever, wherever it is.
            raise Refused('delete: not while the database is an old one')

        for taken in self.snapshots:
            taken.row['status'] = 'deleting'

        def manager(process: cloud_module.Process) -> None:
            for taken in self.snapshots:
                snaps.delete(process, taken)
            volumes.delete(process.service, self.volume)
            process.check_alive()
            self._destroy()
        self.call('delete', manager)

    def unmanage(self) -> None:
        """``cinder unmanage``; somebody resets the status if it fails."""
        row = self.begin('unmanage', 'unmanaging')
        if self.snapshots or self.tables.real or self.truth is None:
            row['status'] = 'available'
            raise Refused('unmanage: it is not only this volume')
        truth = self.truth

        def manager(process: cloud_module.Process) -> None:
            manage.unmanage(process.service, self.volume)
            process.check_alive()
            self._destroy()
            truth.unmanaged = True
        self.reset_after('unmanage', manager, status='available')

    def _destroy(self) -> None:
        """``volume_destroy`` of cinder/db/api.py, which takes all with it."""
        self.tables.destroy(self.volume)
        for taken in self.snapshots:
            taken.row.update(deleted=True, status='deleted')

    def purge(self) -> None:
        """Somebody deletes in the database alone."""
        self.begin('purge', 'deleting')
        self._destroy()

    @property
    def snapshots(self) -> list[snaps.Snapshot]:
        """Those of the volume that were not deleted."""
        return [taken for taken in (self.truth.snapshots if self.truth
                                    else ()) if not taken.row['deleted']]

    def forget(self) -> None:
        """``cinder reset-state --attach-status detached``."""
        for found in self.tables.attachments_of(self.volume):
            found['deleted'] = True
        row = self.tables.volumes[self.volume]
        if row['status'] == 'in-use':
            row['status'] = 'available'

    def refused(self, why: str) -> Refused:
        return Refused(why)

    def cut(self) -> None:
        """What a snapshot of a volume that is written needs."""
        row = self.tables.volumes[self.volume]
        if row['deleted'] or row['status'] not in ('available', 'in-use'):
            raise Refused(f'cut: the volume is {row["status"]}')

        def manager(process: cloud_module.Process) -> None:
            with process.service.home(self.volume, 'cut') as (row, _):
                cut.cut(process.world, row)
        self.call('cut', manager)

    def bear(self, make: typing.Callable[[cloud_module.Process], None],
             others: typing.Sequence[cloud_module.Node]) -> None:
        """``openstack volume create --source``, once Cinder has a node.

        :param make: calls the driver
        :param others: where Cinder tries it when it has failed there
        """
        row, left = self.tables.volumes[self.volume], list(others)

        def manager(process: cloud_module.Process) -> None:
            try:
                make(process)
            except cloud_module.ANSWERS:
                self._failed_to_make(process, bool(left))
                raise
            process.check_alive()
            row['status'] = 'available'
        while True:
            try:
                return self.call('create', manager, once=True,
                                 seconds=CAST_SECONDS)
            except Refused:
                if row['host'] is None:
                    node = left.pop(0)
                    self.tables.update(
                        self.volume, host=f'{node.name}#{unit_cloud.POOL}')
                    continue
                # As cinder-volume does that starts (``init_host``).
                self.cloud.scheduler.sleep(TIMEOUT)
                if row['status'] == 'available':
                    return None
                row['status'] = 'error'
                raise

    def _failed_to_make(self, process: cloud_module.Process,
                        again: bool) -> None:
        """``OnFailureRescheduleTask`` of the manager's create_volume flow.

        It deletes what may be there while another node makes the volume.
        """
        # Its save waits for the database; a change that is still on its way
        # has the row locked.
        while self.tables.locked or self.tables.silent:
            self.cloud.scheduler.sleep(1.0)
        self.cloud.scheduler.sleep(self.cloud.choices.choice((0.0, 1.0, 9.0)))
        process.check_alive()
        if not again:
            self.tables.volumes[self.volume]['status'] = 'error'
            return
        self.tables.update(self.volume, host=None)

        def clean_up() -> None:
            with contextlib.suppress(*cloud_module.ANSWERS):
                volumes.delete(process.service, self.volume)
        process.spawn(clean_up)

    def extend(self) -> None:
        """``openstack volume set --size``, also of one that is in use."""
        row = self.tables.volumes[self.volume]
        if row['deleted'] or row['status'] not in ('available', 'in-use'):
            raise Refused(f'extend: the volume is {row["status"]}')
        row['status'], size = 'extending', row['size'] + 1

        def manager(process: cloud_module.Process) -> None:
            volumes.extend(process.service, self.volume, size)
            process.check_alive()
            row.update(size=size, status=self._idle)
        try:
            self.call('extend', manager)
        except Refused:
            if row['status'] == 'extending':
                row['status'] = self._idle
            raise

    @property
    def _idle(self) -> str:
        """The status of the volume when nothing is done to it."""
        return ('in-use' if self.tables.attachments_of(self.volume)
                else 'available')

    def move(self, node: cloud_module.Node) -> None:
        """``openstack volume migrate`` of a volume nobody uses."""
        row = self.begin('migrate', 'available')
        if row['migration_status'] not in (None, 'success', 'error') or (
                self.cloud.row(self.volume).node == node.name):
            raise Refused('migrate: it migrates already, or is there')
        row['migration_status'] = 'migrating'

        def manager(process: cloud_module.Process) -> None:
            host = f'{node.name}#{unit_cloud.POOL}'
            if not migrate.migrate(process.service, self.volume, host):
                # Nobody is there who would take Cinder's copy.
                raise exception.NoValidBackend(reason=host)
            self.cloud.scheduler.sleep(
                self.cloud.choices.choice((0.0, 0.0, 9.0)))
            process.check_alive()
            # Whatever the row says by then.
            row.update(host=host, migration_status='success')
        self.moved = True
        # A client that asks again is refused: it migrates.
        self.reset_after('migrate', manager, True, migration_status='error')

    def reset_status(self, lost: bool) -> None:
        """After ``migrate`` a volume that was wanted meanwhile stays so.

        And so does one that is lost, for whoever would take the offer back
        has nothing of it. An administrator sees that in the end.
        """
        row = self.tables.volumes[self.volume]
        if (self.moved or lost) and row['status'] == 'reserved' and not (
                self.tables.attachments_of(self.volume)):
            row['status'] = 'available'

    def reset_after(self, what: str, manager: typing.Callable[
            [cloud_module.Process], None], once: bool = False,
            **idle: str) -> None:
        """Call the manager; if it fails somebody resets the state.

        :param idle: the column that says what goes on, and what it is then
        """
        row = self.tables.volumes[self.volume]
        (column, value), = idle.items()
        busy = row[column]
        try:
            self.call(what, manager, once)
        except Refused:
            if row[column] == busy:
                row[column] = value
            raise
