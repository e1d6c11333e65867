# SPDX-License-Identifier: Apache-2.0
"""What must hold at every step, and what must be left in the end."""

from __future__ import annotations

from cinder_dmclone.database import rows
from cinder_dmclone.host.dm import table
from cinder_dmclone.location import Location
from cinder_dmclone.location import NodeName
from cinder_dmclone import names
from cinder_dmclone.stack import lv_tags
from tests.simulation import cloud as cloud_module
from tests.simulation import leads
from tests.simulation import outside
from tests.simulation import pools
from tests.simulation import recoveries
from tests.simulation import truth as truth_module
from tests.unit.fake import mapped
from tests.unit.fake import ports

Violation = truth_module.Violation

# Ports whose changes move data or what leads to it.
_STORAGE = ('rows', 'group', 'meta_group', 'dm')

# Seconds for which a node that only lends may wait for its own lender: it is
# told at once, but somebody may hold the lock.
WEDGED_SECONDS = 150.0


# For so long at most a node's answer is relied on: others make LVs there.
ASKED_SECONDS = 60.0


class _Room:
    """The room that nodes have, and had a moment ago."""

    def __init__(self, cloud: cloud_module.Cloud) -> None:
        self._cloud = cloud
        # Since when it was how much, the latest last.
        self._had: dict[str, list[tuple[float, int]]] = {
            name: [(0.0, pools.free(node))]
            for name, node in cloud.nodes.items()}

    def note(self, name: str) -> None:
        self._had[name].append((self._cloud.clock.monotonic(),
                                pools.free(self._cloud.nodes[NodeName(name)])))

    def lately(self, name: str) -> int:
        """The most bytes that were free since somebody may have asked."""
        self.note(name)
        had, since = self._had[name], (
            self._cloud.clock.monotonic() - ASKED_SECONDS)
        while len(had) > 1 and had[1][0] < since:
            del had[0]
        return max(free for _, free in had)


class Watch:
    """Looks at everything after each change."""

    def __init__(self, cloud: cloud_module.Cloud,
                 truth: truth_module.Truth, strict: bool = False) -> None:
        """
        :param strict: whether nobody repeats a request that was carried out:
            it would end what he was given since
        """
        self.cloud = cloud
        self.truth = truth
        self.strict = strict
        cloud.changed = self.changed
        cloud.power_cut = self.power_cut
        cloud.activated = self.activated
        cloud.tables.changed = self.row_changed
        self._generation = self._highest = 1
        self._node = cloud.row(truth.volume).node
        self._owner = cloud.row(truth.volume).owner
        self._offer: Location | None = None
        # Whether it is of a revert.
        self._reverts = False
        self._migrates = False
        self._disturbed = 0.0
        self._admitted: set[outside.Served] = set()
        self._room = _Room(cloud)

    def changed(self, call: ports.Call) -> None:
        if self.cloud.complaints:
            raise Violation('kernel', self.cloud.complaints[0])
        self._check_targets()
        self._check_clients(call)
        for node in self.cloud.nodes.values():
            pools.check(node)
        if call.port == 'group':
            self._room.note(call.node)
        if call.port in _STORAGE:
            self.check()

    def row_changed(self) -> None:
        row = self.cloud.row(self.truth.volume)
        if self.truth.exchanges:
            # It is another LV, with another record, of a copy by Cinder.
            self.truth.exchanges = False
            self._generation = self._highest = row.generation
            self._node, self._owner = row.node, row.owner
        if self.truth.exchanged:
            return
        self._check_shared(row)
        if row.offer and row.offer != self._offer:
            # A cut that comes late may be made meanwhile.
            task = self.cloud.scheduler.current()
            self._reverts = task is not None and 'revert' in task.name
        if (row.status == 'reverting' and row.generation > self._generation
                and self.truth.revert and self._reverts):
            self.truth.revert.commit()
        if row.owner == self.cloud.tables.real:
            # A commit that was lost with the database was made again.
            self.cloud.tables.real = None
        if row.generation < self._generation and not self.cloud.tables.real:
            raise Violation('I4 generation', f'{row}')
        if row.offer and row.offer != self._offer and (
                not self.cloud.tables.real):
            self._check_room(row)
        self._offer = row.offer
        if row.generation != self._generation:
            # Who was the home until now has just begun only to lend.
            self._disturbed = self.cloud.clock.monotonic()
        if row.generation > self._generation and row.node != self._node and (
                not self._migrates and not row.attachments
                and row.generation > self._highest
                and self._owner not in self.truth.lost):
            raise Violation('I4 purpose', f'it moved for nobody: {row}')
        if row.owner != self._owner and row.generation > self._highest and (
                not self.cloud.tables.real):
            recoveries.moved(self.truth, self._owner, row)
        # A commit ends it.
        self._migrates = row.migration_status == 'migrating'
        self._generation, self._node = row.generation, row.node
        self._owner = row.owner
        self._highest = max(self._highest, row.generation)

    def _check_shared(self, row: rows.Row) -> None:
        """What several servers have goes nowhere."""
        servers = {found.instance for found in row.attachments
                   if found.connected}
        # An offer that comes late is withdrawn.
        offered = row.offer if row.offer != self._offer and (
            not self.cloud.commits_late) else None
        if len(servers) > 1 and not self.cloud.tables.real and (
                row.node != self._node and self._owner not in self.truth.lost
                or offered and offered.node != row.node):
            raise Violation('I14 shared', f'{servers} have it: {row}')

    def _check_room(self, row: rows.Row) -> None:
        assert row.offer
        lv = self.cloud.nodes[row.node].group.volumes.get(
            names.data_lv(row.lv))
        if lv and lv.pool and row.offer.node == row.node:
            # In a pool a cut may copy nothing.
            return
        free = self._room.lately(row.offer.node)
        if lv and free < lv.size:
            raise Violation('I4 room', f'{row.offer.node} has {free} bytes')

    def _check_targets(self) -> None:
        """A command that waits in a target keeps others from logging in.

        So only the node with the server may let I/O wait for a path.
        """
        cloud = self.cloud
        now = cloud.clock.monotonic()
        if cloud.tables.silent or cloud.tables.real or not all(
                node.process.alive and node.process.serving
                for node in cloud.nodes.values()):
            self._disturbed = now
            return
        for node in cloud.nodes.values():
            for text, found in node.mapper.mapped.items():
                target = found.target
                name = names.DeviceName.parse(text)
                if not (isinstance(target, table.Multipath) and target.queue
                        and found.path_failed and name
                        and self._lends(node, name.lv)):
                    continue
                since = max(node.mapper.failed_at.get(text, now),
                            self._disturbed)
                if name.kind is names.Kind.SOURCE and (
                        name.lv != self.truth.owner.lv
                        and now - since > WEDGED_SECONDS):
                    raise Violation('I6 wedged', f'{text} on {node.name} '
                                    'lends and waits for its own lender')

    def _check_clients(self, call: ports.Call) -> None:
        """Who is served while others come and go is never cut off."""
        admitted = {client for client in self.cloud.clients
                    if client.admitted}
        lost = {client for client in self._admitted - admitted
                if client in self.cloud.clients and client.alive}
        self._admitted = admitted
        if lost and call.port == 'targets' and self.strict and (
                not self.truth.meddled):
            raise Violation('I6 cut off', f'{call}: {lost.pop().initiator}')

    def _lends(self, node: cloud_module.Node, lv: str) -> bool:
        return any(lv in export.device and self.cloud.logged_in(node, iqn)
                   for iqn, export in node.targets.exports.items())

    def activated(self, node: cloud_module.Node) -> None:
        """Without a control plane only the volume itself gets a front."""
        row = self.cloud.row(self.truth.volume)
        owners = [truth.owner for truth in self.truth.all]
        for text in node.mapper.mapped:
            name = names.DeviceName.parse(text)
            if name and name.kind is names.Kind.FRONT and not row.deleted and (
                    leads.to(node, text) not in owners):
                raise Violation('I2 boot', f'{text} on {node.name}, '
                                f'{self.truth.owner} is the volume')

    def power_cut(self, node: cloud_module.Node) -> None:
        for truth in self.truth.all:
            truth.power_cut(node.name)

    def check(self) -> None:
        for truth in self.truth.all:
            truth.check_copies(durable=False)
            truth.check_copies(durable=True)
        for taken in self.truth.snapshots:
            taken.check()
        self._check_writers()

    def _check_writers(self) -> None:
        frozen = {taken.at for taken in self.truth.snapshots if taken.content}
        for node in self.cloud.nodes.values():
            for text, found in node.mapper.mapped.items():
                name = names.DeviceName.parse(text)
                if name and name.kind in names.WRITERS and (
                        leads.to(node, text) in frozen and _writable(found)):
                    raise Violation('I12 frozen', f'{text} on {node.name} '
                                    'leads to what is a snapshot')
                used = found.openers or (
                    name and name.kind is names.Kind.SERVE
                    and self._lends(node, name.lv))
                if not used or not _writable(found):
                    continue
                if name and name.kind in names.WRITERS and (
                        not self._may_write(leads.to(node, text))):
                    raise Violation(
                        'I2 writer', f'{text} on {node.name} is open and '
                        'leads to what is not the volume '
                        f'({self.truth.owner} is)')

    def _may_write(self, where: Location) -> bool:
        return where == self.truth.target or leads.is_volume(self.truth,
                                                             where)


def _writable(found: mapped.Mapped) -> bool:
    return not any(found.table.has(kind)
                   for kind in (table.Gate, table.Error))


class Rest:
    """What a volume that nothing works on looks like."""

    def __init__(self, cloud: cloud_module.Cloud,
                 truth: truth_module.Truth) -> None:
        self.cloud = cloud
        self.truth = truth

    def check(self) -> None:
        lvs: dict[str, set[str]] = {}
        for truth in self.truth.all:
            row = self.cloud.row(truth.volume)
            if not row.deleted and not truth.unborn:
                self._check_volume(row)
                lvs.setdefault(row.node, set()).add(names.data_lv(row.lv))
        for taken in self.truth.snapshots:
            if taken.at:
                lvs.setdefault(taken.at.node, set()).add(
                    names.data_lv(taken.at.lv))
                self._check_marks(taken.at)
                self._equal(f'what {taken.id} moves to', None,
                            taken.tables.snapshot_row(taken.id).offer)
        for node in self.cloud.nodes.values():
            self._check_node(node, lvs.get(node.name, set()))

    def _check_volume(self, row: rows.Row) -> None:
        self._equal('the row', (None, None), (row.source, row.offer))
        # Nobody could use it.
        self._equal('whether it migrates', False,
                    row.migration_status == 'migrating')
        found = self._tags(row)
        own = lv_tags.OwnTag(row.generation, row.id)
        self._equal('the tags', lv_tags.Tags(
            own=own, front=found.front, snaps=found.snaps), found)
        self._check_marks(row.owner)

    def _check_marks(self, at: Location) -> None:
        """Snapshots that are wanted have a mark, and no others."""
        wanted = {taken.id for taken in self.truth.snapshots
                  if taken.at == at}
        tags = self._tags_at(at)
        self._equal(f'snapshots of {at}', wanted,
                    {tag.snapshot for tag in tags.snaps})
        self._equal(f'loans of {at}', (), tags.lent)

    def _tags(self, row: rows.Row) -> lv_tags.Tags:
        return self._tags_at(row.owner)

    def _tags_at(self, at: Location) -> lv_tags.Tags:
        return lv_tags.Tags.parse(self.cloud.nodes[at.node].group.volumes[
            names.data_lv(at.lv)].tags)

    def _check_node(self, node: cloud_module.Node, lvs: set[str]) -> None:
        row = self.cloud.row(self.truth.volume)
        here = node.name
        self._equal(f'LVs on {here}', lvs | self.truth.operators(node),
                    set(node.group.volumes))
        if node.meta_group is not node.group:
            self._equal(f'metadata on {here}', set(),
                        set(node.meta_group.volumes))
        front = self._tags(row).front if not row.deleted else None
        known_as = front.lv if front else row.lv
        fronts = {str(names.front(node.host, known_as))
                  for found in row.attachments
                  if not row.deleted and found.connected
                  and found.host == node.host}
        # What a service that was killed worked with goes with the detach.
        idle = {str(names.local_io(known_as))} if fronts else set()
        self._equal(f'devices on {here}', fronts,
                    set(node.mapper.mapped) - idle)
        for what, found in (('exports', node.targets.exports),
                            ('sessions', node.initiator.sessions_),
                            ('node records', node.initiator.records_)):
            self._equal(f'{what} on {here}', set(), set(found))

    @staticmethod
    def _equal(what: str, wanted: object, found: object) -> None:
        if wanted != found:
            raise Violation('I5 left', f'{what}: {found} instead of {wanted}')
