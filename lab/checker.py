# SPDX-License-Identifier: Apache-2.0
"""Invariant 5: nothing stays behind, nothing is suspended.

Compares what the nodes have with what the database justifies: for each
volume one LV, on its host, tagged as the volume at the row's generation; a
front where a connected attachment is, an export for each connected
initiator elsewhere; nothing else.
"""
from __future__ import annotations

import dataclasses
import json
import time
import typing
from collections.abc import Collection

from lab import inventory, look

if typing.TYPE_CHECKING:
    from lab.lab import Lab, LabNode

PREFIX = 'dmclone-'
UUID_PREFIX = 'CINDER-DMCLONE-'
FRONT_TAG = 'dmclone.1.front/'
# A read that a healthy device answers at once, in seconds.
READ_SECONDS = 20.0
# The longest pause between two looks of the reconciler is 60 s, and a slow
# machine needs some minutes to copy a volume.
LIMIT = 400.0


@dataclasses.dataclass(frozen=True)
class Row:
    """A volume that is not deleted, with its attachments' connectors."""

    id: str
    lv: str
    host: str
    size: int
    status: str
    provider_id: str
    connectors: tuple[dict[str, typing.Any], ...] = ()

    @property
    def node(self) -> str:
        return self.host.partition('@')[0]

    @property
    def generation(self) -> str:
        return self.provider_id.partition(';')[0]

    @property
    def fronts(self) -> set[str]:
        """Hosts of servers that have it connected."""
        return {c['host'] for c in self.connectors
                if c.get('host') == self.node}

    @property
    def initiators(self) -> set[str]:
        """Initiators it is served to over iSCSI."""
        return {c['initiator'].lower() for c in self.connectors
                if c.get('host') != self.node and c.get('initiator')}


class Checker:
    """Looks at a lab until it is clean or the limit is over.

    ``gib`` is what a GiB of Cinder's has there.
    """

    def __init__(self, lab: Lab, gib: int) -> None:
        self._lab = lab
        self._gib = gib
        self._found: dict[str, inventory.Inventory] = {}
        self.states = ''

    def check(self, limit: float = LIMIT,
              known: Collection[str] = ()) -> list[str]:
        """What should not be there, in words; nothing if all is well.

        Relocations and releases under way are waited for.

        :param limit: how long findings may take to disappear, in seconds
        :param known: findings that are not told again
        """
        deadline = time.monotonic() + limit
        while True:
            # Looking is work for the nodes: first what costs them nothing.
            rows, findings = self._rows()
            if not set(findings) - set(known):
                findings = self._compare(rows)
            if not set(findings) - set(known):
                findings = self._unreadable()
            if not set(findings) - set(known):
                return []
            if time.monotonic() > deadline:
                return [text for text in self.look() if text not in known]
            time.sleep(1)

    def look(self) -> list[str]:
        """All findings of one look."""
        rows, findings = self._rows()
        findings += self._compare(rows)
        return findings + self._unreadable()

    def _compare(self, rows: list[Row]) -> list[str]:
        self.states = '\n'.join(str(row) for row in rows) + '\n'
        findings = []
        self._found = {node.name: inventory.take(node)
                       for node in self._lab.nodes}
        for name, found in self._found.items():
            self.states += f'--- {name}\n{found.text}'
            findings += [f'{name}: {text}' for text
                         in compare(name, found, rows, self._gib)]
        return findings

    def _unreadable(self) -> list[str]:
        return [f'{node.name}: {text}' for node in self._lab.nodes
                for text in _unreadable(node, self._found[node.name])]

    def _rows(self) -> tuple[list[Row], list[str]]:
        attachments = self._lab.sql(
            'select volume_id, id, connector from volume_attachment '
            'where deleted = 0')
        found = self._lab.sql(
            "select id, ifnull(_name_id, id), ifnull(host, ''), size, "
            "status, ifnull(provider_id, '') from volumes where deleted = 0")
        rows = []
        for fields in found:
            connectors = [json.loads(text) for owner, _, text in attachments
                          if owner == fields[0] and text and text != '{}']
            rows.append(dataclasses.replace(
                Row(*fields), connectors=tuple(connectors)))
        known = {row.id for row in rows}
        findings = [f'database: attachment {name} of volume {volume}, which '
                    'is gone' for volume, name, _ in attachments
                    if volume not in known]
        for row in rows:
            findings += unsettled(row,
                                  {node.name for node in self._lab.nodes})
        # A volume that was never made anywhere.
        return [row for row in rows if row.provider_id], findings


def _unreadable(node: LabNode,
                found: inventory.Inventory) -> typing.Iterator[str]:
    """Which devices do not answer; ``dmsetup info`` does not tell."""
    for name, device in found.devices.items():
        if not name.startswith(PREFIX) or not device.table:
            continue
        try:
            result = node.run(
                ['dd', f'if=/dev/mapper/{name}', 'of=/dev/null', 'bs=4096',
                 'count=1', 'iflag=direct'], check=False,
                timeout=READ_SECONDS)
        except TimeoutError:
            yield f'device {name} does not answer a read'
        else:
            # It may have gone since it was listed.
            if result.code and 'No such file' not in result.stderr:
                yield f'device {name} fails a read: {result.stderr}'


def compare(node: str, found: inventory.Inventory, rows: list[Row],
            gib: int) -> list[str]:
    """What a node has and the rows do not justify, or the other way round.

    :param rows: of all volumes, on whatever node
    """
    mine = [row for row in rows if row.node == node]
    return [*_volumes(found, mine, gib), *_devices(found, mine),
            *_targets(found, mine), *_imports(found, rows, node)]


def unsettled(row: Row, nodes: set[str]) -> typing.Iterator[str]:
    """What says of itself that it is not at rest, in a row."""
    name = f'database: volume {row.id}'
    if ';from=' in row.provider_id:
        yield f'{name} still hydrates: {row.provider_id}'
    if ';offer=' in row.provider_id:
        yield f'{name} is still offered: {row.provider_id}'
    if row.provider_id and row.node not in nodes:
        yield f'{name} is on {row.host}'
    if row.status.endswith('ing') and row.status != 'attaching':
        yield f'{name} is {row.status}'


def _volumes(found: inventory.Inventory, rows: list[Row],
             gib: int) -> typing.Iterator[str]:
    wanted = {f'volume-{row.lv}': row for row in rows}
    for name in wanted.keys() - found.volumes.keys():
        yield f'LV {name} of volume {wanted[name].id} is missing'
    for name, volume in found.volumes.items():
        row = wanted.get(name)
        if row is None:
            yield f'LV {name} is not justified (tags {sorted(volume.tags)})'
            continue
        own = f'dmclone.1.own/{row.generation}/{row.id}'
        if {tag for tag in volume.tags
                if not tag.startswith(FRONT_TAG)} != {own}:
            yield f'LV {name} has tags {sorted(volume.tags)}, not {own}'
        if volume.size < row.size * gib:
            yield f'LV {name} has {volume.size} bytes, not {row.size} GiB'


def _known_as(found: inventory.Inventory, row: Row) -> str:
    """The LV whose names the devices have that a volume is written by."""
    volume = found.volumes.get(f'volume-{row.lv}')
    names = [tag.removeprefix(FRONT_TAG) for tag in volume.tags
             if tag.startswith(FRONT_TAG)] if volume else []
    return names[0] if names else row.lv


def _devices(found: inventory.Inventory,
             rows: list[Row]) -> typing.Iterator[str]:
    wanted = {look.front(host, _known_as(found, row))
              for row in rows for host in row.fronts}
    wanted |= {f'{PREFIX}serve-{_known_as(found, row)}'
               for row in rows if row.initiators}
    for name in sorted(wanted - found.devices.keys()):
        yield f'device {name} is missing'
    for name, device in found.devices.items():
        if device.suspended:
            yield f'device {name} is suspended'
        if device.pending:
            yield f'device {name} has a loaded table that is not live'
        ours = name.startswith(PREFIX) or device.uuid.startswith(UUID_PREFIX)
        if ours and name not in wanted:
            yield f'device {name} is not justified ({device.table})'
        if not ours and not device.uuid.startswith('LVM-'):
            yield f'device {name} is nobody\'s ({device.table})'
        if name in wanted and ' linear ' not in device.table:
            yield f'device {name} is not linear: {device.table}'
        if name in wanted and device.uuid != UUID_PREFIX + name[len(PREFIX):]:
            yield f'device {name} has the uuid {device.uuid!r}'
    for process in found.stuck:
        yield f'process that waits in the kernel: {process}'


def _targets(found: inventory.Inventory,
             rows: list[Row]) -> typing.Iterator[str]:
    served = {f'/dev/mapper/{PREFIX}serve-{_known_as(found, row)}': row
              for row in rows if row.initiators}
    justified: dict[str, Row] = {}
    for name, path in found.backstores.items():
        mark, _, prefix = name.partition('@')
        if path not in served:
            yield f'backstore {name} of {path} is not justified'
        else:
            justified[prefix + mark] = served.pop(path)
    for path in served:
        yield f'{path} is not exported'
    for iqn, initiators in found.targets.items():
        if iqn not in justified:
            yield f'target {iqn} is not justified'
        elif initiators != justified[iqn].initiators:
            yield (f'target {iqn} admits {sorted(initiators)}, not '
                   f'{sorted(justified[iqn].initiators)}')
    for iqn in justified.keys() - found.targets.keys():
        yield f'target {iqn} is missing'


def _imports(found: inventory.Inventory, rows: list[Row],
             node: str) -> typing.Iterator[str]:
    """Sessions of ours; those that a served initiator made are its own."""
    mine = f'iqn.2026-01.lab.dmclone:{node}'
    if any(mine in row.initiators for row in rows):
        return
    for iqn, state in found.sessions.items():
        yield f'session with {iqn} ({state})'
    for name, model in found.disks.items():
        yield f'imported disk {name} ({model.strip()})'
    for iqn, path in found.records.items():
        yield f'node record of {iqn} in {path}'
