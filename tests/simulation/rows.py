# SPDX-License-Identifier: Apache-2.0
"""Cinder's tables in memory, under the product's own row store.

What ``rows.RowStore`` would send to a database is evaluated here: its
conditions are SQLAlchemy expressions, and only the few kinds of them that it
uses are understood. Anything else is an error, never a guess.
"""

from __future__ import annotations

import types
import typing

from oslo_db import exception as db_exc
import sqlalchemy as sa
from sqlalchemy.sql import operators

from cinder_dmclone.database.attachment import read_attachment
from cinder_dmclone.database import causal_reads
from cinder_dmclone.database import changes
from cinder_dmclone.database import conditions
from cinder_dmclone.database import rows
from cinder_dmclone.database import snapshots
from cinder_dmclone.database import volumes
from cinder_dmclone import exceptions
from cinder_dmclone.location import Location
from cinder_dmclone.location import VolumeId
from cinder_dmclone.releases import models

Record = dict[str, typing.Any]
Bound = dict[typing.Any, Record]

_VOLUMES = models.Volume.__table__
_ATTACHMENTS = models.VolumeAttachment.__table__
_SNAPSHOTS = models.Snapshot.__table__

# How far a database server may lag behind the others.
LAG_SECONDS = 5.0


class Tables:
    """All rows there are."""

    def __init__(self) -> None:
        self.volumes: dict[str, Record] = {}
        self.attachments: dict[str, Record] = {}
        self.snapshots: dict[str, Record] = {}
        # The database does not answer.
        self.away = False
        # The services are connected to another database, an empty one.
        self.hidden = False
        # A transaction whose connection was lost has not ended: whoever
        # changes the row waits for it, whoever reads does not.
        self.locked = False
        # What a commit has changed last, as it was before.
        self.before_commit: Record = {}
        # Which LVs were snapshots then.
        self.pinned_then: dict[str, str | None] = {}
        # Where the volume is, if the database is an old one.
        self.real: Location | None = None
        # Called after every change of a volume's row.
        self.changed: typing.Callable[[], None] = lambda: None
        self._number = 0

    @property
    def silent(self) -> bool:
        return self.away or self.hidden

    def close(self) -> None:
        """Nothing to close."""

    def copy(self) -> Tables:
        """As they are now, to be read later."""
        copy = Tables()
        copy.volumes = {key: dict(row) for key, row in self.volumes.items()}
        copy.attachments = {key: dict(row)
                            for key, row in self.attachments.items()}
        copy.snapshots = {key: dict(row)
                          for key, row in self.snapshots.items()}
        return copy

    def service(self, node: str) -> None:
        """Services are known by their nodes."""

    def of(self, table: typing.Any) -> list[Record]:
        known = {_VOLUMES: self.volumes, _ATTACHMENTS: self.attachments,
                 _SNAPSHOTS: self.snapshots}
        return list(known[table].values())

    def change(self, *all_of: changes.Change) -> int:
        """Make all of these changes, or none."""
        found = [(change, [row for row in self.of(change.model.__table__)
                           if self._fits(change, row)])
                 for change in all_of]
        if self.hidden or not all(fitting for _, fitting in found):
            return 0
        for change, fitting in found:
            for row in fitting:
                if 'host' in change.values:
                    self.before_commit = {
                        name: row[name]
                        for name in ('host', '_name_id', 'provider_id')}
                    self.pinned_then = self.pinned()
                row.update(change.values)
        self.changed()
        return len(found[0][1])

    def pinned(self) -> dict[str, str | None]:
        return {key: row['provider_id']
                for key, row in self.snapshots.items()}

    def _fits(self, change: changes.Change, row: Record) -> bool:
        return not row['deleted'] and all(
            holds(condition, {change.model.__table__: row}, self)
            for condition in change.holds)

    def volume(self, volume_id: str, host: str, **values: typing.Any) -> None:
        self.volumes[volume_id] = {
            'id': volume_id, 'host': host, '_name_id': None, 'size': 1,
            'status': 'creating', 'migration_status': None,
            'provider_id': None, 'deleted': False, 'project_id': 'project',
            'group_id': None, 'consistencygroup_id': None,
            'multiattach': False, **values}

    def update(self, volume_id: str, **values: typing.Any) -> None:
        self.volumes[volume_id].update(values)
        self.changed()

    def destroy(self, volume_id: str) -> None:
        self.update(volume_id, deleted=True, status='deleted')

    def snapshot(self, volume_id: str, snapshot: str,
                 **values: typing.Any) -> None:
        self.snapshots[snapshot] = {
            'id': snapshot, 'volume_id': volume_id, 'status': 'creating',
            'deleted': False, 'provider_id': None,
            'volume_size': self.volumes[volume_id]['size'], **values}

    def snapshot_row(self, snapshot: str) -> snapshots.SnapshotRow:
        found = self.snapshots[snapshot]
        return snapshots.SnapshotRow(*(found[name] for name in (
            'id', 'volume_id', 'volume_size', 'status', 'deleted',
            'provider_id')))

    def attachment(self, volume_id: str, **values: typing.Any) -> str:
        self._number += 1
        name = f'attachment-{self._number}'
        self.attachments[name] = {
            'id': name, 'volume_id': volume_id, 'deleted': False,
            'attach_status': 'reserved', 'connector': None,
            # So Cinder writes it (``API.attachment_create``).
            'connection_info': '{}', **values}
        return name

    def update_attachment(self, attachment: str,
                          **values: typing.Any) -> None:
        self.attachments[attachment].update(values)

    def drop_attachment(self, attachment: str) -> None:
        self.attachments[attachment]['deleted'] = True

    def attachments_of(self, volume_id: str) -> list[Record]:
        return [found for found in self.attachments.values()
                if found['volume_id'] == volume_id and not found['deleted']]

    def row(self, volume_id: str) -> rows.Row:
        found = self.volumes[volume_id]
        return rows.Row(
            VolumeId(found['id']), found['host'], found['_name_id'],
            found['size'], found['status'], found['migration_status'],
            found['provider_id'], found['deleted'], found['project_id'],
            tuple(read_attachment(*(a[name] for name in (
                'id', 'attach_status', 'instance_uuid', 'connector',
                'connection_info')))
                for a in self.attachments_of(volume_id)),
            found['multiattach'])


class Session:
    """A connection to one server of a cluster, as ``cluster`` sees it."""

    dialect = types.SimpleNamespace(name='mysql')

    def __init__(self) -> None:
        self.info: dict[str, bool] = {}
        # Whether it answers only when it has caught up.
        self.waits = False

    def connection(self) -> Session:
        return self

    def exec_driver_sql(self, text: str) -> typing.Any:
        if text.startswith('SET SESSION wsrep_sync_wait'):
            self.waits = True
        return types.SimpleNamespace(first=lambda: ('wsrep_sync_wait', '0'))


class RowStore(volumes.RowStore):
    """The product's row store on these tables.

    ``transact`` is given the end of a transaction, which tells how many rows
    it has changed; it may carry it out later, or raise what a database whose
    answer is lost makes SQLAlchemy raise.
    """

    def __init__(self, tables: Tables, clock: typing.Any,
                 transact: typing.Callable[[typing.Callable[[], int]], int]
                 ) -> None:
        super().__init__(clock.monotonic, clock.sleep)
        self._tables = tables
        self._transact = transact
        self._session = Session()
        self._lagging: tuple[float, Tables] | None = None

    def _query(self, condition: sa.ColumnElement) -> list[rows.Row]:
        tables = self.read()
        return [tables.row(found['id']) for found in tables.of(_VOLUMES)
                if holds(condition, {_VOLUMES: found}, tables)]

    def unmade(self, volume_id: VolumeId, had: bool = False) -> bool:
        """Cinder's own part in the creation is not simulated."""
        return False

    def read(self) -> Tables:
        """What a transaction that begins now sees."""
        self._answer()
        causal_reads.see_all(self._session)
        if self._tables.hidden:
            return Tables()
        return self._tables if self._session.waits else self._replica()

    def change(self, *all_of: changes.Change) -> int:
        """Make all of these changes, or none."""
        self._answer()
        self._lagging = None
        return self._transact(lambda: self._tables.change(*all_of))

    def _replica(self) -> Tables:
        """What a database server has that has not caught up."""
        now = self._clock()
        if not self._lagging or now - self._lagging[0] > LAG_SECONDS:
            self._lagging = now, self._tables.copy()
        return self._lagging[1]

    def _answer(self) -> None:
        if self._tables.away:
            raise sa.exc.OperationalError('SELECT', None, Exception('away'))

    def _update(self, values: dict[str, typing.Any],
                expected: dict[str, typing.Any],
                filters: list[sa.ColumnElement],
                *also: changes.Change) -> int:
        wanted = (conditions.expects(getattr(models.Volume, name), value)
                  for name, value in expected.items())
        return self.change(changes.Change(
            models.Volume, (*filters, *wanted), values), *also)

    def _hold(self, volume_ids: typing.Sequence[VolumeId],
              needed: typing.Sequence[conditions.Condition],
              ) -> dict[VolumeId, typing.Sequence[bool]]:
        self._answer()
        return {found['id']: [holds(condition.holds, {_VOLUMES: found},
                                    self._tables) for condition in needed]
                for found in self._tables.of(_VOLUMES)
                if found['id'] in volume_ids and not self._tables.hidden}

    def _service(self, node: str, volume_id: str) -> typing.Any:
        if self._tables.away:
            raise exceptions.DatabaseAway(volume=volume_id, reason='away')
        return types.SimpleNamespace(uuid=node, availability_zone='nova')


class SnapshotStore(snapshots.SnapshotStore):
    """The product's, likewise."""

    def __init__(self, store: RowStore, clock: typing.Any) -> None:
        super().__init__(clock.monotonic)
        self._store = store

    def _query(self, condition: sa.ColumnElement
               ) -> list[snapshots.SnapshotRow]:
        tables = self._store.read()
        return [tables.snapshot_row(found['id'])
                for found in tables.of(_SNAPSHOTS)
                if holds(condition, {_SNAPSHOTS: found}, tables)]

    def _update(self, change: changes.Change) -> int:
        return self._store.change(change)


def holds(expression: typing.Any, bound: Bound, tables: Tables) -> bool:
    """Whether a condition is true for the rows that are bound."""
    return value(expression, bound, tables) is True


def value(expression: typing.Any, bound: Bound,
          tables: Tables) -> typing.Any:
    """What an expression is; None is NULL."""
    match expression.__visit_name__:
        case 'column':
            return bound[expression.table][expression.key]
        case 'bindparam':
            return expression.value
        case 'null':
            return None
        case 'true' | 'false':
            return expression.__visit_name__ == 'true'
        case 'grouping':
            return value(expression.element, bound, tables)
        case 'clauselist' | 'expression_clauselist':
            return _junction(expression, bound, tables)
        case 'binary':
            return _binary(expression, bound, tables)
        case 'function' if expression.name == 'coalesce':
            found = (value(part, bound, tables)
                     for part in expression.clauses)
            return next((one for one in found if one is not None), None)
        case 'unary' if expression.operator is operators.inv:
            return not value(expression.element, bound, tables)
        case 'unary' if expression.operator is operators.exists:
            return _exists(expression.element, bound, tables)
    raise NotImplementedError(f'{expression.__visit_name__}: {expression}')


def _junction(expression: typing.Any, bound: Bound,
              tables: Tables) -> bool:
    parts = (holds(part, bound, tables) for part in expression.clauses)
    if expression.operator is operators.or_:
        return any(parts)
    if expression.operator is operators.and_:
        return all(parts)
    raise NotImplementedError(f'{expression}')


def _binary(expression: typing.Any, bound: Bound,
            tables: Tables) -> bool | None:
    left = value(expression.left, bound, tables)
    operator = expression.operator
    if operator is operators.startswith_op:
        text = value(expression.right, bound, tables)
        escape = expression.modifiers['escape']
        return left is not None and left.startswith(
            text.replace(escape, ''))
    right = value(expression.right, bound, tables)
    if operator is operators.is_:
        return left is right
    if operator is operators.is_not:
        return left is not right
    if left is None or right is None:
        return None
    if operator is operators.in_op:
        return left in right
    if operator is operators.eq:
        return left == right
    if operator is operators.ne:
        return left != right
    raise NotImplementedError(f'{operator}: {expression}')


def _exists(query: typing.Any, bound: Bound, tables: Tables) -> bool:
    """A correlated EXISTS over one table that is not bound yet."""
    select = query.element if query.__visit_name__ != 'select' else query
    free = {found for found in _tables_in(select.whereclause)} - bound.keys()
    table, = free
    return any(holds(select.whereclause, {**bound, table: found}, tables)
               for found in tables.of(table))


def _tables_in(expression: typing.Any) -> set[typing.Any]:
    return {part.table for part in sa.sql.visitors.iterate(expression)
            if part.__visit_name__ == 'column'}


def lost_answer() -> Exception:
    """What SQLAlchemy raises when the connection breaks."""
    return sa.exc.OperationalError('UPDATE', None, Exception('gone away'))


def lock_timeout() -> Exception:
    """What oslo.db raises when another transaction keeps the row locked."""
    return db_exc.DBDeadlock(Exception('Lock wait timeout exceeded'))
