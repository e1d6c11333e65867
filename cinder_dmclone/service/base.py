# SPDX-License-Identifier: Apache-2.0
"""What entry points begin with: lock, fresh row, home, what is open settled.

Every entry reads a fresh row under the volume's lock. If this node does not
own the volume, it refuses, or has the owner answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import typing

from cinder_dmclone.database import rows
from cinder_dmclone import deadlines
from cinder_dmclone import exceptions
from cinder_dmclone.location import GroupUuid
from cinder_dmclone.location import NodeName
from cinder_dmclone.location import VolumeId
from cinder_dmclone.peers import messages
from cinder_dmclone.peers.messages import Answer
from cinder_dmclone.ports import Host
from cinder_dmclone.reconcile.decision import Verdict
from cinder_dmclone.reconcile import observed
from cinder_dmclone.reconcile import reconciler
from cinder_dmclone.reconcile import schedule
from cinder_dmclone.stack.state import Stack
from cinder_dmclone.world import World


@dataclasses.dataclass(frozen=True)
class Service:
    """One node of the backend at work: all that entry points share.

    :ivar copying: volumes that this process copies to; their devices are not
        open all the time
    :ivar imaged: when, by the clock, it has copied an image to a volume
    """

    world: World
    loop: reconciler.Reconciler
    copying: set[VolumeId] = dataclasses.field(default_factory=set)
    imaged: dict[VolumeId, float] = dataclasses.field(default_factory=dict)

    @property
    def host(self) -> Host:
        """The devices of this node."""
        return self.world.host

    @property
    def node(self) -> NodeName:
        """``host@backend`` of this node."""
        return self.world.settings.node

    def locked(self, volume_id: VolumeId,
               lock: messages.Lock = messages.Lock.CALL
               ) -> typing.ContextManager[None]:
        """Hold a volume's lock.

        :raises VolumeLocked: if it is still taken after the time
        """
        seconds = (deadlines.LOCK_SECONDS if lock is messages.Lock.SHORT
                   else self.world.settings.budget)
        return self.world.locks.volume(volume_id, seconds)

    def row(self, volume_id: VolumeId) -> rows.Row:
        """A volume's row, as it is now.

        :raises CannotServe: if there is none
        """
        row = self.world.rows.get(volume_id)
        if row is None or row.deleted:
            raise self.unknown(volume_id)
        return row

    def unknown(self, volume_id: VolumeId) -> exceptions.CannotServe:
        """What to answer about a volume that has no row, or none any more."""
        return exceptions.CannotServe(
            volume=volume_id, node=self.node, asked='found',
            reason='the database has no such volume')

    @property
    def wrong_database(self) -> str:
        """Why the database may be the wrong one; empty if it knows this node.

        An empty one knows nothing of any LV, nor of who needs it.
        """
        if self.world.peers.is_up(self.node):
            return ''
        return ('the database does not know that this node works: it may be '
                'the wrong one')

    def require_group(self, group: GroupUuid, what: str) -> None:
        """See that a peer means this node, not another of its name.

        :param what: what the peer wants, as "to prepare a copy"
        :raises PeerRefused: if the node has other disks
        """
        mine = self.host.group.report().uuid
        if group != mine:
            raise exceptions.PeerRefused(
                node=self.node, what=what,
                reason=f'its volume group is {mine}, not {group}; is there '
                'another node of this name?')

    def require_home(self, row: rows.Row) -> None:
        """
        :raises NotHome: if another node owns the volume
        """
        if row.node != self.node:
            raise exceptions.NotHome(volume=row.id, owner=row.node,
                                     node=self.node)

    def require_being_made(self, row: rows.Row) -> None:
        """
        :raises NotBeingMade: if a request to make a volume comes late, and it
            is made by now, or elsewhere
        """
        if row.status not in rows.BEING_MADE or row.node != self.node:
            raise exceptions.NotBeingMade(
                volume=row.id, node=self.node, status=row.status,
                owner=row.node or 'no node')

    def require_unoffered(self, row: rows.Row, asked: str) -> None:
        """
        :param asked: see ``settled``
        :raises LiveMigrated: if the volume's server is being live-migrated
        """
        if row.offer:
            raise exceptions.LiveMigrated(
                volume=row.id, node=self.node, asked=asked,
                reason='its server is being live-migrated to '
                f'{row.offer.node}; try again afterwards')

    def settled(self, row: rows.Row, asked: str) -> observed.Facts:
        """What is known of a volume of this node, with nothing open on it.

        The caller holds its lock.

        :param asked: what is to become of the volume, as "extended": a
            refusal says that it cannot be
        :raises CannotServe: if something needs a look, or another node that
            does not say what it has
        """
        decision, known = self.loop.settle(row)
        if decision.step in (Verdict.REPORT, Verdict.RETRY):
            raise exceptions.CannotServe(
                volume=row.id, node=self.node, asked=asked,
                reason=decision.why)
        return known

    def at_rest(self, row: rows.Row, asked: str) -> tuple[rows.Row, Stack]:
        """A volume of this node as it is now, settled and not offered.

        The caller holds its lock.

        :param asked: see ``settled``
        :raises CannotServe: see ``settled``
        :raises LiveMigrated: see ``require_unoffered``
        """
        known = self.settled(row, asked)
        assert known.row is not None
        self.require_unoffered(known.row, asked)
        return known.row, known.stack

    @contextlib.contextmanager
    def home(self, volume_id: VolumeId,
             asked: str) -> typing.Iterator[tuple[rows.Row, Stack]]:
        """Hold the lock of a volume of this node that is at rest.

        For what Cinder asks the volume's own node.

        :param asked: see ``settled``
        :raises NotHome, CannotServe: see ``require_home``, ``at_rest``
        """
        with self.locked(volume_id):
            row = self.row(volume_id)
            self.require_home(row)
            yield self.at_rest(row, asked)

    def at_home(self, request: messages.Request[Answer],
                here: typing.Callable[..., Answer],
                passed_on: bool = False) -> Answer:
        """Have the volume's home answer, be it this node or another.

        Only the home holds the volume's lock meanwhile. Who has waited for
        it may find that the volume has moved.

        :param here: answers on this node; given this, the row and the request
        :param passed_on: another node has asked this one: it asks no third
        :raises NotHome: if that would have to be asked
        """
        clock = self.world.clock
        began = clock.monotonic()
        row = self.row(request.volume)
        if row.node == self.node:
            with self.locked(request.volume):
                row = self.row(request.volume)
                if row.node == self.node:
                    return here(self, row, request)
        if passed_on:
            self.require_home(row)
        return self.world.peers.ask(row.node, request,
                                    clock.monotonic() - began)

    def after_migration(self, request: messages.Request[Answer],
                        here: typing.Callable[..., Answer],
                        passed_on: bool = False) -> Answer:
        """As ``at_home``, for what nobody waits for that has begun it.

        A live migration ends first: it needs the lock, which is not held
        meanwhile, and may have another home when it has ended.

        :raises LiveMigrated: if that takes too long
        """
        clock = self.world.clock
        deadline = clock.monotonic() + (
            self.world.settings.budget / 2 if passed_on
            else deadlines.MIGRATION_SECONDS)
        while True:
            try:
                return self.at_home(request, here, passed_on)
            except exceptions.LiveMigrated:
                if clock.monotonic() >= deadline:
                    raise
            clock.sleep(schedule.SOONEST)
