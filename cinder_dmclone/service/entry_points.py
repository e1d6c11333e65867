# SPDX-License-Identifier: Apache-2.0
"""One node of the backend: what the driver and the other nodes call.

Every entry reads a fresh row under the volume's lock. If this node does not
own the volume, the owner is asked to answer.
"""

from __future__ import annotations

import contextlib
import typing

from cinder.message import api as message_api
from cinder.message import message_field
from cinder import context as cinder_context
from oslo_log import log as logging

from cinder_dmclone.database.provider_id import ProviderId
from cinder_dmclone.database import rows
from cinder_dmclone import exceptions
from cinder_dmclone.location import LvUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone import names
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import reconciler
from cinder_dmclone.reconcile import schedule
from cinder_dmclone.relocation import coordinator
from cinder_dmclone.relocation import lender
from cinder_dmclone.relocation import live_migration
from cinder_dmclone.service import answers
from cinder_dmclone.service import attach_policy
from cinder_dmclone.stack import consumers
from cinder_dmclone.stack import exports
from cinder_dmclone.stack import inspect
from cinder_dmclone.stack import lv_tags
from cinder_dmclone.stack import state
from cinder_dmclone.stack import teardown
from cinder_dmclone import units
from cinder_dmclone.world import World

LOG = logging.getLogger(__name__)


class NodeService(answers.Answers):
    """The entry points of one node."""

    def __init__(self, world: World,
                 loop: reconciler.Reconciler) -> None:
        super().__init__(world, loop)
        # Volumes that this process copies to or from; their devices are not
        # open all the time.
        self._copying: set[str] = set()

    # -- volumes ------------------------------------------------------------

    def create(self, volume_id: VolumeId, lv: LvUuid, size_gib: int) -> str:
        """Make the LV of a new volume; returns its ``provider_id``."""
        tag = lv_tags.OwnTag(1, volume_id)
        self._host.group.create(
            names.data_lv(lv), units.Bytes.from_gib(size_gib),
            [lv_tags.print_tag(tag)])
        self._host.group.flush()
        return str(ProviderId(1))

    def delete(self, volume_id: VolumeId) -> None:
        """Delete a volume's LV, also while it hydrates; idempotent.

        :raises DeviceBusy: if it is in use; it is then left as it was
        """
        with self._locked(volume_id):
            row = self._world.rows.get(volume_id)
            if row is None or row.deleted:
                return
            self._require_home(row)
            if row.offer:
                row = coordinator.withdraw(self._world, row)
            unit = inspect.refresh(self._host, row.lv)
            for tag in unit.tags.lent:
                lender.reclaim(self._world, unit, tag)
            teardown.strip(self._host, inspect.refresh(self._host, row.lv))
        # Nobody else touches a volume that is being deleted; other nodes'
        # requests need not wait for the erasure.
        teardown.erase(self._host, unit)
        self._host.group.remove(names.data_lv(row.lv))
        if row.source:
            self._world.peers.nudge(row.source.node, volume_id)

    def extend(self, volume_id: VolumeId, size_gib: int) -> None:
        """Grow a volume; consumers that stand see the new size."""
        with self._home(volume_id) as known:
            self._host.group.extend(
                names.data_lv(known.unit.lv),
                units.Bytes.from_gib(size_gib))
            self._host.group.flush()
            unit = inspect.refresh(self._host, known.unit.lv)
            for name in unit.of_kind(*names.WRITERS):
                consumers.consume(self._host, unit, name)

    @contextlib.contextmanager
    def local_path(self, volume_id: VolumeId) -> typing.Iterator[str]:
        """A device for this node's own work on a volume, as image copies.

        Meanwhile the volume does not move.
        """
        with self._home(volume_id) as known:
            name = names.local_io(known.unit.lv)
            consumers.consume(self._host, known.unit, name)
            self._copying.add(volume_id)
        try:
            yield name.path
        finally:
            self._copying.discard(volume_id)
            self._host.dm.remove(str(name))

    # -- connections --------------------------------------------------------

    def connect(self, volume_id: VolumeId, connector: dict[str, typing.Any],
                proxied: bool = False) -> dict[str, typing.Any]:
        """Serve a connector; returns Cinder's connection info.

        A retry waits for the attempt that runs and gets its result.
        """
        owner = self._owner(volume_id)
        if owner == self._node:
            with self._locked(volume_id):
                owner = self._owner(volume_id)
                if owner == self._node:
                    try:
                        return self._connect_here(volume_id, connector)
                    finally:
                        # Nobody may want any more what was made.
                        self._loop.nominate(volume_id)
        if proxied:
            raise exceptions.NotHome(volume=volume_id, owner=owner,
                                     node=self._node)
        return self._world.peers.connect(owner, volume_id, connector)

    def _connect_here(self, volume_id: VolumeId,
                      connector: dict[str, typing.Any]
                      ) -> dict[str, typing.Any]:
        known = self._settled(self._row(volume_id))
        row, unit, host = known.row, known.unit, self._world.settings.host
        assert row is not None
        asking = connector.get('host', '')
        peer = (None if asking == host
                else self._world.peers.node_of(asking))
        peer_up = bool(peer and self._world.peers.is_up(peer))
        found = attach_policy.place(row, connector, host, peer, peer_up)
        if found.how is attach_policy.How.REFUSE:
            refusal = exceptions.CannotServe(volume=row.id, node=self._node,
                                             reason=found.why)
            self._tell_user(row, refusal)
            raise refusal
        if found.how in (attach_policy.How.RELOCATE, attach_policy.How.LIVE):
            assert found.peer is not None
            return self._relocate(row, found.peer, found.purpose)
        if found.how is not attach_policy.How.FRONT:
            self._require_unoffered(row)
        if unit.data is None or (unit.tags.source and not unit.assembled):
            raise exceptions.CannotServe(
                volume=row.id, node=self._node, reason='its devices cannot '
                'be put together; see the log of cinder-volume there')
        if found.how is attach_policy.How.ISCSI:
            return exports.export(self._host, unit, row.id,
                                  connector['initiator'])
        if found.how is attach_policy.How.FRONT:
            name = names.front(host, unit.lv)
            if name not in unit.devices:
                live_migration.keep_here(self._world, row)
            consumers.consume(self._host, unit, name)
            return exports.local(name.path)
        name = names.local_io(unit.lv)
        consumers.consume(self._host, unit, name)
        return exports.local(self._host.dm.link(str(name)))

    def _relocate(self, row: rows.Row, peer: NodeName,
                  purpose: rows.Purpose) -> dict[str, typing.Any]:
        try:
            if row.id in self._copying:
                raise exceptions.CannotRelocate(
                    volume=row.id, node=self._node, peer=peer,
                    reason='an image is being copied; try again later')
            if isinstance(purpose, rows.LiveMigration):
                path = live_migration.offer(self._world, row, peer, purpose)
            else:
                path = coordinator.relocate(self._world, row, peer, purpose)
        except exceptions.DMCloneException as error:
            self._tell_user(row, error)
            raise
        finally:
            self._loop.nominate(row.lv)
        return exports.local(path)

    def _tell_user(self, row: rows.Row,
                   error: exceptions.DMCloneException) -> None:
        """Leave a message with ``openstack volume message list``.

        Cinder shows only its own fixed texts there; the reason is in the
        answer to the request.
        """
        LOG.error('Attaching volume %(volume)s elsewhere failed: %(error)s',
                  {'volume': row.id, 'error': error.msg})
        context = cinder_context.RequestContext(
            project_id=row.project, is_admin=True)
        message_api.API().create(
            context, message_field.Action.ATTACH_VOLUME,
            resource_uuid=row.id, detail=message_field.Detail.ATTACH_ERROR)

    def disconnect(self, volume_id: VolumeId,
                   connector: dict[str, typing.Any] | None,
                   force: bool, proxied: bool = False) -> bool:
        """End a connection; every connection if there is no connector.

        :returns: whether others still use it
        :raises DeviceBusy: if a server has its device open
        """
        owner = self._owner(volume_id)
        if owner == self._node:
            with self._locked(volume_id):
                row = self._row(volume_id)
                owner = row.node
                if owner == self._node:
                    # Cinder deletes the attachment after this. Who looks
                    # before that finds its front missing, and makes it.
                    later = schedule.SOONEST
                    try:
                        # What needs the operator can still be detached.
                        _, known = self._loop.settle(row, later)
                        return self._disconnect_here(volume_id, known,
                                                     connector)
                    finally:
                        self._loop.nominate(row.lv, later)
        if proxied:
            raise exceptions.NotHome(volume=volume_id, owner=owner,
                                     node=self._node)
        return self._world.peers.disconnect(owner, volume_id, connector,
                                            force)

    def _disconnect_here(self, volume_id: VolumeId, known: observed.Facts,
                         connector: dict[str, typing.Any] | None) -> bool:
        row, unit, world = known.row, known.unit, self._world
        if row is None:
            raise self._unknown(volume_id)
        host = world.settings.host
        if row.offer:
            row, moved = self._end_offer(row, unit, connector)
            if moved:
                return True
        shared = False
        if connector is None or connector.get('host') != host:
            initiator = (connector or {}).get('initiator')
            if connector is None or initiator:
                shared = exports.unexport(world.host, unit, initiator)
        if connector is None or connector.get('host') == host:
            here = [a for a in row.attachments
                    if a.connected and a.host == host]
            if connector is not None and len(here) > 1:
                return True
            for front in unit.of_kind(names.Kind.FRONT):
                world.host.dm.remove(str(front))
            if not here:
                world.host.dm.remove(str(names.local_io(unit.lv)))
        return shared

    def _end_offer(self, row: rows.Row, unit: state.Unit,
                   connector: dict[str, typing.Any] | None
                   ) -> tuple[rows.Row, bool]:
        """What the end of an attachment means for a live migration.

        Nova deletes the attachment of the node that the server is not on:
        here after a success, there after a failure. Errors it only logs, so
        neither is taken at its word: a server that has its device open here
        has not moved.

        :returns: the row, and whether there is nothing more to do
        :raises DeviceBusy: if the server is here
        """
        copy, host = row.offer, self._world.settings.host
        assert copy is not None
        attachment, there = row.migration, copy.node.partition('@')[0]
        asking = (connector or {}).get('host')
        if asking == there and len(row.connected_at(there)) > 1:
            # One that Nova asked for and got no answer; it asked again.
            return row, True
        moved = (asking == host and attachment is not None
                 and attachment.attached)
        fronts = [front for front in unit.of_kind(names.Kind.FRONT)
                  if unit.is_open(front)]
        if fronts and (connector is None or asking == host):
            raise exceptions.ServerHere(volume=row.id, node=self._node,
                                        device=fronts[0], peer=copy.node)
        try:
            if moved:
                pool = self._world.peers.identity(copy.node).pool
                live_migration.hand_over(self._world, row, copy, pool)
                self._world.peers.nudge(copy.node, row.id)
                return row, True
            row = coordinator.withdraw(self._world, row)
            return row, asking == there
        finally:
            self._loop.nominate(row.lv)

    def migrate(self, volume_id: VolumeId, host: str) -> bool:
        """Move a volume nobody is attached to.

        :param host: ``host@backend#pool``
        :returns: False if ``host`` is no peer; nothing was done then
        """
        peer = NodeName(host.partition('#')[0])
        if (peer.partition('@')[2] != self._world.settings.backend
                or peer == self._node or not self._world.peers.is_up(peer)):
            return False
        with self._home(volume_id) as known:
            assert known.row is not None
            try:
                coordinator.relocate(self._world, known.row, peer,
                                     rows.Migrate())
            finally:
                self._loop.nominate(known.unit.lv)
        return True

    # -- helpers ------------------------------------------------------------

    @contextlib.contextmanager
    def _home(self, volume_id: VolumeId) -> typing.Iterator[observed.Facts]:
        """Hold the lock of a volume of this node, settled."""
        with self._locked(volume_id):
            row = self._row(volume_id)
            self._require_home(row)
            known = self._settled(row)
            assert known.row is not None
            self._require_unoffered(known.row)
            yield known

    def _settled(self, row: rows.Row) -> observed.Facts:
        decision, known = self._loop.settle(row)
        if decision.step is Verdict.REPORT or decision.ask:
            silent = f' ({decision.ask.node} does not answer)' if (
                decision.ask) else ''
            raise exceptions.CannotServe(volume=row.id, node=self._node,
                                         reason=decision.why + silent)
        return known

    def _owner(self, volume_id: VolumeId) -> NodeName:
        return self._row(volume_id).node

    def _require_unoffered(self, row: rows.Row) -> None:
        if row.offer:
            raise exceptions.CannotServe(
                volume=row.id, node=self._node, reason='its server is being '
                f'live-migrated to {row.offer.node}; try again afterwards')
