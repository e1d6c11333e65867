# SPDX-License-Identifier: Apache-2.0
"""What must hold at every step, and what must be left in the end."""

from __future__ import annotations

from cinder_dmclone.dm import table
from cinder_dmclone import names
from cinder_dmclone import records
from tests.simulation import cloud as cloud_module
from tests.simulation import truth as truth_module
from tests.unit.fake import mapped
from tests.unit.fake import ports

Violation = truth_module.Violation

# Ports whose changes move data or what leads to it.
_STORAGE = ('rows', 'group', 'meta_group', 'dm')


class Watch:
    """Looks at everything after each change."""

    def __init__(self, cloud: cloud_module.Cloud,
                 truth: truth_module.Truth) -> None:
        self.cloud = cloud
        self.truth = truth
        cloud.changed = self.changed
        cloud.power_cut = self.power_cut
        cloud.activated = self.activated
        cloud.tables.changed = self.row_changed
        self._generation = 1

    def changed(self, call: ports.Call) -> None:
        if self.cloud.complaints:
            raise Violation('kernel', self.cloud.complaints[0])
        if call.port in _STORAGE:
            self.check()

    def row_changed(self) -> None:
        row = self.cloud.row(self.truth.volume)
        if row.generation < self._generation:
            raise Violation('I4 generation', f'{row}')
        if row.generation > self._generation and (
                row.migration_status != 'migrating' and not row.attachments):
            raise Violation('I4 purpose', f'it moved for nobody: {row}')
        self._generation = row.generation

    def activated(self, node: cloud_module.Node) -> None:
        """Without a control plane only the volume itself gets a front."""
        row = self.cloud.row(self.truth.volume)
        for text in node.mapper.mapped:
            name = names.DeviceName.parse(text)
            if name and name.kind is names.Kind.FRONT and not row.deleted and (
                    records.Location(node.name, name.lv) != row.owner):
                raise Violation('I2 boot', f'{text} on {node.name}, '
                                f'{row.owner} is the volume')

    def power_cut(self, node: cloud_module.Node) -> None:
        self.truth.power_cut(node.name)

    def check(self) -> None:
        self.truth.check_copies(durable=False)
        self.truth.check_copies(durable=True)
        self._check_writers()

    def _check_writers(self) -> None:
        row = self.cloud.row(self.truth.volume)
        for node in self.cloud.nodes.values():
            for text, found in node.mapper.mapped.items():
                if not found.openers or not _writable(found):
                    continue
                name = names.DeviceName.parse(text)
                here = name and records.Location(node.name, name.lv)
                if name and name.kind in names.WRITERS and here != row.owner:
                    raise Violation(
                        'I2 writer', f'{text} on {node.name} is open and '
                        f'leads to what is not the volume ({row.owner} is)')


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
        row = self.cloud.row(self.truth.volume)
        if row.deleted:
            lvs: dict[str, set[str]] = {}
        else:
            self._equal('the row', (None, None), (row.source, row.offer))
            lvs = {row.node: {names.data_lv(row.lv)}}
            tags = self.cloud.nodes[row.node].group.volumes[
                names.data_lv(row.lv)].tags
            self._equal('the tags', {records.print_tag(records.Own(
                row.generation, row.id))}, set(tags))
        for node in self.cloud.nodes.values():
            self._check_node(node, lvs.get(node.name, set()))

    def _check_node(self, node: cloud_module.Node, lvs: set[str]) -> None:
        row = self.cloud.row(self.truth.volume)
        here = node.name
        self._equal(f'LVs on {here}', lvs, set(node.group.volumes))
        if node.meta_group is not node.group:
            self._equal(f'metadata on {here}', set(),
                        set(node.meta_group.volumes))
        fronts = {str(names.front(node.host, row.lv))
                  for found in row.attachments
                  if lvs and found.connected and found.host == node.host}
        # What a service that was killed worked with goes with the detach.
        idle = {str(names.local_io(row.lv))} if fronts else set()
        self._equal(f'devices on {here}', fronts,
                    set(node.mapper.mapped) - idle)
        for what, found in (('exports', node.exporter.exports),
                            ('sessions', node.importer.sessions_),
                            ('node records', node.importer.records_)):
            self._equal(f'{what} on {here}', set(), set(found))

    @staticmethod
    def _equal(what: str, wanted: object, found: object) -> None:
        if wanted != found:
            raise Violation('I5 left', f'{what}: {found} instead of {wanted}')
